package index

import (
	"errors"

	"github.com/runnelmq/runnel/internal/batch"
)

const (
	// Interval is the number of bytes of log after which the next batch gets an entry (index.interval.bytes).
	Interval = 4096
	// MaxBytes is the size of an index file at which it is full, if the log does not choose (segment.index.bytes).
	MaxBytes = 10 << 20
	// OffsetEntrySize is the size in bytes of an entry in an offset index file.
	OffsetEntrySize = 8
	// TimeEntrySize is the size in bytes of an entry in a time index file.
	TimeEntrySize = 12
	// AbortedEntrySize is the size in bytes of an entry in a transaction index file.
	AbortedEntrySize = 34
)

// ErrBroken says that a file cannot be an index of its segment and has to be made anew from the log.
var ErrBroken = errors.New("index is broken")

// Confirms reports whether b, the valid batch at e.Pos, is the one that e names.
func Confirms(b batch.Batch, e OffsetEntry) bool { return b.LastOffset() == e.Offset }

// ConfirmsTime reports whether b, the valid batch that holds e.Offset, is the one that e names.
func ConfirmsTime(b batch.Batch, e TimeEntry) bool {
	return b.LastOffset() == e.Offset && b.MaxTimestamp() == e.Timestamp
}

// lastTrue returns the greatest i below n for which ok(i), -1 if there is none; ok is true up to some i and false from
// there on. It gallops from the end: most reads are near the end of the log, and find their entry in the first steps,
// on memory that is still in the cache.
func lastTrue(n int, ok func(i int) bool) int {
	high, step := n, 1 // high: not ok, or n
	low := high - step
	for low >= 0 && !ok(low) {
		high = low
		step *= 2
		low = high - step
	}
	low = max(low, -1) // ok, or -1
	for high-low > 1 {
		mid := int(uint(low+high) >> 1)
		if ok(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}
