package stream

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
)

const defaultBatchSize = 16 << 10

// producer implements Producer on an engine. Each call makes one batch per partition and hands it to the log on the caller's goroutine.
type producer struct {
	e     *Engine
	c     ProducerConfig
	id    int64
	epoch int16
	name  *broker.Name // nil without a name
	limit int          // of a record in a batch of its own

	closed  atomic.Bool
	ended   chan struct{}         // closed when Close has ended
	recent  atomic.Pointer[route] // the topic of the last record
	routes  sync.Map              // topic name → *route
	routing sync.Mutex            // held to change routes
	promises
}

// NewProducer returns a producer of this engine.
func (e *Engine) NewProducer(ctx context.Context, c ProducerConfig) (Producer, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Acks == AcksDefault {
		c.Acks = AcksSynced
	}
	if c.Partitioner == nil {
		c.Partitioner = KeyPartitioner()
	}
	if c.BatchSize == 0 {
		c.BatchSize = defaultBatchSize
	}
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = broker.DefaultMaxMessageBytes
	}
	p := &producer{e: e, c: c, limit: c.MaxMessageBytes, ended: make(chan struct{})}
	p.promises.logger = e.o.Logger
	var err error
	if c.Name != "" {
		p.name, p.id, p.epoch, err = e.b.OpenName(c.Name)
	} else {
		p.id, err = e.b.NewProducerID()
	}
	if err != nil {
		return nil, err
	}
	if err := e.register(p); err != nil {
		return nil, err
	}
	return p, nil
}

// acks is the level of a record.
func (p *producer) acks(r *Record) Acks {
	if r.Acks == AcksDefault {
		return p.c.Acks
	}
	return r.Acks
}

func (p *producer) receipt(ln *lane, a appended, i int, ms int64, acks Acks) Receipt {
	tp := ln.p.TopicPartition()
	return Receipt{Topic: tp.Topic, Partition: tp.Partition, LeaderEpoch: a.epoch, Offset: a.base + int64(i), Timestamp: time.UnixMilli(ms), Acks: acks}
}

// duplicate is the receipt of a record that is there already.
func (p *producer) duplicate(ln *lane, ms int64, acks Acks) Receipt {
	tp := ln.p.TopicPartition()
	return Receipt{Topic: tp.Topic, Partition: tp.Partition, LeaderEpoch: -1, Offset: -1, Timestamp: time.UnixMilli(ms), Acks: acks, Duplicate: true}
}

// one appends a single record; upto is the offset that has to be durable for it, 0 if it need not be. then, if there is
// one, runs before another record of the partition can be appended.
func (p *producer) one(ctx context.Context, r *Record, then func(rec Receipt, life *broker.Life, upto int64, err error)) (rec Receipt, life *broker.Life, upto int64, err error) {
	ln, err := p.lane(r)
	if err != nil {
		return Receipt{}, nil, 0, err
	}
	acks := p.acks(r)
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if err = ctx.Err(); err == nil {
		err = p.open(ln)
	}
	if err == nil {
		rec, upto, err = p.single(ln, r, acks)
		p.done(ln)
	}
	ln.mu.missed.note(r.Sequence, err)
	if then != nil {
		then(rec, ln.mu.life, upto, err)
	}
	return rec, ln.mu.life, upto, err
}

func (p *producer) single(ln *lane, r *Record, acks Acks) (rec Receipt, upto int64, err error) {
	var now, last int64
	if ln.mu.state != nil {
		last = ln.mu.state.Last()
	}
	ms, err := p.add(ln, r, &now, last)
	if err == errDuplicate {
		// The earlier record may have been written with a lower level: wait for it as this one asks.
		return p.duplicate(ln, ms, acks), durableFor(acks, ln.mu.state.Next()), nil
	}
	if err != nil {
		return Receipt{}, 0, err
	}
	a, err := p.send(ln, r.Sequence, r.Sequence)
	if err != nil {
		return Receipt{}, 0, err
	}
	rec = p.receipt(ln, a, 0, ms, acks)
	upto = durableFor(acks, rec.Offset+1)
	if acks == AcksNone {
		rec.Offset = -1
	}
	return rec, upto, nil
}

func durableFor(acks Acks, upto int64) int64 {
	if acks == AcksSynced {
		return upto
	}
	return 0
}

func (p *producer) ProduceSync(ctx context.Context, r *Record) (Receipt, error) {
	rec, life, upto, err := p.one(ctx, r, nil)
	if err == nil && upto > 0 {
		if err = life.WaitDurable(ctx, upto); err != nil {
			err = kafka.OutcomeUnknown(err)
		}
	}
	return rec, err
}

func (p *producer) Produce(ctx context.Context, r *Record, promise func(Receipt, error)) {
	if promise == nil {
		promise = ignore
	}
	queued := false
	_, _, _, err := p.one(ctx, r, func(rec Receipt, life *broker.Life, upto int64, err error) {
		queued = true
		p.promises.add(pending{promise, rec, err, life, upto})
	})
	if !queued {
		p.promises.add(pending{promise: promise, err: err})
	}
}

func ignore(Receipt, error) {}

func (p *producer) Flush(ctx context.Context) error {
	if p.closed.Load() {
		return waitFor(ctx, p.ended) // Close flushes
	}
	return p.promises.flush(ctx)
}

func (p *producer) LastSequence(ctx context.Context, tp TopicPartition) (int64, error) {
	if p.closed.Load() {
		return 0, kafka.ErrClosed
	}
	if p.name == nil {
		return 0, fmt.Errorf("LastSequence of a producer without a name: %w", kafka.ErrUnsupported)
	}
	bp, err := p.e.b.Partition(tp)
	if err != nil {
		return 0, err
	}
	ln, err := p.laneOf(bp)
	if err != nil {
		return 0, err
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if err := p.open(ln); err != nil {
		return 0, err
	}
	defer p.done(ln)
	ln.mu.missed = missed{}
	return ln.mu.state.Last(), nil
}

// Begin opens a transaction. In this version: ErrUnsupported.
func (p *producer) Begin(context.Context) (Txn, error) { return nil, unsupported("Begin") }

func (p *producer) Close(ctx context.Context) error {
	if p.closed.Swap(true) {
		return waitFor(ctx, p.ended)
	}
	defer close(p.ended)
	err := p.promises.close(ctx)
	p.e.unregister(p)
	return err
}
