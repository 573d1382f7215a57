package stream

import (
	"context"
	"fmt"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/wheel"
)

// accumulator holds the batches of a lane on their way: one is open, and filled by callers; those before it are closed, and wait for their turn; those before them have been handed over, and
// wait until they are durable. The lane's lock guards it, except where a batch is handed over: flushing keeps others away from that then.
type accumulator struct {
	open     *producerBatch
	due      bool // the open batch goes as soon as it can
	closed   fifo[*producerBatch]
	inflight fifo[*producerBatch]
	flushing bool           // somebody hands batches over, and looks here before he ends
	leaving  *producerBatch // that is handed over now
	quiet    chan struct{}  // closed when flushing ends; made by Close
	watches  []watched      // contexts that are watched while batches wait
	stalled  bool           // until the next try of what failed
	acking   bool           // somebody waits for the first one in flight
	asked    bool           // a sender has been asked to look
	filled   bool           // a batch has become full since then
	busy     bool           // linger is armed for busyDelay
	accepted int64          // greatest sequence of a named producer in the log or here

	linger, retry, deadline wheel.Timer
	armed                   bool // deadline is
}

// idle reports whether nothing waits to be handed over.
func (a *accumulator) idle() bool {
	return a.open == nil && a.closed.len() == 0 && !a.flushing
}

// accumulate returns the lane's accumulator, which is made when there is something to accumulate. The lane is locked.
func (p *producer) accumulate(ln *lane) *accumulator {
	a := ln.mu.acc
	if a == nil {
		a = &accumulator{}
		a.linger.Init(func() { p.look(ln) })
		a.retry.Init(func() { p.again(ln) })
		a.deadline.Init(func() { p.expire(ln) })
		ln.mu.acc = a
	}
	return a
}

// buffer puts a record into the open batch of its lane, waiting for memory if there is none. An error means that it is not there and has no answer.
func (p *producer) buffer(ctx context.Context, ln *lane, r *Record, e entry) error {
	e.acks = p.acks(r)
	ln.mu.Lock()
	if p.fill(ctx, ln, r, &e) {
		ln.mu.Unlock()
		return nil
	}
	need, err := p.putOrMiss(ctx, ln, r, e, 0)
	for need > 0 {
		ln.mu.Unlock()
		err = p.memory.take(ctx, need, p.c.MaxBlock, p.e.b.Wheel(), p.press)
		ln.mu.Lock()
		if err != nil {
			p.miss(ln, r, err)
			break
		}
		need, err = p.putOrMiss(ctx, ln, r, e, need)
	}
	ln.mu.Unlock()
	return err
}

// putOrMiss is put, and hands over what is full then.
func (p *producer) putOrMiss(ctx context.Context, ln *lane, r *Record, e entry, held int64) (need int64, err error) {
	if need, err = p.put(ctx, ln, r, e, held); err != nil {
		p.miss(ln, r, err)
	}
	switch a := ln.mu.acc; {
	case a.closed.len() == 0:
	case p.c.Compression == CompressionNone:
		p.drain(ln, inlineBatches)
	case !a.flushing: // to compress takes longer than to fill the next one: both go on at once
		p.ask(ln)
	}
	return need, err
}

// miss takes note of a record that is not sent. The lane is locked.
func (p *producer) miss(ln *lane, r *Record, err error) {
	ln.mu.missed.note(r.Sequence, err)
	p.dropMissed(ln)
}

// fill is put of most records: of a producer without a name, with neither headers nor a time nor a context of their own, into a batch that has room. It reports whether it has done so.
func (p *producer) fill(ctx context.Context, ln *lane, r *Record, e *entry) bool {
	a := ln.mu.acc
	if a == nil || a.open == nil {
		return false
	}
	b := a.open
	const overhead = 32 // of a record with short deltas, lengths included
	switch {
	case b.b.Len()+len(r.Key)+len(r.Value)+overhead > b.full || b.count() >= b.most,
		r.Key == nil, len(r.Headers) > 0, !r.Timestamp.IsZero(), r.Sequence != 0,
		e.acks != b.acks, e.call != nil, len(b.entries) > 0,
		p.name != nil, !b.contexts.fits(ctx), p.closed.Load(), ln.p.Topic().Deleted():
		return false
	}
	b.b.Append(b.clock, r.Key, r.Value, nil)
	b.plain = append(b.plain, e.promise)
	return true
}

// put puts a record into the open batch, if there is memory: held bytes of it are the caller's and become the batch's, or are given back; need is how much has to be waited for otherwise. The
// lane is locked.
func (p *producer) put(ctx context.Context, ln *lane, r *Record, e entry, held int64) (need int64, err error) {
	a := p.accumulate(ln)
	headers, size, err := p.admit(ctx, ln, r, &e)
	b := a.open
	if err == nil && b != nil && b.b.Count() > 0 && b.b.Len()+size > b.full {
		a.closeFull()
		b = nil
	}
	if err == nil && b == nil {
		want := int64(max(p.c.BatchSize, batch.HeaderSize+size))
		switch {
		case want > p.memory.total:
			err = fmt.Errorf("%w: %d bytes, ProducerConfig.BufferMemory is %d", kafka.ErrRecordTooLarge, want, p.memory.total)
		case held >= want || p.memory.tryTake(want-held):
			held = max(held-want, 0)
			b = p.openBatch(ln, want)
			if e.call == nil || p.memory.waits.Load() > 0 {
				p.arm(ln)
			}
		default:
			need = want
		}
	}
	if held > 0 {
		p.memory.give(held)
	}
	if err != nil || need > 0 {
		return need, err
	}
	if e.ms = b.clock; !r.Timestamp.IsZero() {
		e.ms = r.Timestamp.UnixMilli()
	}
	if e.bytes {
		b.b.Append(e.ms, r.Key, r.Value, headers)
	}
	a.accepted = max(a.accepted, e.sequence)
	if e.acks == AcksNone {
		b.epoch = p.e.b.Epoch()
		p.answer(&e, b.receipt(&e, -1), nil)
		e.call, e.promise, e.told = nil, nil, true
	}
	b.add(ctx, e)
	if a.stalled || p.c.Linger > 0 {
		p.watch(ln, b)
	}
	if b.b.Len() >= b.full || b.count() >= b.most {
		a.closeFull()
	}
	return 0, nil
}

// admit says whether a record can be sent: with which headers, and how many bytes it takes at most.
func (p *producer) admit(ctx context.Context, ln *lane, r *Record, e *entry) (headers []Header, size int, err error) {
	if p.closed.Load() {
		return nil, 0, kafka.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, 0, kafka.ContextError(ctx)
	}
	if ln.p.Topic().Deleted() { // nobody flushes a lane of an older life of the topic
		return nil, 0, ln.p.Gone()
	}
	a := ln.mu.acc
	if p.name != nil && a.idle() {
		// Nobody else writes under the name: what the log says now is true until the batches here are handed over.
		if err := p.enter(ln); err != nil {
			return nil, 0, err
		}
		a.accepted = ln.mu.state.Last()
		p.leave(ln)
	}
	e.sequence = r.Sequence
	headers, err = p.check(ln, r, a.accepted)
	if err == errDuplicate {
		return nil, 0, nil
	}
	e.bytes = true
	if err == nil {
		size, err = p.size(ln, r, headers)
	}
	return headers, size, err
}

// leastRecord bounds the number of records in a batch, whose bookkeeping takes memory too: as if each took so many bytes.
const leastRecord = 8

// full is the size at which a batch is full.
func (p *producer) full(ln *lane) int {
	return min(p.c.BatchSize, p.limit, ln.p.Topic().MaxMessageBytes())
}

// openBatch opens a batch that holds so much of the producer's memory.
func (p *producer) openBatch(ln *lane, held int64) *producerBatch {
	b := p.batches.Get().(*producerBatch)
	if held == int64(p.c.BatchSize) {
		b.buf = p.buffers.Get().(*[]byte)
		b.b.Reset(*b.buf)
	} else {
		b.b.Reset(make([]byte, 0, held))
	}
	b.ln, b.held, b.clock, b.opened = ln, held, p.e.b.NowMillis(), time.Now()
	b.full, b.most = p.full(ln), max(1, p.c.BatchSize/leastRecord)
	ln.mu.acc.open = b
	return b
}

// close closes the open batch.
func (a *accumulator) close() {
	a.closed.push(a.open)
	a.open.ln.waiting.Add(1)
	a.open, a.due = nil, false
}

// bulkBytes is the size from which it is worth it to let promises of batches wait for each other.
const bulkBytes = 8 << 10

// closeFull closes the open batch since it is full.
func (a *accumulator) closeFull() {
	a.open.bulk = a.filled && min(a.open.full, a.open.b.Len()) >= bulkBytes
	a.filled = true
	a.close()
}

// arm sees to it that the open batch goes when it has lingered.
func (p *producer) arm(ln *lane) {
	a := ln.mu.acc
	if p.c.Linger > 0 && p.memory.waits.Load() == 0 {
		p.e.b.Wheel().Schedule(&a.linger, p.c.Linger)
		return
	}
	if !a.busy {
		p.ask(ln)
	}
}

// busyDelay is how long the rest of a batch waits while batches become full without it: until then callers are faster than any goroutine that could be woken.
const busyDelay = time.Millisecond

// look hands over what has lingered.
func (p *producer) look(ln *lane) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	a := ln.mu.acc
	a.asked, a.busy = false, false
	switch {
	case a.open == nil:
	case a.due || p.memory.waits.Load() > 0:
		a.due = true
	case p.c.Linger == 0 && a.filled:
		a.busy, a.filled = true, false
		p.e.b.Wheel().Schedule(&a.linger, busyDelay)
	default:
		if left := p.c.Linger - time.Since(a.open.opened); left > 0 {
			p.e.b.Wheel().Schedule(&a.linger, left)
		} else {
			a.due = true
		}
	}
	p.drain(ln, senderBatches)
}

// press hands over all open batches, since somebody waits for their memory.
func (p *producer) press() {
	p.promises.hurry()
	p.eachLane(func(ln *lane) {
		ln.mu.Lock()
		defer ln.mu.Unlock()
		if a := ln.mu.acc; a != nil && a.open != nil {
			a.due = true
			p.ask(ln)
		}
	})
}

// ask makes a sender look at a lane, which is locked.
func (p *producer) ask(ln *lane) {
	if a := ln.mu.acc; !a.asked {
		a.asked, a.filled = true, false
		p.senders.add(ln)
	}
}

// lasts are the last batches in flight, being handed over, and waiting for that; nil where there is none. When they have their answers, all before them have.
func (a *accumulator) lasts() (bs [3]*producerBatch) {
	if n := a.inflight.len(); n > 0 {
		bs[0] = a.inflight.all()[n-1]
	}
	bs[1], bs[2] = a.leaving, a.open
	if n := a.closed.len(); n > 0 && bs[2] == nil {
		bs[2] = a.closed.all()[n-1]
	}
	return bs
}
