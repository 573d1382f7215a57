package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/wheel"
)

func (p *producer) ProduceSync(ctx context.Context, r *Record) (Receipt, error) {
	r = p.intercepted(r)
	rec, err := p.produceSync(ctx, r)
	p.acknowledged(rec, err)
	return rec, err
}

func (p *producer) produceSync(ctx context.Context, r *Record) (Receipt, error) {
	ln, err := p.lane(r)
	if err != nil {
		p.refused.Add(1)
		return Receipt{}, err
	}
	ln.mu.Lock()
	if a := ln.mu.acc; a != nil && !a.idle() {
		ln.mu.Unlock()
		return p.ride(ctx, ln, r)
	}
	rec, upto, err := p.single(ctx, ln, r)
	if err != nil {
		ln.mu.counts.failed++
	}
	ln.mu.missed.note(r.Sequence, err)
	life := ln.mu.life
	ln.mu.Unlock()
	if err == nil && upto > 0 {
		if err = p.waitDurable(ctx, life, upto); err != nil {
			err = kafka.OutcomeUnknown(err)
		}
	}
	return rec, err
}

// single appends one record by itself. The lane is locked, and nothing is accumulated in it. upto is the offset that has to be durable for the record, 0 if it need not be.
func (p *producer) single(ctx context.Context, ln *lane, r *Record) (rec Receipt, upto int64, err error) {
	switch {
	case ctx.Err() != nil:
		return Receipt{}, 0, kafka.ContextError(ctx)
	case p.closed.Load():
		return Receipt{}, 0, kafka.ErrClosed
	}
	if err := p.enter(ln); err != nil {
		return Receipt{}, 0, err
	}
	defer p.leave(ln)
	var last int64
	if p.name != nil {
		last = ln.mu.state.Last()
	}
	tp := ln.p.TopicPartition()
	rec = Receipt{Topic: tp.Topic, Partition: tp.Partition, LeaderEpoch: -1, Offset: -1, Timestamp: r.Timestamp, Acks: p.acks(r)}
	ms := r.Timestamp.UnixMilli()
	if r.Timestamp.IsZero() {
		ms = p.e.b.NowMillis()
	}
	rec.Timestamp = time.UnixMilli(ms)
	headers, err := p.check(ln, r, last)
	if err == errDuplicate {
		// The earlier record may have been written with a lower level: wait for it as this one asks.
		rec.Duplicate = true
		return rec, durableFor(rec.Acks, ln.mu.state.Next()), nil
	}
	if err != nil {
		return Receipt{}, 0, err
	}
	if _, err := p.size(ln, r, headers); err != nil {
		return Receipt{}, 0, err
	}
	var records batch.Builder
	records.Reset(ln.mu.buf)
	records.Append(ms, r.Key, r.Value, headers)
	a, err := p.send(ln, &records, r.Sequence, r.Sequence)
	plain := records.Len()
	ln.mu.buf = records.Buffer(maxSingle)
	if err != nil {
		return Receipt{}, 0, err
	}
	ln.mu.counts.appended(1, plain, a.bytes)
	rec.LeaderEpoch = a.epoch
	if a.time > 0 {
		rec.Timestamp = time.UnixMilli(a.time)
	}
	if rec.Acks != AcksNone {
		rec.Offset = a.base
	}
	return rec, durableFor(rec.Acks, a.base+1), nil
}

// maxSingle is the capacity of a lane's own buffer: there may be very many lanes.
const maxSingle = 4 << 10

func durableFor(acks Acks, upto int64) int64 {
	if acks == AcksSynced {
		return upto
	}
	return 0
}

// ride sends one record with those that are accumulated.
func (p *producer) ride(ctx context.Context, ln *lane, r *Record) (Receipt, error) {
	out := make([]Result, 1)
	c := newCall(out)
	if err := p.buffer(ctx, ln, r, entry{call: c}); err != nil {
		p.refused.Add(1)
		return Receipt{}, err
	}
	p.flushLane(ln, nil)
	if err := c.wait(ctx); err != nil {
		p.takeBack(ln, c, err)
		c.abandon(err)
	}
	return out[0].Receipt, out[0].Err
}

// takeBack answers the records of a call that have not been handed over.
func (p *producer) takeBack(ln *lane, c *call, err error) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.mu.acc.each(func(b *producerBatch) {
		for i := range b.entries {
			if b.entries[i].call == c {
				b.miss(p, i, err)
			}
		}
	})
	p.dropMissed(ln)
}

// waitDurable waits for a record, up to DeliveryTimeout if the caller has asked for one.
func (p *producer) waitDurable(ctx context.Context, life *broker.Life, upto int64) error {
	if !p.bounded {
		return life.WaitDurable(ctx, upto)
	}
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := fmt.Errorf("%w: ProducerConfig.DeliveryTimeout, %v, has passed", kafka.ErrTimeout, p.c.DeliveryTimeout)
	timeout := wheel.NewTimer(func() { cancel(late) })
	p.e.b.Wheel().Schedule(timeout, p.c.DeliveryTimeout)
	defer p.e.b.Wheel().Cancel(timeout)
	err := life.WaitDurable(bounded, upto)
	if errors.Is(err, late) {
		return late
	}
	return err
}
