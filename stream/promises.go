package stream

import (
	"context"
	"sync"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/wheel"
)

// promises runs a producer's promises one at a time, in the order in which they were added. The goroutine that runs them lives while there are any.
type promises struct {
	p  *producer
	mu struct {
		sync.Mutex
		queue   []pending
		running bool
		armed   bool          // timer is
		ended   chan struct{} // closed when the goroutine has ended; made by who waits
	}
	timer wheel.Timer // starts the goroutine
	round round       // of the goroutine
}

// pending is what has its answer: a batch, or a single record that is in none.
type pending struct {
	b       *producerBatch
	promise func(Receipt, error)
	rec     Receipt
	err     error
	after   func() // runs when everything before has, instead
}

// bulkBatches is how many batches wait for the goroutine while one becomes full after the other: to start it for each takes longer than to fill one.
const bulkBatches = 16

func (q *promises) add(p pending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.queue = append(q.mu.queue, p)
	switch {
	case q.mu.running:
	case p.b == nil || !p.b.bulk || len(q.mu.queue) >= bulkBatches || q.p.memory.waits.Load() > 0:
		q.start()
	case !q.mu.armed:
		q.mu.armed = true
		q.p.e.b.Wheel().Schedule(&q.timer, busyDelay)
	}
}

// start starts the goroutine, if there is something to do; mu is held.
func (q *promises) start() {
	if !q.mu.running && len(q.mu.queue) > 0 {
		q.mu.running = true
		go q.run()
	}
}

// hurry starts the goroutine.
func (q *promises) hurry() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.armed = false
	q.start()
}

// round is how far the goroutine has come.
type round struct {
	work   []pending
	i      int   // of work
	entry  int   // of its batch
	offset int64 // of the entry's record, behind the batch's base offset
}

// run is the goroutine. A caller of memory.take is known to be a promise by it: see inPromise.
func (q *promises) run() {
	r := &q.round
	ended := false
	defer func() {
		if !ended { // a promise has ended the goroutine (runtime.Goexit): another one goes on behind it
			go q.run()
		}
	}()
	for {
		for r.i < len(r.work) {
			q.keep(r)
		}
		clear(r.work)
		r.work, r.i = r.work[:0], 0
		q.mu.Lock()
		if len(q.mu.queue) == 0 {
			q.mu.running = false
			if q.mu.ended != nil {
				close(q.mu.ended)
				q.mu.ended = nil
			}
			q.mu.Unlock()
			ended = true
			return
		}
		r.work, q.mu.queue = q.mu.queue, r.work
		q.mu.Unlock()
	}
}

// promiseCaller is how the name of run ends.
const promiseCaller = "/stream.(*promises).run"

// keep runs what is pending from where the round is, up to its end or the first panic.
func (q *promises) keep(r *round) {
	defer func() {
		if v := recover(); v != nil {
			q.p.e.o.Logger.Error("promise panicked", "panic", v)
		}
	}()
	w := &r.work[r.i]
	b := w.b
	switch {
	case w.after != nil:
		r.i++
		w.after()
		return
	case b == nil:
		r.i++
		q.keepOne(w.promise, w.rec, w.err)
		return
	}
	if len(b.plain) > 0 {
		rec := b.receipt(&entry{ms: b.clock, acks: b.acks, bytes: true}, b.base+int64(r.entry))
		for r.entry < len(b.plain) {
			promise := b.plain[r.entry]
			r.entry++
			q.keepOne(promise, rec, b.err)
			if b.err == nil {
				rec.Offset++
			}
		}
	}
	for r.entry < len(b.entries) {
		e := &b.entries[r.entry]
		r.entry++
		if e.gone {
			continue
		}
		offset := b.base + r.offset
		if e.bytes {
			r.offset++
		}
		if e.call == nil && !e.told {
			q.keepOne(e.promise, b.receipt(e, offset), b.err)
		}
	}
	r.i, r.entry, r.offset = r.i+1, 0, 0
	q.p.recycle(b)
}

// keepOne runs one promise, and the interceptors before it.
func (q *promises) keepOne(promise func(Receipt, error), rec Receipt, err error) {
	if len(q.p.c.Interceptors) > 0 {
		q.p.acknowledged(rec, err)
	}
	if promise != nil {
		promise(rec, err)
	}
}

// flush waits until everything added before has run.
func (q *promises) flush(ctx context.Context) error {
	done := make(chan struct{})
	q.add(pending{after: func() { close(done) }})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return kafka.ContextError(ctx)
	}
}

// end waits until the goroutine has ended. Nothing is added any more but what fails at once.
func (q *promises) end() {
	q.mu.Lock()
	q.start()
	if !q.mu.running {
		q.mu.Unlock()
		return
	}
	ended := make(chan struct{})
	q.mu.ended = ended
	q.mu.Unlock()
	<-ended
}
