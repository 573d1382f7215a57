package batch

import (
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Compressor compresses the records of batches with one codec. It keeps its encoder from batch to batch, has no
// goroutine and nothing to close, and is not safe for concurrent use.
type Compressor struct {
	codec Codec
	level int // 0: the codec's own
	gzip  *gzip.Writer
	lz4   *lz4.Writer
	zstd  *zstd.Encoder
	sink  sink // what the encoders of gzip and lz4 write to
}

// NewCompressor returns a compressor whose level is in Kafka's terms: 1 to 9 for gzip, 1 to 17 for lz4, -131072 to 22
// for zstd, and none for snappy. 0 is the codec's default. A level outside of the range is the nearest in it, and one
// that the encoder does not have is the nearest that it has. The encoder's memory is about 1 MiB for gzip, 0.2 MiB for
// lz4, 1 to 3 MiB for zstd, 36 MiB for zstd from level 10 on.
func NewCompressor(c Codec, level int) *Compressor { return &Compressor{codec: c, level: level} }

// Compress returns b, a sealed batch whose codec is none, with its records compressed: codec, length and checksum are
// those of the result, all else is kept. It is written into the memory of dst, contents ignored, which is grown as
// needed and must not overlap b. A batch without records is only copied, as one is with the codec none. Compressed
// records may take more space than plain ones. The error matches ErrCodec if b is compressed or the codec unknown,
// ErrTooLarge if the result has no room in a batch.
func (c *Compressor) Compress(dst []byte, b Batch) (Batch, error) {
	if have := b.Codec(); have != None {
		return nil, fmt.Errorf("%w: the records are compressed with %s already", ErrCodec, have)
	}
	records := b[HeaderSize:]
	out := grow(dst[:0], HeaderSize+len(records)/2)
	out = append(out, b[:HeaderSize]...)
	if len(records) == 0 || c.codec == None {
		return append(out, records...), nil
	}
	var err error
	switch c.codec {
	case Gzip:
		out, err = c.appendGzip(out, records)
	case Snappy:
		out = appendSnappy(out, records)
	case LZ4:
		out, err = c.appendLZ4(out, records)
	case Zstd:
		out, err = c.appendZstd(out, records)
	default:
		err = fmt.Errorf("%w: %s is unknown", ErrCodec, c.codec)
	}
	if err != nil {
		return nil, err
	}
	if len(out)-lengthEnd > maxLength {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(out))
	}
	packed := Batch(out)
	packed.setCodec(c.codec)
	packed.finish()
	return packed, nil
}

func (c *Compressor) appendGzip(dst, src []byte) (_ []byte, err error) {
	if c.gzip == nil {
		level := gzip.DefaultCompression
		if c.level != 0 {
			level = min(max(c.level, gzip.BestSpeed), gzip.BestCompression)
		}
		if c.gzip, err = gzip.NewWriterLevel(&c.sink, level); err != nil {
			return nil, err
		}
	}
	c.gzip.Reset(&c.sink)
	return c.sink.fill(dst, c.gzip, src)
}

// appendLZ4 writes the frame that Java's client writes: independent blocks of 64 KiB, and no checksum but the header's.
func (c *Compressor) appendLZ4(dst, src []byte) (_ []byte, err error) {
	if c.lz4 == nil {
		c.lz4 = lz4.NewWriter(&c.sink)
		if err = c.lz4.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.CompressionLevelOption(lz4Level(c.level))); err != nil {
			return nil, err
		}
	}
	c.lz4.Reset(&c.sink)
	return c.sink.fill(dst, c.lz4, src)
}

// lz4Level maps Kafka's levels. Its default, 9, is the fast encoder there too.
func lz4Level(level int) lz4.CompressionLevel {
	if level == 0 || level == 9 {
		return lz4.Fast
	}
	levels := [...]lz4.CompressionLevel{lz4.Level1, lz4.Level2, lz4.Level3, lz4.Level4, lz4.Level5, lz4.Level6, lz4.Level7, lz4.Level8, lz4.Level9}
	return levels[min(max(level, 1), len(levels))-1]
}

// zstdWindow is as large as the batches that a log takes by default. Encoders and decoders have memory for a window.
const zstdWindow = 1 << 20

func (c *Compressor) appendZstd(dst, src []byte) (_ []byte, err error) {
	if c.zstd == nil {
		level := c.level
		if level == 0 {
			level = 3
		}
		c.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
			zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(level)), zstd.WithWindowSize(zstdWindow), zstd.WithLowerEncoderMem(true))
		if err != nil {
			return nil, err
		}
	}
	return c.zstd.EncodeAll(src, dst), nil
}

// sink appends what is written to it.
type sink struct{ p []byte }

func (s *sink) Write(p []byte) (int, error) {
	s.p = append(s.p, p...)
	return len(p), nil
}

// fill appends to dst what w, which writes to s, makes of src.
func (s *sink) fill(dst []byte, w io.WriteCloser, src []byte) ([]byte, error) {
	s.p = dst
	defer func() { s.p = nil }()
	if _, err := w.Write(src); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return s.p, nil
}
