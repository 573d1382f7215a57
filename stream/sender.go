package stream

import (
	"errors"
	"slices"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
)

// How many batches are handed over in one go: by a caller that has something else to do, and by a sender, which other lanes wait for.
const (
	inlineBatches = 4
	senderBatches = 64
)

// drain hands over what is due, up to most batches; what is left a sender does. If somebody is at it already, he sees it. The lane is locked, and unlocked now and then.
func (p *producer) drain(ln *lane, most int) {
	a := ln.mu.acc
	if a.flushing {
		p.wait(ln)
		return
	}
	a.flushing = true
	left := most
	for n := p.due(a); n > 0 && left > 0; n = p.due(a) {
		for n = min(n, left); n > 0 && a.closed.len() > 0 && !a.stalled; n-- {
			left--
			p.handOver(ln, a.closed.pop())
		}
	}
	if left == 0 && p.due(a) > 0 {
		p.ask(ln)
	}
	a.flushing = false
	if a.quiet != nil {
		close(a.quiet)
		a.quiet = nil
	}
	p.wait(ln)
}

// due is the number of batches that are to be handed over now.
func (p *producer) due(a *accumulator) int {
	if p.closing.Load() {
		return 0 // Close answers what is left
	}
	room := a.turns() < int64(p.c.MaxInFlight)
	if a.closed.len() == 0 && a.due && room && !a.stalled {
		a.close()
	}
	switch {
	case a.stalled || a.closed.len() == 0:
		return 0
	case room:
		return a.closed.len()
	case p.joins(a, a.closed.all()[0]):
		return 1
	}
	return 0
}

// joins reports whether a batch counts as one with those in flight: full batches that follow each other are durable by the same sync. A window of the default size would let 80 KiB go with each sync otherwise.
func (p *producer) joins(a *accumulator, b *producerBatch) bool {
	return b.bulk && a.inflight.len() > 0 && p.c.MaxInFlight > 1
}

// turns is what MaxInFlight counts.
func (a *accumulator) turns() int64 {
	n := a.inflight.len()
	if n == 0 {
		return 0
	}
	return a.inflight.all()[n-1].turn - a.inflight.all()[0].turn + 1
}

// wait sees to it that what is left in a lane is looked at again if its time passes, or a context ends.
func (p *producer) wait(ln *lane) {
	a := ln.mu.acc
	waits := a.closed.len() > 0 || a.inflight.len() > 0 || a.flushing && a.open != nil
	if waits {
		p.watchAll(ln)
	} else if len(a.watches) > 0 && a.open == nil {
		a.unwatch()
	}
	switch {
	case waits && !a.armed:
		p.armDeadline(ln)
	case !waits:
		p.disarmDeadline(a)
	}
}

// watchAll watches the batches that have come since it was last called.
func (p *producer) watchAll(ln *lane) {
	a := ln.mu.acc
	if a.open != nil {
		p.watch(ln, a.open)
	}
	for _, b := range slices.Backward(a.closed.all()) {
		if b.seen {
			return
		}
		b.seen = true
		p.watch(ln, b)
	}
}

// each calls fn with the batches that have not been handed over, oldest first.
func (a *accumulator) each(fn func(b *producerBatch)) {
	for _, b := range a.closed.all() {
		fn(b)
	}
	if a.open != nil {
		fn(a.open)
	}
}

// dropMissed answers records of a named producer that wait behind one that was not written, and counts those that are left.
func (p *producer) dropMissed(ln *lane) {
	if len(ln.mu.missed) == 0 {
		return
	}
	a := ln.mu.acc
	a.accepted = 0
	if ln.mu.state != nil {
		a.accepted = ln.mu.state.Last()
	}
	a.each(func(b *producerBatch) { a.accepted = b.dropMissed(p, a.accepted) })
}

// handOver gives a batch to the log, and takes note of what became of it. The lane is locked; without a name it is unlocked meanwhile, so that others can go on filling batches.
func (p *producer) handOver(ln *lane, b *producerBatch) {
	b.contexts.unwatch()
	b.dropCancelled(p)
	b.handed = time.Now()
	ln.mu.acc.leaving = b
	if p.name == nil {
		ln.mu.Unlock()
	}
	err := p.write(ln, b)
	if p.name == nil {
		ln.mu.Lock()
	}
	ln.mu.acc.leaving = nil
	p.settle(ln, b, err)
}

// write appends a batch to the log.
func (p *producer) write(ln *lane, b *producerBatch) error {
	if err := p.enter(ln); err != nil {
		return err
	}
	defer p.leave(ln)
	b.life, b.epoch, b.upto = ln.mu.life, ln.mu.life.Epoch(), 0
	var first, last int64
	if p.name != nil {
		b.dropMissed(p, ln.mu.state.Last())
		first, last = b.sequences()
	}
	if err := b.prune(); err != nil {
		return err
	}
	if b.b.Count() > 0 {
		a, err := p.send(ln, &b.b, first, last)
		if err != nil {
			return err
		}
		b.base, b.epoch, b.written, b.time = a.base, a.epoch, a.bytes, a.time
		if b.synced {
			b.upto = a.base + int64(b.b.Count())
		}
	}
	if b.synced && p.name != nil {
		// The earlier record of a duplicate may have been written with a lower level: it waits as this one asks.
		b.upto = max(b.upto, ln.mu.state.Next())
	}
	return nil
}

// settle takes note of what became of a batch that was handed over. The lane is locked.
func (p *producer) settle(ln *lane, b *producerBatch, err error) {
	if err == nil || !p.retry(ln, b, err) {
		p.settled(ln, b, err)
	}
}

// settled is settle of a batch that is not tried again.
func (p *producer) settled(ln *lane, b *producerBatch, err error) {
	a := ln.mu.acc
	b.err = err
	if err == nil {
		ln.mu.counts.settled(b)
	}
	if p.name != nil {
		b.note(&ln.mu.missed)
		defer p.dropMissed(ln) // answered behind b
	}
	b.b = batch.Builder{}
	if b.buf != nil {
		p.buffers.Put(b.buf)
		b.buf = nil
	}
	if least := int64(len(b.plain))*8 + int64(len(b.entries))*entryBytes + batchBytes; least < b.held {
		p.memory.give(b.held - least)
		b.held = least
	}
	if err == nil && b.upto > 0 && b.life.DurableEnd() >= b.upto {
		b.upto = 0
	}
	if b.upto > 0 && err == nil && p.closing.Load() {
		b.err = kafka.OutcomeUnknown(kafka.ErrClosed) // nobody waits for it
	}
	if a.inflight.len() == 0 && (b.upto == 0 || b.err != nil) {
		p.complete(b)
		return
	}
	if n := a.inflight.len(); n > 0 {
		b.turn = a.inflight.all()[n-1].turn
		if !p.joins(a, b) {
			b.turn++
		}
	}
	a.inflight.push(b)
	if !a.acking {
		a.acking = true
		p.ackers.add(ln)
	}
}

// What is left of a batch when it has been handed over: about so much memory.
const (
	entryBytes = 40
	batchBytes = 256
)

// The time before a batch that failed is tried again, the first time (retry.backoff.ms) and at most (retry.backoff.max.ms).
const (
	retryBackoff    = 100 * time.Millisecond
	retryBackoffMax = time.Second
)

// retry puts a batch that failed back, if it is worth another try. It keeps its place, so those behind it wait.
func (p *producer) retry(ln *lane, b *producerBatch, err error) bool {
	left := p.c.DeliveryTimeout - time.Since(b.opened)
	switch {
	case p.c.Retries >= 0 && b.tries >= p.c.Retries, left <= 0, p.closing.Load():
		return false
	case !kafka.IsRetriable(err), errors.Is(err, kafka.ErrUnknownTopic):
		return false
	}
	b.tries++
	ln.mu.counts.retries++
	b.err = err
	a := ln.mu.acc
	a.closed.pushFront(b)
	b.contexts.seen = false
	p.watch(ln, b)
	a.stalled = true
	p.e.b.Wheel().Schedule(&a.retry, min(retryBackoff<<min(b.tries-1, 10), retryBackoffMax, left))
	return true
}

// again tries what is stalled.
func (p *producer) again(ln *lane) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.mu.acc.stalled = false
	p.drain(ln, senderBatches)
}
