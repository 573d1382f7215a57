package index

import (
	"encoding/binary"
	"fmt"
	"math"
)

// TimeEntry says that Timestamp is the greatest one of the segment up to Offset, and that Offset is the last offset of
// the first batch that has it.
type TimeEntry struct {
	Timestamp int64 // ms since 1970
	Offset    int64
}

// Times is the time index of one segment, on the heap. One goroutine calls Append; the methods that only read may be
// called at any time from any goroutine, and none of them allocates but AppendTo when dst is too small.
type Times struct {
	base    int64
	entries column[timeSlot]
}

type timeSlot struct {
	timestamp int64
	relative  int32
}

// NewTimes returns an empty index of the segment whose first offset is base.
func NewTimes(base int64) *Times { return &Times{base: base} }

// LoadTimes makes an index from the content of its file, of which nothing is kept. Zeros at the end are cut. The error
// matches ErrBroken if the size is not a whole number of entries or the entries do not strictly rise, from the base and
// from the time 0 on.
func LoadTimes(base int64, data []byte) (*Times, error) {
	if len(data)%TimeEntrySize != 0 {
		return nil, fmt.Errorf("%w: time index of %d bytes, which %d does not divide", ErrBroken, len(data), TimeEntrySize)
	}
	data = cutZeros(data, TimeEntrySize)
	slots := make([]timeSlot, len(data)/TimeEntrySize)
	x := NewTimes(base)
	for i := range slots {
		p := data[i*TimeEntrySize:]
		s := timeSlot{int64(binary.BigEndian.Uint64(p)), int32(binary.BigEndian.Uint32(p[8:]))}
		slots[i] = s
		if s.timestamp < 0 || s.relative < 0 || base > math.MaxInt64-int64(s.relative) {
			return nil, fmt.Errorf("%w: time index entry %d: timestamp %d at relative offset %d", ErrBroken, i, s.timestamp, s.relative)
		}
		if s == (timeSlot{}) || i > 0 && (s.timestamp <= slots[i-1].timestamp || s.relative <= slots[i-1].relative) {
			return nil, fmt.Errorf("%w: time index entry %d: timestamp %d at relative offset %d does not rise", ErrBroken, i, s.timestamp, s.relative)
		}
	}
	x.entries.set(slots)
	return x, nil
}

// Append adds an entry and reports whether it was kept. It is not kept, and nothing changes, if timestamp or offset do
// not rise, if the timestamp is negative, if the offset is below the base or 2^31 or more above it, and if it is the time
// 0 at the base, as that is no news.
func (x *Times) Append(timestamp, offset int64) bool {
	relative := offset - x.base
	if timestamp < 0 || offset < x.base || relative < 0 || relative > math.MaxInt32 || timestamp == 0 && relative == 0 {
		return false
	}
	s := timeSlot{timestamp, int32(relative)}
	if n := x.entries.len(); n > 0 {
		last := x.entries.view()[n-1]
		if s.timestamp <= last.timestamp || s.relative <= last.relative {
			return false
		}
	}
	x.entries.append(s)
	return true
}

// Base returns the segment's first offset.
func (x *Times) Base() int64 { return x.base }

// Len returns the number of entries.
func (x *Times) Len() int { return x.entries.len() }

// Full reports whether an index file of at most maxBytes bytes has no room for another entry but the one slot that is
// kept for the segment's last. Append does not look at it.
func (x *Times) Full(maxBytes int) bool { return x.Len() >= maxBytes/TimeEntrySize-1 }

// At returns entry i, which is below Len.
func (x *Times) At(i int) TimeEntry { return x.entry(x.entries.view()[i]) }

// Last returns the last entry, and whether there is one.
func (x *Times) Last() (TimeEntry, bool) {
	v := x.entries.view()
	if len(v) == 0 {
		return TimeEntry{}, false
	}
	return x.entry(v[len(v)-1]), true
}

// Lookup returns the greatest entry whose timestamp is at most timestamp. Without one, start at the segment's begin. The
// first record of that timestamp or a greater one does not lie before the batch that the entry names.
func (x *Times) Lookup(timestamp int64) (i int, ok bool) {
	v := x.entries.view()
	i = lastTrue(len(v), func(i int) bool { return v[i].timestamp <= timestamp })
	return max(i, 0), i >= 0
}

// LookupOffset returns the greatest entry whose offset is at most offset.
func (x *Times) LookupOffset(offset int64) (i int, ok bool) {
	v := x.entries.view()
	if offset < x.base {
		return 0, false
	}
	relative := uint64(offset - x.base) // right even where the signed difference overflows
	i = lastTrue(len(v), func(i int) bool { return uint64(v[i].relative) <= relative })
	return max(i, 0), i >= 0
}

// TruncateTo keeps the first n entries, or all if there are fewer. No reader and no Append may run at the same time.
func (x *Times) TruncateTo(n int) { x.entries.truncate(n) }

// AppendTo appends the entries from number from on in the form of the file and returns dst. It may run beside Append.
func (x *Times) AppendTo(dst []byte, from int) []byte {
	v := x.entries.view()
	for _, s := range v[min(max(from, 0), len(v)):] {
		dst = binary.BigEndian.AppendUint64(dst, uint64(s.timestamp))
		dst = binary.BigEndian.AppendUint32(dst, uint32(s.relative))
	}
	return dst
}

func (x *Times) entry(s timeSlot) TimeEntry {
	return TimeEntry{Timestamp: s.timestamp, Offset: x.base + int64(s.relative)}
}
