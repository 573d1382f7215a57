package rlog

import (
	"errors"

	"github.com/runnelmq/runnel/index"
	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// Found is a record found by its timestamp.
type Found struct {
	Offset      int64
	Timestamp   int64 // ms
	LeaderEpoch int32
}

// OffsetForTime finds the first record whose timestamp is at or after t (in ms) and whose offset is below limit, as Kafka's ListOffsets does;
// ok is false if there is none. Timestamps need not rise: the record is the first in offset order.
func (l *Log) OffsetForTime(t, limit int64) (found Found, ok bool, err error) {
	for {
		r := l.segments.Load()
		found, ok, err = l.offsetForTime(r, t, min(limit, l.end.Load()))
		moved := errors.Is(err, errMoved) || errors.Is(err, kafka.ErrOffsetOutOfRange) // both: the row has changed
		if !moved && !l.overtaken(err, r, nil) {
			return found, ok, err
		}
		if l.closing.Load() {
			return Found{}, false, l.closedErr()
		}
	}
}

func (l *Log) offsetForTime(r *row, t, limit int64) (found Found, ok bool, err error) {
	start := l.start.Load()
	if limit <= start {
		return Found{}, false, nil
	}
	if r.find(start) == nil {
		return Found{}, false, l.missing(r, start)
	}
	for s := r.find(start); s != nil && s.base < limit; s = r.after(s.base) {
		found, ok, err = l.timeInSegment(s, t, limit)
		if ok || err != nil {
			return found, ok, err
		}
	}
	return Found{}, false, nil
}

func (l *Log) timeInSegment(s *segment, t, limit int64) (found Found, ok bool, err error) {
	c := l.NewCursor(max(s.base, l.start.Load()))
	if err := c.stand(s); err != nil {
		c.Close()
		return Found{}, false, err
	}
	defer c.Close()
	if sealed := s.sealedSize.Load() >= 0; sealed {
		x, err := l.loaded(s, c.w.f)
		if err != nil {
			return Found{}, false, err
		}
		if !x.holes && greatest(x).Timestamp < t {
			return Found{}, false, nil
		}
	}
	if from, err := l.beforeTime(s, c.w.f, t); err != nil {
		return Found{}, false, err
	} else if from > c.next {
		c.MoveTo(from)
	}
	end := min(limit, s.end(limit))
	for {
		b, err := c.Next(end)
		if b == nil || err != nil {
			return Found{}, false, err
		}
		if found, ok, err := firstAt(c.File(), b, t, l.start.Load(), limit); ok || err != nil {
			return found, ok, err
		}
	}
}

// greatest is the last entry of a sealed segment's time index: its greatest timestamp. An index without entries says 0 at the base: an entry of
// zeros only cannot be told from reserved space, and is never written.
func greatest(x *indexes) index.TimeEntry {
	if last, ok := x.times.Last(); ok {
		return last
	}
	return index.TimeEntry{Timestamp: 0, Offset: x.times.Base()}
}

// beforeTime returns an offset before which no record of the segment has timestamp t or later. The newest time
// index entry below t would say so, but one wrong entry would hide a record; starting from the one before costs
// one more interval and survives any single wrong entry.
func (l *Log) beforeTime(s *segment, f vfs.File, t int64) (offset int64, err error) {
	x, err := l.loaded(s, f)
	if err != nil {
		return 0, err
	}
	if i, ok := x.times.Lookup(t - 1); ok && i > 0 && !x.holes {
		return x.times.At(i-1).Offset + 1, nil
	}
	return s.base, nil
}

// firstAt finds the first record of b at or after time t and offset start, and below limit.
func firstAt(f vfs.File, b batch.Batch, t, start, limit int64) (found Found, ok bool, err error) {
	defer vfs.Catch(vfs.Arm(), f, &err)
	if b.MaxTimestamp() < t {
		return Found{}, false, nil
	}
	var buf []byte
	plain, err := new(batch.Decompressor).Plain(b, &buf, MaxPlain)
	if err != nil {
		return Found{}, false, err
	}
	it := plain.Iter()
	var r batch.Record
	for it.Next(&r) && r.Offset < limit {
		if r.Timestamp >= t && r.Offset >= start {
			return Found{r.Offset, r.Timestamp, b.LeaderEpoch()}, true, nil
		}
	}
	return Found{}, false, it.Err()
}
