package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync/atomic"

	rlog "github.com/runnelmq/runnel/log"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
)

// Life is a partition's log from one opening to the next. A partition that has failed and is opened again begins another one, whose end may lie before that of the last:
// offsets, sequences and cursors of one life mean nothing in another, so whoever appends or reads holds on to a Life.
type Life struct {
	p     *Partition
	l     *rlog.Log
	epoch int32 // leader epoch of what is appended in it
	// begins says where this life and those before it began, since the engine was opened.
	begins []begin
	looked atomic.Int64 // when refresh last was there, in ns
	forgot atomic.Int64 // when forget last was, in ms of the wall clock
}

// begin is where a life began: its leader epoch, and the log end offset then.
type begin struct {
	epoch  int32
	offset int64
}

// KeptSince is the offset up to which the log is what it was in an earlier life: what was read behind it may be gone, and other records stand in its place.
// The lives are different ones.
func (f *Life) KeptSince(old *Life) int64 {
	return leastOffset(f.begins[len(old.begins):])
}

// Append appends a sealed batch; see rlog.Log.Append. It is synced in the background; WaitDurable waits for that.
func (f *Life) Append(bt batch.Batch) (rlog.Appended, error) {
	p := f.p
	if p.b.closed.Load() {
		return rlog.Appended{}, kafka.ErrClosed
	}
	n := int64(len(bt))
	a, err := f.l.Append(bt)
	if err != nil {
		if errors.Is(err, kafka.ErrDiskFull) {
			p.refused.Store(n)
			p.note(kafka.PartitionDiskFull, err)
		}
		return a, f.explain(err)
	}
	if p.state.Load() == int32(kafka.PartitionDiskFull) {
		p.better(kafka.PartitionDiskFull)
	}
	if a.Duplicate {
		return a, nil
	}
	if u := p.unsynced.Add(n); u >= p.b.o.SyncBytes || !p.queued.Load() {
		p.b.flush.add(p, u >= p.b.o.SyncBytes)
	}
	if p.watchers.any() {
		p.watchers.wake()
		// The woken reader gets to run while this goroutine still does: 3 µs instead of 140.
		runtime.Gosched()
	}
	return a, nil
}

// WaitDurable waits until everything below offset upto is durable; see rlog.Log.WaitDurable.
func (f *Life) WaitDurable(ctx context.Context, upto int64) error {
	return f.explain(f.l.WaitDurable(ctx, upto))
}

// NextSequence is the sequence that follows the last batch of a producer in this epoch.
func (f *Life) NextSequence(producerID int64, epoch int16) int32 {
	return f.l.NextSequence(producerID, epoch)
}

// DurableEnd is the offset up to which nothing can be lost any more.
func (f *Life) DurableEnd() int64 { return f.l.DurableEnd() }

// Behind is rlog.Log.Behind.
func (f *Life) Behind(from, to int64) (records, oldest int64, err error) {
	records, oldest, err = f.l.Behind(from, to)
	return records, oldest, f.ReadError(err)
}

// BytesFrom is rlog.Log.BytesFrom.
func (f *Life) BytesFrom(offset int64) (int64, error) {
	n, err := f.l.BytesFrom(offset)
	return n, f.ReadError(err)
}

// Err is why the life is at its end, matching kafka.ErrPartitionFailed, or nil.
func (f *Life) Err() error { return f.l.Err() }

// Epoch is the leader epoch of what is appended in this life.
func (f *Life) Epoch() int32 { return f.epoch }

// keptOf is the offset up to which records of a leader epoch can be in the log: where a later one has begun.
func (f *Life) keptOf(epoch int32) int64 {
	i := slices.IndexFunc(f.begins, func(b begin) bool { return b.epoch > epoch })
	if i < 0 {
		return math.MaxInt64
	}
	return leastOffset(f.begins[i:])
}

func leastOffset(bs []begin) int64 {
	least := int64(math.MaxInt64)
	for _, b := range bs {
		least = min(least, b.offset)
	}
	return least
}

// EndOffset is the log end offset.
func (f *Life) EndOffset() int64 { return f.l.EndOffset() }

// Tight reports whether too many files are open: cursors that are not needed are to be closed.
func (f *Life) Tight() bool { return f.p.b.files.Tight() }

// NewCursor returns a cursor at offset, which the caller closes.
func (f *Life) NewCursor(offset int64) *rlog.Cursor { return f.l.NewCursor(offset) }

// ReadError is what a reader of the life is told of an error of its cursor. Damage that he has found is the partition's state from then on.
func (f *Life) ReadError(err error) error {
	if errors.Is(err, kafka.ErrCorrupt) && f.p.life.Load() == f && f.l.Err() == nil {
		f.p.damaged(err)
	}
	if err = kafka.Storage(f.explain(err)); errors.Is(err, kafka.ErrStorage) {
		err = fmt.Errorf("%s: %w", f.p.tp, err)
	}
	return err
}

// explain says of a log that was closed why.
func (f *Life) explain(err error) error {
	if !errors.Is(err, kafka.ErrClosed) {
		return err
	}
	if f.p.t.Deleted() {
		return f.p.Gone()
	}
	if ferr := f.l.Err(); ferr != nil {
		return ferr // it was closed to be opened again
	}
	return err
}

// Gone is the error of a partition whose topic was deleted.
func (p *Partition) Gone() error {
	return fmt.Errorf("%w: %q was deleted", kafka.ErrUnknownTopic, p.tp.Topic)
}
