package batch

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
)

// F9: a limit is exact, for each codec.
func TestPlainLimit(t *testing.T) {
	for _, size := range []int{100, 5000, 64 << 10, 1<<20 + 7} {
		b := build(NoProducer(), rec{5, nil, bytes.Repeat([]byte("runnel "), size)[:size], nil})
		records := len(b) - HeaderSize
		for _, c := range codecs[1:] {
			out := packed(t, NewCompressor(c, 0), b)
			var buf []byte
			for _, limit := range []int{-1, 0, 1, records / 2, records - 1, records, records + 1, math.MaxInt} {
				plain, err := new(Decompressor).Plain(out, &buf, limit)
				switch {
				case limit >= records && (err != nil || len(plain) != len(b)):
					t.Errorf("%s of %d bytes, limit %d: %d bytes, %v", c, records, limit, len(plain), err)
				case limit < records && !errors.Is(err, ErrTooLarge):
					t.Errorf("%s of %d bytes, limit %d: %v", c, records, limit, err)
				}
			}
			buf = nil
			if _, err := Validate(out, &buf, records-1); !errors.Is(err, ErrTooLarge) {
				t.Errorf("%s: Validate with a limit that is too small: %v", c, err)
			}
			if plain, err := Validate(out, &buf, records); err != nil || len(plain) != len(b) {
				t.Errorf("%s: Validate with the right limit: %v", c, err)
			}
		}
	}
}

// F16: compressed bytes that are cut, or have a changed bit, give an error that can be told or records that parse; never
// a panic, and never an error of another kind.
func TestDamagedCompression(t *testing.T) {
	recs := []rec{{1000, []byte("key"), bytes.Repeat([]byte("value "), 30), nil}, {1001, nil, []byte("another"), nil}}
	b := build(NoProducer(), recs...)
	for _, c := range codecs[1:] {
		out := packed(t, NewCompressor(c, 0), b)
		var buf []byte
		for n := HeaderSize; n < len(out); n++ {
			if err := readPacked(withRecords(out, c, out[HeaderSize:n]), &buf); err == nil {
				t.Errorf("%s: nobody notices that %d bytes of %d are left", c, n, len(out))
			}
		}
		noticed := 0
		for bit := HeaderSize * 8; bit < len(out)*8; bit++ {
			damaged := bytes.Clone(out)
			damaged[bit/8] ^= 1 << (bit % 8)
			err := readPacked(damaged, &buf)
			if err == nil {
				continue
			}
			noticed++
			if !errors.Is(err, ErrCodec) && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrRecord) {
				t.Errorf("%s: bit %d of byte %d gives %v", c, bit%8, bit/8, err)
			}
		}
		if noticed == 0 {
			t.Errorf("%s: no changed bit is noticed", c)
		}
	}
	for _, c := range []struct {
		name    string
		codec   Codec
		records string
	}{
		{"no gzip", Gzip, "not compressed"},
		{"no lz4", LZ4, "not compressed"},
		{"an lz4 frame of the old kind", LZ4, "\x02\x21\x4c\x18\x01\x00\x00\x00\x00"},
		{"an lz4 header checksum", LZ4, "\x04\x22\x4d\x18\x60\x40\x00\x00\x00\x00\x00"},
		{"no zstd", Zstd, "not compressed"},
		{"a zstd dictionary", Zstd, "\x28\xb5\x2f\xfd\x21\x07\x01\x09\x00\x00A"},
		{"a zstd block that says more than its window", Zstd, "\x28\xb5\x2f\xfd\x00\x38\x2d\x00\x00\xff\xff\xff\xff\xff"},
		{"a zstd window of 3 TiB", Zstd, "\x28\xb5\x2f\xfd\x00\xff\x01\x00\x00"},
		{"no snappy", Snappy, "\xff\xff\xff\xff\xff\xff\xff"},
		{"half a xerial header", Snappy, xerialMagic + "\x00\x00\x00\x01"},
		{"half a xerial length", Snappy, xerialMagic + "\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00"},
		{"a negative xerial length", Snappy, xerialMagic + "\x00\x00\x00\x01\x00\x00\x00\x01\xff\xff\xff\xff"},
		{"a xerial length too great", Snappy, xerialMagic + "\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x09AAAA"},
		{"a repeated copy, which only s2 has", Snappy, "\x0c\x0cABCD\x01\x04\x01\x00"},
		{"codec 5", 5, "x"},
		{"codec 7", 7, "x"},
	} {
		var buf []byte
		_, err := new(Decompressor).Plain(withRecords(b, c.codec, []byte(c.records)), &buf, 1<<20)
		if !errors.Is(err, ErrCodec) || !strings.Contains(err.Error(), c.codec.String()) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// F9: an lz4 block that copies from before its frame does not get at what the decoder has met in another batch.
func TestBatchesDoNotSeeEachOther(t *testing.T) {
	frame := func(block string) (packed Batch, err error) {
		for sum := range 256 { // the header's checksum, of dependent blocks of 64 KiB
			records := lz4Magic + "\x40\x40" + string([]byte{byte(sum)}) + block + "\x00\x00\x00\x00"
			packed = withRecords(sample(), LZ4, []byte(records))
			var buf []byte
			if _, err = new(Decompressor).Plain(packed, &buf, 1<<20); err == nil || !strings.Contains(err.Error(), "header checksum") {
				return packed, err
			}
		}
		return nil, err
	}
	if _, err := frame("\x06\x00\x00\x80secret"); err != nil {
		t.Fatal(err)
	}
	// No literal, and 4 bytes from 6 back; then 5 literals.
	if packed, err := frame("\x09\x00\x00\x00\x00\x06\x00\x50AAAAA"); !errors.Is(err, ErrCodec) || strings.Contains(err.Error(), "header checksum") {
		t.Errorf("%q: %v", packed[HeaderSize:], err)
	}
}

// readPacked reads all of b as a consumer does.
func readPacked(b Batch, buf *[]byte) error {
	plain, err := new(Decompressor).Plain(b, buf, 1<<20)
	if err != nil {
		return err
	}
	_, err = read(plain, (*Iter).Next)
	return err
}
