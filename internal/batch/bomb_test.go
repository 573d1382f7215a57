package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/pierrec/lz4/v4"
)

// bomb is what decompresses to far more than it takes.
type bomb struct {
	name    string
	codec   Codec
	records []byte
}

// bombs are of 10 GiB where the codec packs that into a few MiB.
func bombs(t testing.TB) []bomb {
	const (
		total = 10 << 30
		piece = 4 << 20
	)
	zeros := make([]byte, piece)

	var member bytes.Buffer
	zw := gzip.NewWriter(&member)
	if err := writeAll(zw, zeros); err != nil {
		t.Fatal(err)
	}
	block := make([]byte, lz4.CompressBlockBound(len(zeros)))
	n, err := new(lz4.Compressor).CompressBlock(zeros, block)
	if err != nil {
		t.Fatal(err)
	}
	block = append(binary.LittleEndian.AppendUint32(nil, uint32(n)), block[:n]...)
	frame := "\x04\x22\x4d\x18\x60\x70\x73" // independent blocks of 4 MiB

	// A window of 128 KiB, and blocks of that many zeros, the fewest bytes that say so.
	blocks := total / (128 << 10)
	zstdZeros := "\x28\xb5\x2f\xfd\x00\x38"
	zeroBlock := []byte{0x02, 0x00, 0x10, 0x00}
	small := build(NoProducer(), rec{0, nil, make([]byte, 120<<10), nil}) // a frame that says its size
	packedZstd := packed(t, NewCompressor(Zstd, 0), small)[HeaderSize:]

	xerialBomb := []byte(xerialMagic + "\x00\x00\x00\x01\x00\x00\x00\x01")
	snappyBlock := s2.EncodeSnappy(nil, zeros)
	snappyBlock = append(binary.BigEndian.AppendUint32(nil, uint32(len(snappyBlock))), snappyBlock...)

	return []bomb{
		{"gzip", Gzip, bytes.Repeat(member.Bytes(), total/piece)},
		{"lz4", LZ4, append([]byte(frame), bytes.Repeat(block, 1<<30/piece)...)},
		{"zstd", Zstd, append([]byte(zstdZeros), bytes.Repeat(zeroBlock, blocks)...)},
		{"zstd of many frames", Zstd, bytes.Repeat(packedZstd, blocks)},
		{"snappy", Snappy, append(xerialBomb, bytes.Repeat(snappyBlock, 1<<28/piece)...)},
		{"snappy in one block", Snappy, s2.EncodeSnappy(nil, make([]byte, 1<<28))},
	}
}

// boasts only say that they are large.
func boasts() []bomb {
	return []bomb{
		{"lz4 that says 2^63", LZ4, []byte("\x04\x22\x4d\x18\x68\x70\x00\x00\x00\x00\x00\x00\x00\x80\x0b\x00\x00\x00\x00")},
		{"zstd that says 10 GiB", Zstd, []byte("\x28\xb5\x2f\xfd\xe0\x00\x00\x00\x80\x02\x00\x00\x00\x01\x00\x00")},
		{"zstd that says 2^63", Zstd, []byte("\x28\xb5\x2f\xfd\xe0\x00\x00\x00\x00\x00\x00\x00\x80\x01\x00\x00")},
		{"zstd with a window of 3 TiB", Zstd, []byte("\x28\xb5\x2f\xfd\x00\xff\x01\x00\x00")},
		{"zstd with a window of 1 GiB", Zstd, []byte("\x28\xb5\x2f\xfd\x00\xa0\x01\x00\x00")},
		{"zstd of an unknown size with damage", Zstd, []byte("\x28\xb5\x2f\xfd\x00\x38\x2d\x00\x00\xff\xff\xff\xff\xff")},
		{"snappy that says 4 GiB", Snappy, []byte("\xff\xff\xff\xff\x0f\x00A")},
		{"snappy that says 8 MiB", Snappy, []byte("\x80\x80\x80\x04\x00A")},
		{"xerial that says 4 GiB", Snappy, []byte(xerialMagic + "\x00\x00\x00\x01\x00\x00\x00\x01\xff\xff\xff\xffA")},
	}
}

// F9: a bomb costs little more memory than the limit, and ends in an error.
func TestBombs(t *testing.T) {
	const (
		limit = 8 << 20
		own   = 12 << 20 // of a decoder
	)
	b := sample()
	for _, bomb := range append(bombs(t), boasts()...) {
		t.Run(bomb.name, func(t *testing.T) {
			packed := withRecords(b, bomb.codec, bomb.records)
			var buf []byte
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			plain, err := new(Decompressor).Plain(packed, &buf, limit)
			runtime.ReadMemStats(&after)
			allocated := after.TotalAlloc - before.TotalAlloc
			real := len(bomb.records) > 1000
			switch {
			case real && !errors.Is(err, ErrTooLarge):
				t.Errorf("%d bytes come, and %v", len(plain), err)
			case !real && err != nil && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrCodec):
				t.Errorf("got %v", err)
			}
			// Memory grows in steps, so that all of it together is more than there is at any time.
			bound, most := uint64(own+3*limit), HeaderSize+limit+zstdBlock
			if !real {
				bound, most = own, limit/2 // what it says beyond the limit is not believed
			}
			if allocated > bound || cap(buf) > most {
				t.Errorf("%d KiB are allocated, of which %d KiB stay; %v", allocated>>10, cap(buf)>>10, err)
			}
			if _, err := Validate(packed, &buf, limit); err == nil {
				t.Error("Validate takes it")
			}
		})
	}
}
