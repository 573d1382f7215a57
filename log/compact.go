package rlog

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// Compaction says how Compact works.
type Compaction struct {
	Now             int64         // wall clock in ms
	DeleteRetention time.Duration // how long a tombstone is kept after the first pass that met it (delete.retention.ms)
	MinLag          time.Duration // segments with a record that is younger are left alone (min.compaction.lag.ms)
	MapBytes        int64         // memory for the last offset of each key, 24 bytes a key; and a quarter more for a bit of each offset
	// Pace is called for every n bytes that have been read or written. It may wait; its error ends the pass.
	Pace func(n int) error
	// Ready is called before records are taken away, with the log locked against other changes of its segments; its error ends the pass.
	Ready func() error
}

// Compacted says what a pass has done.
type Compacted struct {
	From, To      int64 // the offsets whose keys were looked at
	Read, Written int64 // bytes
	Records, Kept int64 // in the segments that were rewritten
	Segments      int   // that were replaced
	Damaged       []error
	More          bool // the key map was full: another pass would find more to do
}

// Dirt is what a pass would have to do.
type Dirt struct {
	Clean, Dirty int64 // bytes of segments that were compacted before, and of those that could be
	Oldest       int64 // timestamp in ms of the first dirty batch, -1 if there is none or nobody knows
}

// Dirty measures what a pass would have to do.
func (l *Log) Dirty(now int64, minLag time.Duration) Dirt {
	p := l.plan(now, minLag)
	d := Dirt{Oldest: -1}
	for _, s := range p.segments {
		if s.next <= p.from {
			d.Clean += s.sealedSize.Load()
			continue
		}
		if d.Dirty == 0 {
			d.Oldest = l.firstTimestamp(max(p.from, s.base), s.next)
		}
		d.Dirty += s.sealedSize.Load()
	}
	return d
}

// firstTimestamp is the timestamp of the first batch in [from, to) that has one, -1 if there is none or nobody knows.
func (l *Log) firstTimestamp(from, to int64) int64 {
	c := l.NewCursor(from)
	defer c.Close()
	for {
		b, err := c.Next(to)
		if b == nil || err != nil {
			return kafka.NoTimestamp
		}
		if t, err := timestampOf(c.File(), b); t >= 0 || err != nil {
			return t
		}
	}
}

func timestampOf(f vfs.File, b batch.Batch) (t int64, err error) {
	defer vfs.Catch(vfs.Arm(), f, &err)
	return b.MaxTimestamp(), nil
}

// plan is the work of one pass: the segments that may be rewritten, oldest first, and the offset from which on keys have not been looked at.
type plan struct {
	segments []*segment
	from, to int64
}

// plan leaves out the active segment, and everything from the first segment on that is too young.
func (l *Log) plan(now int64, minLag time.Duration) plan {
	p := plan{from: max(l.cleaned.Load(), l.start.Load())}
	p.to = p.from
	for _, s := range l.segments.Load().sealed() {
		if minLag > 0 && s.next > p.from {
			if t, ok := l.greatestTime(s, now); !ok || t > now-minLag.Milliseconds() {
				break
			}
		}
		p.segments = append(p.segments, s)
		p.to = max(p.to, s.next)
	}
	return p
}

// mostMapBytes is more than anybody needs, and can be reckoned with.
const mostMapBytes = 1 << 36

// Compact makes one pass: it remembers the last offset of each key in the segments that were not compacted before, as far as the map has room, and rewrites all segments
// up to there without the records that have a successor. Records keep their offsets and their order. Where whole batches go, an empty one without a producer takes
// their offsets, so that each batch in a segment follows the one before it exactly. Tombstones stay for DeleteRetention. Batches that a producer may repeat stay, if need be empty,
// for ProducerExpiry.
//
// The active segment is never touched. A segment that is damaged is left as it is, and reported the first time. Readers, appends and retention go on beside it.
// Passes of one log take turns. An error leaves everything as it was, or as a shorter pass would have.
func (l *Log) Compact(ctx context.Context, c Compaction) (done Compacted, err error) {
	l.cleaning.Lock()
	defer l.cleaning.Unlock()
	c.MapBytes = min(c.MapBytes, mostMapBytes)
	p := l.plan(c.Now, c.MinLag)
	done = Compacted{From: p.from, To: p.from}
	if err := l.usable(); err != nil || p.to <= p.from {
		return done, err
	}
	pass := &pass{l: l, ctx: ctx, c: c, plan: p, done: &done, start: l.start.Load(), unread: math.MaxInt64, left: math.MaxInt64, filter: batch.Filter{Limit: MaxPlain}}
	err = pass.run()
	if errors.Is(err, errMoved) {
		err = l.closedErr()
	}
	return done, l.pressed(errors.Join(err, l.tidy()))
}

// tidy removes what the pass has left of the segments that it has replaced.
func (l *Log) tidy() error {
	l.shape.Lock()
	defer l.shape.Unlock()
	if l.usable() != nil {
		return nil
	}
	return l.sweep()
}
