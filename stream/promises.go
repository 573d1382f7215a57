package stream

import (
	"context"
	"log/slog"
	"sync"

	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
)

// promises runs a producer's promises one at a time, in the order in which they were added. The goroutine that runs them lives while there are any.
type promises struct {
	logger *slog.Logger
	mu     struct {
		sync.Mutex
		queue   []pending
		running bool
		cut     context.CancelCauseFunc // of the goroutine: ends its waits
		ended   chan struct{}           // closed when the goroutine has ended
	}
}

// pending is a record that has been appended, or failed, and whose promise has not run.
type pending struct {
	promise func(Receipt, error)
	rec     Receipt
	err     error
	life    *broker.Life // that the record went to
	upto    int64        // offset in it that has to be durable first, 0: none
}

func (q *promises) add(p pending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.queue = append(q.mu.queue, p)
	if !q.mu.running {
		q.mu.running = true
		ctx, cut := context.WithCancelCause(context.Background())
		q.mu.cut, q.mu.ended = cut, make(chan struct{})
		go q.run(ctx)
	}
}

func (q *promises) run(ctx context.Context) {
	var work, spare []pending
	i := 0
	ended := false
	defer func() {
		if !ended { // a promise has ended the goroutine (runtime.Goexit): another one goes on behind it
			q.mu.Lock()
			q.mu.queue = append(work[i+1:], q.mu.queue...)
			q.mu.Unlock()
			go q.run(ctx)
		}
	}()
	for {
		q.mu.Lock()
		work = q.mu.queue
		if len(work) == 0 {
			q.mu.running = false
			q.mu.cut(nil)
			close(q.mu.ended)
			q.mu.Unlock()
			ended = true
			return
		}
		q.mu.queue = spare[:0]
		q.mu.Unlock()
		for i = range work {
			q.keep(ctx, &work[i])
		}
		clear(work)
		spare = work
	}
}

// keep waits for what a promise needs and runs it.
func (q *promises) keep(ctx context.Context, p *pending) {
	if p.err == nil && p.upto > 0 {
		if p.err = p.life.WaitDurable(ctx, p.upto); p.err != nil {
			p.err = kafka.OutcomeUnknown(p.err)
		}
	}
	defer func() {
		if r := recover(); r != nil {
			q.logger.Error("promise panicked", "panic", r)
		}
	}()
	p.promise(p.rec, p.err)
}

// flush waits until everything added before has run.
func (q *promises) flush(ctx context.Context) error {
	done := make(chan struct{})
	q.add(pending{promise: func(Receipt, error) { close(done) }})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return kafka.ContextError(ctx)
	}
}

// close runs what is left. If ctx ends first, the records that are still waited for fail with kafka.ErrClosed, their outcome unknown.
func (q *promises) close(ctx context.Context) error {
	err := q.flush(ctx)
	q.mu.Lock()
	running, ended := q.mu.running, q.mu.ended
	if err != nil {
		err = kafka.ErrClosed
		if running {
			q.mu.cut(err)
		}
	}
	q.mu.Unlock()
	if running {
		<-ended
	}
	return err
}
