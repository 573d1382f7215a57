package rlog

import (
	"context"
	"fmt"
	"path"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/sabotage"
)

// flush is the group commit of one log. At most one sync of its file runs; who needs a later one joins the next round, which
// the first of them leads when the running one has ended. So each sync covers everybody who came while the last one ran.
type flush struct {
	// running has room for whoever syncs the file: the leader of a round, or a seal (syncAlone). A channel and no lock: it is held across a wait.
	running chan struct{}
	// leaders are those whose round has not ended; Close waits for them.
	leaders sync.WaitGroup
	mu      struct {
		sync.Mutex
		current *round // its sync has begun and covers what was published before
		next    *round // waits for running; its sync will cover everything published until then
		closed  bool   // no leader begins any more
	}
}

type round struct {
	target int64 // set when the sync begins
	done   chan struct{}
	err    error
}

// WaitDurable returns nil once a sync has covered every offset below upto, leading the group commit if nobody else
// does. An upto behind the log end is kafka.ErrOffsetOutOfRange. A ctx that ends first gives its error; the records may still become durable then. A caller whose ctx can end
// does not sync by itself, since a sync cannot be left.
func (l *Log) WaitDurable(ctx context.Context, upto int64) error {
	if l.durable.Load() >= upto {
		return nil
	}
	fl := &l.flush
	fl.mu.Lock()
	r := fl.mu.current
	lead := false
	if r == nil || upto > r.target {
		r = fl.mu.next
		if r == nil {
			if fl.mu.closed {
				fl.mu.Unlock()
				return l.closedError(upto)
			}
			r = &round{done: make(chan struct{})}
			fl.mu.next = r
			fl.leaders.Add(1)
			lead = true
		}
	}
	fl.mu.Unlock()
	if lead {
		if ctx.Done() == nil {
			l.lead(r)
		} else {
			go l.lead(r)
		}
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return kafka.ContextError(ctx)
	}
	if r.err == nil && upto > r.target {
		return fmt.Errorf("%s: %w: offset %d, the log ended at %d", l.o.TopicPartition, kafka.ErrOffsetOutOfRange, upto, r.target)
	}
	return r.err
}

// closedError is what a caller gets who comes when the log is closed: nothing, if closing has made its records durable.
func (l *Log) closedError(upto int64) error {
	if l.durable.Load() >= upto {
		return nil
	}
	return l.closedErr()
}

func (l *Log) closedErr() error { return fmt.Errorf("%s: %w", l.o.TopicPartition, kafka.ErrClosed) }

// stop lets the leaders that have begun end, and no other begin.
func (fl *flush) stop() {
	fl.mu.Lock()
	fl.mu.closed = true
	fl.mu.Unlock()
	fl.leaders.Wait()
}

// lead runs round r: waits for the running sync to end, then syncs for all who have joined.
func (l *Log) lead(r *round) {
	fl := &l.flush
	defer fl.leaders.Done()
	fl.running <- struct{}{}
	l.gather()
	fl.mu.Lock()
	fl.mu.next = nil
	fl.mu.current = r
	r.target = l.end.Load()
	fl.mu.Unlock()
	r.err = l.sync(r.target)
	fl.mu.Lock()
	fl.mu.current = nil
	fl.mu.Unlock()
	<-fl.running
	close(r.done)
	// The woken ones get to run before this goroutine goes on: 3 µs to the first of them instead of 140.
	runtime.Gosched()
}

// gather lets goroutines that are about to append do so before the sync: after the last one it has woken, the callers of a whole round are runnable,
// and a leader who did not wait for them would sync for himself alone, and they would wait for two syncs.
func (l *Log) gather() {
	for range 4 {
		end := l.end.Load()
		runtime.Gosched()
		if l.end.Load() == end {
			return
		}
	}
}

// sync makes everything below target durable. target was published before the call, so it lies in the segment that is active now, or
// in sealed ones, which roll has synced.
func (l *Log) sync(target int64) error {
	if err := l.Err(); err != nil {
		return err
	}
	if l.durable.Load() >= target {
		return nil
	}
	s := l.segments.Load().active
	if !s.acquire() {
		return l.closedErr()
	}
	defer s.release()
	f := s.file.Load()
	if f == nil {
		return nil // it is closed when it is durable
	}
	if !sabotage.On(sabotage.NoSync) {
		if err := l.syncFile(*f); err != nil {
			return l.failSync(err)
		}
	}
	if sabotage.On(sabotage.SyncBeforeWrite) {
		target = l.end.Load()
	}
	l.advance(target)
	return nil
}

// Prove syncs the log also if nothing needs it: nil says that the disk works. For a log that nobody appends to yet.
func (l *Log) Prove() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.segments.Load().active; s != nil {
		f, err := s.open()
		if err != nil {
			return l.fail(err)
		}
		return l.syncAlone(f)
	}
	if err := l.o.FS.SyncDir(path.Dir(l.o.Dir)); err != nil {
		return l.fail(err)
	}
	return nil
}

// advance moves the durable end, which never goes back.
func (l *Log) advance(end int64) {
	if storeMax(&l.durable, end) && l.o.Advanced != nil {
		l.o.Advanced()
	}
}

// checkpoint moves the recovery point to end, never back: a background flush may come here after a roll that began later.
func (l *Log) checkpoint(end int64, sync bool) error {
	l.point.Lock()
	defer l.point.Unlock()
	if end < l.point.at {
		return nil
	}
	l.assertOffsets(end)
	if err := l.o.Checkpoints.SetRecoveryPoint(end, sync); err != nil {
		return err
	}
	l.point.at = end
	return nil
}

func storeMax(a *atomic.Int64, v int64) bool {
	for {
		old := a.Load()
		if old >= v {
			return false
		}
		if a.CompareAndSwap(old, v) {
			return true
		}
	}
}

// Flush makes everything published so far durable and lets the checkpoints and index files follow, without a sync of
// their own. It is the background's flush: cheap for recovery, not needed for durability.
func (l *Log) Flush(ctx context.Context) error {
	snap := l.dueSnapshot()
	if err := l.WaitDurable(ctx, snap.end); err != nil {
		return err
	}
	if err := l.checkpoint(snap.end, false); err != nil {
		return err
	}
	return l.saveHints(snap)
}

// dueSnapshot takes the log end, and the producer state there if it has not been written for a while.
func (l *Log) dueSnapshot() snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	snap := snapshot{end: l.end.Load()}
	if s := l.segments.Load().active; s != nil && s.written.Load()-l.mu.snapshot >= snapshotEvery {
		l.mu.snapshot = s.written.Load()
		snap.state = l.mu.producers.encode(l.owner(snap.end))
	}
	return snap
}

// saveHints writes what makes the next recovery short: index entries, and now and then the producer state. The log is durable up to the snapshot.
func (l *Log) saveHints(snap snapshot) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.segments.Load().active
	if l.mu.closed {
		return l.closedErr()
	}
	if s == nil {
		return nil
	}
	if err := s.writeIndexes(l.o.FS, false); err != nil {
		return l.storage(err)
	}
	if snap.state == nil || snap.end < s.base { // roll has written a newer one
		return nil
	}
	if err := l.writeSnapshot(snap, false); err != nil {
		return l.storage(err)
	}
	return nil
}
