package index

import (
	"encoding/binary"
	"fmt"
	"math"
)

// OffsetEntry says that the batch at position Pos of the segment has Offset as its last offset.
type OffsetEntry struct {
	Offset int64
	Pos    int32 // bytes from the start of the segment
}

// Offsets is the offset index of one segment, on the heap. One goroutine calls Append; the methods that only read may
// be called at any time from any goroutine, and none of them allocates but AppendTo when dst is too small.
type Offsets struct {
	base    int64
	entries column[offsetSlot]
}

// offsetSlot is an entry as it is in the file: relative offset above, position below. Both rise, and both are positive
// int32, so that slots compare as the entries do.
type offsetSlot uint64

func (s offsetSlot) relative() int64 { return int64(s >> 32) }
func (s offsetSlot) pos() int32      { return int32(uint32(s)) }

// NewOffsets returns an empty index of the segment whose first offset is base.
func NewOffsets(base int64) *Offsets { return &Offsets{base: base} }

// LoadOffsets makes an index from the content of its file, of which nothing is kept. Zeros at the end are cut. The error
// matches ErrBroken if the size is not a whole number of entries or the entries do not strictly rise from the base on.
func LoadOffsets(base int64, data []byte) (*Offsets, error) {
	if len(data)%OffsetEntrySize != 0 {
		return nil, fmt.Errorf("%w: offset index of %d bytes, which %d does not divide", ErrBroken, len(data), OffsetEntrySize)
	}
	data = cutZeros(data, OffsetEntrySize)
	slots := make([]offsetSlot, len(data)/OffsetEntrySize)
	x := NewOffsets(base)
	for i := range slots {
		s := offsetSlot(binary.BigEndian.Uint64(data[i*OffsetEntrySize:]))
		slots[i] = s
		if s.relative() > math.MaxInt32 || s.pos() < 0 || base > math.MaxInt64-s.relative() {
			return nil, fmt.Errorf("%w: offset index entry %d: relative offset %d at position %d", ErrBroken, i, int32(s.relative()), s.pos())
		}
		if s == 0 || i > 0 && (s.relative() <= slots[i-1].relative() || s.pos() <= slots[i-1].pos()) {
			return nil, fmt.Errorf("%w: offset index entry %d: relative offset %d at position %d does not rise", ErrBroken, i, s.relative(), s.pos())
		}
	}
	x.entries.set(slots)
	return x, nil
}

// Append adds an entry and reports whether it was kept. It is not kept, and nothing changes, if offset or position do
// not rise, if the offset is below the base or 2^31 or more above it, if the position is negative, and if both are the
// segment's start, as that is no news. What is not kept costs a reader a longer scan and nothing else.
func (x *Offsets) Append(offset int64, pos int32) bool {
	relative := offset - x.base
	if offset < x.base || relative < 0 || relative > math.MaxInt32 || pos < 0 || relative == 0 && pos == 0 {
		return false
	}
	if n := x.entries.len(); n > 0 {
		last := x.entries.view()[n-1]
		if relative <= last.relative() || pos <= last.pos() {
			return false
		}
	}
	x.entries.append(offsetSlot(relative)<<32 | offsetSlot(pos))
	return true
}

// Base returns the segment's first offset.
func (x *Offsets) Base() int64 { return x.base }

// Len returns the number of entries.
func (x *Offsets) Len() int { return x.entries.len() }

// Full reports whether an index file of at most maxBytes bytes has no room for another entry.
func (x *Offsets) Full(maxBytes int) bool { return x.Len() >= maxBytes/OffsetEntrySize }

// At returns entry i, which is below Len.
func (x *Offsets) At(i int) OffsetEntry { return x.entry(x.entries.view()[i]) }

// Last returns the last entry, and whether there is one.
func (x *Offsets) Last() (OffsetEntry, bool) {
	v := x.entries.view()
	if len(v) == 0 {
		return OffsetEntry{}, false
	}
	return x.entry(v[len(v)-1]), true
}

// Lookup returns the greatest entry whose offset is at most offset. Without one, start at the segment's begin. The batch
// that holds offset does not lie before the entry's position.
func (x *Offsets) Lookup(offset int64) (i int, ok bool) {
	v := x.entries.view()
	if offset < x.base {
		return 0, false
	}
	relative := uint64(offset - x.base) // right even where the signed difference overflows
	i = lastTrue(len(v), func(i int) bool { return uint64(v[i]>>32) <= relative })
	return max(i, 0), i >= 0
}

// LookupPos returns the greatest entry whose position is at most pos.
func (x *Offsets) LookupPos(pos int32) (i int, ok bool) {
	v := x.entries.view()
	i = lastTrue(len(v), func(i int) bool { return v[i].pos() <= pos })
	return max(i, 0), i >= 0
}

// TruncateTo keeps the first n entries, or all if there are fewer. No reader and no Append may run at the same time.
func (x *Offsets) TruncateTo(n int) { x.entries.truncate(n) }

// AppendTo appends the entries from number from on in the form of the file and returns dst. It may run beside Append.
func (x *Offsets) AppendTo(dst []byte, from int) []byte {
	v := x.entries.view()
	for _, s := range v[min(max(from, 0), len(v)):] {
		dst = binary.BigEndian.AppendUint64(dst, uint64(s))
	}
	return dst
}

func (x *Offsets) entry(s offsetSlot) OffsetEntry {
	return OffsetEntry{Offset: x.base + s.relative(), Pos: s.pos()}
}

// cutZeros cuts the entries of only zeros off the end of data.
func cutZeros(data []byte, size int) []byte {
	end := len(data)
	for end > 0 && data[end-1] == 0 {
		end--
	}
	return data[:(end+size-1)/size*size]
}
