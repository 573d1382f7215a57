package index

import (
	"encoding/binary"
	"fmt"
	"math"
)

// AbortedTxn says that the records of a producer from FirstOffset to LastOffset are those of an aborted transaction.
type AbortedTxn struct {
	ProducerID       int64
	FirstOffset      int64
	LastOffset       int64 // the marker's
	LastStableOffset int64 // after this abort: up to there nothing is undecided. At most the offset behind the marker
}

// Aborted is the index of the transactions whose abort markers lie in one segment, on the heap. One goroutine calls
// Append; the methods that only read may be called at any time from any goroutine, and none of them allocates but
// AppendTo and Collect when dst is too small.
type Aborted struct {
	base    int64
	entries column[AbortedTxn]
}

// NewAborted returns an empty index of the segment whose first offset is base.
func NewAborted(base int64) *Aborted { return &Aborted{base: base} }

// LoadAborted makes an index from the content of its file, of which nothing is kept. The error matches ErrBroken if the
// size is not a whole number of entries, if an entry has a version that is not 0, and if it is one that Append refuses.
func LoadAborted(base int64, data []byte) (*Aborted, error) {
	if len(data)%AbortedEntrySize != 0 {
		return nil, fmt.Errorf("%w: transaction index of %d bytes, which %d does not divide", ErrBroken, len(data), AbortedEntrySize)
	}
	txns := make([]AbortedTxn, len(data)/AbortedEntrySize)
	x := NewAborted(base)
	last := int64(math.MinInt64)
	for i := range txns {
		p := data[i*AbortedEntrySize:]
		if version := int16(binary.BigEndian.Uint16(p)); version != 0 {
			return nil, fmt.Errorf("%w: transaction index entry %d: version %d", ErrBroken, i, version)
		}
		field := func(n int) int64 { return int64(binary.BigEndian.Uint64(p[2+8*n:])) }
		txns[i] = AbortedTxn{field(0), field(1), field(2), field(3)}
		if !x.follows(txns[i], last) {
			return nil, fmt.Errorf("%w: transaction index entry %d: %+v after last offset %d", ErrBroken, i, txns[i], last)
		}
		last = txns[i].LastOffset
	}
	x.entries.set(txns)
	return x, nil
}

// Append adds a transaction and reports whether it was kept. It is not kept, and nothing changes, if its last offset
// does not rise or is below the base, if its first offset is negative or above the last one, if its last stable offset is
// negative or more than one above the last one, and if the producer id is negative.
func (x *Aborted) Append(t AbortedTxn) bool {
	last := int64(math.MinInt64)
	if v := x.entries.view(); len(v) > 0 {
		last = v[len(v)-1].LastOffset
	}
	if !x.follows(t, last) {
		return false
	}
	x.entries.append(t)
	return true
}

func (x *Aborted) follows(t AbortedTxn, last int64) bool {
	return t.LastOffset > last && t.LastOffset >= x.base && t.ProducerID >= 0 &&
		t.FirstOffset >= 0 && t.FirstOffset <= t.LastOffset &&
		t.LastStableOffset >= 0 && t.LastStableOffset-1 <= t.LastOffset
}

// Base returns the segment's first offset.
func (x *Aborted) Base() int64 { return x.base }

// Len returns the number of entries.
func (x *Aborted) Len() int { return x.entries.len() }

// At returns entry i, which is below Len.
func (x *Aborted) At(i int) AbortedTxn { return x.entries.view()[i] }

// LookupOffset returns the first entry whose last offset is offset or a greater one, Len if there is none.
func (x *Aborted) LookupOffset(offset int64) int { return lookupAborted(x.entries.view(), offset) }

func lookupAborted(v []AbortedTxn, offset int64) int {
	return lastTrue(len(v), func(i int) bool { return v[i].LastOffset < offset }) + 1
}

// Collect appends the transactions that have records with offsets from from up to upTo, which is not one of them, and
// returns dst. done says that no segment behind this one can hold another: its transactions all begin at upTo or later.
// Whoever reads from from on asks its segment and those behind it until one is done.
func (x *Aborted) Collect(dst []AbortedTxn, from, upTo int64) (_ []AbortedTxn, done bool) {
	v := x.entries.view()
	// An entry that ends before from has a last stable offset that is not above from: none of those makes done true.
	for _, t := range v[lookupAborted(v, from):] {
		if t.FirstOffset < upTo {
			dst = append(dst, t)
		}
		if t.LastStableOffset >= upTo {
			return dst, true
		}
	}
	return dst, false
}

// TruncateTo keeps the first n entries, or all if there are fewer. No reader and no Append may run at the same time.
func (x *Aborted) TruncateTo(n int) { x.entries.truncate(n) }

// AppendTo appends the entries from number from on in the form of the file and returns dst. It may run beside Append.
func (x *Aborted) AppendTo(dst []byte, from int) []byte {
	v := x.entries.view()
	for _, t := range v[min(max(from, 0), len(v)):] {
		dst = append(dst, 0, 0) // version
		for _, field := range [...]int64{t.ProducerID, t.FirstOffset, t.LastOffset, t.LastStableOffset} {
			dst = binary.BigEndian.AppendUint64(dst, uint64(field))
		}
	}
	return dst
}
