package batch

import "math/bits"

// The varints of records are zigzag coded, least significant seven bits first. Lengths and deltas of offsets are 32
// bits wide (at most 5 bytes), deltas of timestamps 64 (at most 10).
//
// Reading returns the next position, or -1 if the varint is cut short or too wide.

func zigzag(v int64) uint64   { return uint64(v)<<1 ^ uint64(v>>63) }
func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

// uvarintSize returns the number of bytes that u takes: ceil(bits/7), without the division.
func uvarintSize(u uint64) int { return (bits.Len64(u|1)*9 + 64) >> 6 }

// lengthSize returns the number of bytes that the length n takes.
func lengthSize(n int) int { return uvarintSize(uint64(n) << 1) }

// putUvarint stores u in p from i on and returns the position behind it.
func putUvarint(p []byte, i int, u uint64) int {
	if u < 1<<7 {
		p[i] = byte(u)
		return i + 1
	}
	return putWide(p, i, u)
}

func putWide(p []byte, i int, u uint64) int {
	if u < 1<<14 {
		p[i+1] = byte(u >> 7)
		p[i] = byte(u) | 0x80
		return i + 2
	}
	for u >= 1<<7 {
		p[i] = byte(u) | 0x80
		u >>= 7
		i++
	}
	p[i] = byte(u)
	return i + 1
}

// null is the length of null, -1, before its zigzag is undone.
const null = 1

// short reads a varint of one or two bytes off the low end of w, before its zigzag is undone, and returns its size in
// bytes. ok is false if it is wider.
func short(w uint64) (u uint64, size int, ok bool) {
	if w&0x80 == 0 {
		return w & 0x7f, 1, true
	}
	return w&0x7f | w>>1&0x3f80, 2, w&0x8000 == 0
}

// varint reads a varint of 32 bits.
func varint(p []byte, i int) (v, next int) {
	if i < len(p) && p[i] < 1<<7 {
		return int(p[i]>>1) ^ -int(p[i]&1), i + 1
	}
	u, next := uvarint(p, i, 32)
	return int(unzigzag(u)), next
}

// uvarint reads a varint of up to width bits, before its zigzag is undone.
func uvarint(p []byte, i int, width uint) (u uint64, next int) {
	for shift := uint(0); shift < width && i < len(p); shift += 7 {
		c := uint64(p[i])
		i++
		if c < 1<<7 {
			if shift+7 > width && c>>(width-shift) != 0 {
				return 0, -1
			}
			return u | c<<shift, i
		}
		u |= c & (1<<7 - 1) << shift
	}
	return 0, -1
}
