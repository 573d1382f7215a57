package stream

import (
	"fmt"
	"time"

	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
)

// maxAckers is how many goroutines of a producer wait for syncs at once: no disk gains from more.
const maxAckers = 4

// acknowledge waits until the first batch in flight of a lane is durable, and answers all that are. It is an acker's work, who has the lane's acking.
func (p *producer) acknowledge(ln *lane) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	a := ln.mu.acc
	if p.answerUpTo(ln, nil, 0, nil); a.inflight.len() > 0 {
		first := a.inflight.all()[0]
		life, upto := first.life, first.upto
		ln.mu.Unlock()
		err := life.WaitDurable(p.ctx, upto)
		ln.mu.Lock()
		p.answerUpTo(ln, life, upto, err)
	}
	p.drain(ln, senderBatches)
	if a.acking = a.inflight.len() > 0; a.acking {
		p.ackers.add(ln)
	}
}

// answerUpTo answers the batches in flight that are durable in a life, or that were waited for in vain: those up to an offset, if err says why.
func (p *producer) answerUpTo(ln *lane, life *broker.Life, upto int64, err error) {
	a := ln.mu.acc
	for a.inflight.len() > 0 {
		b := a.inflight.all()[0]
		switch {
		case b.err != nil || b.upto == 0:
		case b.life.DurableEnd() >= b.upto:
		case err != nil && b.life == life && b.upto <= upto:
			b.err = kafka.OutcomeUnknown(err)
		default:
			return
		}
		p.complete(a.inflight.pop())
	}
}

// complete lets the promises of a batch run. The lane is locked.
func (p *producer) complete(b *producerBatch) {
	b.ln.waiting.Add(-1)
	b.ln.mu.counts.answered(b)
	flushes := b.flushes
	b.flushes = nil
	if b.called && b.onlyCalls() {
		p.memory.give(b.held) // before its callers go on, and need it again
		b.held = 0
		b.resolve()
		p.recycle(b)
	} else {
		b.resolve()
		p.promises.add(pending{b: b})
	}
	for _, f := range flushes {
		f.done()
	}
}

// recycle gives back what a batch has held, when all has been said of it.
func (p *producer) recycle(b *producerBatch) {
	p.memory.give(b.held)
	clear(b.entries)
	clear(b.plain)
	b.contexts.reset()
	*b = producerBatch{plain: b.plain[:0], entries: b.entries[:0], contexts: b.contexts}
	p.batches.Put(b)
}

// answer tells what became of a record that is not in a batch, or not any more.
func (p *producer) answer(e *entry, rec Receipt, err error) {
	if e.call != nil {
		e.call.resolve(int(e.at), rec, err)
		return
	}
	if e.promise != nil || len(p.c.Interceptors) > 0 {
		p.promises.add(pending{promise: e.promise, rec: rec, err: err})
	}
}

// armDeadline has the lane looked at when its oldest batch is too old.
func (p *producer) armDeadline(ln *lane) {
	a := ln.mu.acc
	oldest := a.open
	if a.closed.len() > 0 {
		oldest = a.closed.all()[0]
	}
	if a.inflight.len() > 0 {
		oldest = a.inflight.all()[0]
	}
	if a.armed = oldest != nil; a.armed {
		p.e.b.Wheel().Schedule(&a.deadline, p.c.DeliveryTimeout-time.Since(oldest.opened))
	}
}

func (p *producer) disarmDeadline(a *accumulator) {
	if a.armed {
		a.armed = false
		p.e.b.Wheel().Cancel(&a.deadline)
	}
}

// expire answers what has been on its way for longer than DeliveryTimeout.
func (p *producer) expire(ln *lane) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	a := ln.mu.acc
	old := func(b *producerBatch) bool { return time.Since(b.opened) >= p.c.DeliveryTimeout }
	late := func(b *producerBatch) error {
		err := fmt.Errorf("%w: ProducerConfig.DeliveryTimeout, %v, has passed", kafka.ErrTimeout, p.c.DeliveryTimeout)
		if b.err != nil {
			err = fmt.Errorf("%w; the last try: %w", err, b.err)
		}
		return err
	}
	for a.inflight.len() > 0 && old(a.inflight.all()[0]) {
		b := a.inflight.pop()
		if b.err == nil && b.upto > 0 {
			b.err = kafka.OutcomeUnknown(late(b))
		}
		p.complete(b)
	}
	p.answerUpTo(ln, nil, 0, nil) // those that only waited for their turn
	p.fail(ln, old, late)
	p.armDeadline(ln)
}

// fail answers batches that have not been handed over. The lane is locked.
func (p *producer) fail(ln *lane, which func(b *producerBatch) bool, why func(b *producerBatch) error) {
	a := ln.mu.acc
	for {
		if a.closed.len() == 0 && a.open != nil && which(a.open) {
			a.close()
		}
		if a.closed.len() == 0 || !which(a.closed.all()[0]) {
			return
		}
		b := a.closed.pop()
		b.contexts.unwatch()
		p.settled(ln, b, why(b))
	}
}

// giveUp answers all that is in a lane with kafka.ErrClosed: Close waits no longer.
func (p *producer) giveUp(ln *lane) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	a := ln.mu.acc
	if a == nil {
		return
	}
	for a.inflight.len() > 0 {
		b := a.inflight.pop()
		if b.err == nil && b.upto > 0 {
			b.err = kafka.OutcomeUnknown(kafka.ErrClosed)
		}
		p.complete(b)
	}
	p.fail(ln, func(*producerBatch) bool { return true }, func(*producerBatch) error { return kafka.ErrClosed })
}

// rest ends what goes on in a lane by itself, after the last batch that somebody hands over has its answer.
func (p *producer) rest(ln *lane) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	a := ln.mu.acc
	if a == nil {
		return
	}
	if a.flushing {
		quiet := make(chan struct{})
		a.quiet = quiet
		ln.mu.Unlock()
		<-quiet
		ln.mu.Lock()
	}
	p.e.b.Wheel().Cancel(&a.linger)
	p.e.b.Wheel().Cancel(&a.retry)
	p.disarmDeadline(a)
	a.unwatch()
}
