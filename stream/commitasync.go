package stream

import (
	"context"
	"slices"
	"sync"

	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
)

// asyncCommits are the commits that nobody waits for, in order. One goroutine makes them, while there are some.
type asyncCommits struct {
	sync.Mutex
	queue []*asyncCommit  // the first one is being made
	syncs []chan struct{} // of the commits that somebody waits for, closed when they end
}

type asyncCommit struct {
	o     Offsets
	id    committer
	cs    []broker.Commit
	err   error // it need not be tried
	done  func(Offsets, error)
	after []chan struct{} // commits that somebody waited for when it was made
	ended chan struct{}
}

func (c *consumer) CommitAsync(o Offsets, done func(Offsets, error)) {
	a := &asyncCommit{o: o, done: done, ended: make(chan struct{})}
	if o == nil {
		a.id, a.cs, a.err = c.whereItIs()
		a.o = offsetsOf(a.cs)
	} else {
		a.id, a.cs, a.err = c.commitsOf(o)
	}
	q := &c.async
	q.Lock()
	defer q.Unlock()
	a.after = slices.Clone(q.syncs)
	q.queue = append(q.queue, a)
	if len(q.queue) == 1 {
		go c.makeAsync()
	}
}

// makeAsync makes the commits that are queued.
func (c *consumer) makeAsync() {
	q := &c.async
	q.Lock()
	a := q.queue[0]
	q.Unlock()
	for a != nil {
		for _, ended := range a.after {
			<-ended
		}
		if a.err == nil {
			a.err = c.commitNow(context.Background(), a.id, a.cs)
		}
		if a.done != nil {
			c.e.contained(func() { a.done(a.o, a.err) })
		}
		close(a.ended)
		q.Lock()
		q.queue = q.queue[1:]
		a = nil
		if len(q.queue) > 0 {
			a = q.queue[0]
		}
		q.Unlock()
	}
}

// beginSync notes that there is a commit that somebody waits for, until end is called.
func (q *asyncCommits) beginSync() (end func()) {
	q.Lock()
	defer q.Unlock()
	ended := make(chan struct{})
	q.syncs = append(q.syncs, ended)
	return func() {
		q.Lock()
		defer q.Unlock()
		close(ended)
		q.syncs = slices.DeleteFunc(q.syncs, func(c chan struct{}) bool { return c == ended })
	}
}

// afterAsync waits for the asynchronous commits that were there before.
func (c *consumer) afterAsync(ctx context.Context) error {
	q := &c.async
	q.Lock()
	var last *asyncCommit
	if n := len(q.queue); n > 0 {
		last = q.queue[n-1]
	}
	q.Unlock()
	if last == nil {
		return nil
	}
	select {
	case <-last.ended:
		return nil
	case <-ctx.Done():
		return kafka.ContextError(ctx)
	}
}

func offsetsOf(cs []broker.Commit) Offsets {
	o := make(Offsets, len(cs))
	for _, x := range cs {
		o[x.Partition.TopicPartition()] = OffsetMetadata{x.Offset, x.LeaderEpoch, x.Metadata}
	}
	return o
}
