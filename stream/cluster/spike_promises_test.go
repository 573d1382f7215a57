package cluster_test

import (
	"context"
	"slices"
	"sync"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/stream"
)

// promises runs promises one at a time, in the order in which their records' outcomes became known.
type promises struct {
	mu struct {
		sync.Mutex
		closed  bool
		queue   []func()
		running bool
		open    *pending // of records accepted since the last flush
	}
}

// pending counts the records accepted between two flushes whose promises have not run.
type pending struct {
	n      int
	sealed bool
	before *pending
	done   chan struct{} // closed when n is 0, no more are accepted, and all before are done
}

// accept counts a record. What it returns is called with the record's outcome, and makes the promise run.
func (q *promises) accept(promise func(stream.Receipt, error)) func(stream.Receipt, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	in := q.mu.open
	in.n++
	return func(rec stream.Receipt, err error) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.mu.queue = append(q.mu.queue, func() {
			defer q.left(in)
			defer func() { _ = recover() }()
			if promise != nil {
				promise(rec, err)
			}
		})
		if !q.mu.running {
			q.mu.running = true
			go q.run()
		}
	}
}

func (q *promises) run() {
	for {
		q.mu.Lock()
		work := q.mu.queue
		q.mu.queue = nil
		if len(work) == 0 {
			q.mu.running = false
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		for _, f := range work {
			f()
		}
	}
}

func (q *promises) left(in *pending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	in.n--
	q.settle()
}

// settle closes the counts that are complete, the oldest first; q.mu is held.
func (q *promises) settle() {
	var all []*pending
	for p := q.mu.open; p != nil; p = p.before {
		all = append(all, p)
	}
	for _, p := range slices.Backward(all) {
		if p.n > 0 || !p.sealed {
			return
		}
		close(p.done)
		for _, later := range all {
			if later.before == p {
				later.before = nil
			}
		}
	}
}

// flush waits for the promises of the records accepted before, and for no later one.
func (q *promises) flush(ctx context.Context) error {
	q.mu.Lock()
	p := q.mu.open
	p.sealed = true
	q.mu.open = &pending{before: p, done: make(chan struct{})}
	q.settle()
	q.mu.Unlock()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return kafka.ContextError(ctx)
	}
}

func (q *promises) closed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.closed
}

// close reports whether it was open.
func (q *promises) close() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	was := q.mu.closed
	q.mu.closed = true
	return !was
}
