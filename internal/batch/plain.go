package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// maxRecords is the greatest limit of Plain: what a batch can hold, less what lets sums of sizes fit an int32.
const maxRecords = math.MaxInt32 - 1<<20

// Decompressor decompresses the records of batches. It keeps its decoders from batch to batch, has no goroutine and
// nothing to close, and is not safe for concurrent use. The zero value is ready.
type Decompressor struct {
	gzip *gzipDecoder
	zstd *zstd.Decoder
}

// Plain returns b with its records as they are without compression. A batch whose codec is none is returned as it is, and buf and limit mean nothing. Any other is decompressed into *buf, which is grown as needed and keeps the
// memory for the next call; *buf must not overlap b. What is returned aliases it: header and records, codec none, the
// length field right and the checksum that of the compressed batch, so that it can be read but does not pass Check.
//
// limit is the greatest size in bytes that the decompressed records may have. More is an error that matches
// ErrTooLarge, found before much more than limit has been allocated or produced, whatever the batch says of its size;
// beside it a decoder uses memory of its own, up to about 8 MiB. Bytes that do not decompress are an error that matches
// ErrCodec.
func (d *Decompressor) Plain(b Batch, buf *[]byte, limit int) (Batch, error) {
	codec := b.Codec()
	if codec == None {
		return b, nil
	}
	limit = min(max(limit, 0), maxRecords)
	packed := b[HeaderSize:]
	out := grow((*buf)[:0], HeaderSize+times(len(packed), 4, limit))
	out = append(out, b[:HeaderSize]...)
	var err error
	switch {
	case codec > Zstd:
		err = errors.New("unknown")
	case len(packed) == 0: // a batch without records
	case codec == Gzip:
		out, err = d.gunzip(out, packed, limit)
	case codec == Snappy:
		out, err = unsnappy(out, packed, limit)
	case codec == LZ4:
		out, err = unlz4(out, packed, limit)
	case codec == Zstd:
		out, err = d.unzstd(out, packed, limit)
	}
	*buf = out
	if err == errBeyond {
		return nil, fmt.Errorf("%w: %d bytes of %s give more than %d", ErrTooLarge, len(packed), codec, limit)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %v", ErrCodec, codec, err)
	}
	plain := Batch(out)
	plain.setCodec(None)
	binary.BigEndian.PutUint32(plain[posLength:], uint32(len(plain)-lengthEnd))
	return plain, nil
}

// errBeyond says that there is more to decompress than the limit allows.
var errBeyond = errors.New("beyond the limit")

// grow returns p with a capacity of at least size.
func grow(p []byte, size int) []byte {
	if cap(p) >= size {
		return p
	}
	grown := make([]byte, len(p), size)
	copy(grown, p)
	return grown
}

// times returns n times factor, or most if that is less.
func times(n, factor, most int) int {
	if n > most/factor {
		return most
	}
	return n * factor
}

type gzipDecoder struct {
	src bytes.Reader
	dec gzip.Reader
}

func (d *Decompressor) gunzip(dst, src []byte, limit int) ([]byte, error) {
	if d.gzip == nil {
		d.gzip = new(gzipDecoder)
	}
	g := d.gzip
	defer g.src.Reset(nil)
	g.src.Reset(src)
	if err := g.dec.Reset(&g.src); err != nil {
		return dst, err
	}
	return readAll(dst, &g.dec, limit)
}

// lz4Magic begins a frame. The library knows an older kind of frame too, which Kafka does not.
const lz4Magic = "\x04\x22\x4d\x18"

// unlz4 takes a new decoder for each batch. One that is used again would remember what it has decompressed, and a frame
// of dependent blocks could copy from that. Its buffers, which are the most of it, are used again.
func unlz4(dst, src []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(src, []byte(lz4Magic)) {
		return dst, errors.New("not a frame")
	}
	dec := lz4.NewReader(bytes.NewReader(src))
	defer dec.Reset(nil) // gives the buffers back
	return readAll(dst, dec, limit)
}

// newZstdDecoder returns a decoder that goes no further than the capacity of what it appends to. The window lies in
// there too, so it may be as large as it likes; the decoder's limit on memory would limit the window.
func newZstdDecoder() *zstd.Decoder {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(1<<31))
	if err != nil {
		panic(err) // the options are constant
	}
	return dec
}

// zstdBlock is the greatest size of a block, decompressed.
const zstdBlock = 128 << 10

// unzstd begins with the room that is there and what the frame says of its size, and if that is too little, again with
// more.
//
// The decoder does not always tell a lack of room from damage: it may be a lack of room if a whole block would not have
// had enough, and the next attempt has that. There is room for one block beyond the limit: where that is not enough, what
// has been produced is beyond the limit already.
func (d *Decompressor) unzstd(dst, src []byte, limit int) ([]byte, error) {
	if d.zstd == nil {
		d.zstd = newZstdDecoder()
	}
	at, most := len(dst), limit+zstdBlock
	size := cap(dst) - at
	var head zstd.Header
	if err := head.Decode(src); err == nil && head.HasFCS {
		if head.FrameContentSize > uint64(limit) {
			return dst, errBeyond
		}
		size = max(size, int(head.FrameContentSize))
	}
	for {
		size = min(size, most)
		dst = grow(dst, at+size)
		out, err := d.zstd.DecodeAll(src, dst[at:at:at+size])
		exceeded := errors.Is(err, zstd.ErrDecoderSizeExceeded)
		if err != nil && size < most && (exceeded || len(out)+zstdBlock > size) {
			size = max(times(size, 4, most), size+zstdBlock)
			continue
		}
		switch {
		case exceeded, len(out) > limit:
			return dst, errBeyond
		case err != nil:
			return dst, err
		}
		return append(dst, out...), nil
	}
}

// readAll appends what r yields to dst, at most limit bytes and one.
func readAll(dst []byte, r io.Reader, limit int) ([]byte, error) {
	end := len(dst) + limit + 1
	for {
		if len(dst) == cap(dst) {
			dst = grow(dst, times(cap(dst), 2, end))
		}
		n, err := r.Read(dst[len(dst):min(cap(dst), end)])
		dst = dst[:len(dst)+n]
		switch {
		case len(dst) == end:
			return dst, errBeyond
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return dst, err
		}
	}
}
