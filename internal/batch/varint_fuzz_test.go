package batch

import (
	"encoding/binary"
	"math"
	"testing"
)

// F16: any bytes as a varint are what package encoding/binary reads, as long as that fits, or none; and what is written
// reads back.
func FuzzVarint(f *testing.F) {
	f.Add([]byte{}, int64(0))
	f.Add([]byte{0x80}, int64(-1))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f}, int64(math.MaxInt32))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x10}, int64(math.MinInt32))
	f.Add([]byte{0x80, 0x80, 0x80, 0x80, 0x00}, int64(math.MinInt64))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, p []byte, v int64) {
		want, n := binary.Uvarint(p)
		for _, width := range []uint{32, 64} {
			got, next := uvarint(p, 0, width)
			// Longer than a shortest form can be, or with bits above the width: none.
			fits := n > 0 && n <= int(width+6)/7 && (width == 64 || want <= math.MaxUint32)
			if fits && (got != want || next != n) || !fits && next != -1 {
				t.Fatalf("%x, %d bits: %d, next %d; want %d, next %d", p, width, got, next, want, n)
			}
		}
		if got, next := varint(p, 0); next != -1 {
			if wide, at := uvarint(p, 0, 32); at != next || int64(got) != unzigzag(wide) {
				t.Fatalf("%x: %d, next %d; want %d, next %d", p, got, next, unzigzag(wide), at)
			}
		} else if _, at := uvarint(p, 0, 32); at != -1 {
			t.Fatalf("%x: none, want one of %d bytes", p, at)
		}

		out := make([]byte, binary.MaxVarintLen64)
		end := putUvarint(out, 0, zigzag(v))
		if end != uvarintSize(zigzag(v)) {
			t.Fatalf("%d takes %d bytes, expected %d", v, end, uvarintSize(zigzag(v)))
		}
		if u, next := uvarint(out[:end], 0, 64); unzigzag(u) != v || next != end {
			t.Fatalf("%d reads back as %d, next %d of %d", v, unzigzag(u), next, end)
		}
		if w := binary.LittleEndian.Uint64(append(out, 0, 0)[:8]); end <= 2 {
			if u, size, ok := short(w); !ok || size != end || unzigzag(u) != v {
				t.Fatalf("%d reads short as %d, %d bytes, %t", v, unzigzag(u), size, ok)
			}
		}
	})
}
