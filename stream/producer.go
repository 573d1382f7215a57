package stream

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
)

// producer implements Producer on an engine. Records of Produce and ProduceAll are accumulated (accumulator.go) and handed over in batches, by the caller that fills one or by a sender (sender.go);
// what is to be durable is acknowledged when it is (acknowledge.go). A ProduceSync that finds nothing accumulated goes by itself, on the caller's goroutine (produce_sync.go).
type producer struct {
	e     *Engine
	c     ProducerConfig
	id    int64
	epoch int16
	name  *broker.Name // nil without a name
	limit int          // of a record in a batch of its own
	// bounded: DeliveryTimeout was asked for, so it bounds ProduceSync too.
	bounded bool
	sticks  bool // the partitioner is KeyPartitioner

	closed  atomic.Bool
	closing atomic.Bool           // Close waits no longer
	ended   chan struct{}         // closed when Close has ended
	recent  atomic.Pointer[route] // the topic of the last record
	routes  sync.Map              // topic name → *route
	routing sync.Mutex            // held to change routes
	buried  []*route              // to topics that have been deleted, with something on its way; routing is held
	past    ProducerMetrics       // of routes that are gone; routing is held
	refused atomic.Int64          // records that failed before they reached a lane

	memory   memory
	buffers  sync.Pool // *[]byte of BatchSize
	batches  sync.Pool // *producerBatch
	packers  sync.Pool // *packer
	senders  crew      // hand over what no caller does
	ackers   crew      // wait for syncs
	ctx      context.Context
	cut      context.CancelCauseFunc // ends the waits of ackers
	promises promises
}

// Defaults of ProducerConfig.
const (
	defaultBatchSize       = 16 << 10
	defaultMaxBlock        = 60 * time.Second
	defaultDeliveryTimeout = 120 * time.Second
	defaultMaxInFlight     = 5
	defaultBufferMemory    = 32 << 20
)

// maxSenders is how many goroutines of a producer hand batches over at once: one may wait for a partition's first file, or its next one.
const maxSenders = 4

// NewProducer returns a producer of this engine.
func (e *Engine) NewProducer(ctx context.Context, c ProducerConfig) (Producer, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	bounded := c.DeliveryTimeout > 0
	c = c.withDefaults()
	p := &producer{e: e, c: c, limit: c.MaxMessageBytes, bounded: bounded, ended: make(chan struct{})}
	p.memory.init(c.BufferMemory)
	p.buffers.New = func() any { b := make([]byte, 0, c.BatchSize); return &b }
	p.batches.New = func() any { return new(producerBatch) }
	p.packers.New = func() any { return &packer{c: batch.NewCompressor(batch.Codec(c.Compression), c.CompressionLevel)} }
	p.senders.work, p.senders.most = p.look, maxSenders
	p.ackers.work, p.ackers.most = p.acknowledge, maxAckers
	p.promises.p = p
	p.promises.timer.Init(p.promises.hurry)
	_, p.sticks = c.Partitioner.(*keyed)
	var err error
	if c.Name != "" {
		p.name, p.id, p.epoch, err = e.b.OpenName(c.Name)
	} else {
		p.id, err = e.b.NewProducerID()
	}
	if err != nil {
		return nil, err
	}
	p.ctx, p.cut = context.WithCancelCause(context.Background())
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

func (p *producer) Produce(ctx context.Context, r *Record, promise func(Receipt, error)) {
	r = p.intercepted(r)
	e := entry{promise: promise}
	ln, err := p.lane(r)
	if err == nil {
		err = p.buffer(ctx, ln, r, e)
	}
	if err != nil {
		p.refused.Add(1)
		p.answer(&e, Receipt{}, err)
	}
}

// Flush hands over what is accumulated, and waits for it.
func (p *producer) Flush(ctx context.Context) error {
	if p.closed.Load() {
		if err := waitFor(ctx, p.ended); err != nil {
			return err
		}
	}
	return p.flush(ctx)
}

func (p *producer) flush(ctx context.Context) error {
	var c call
	p.eachLane(func(ln *lane) { p.flushLane(ln, &c) })
	if err := c.wait(ctx); err != nil {
		return err
	}
	return p.promises.flush(ctx)
}

// flushLane hands over what is accumulated in a lane, and has c wait for all of it.
func (p *producer) flushLane(ln *lane, c *call) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	a := ln.mu.acc
	if a == nil {
		return
	}
	if c != nil {
		for _, b := range a.lasts() {
			if b != nil {
				c.add()
				b.flushes = append(b.flushes, c)
			}
		}
	}
	a.due = a.open != nil
	p.drain(ln, senderBatches)
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
	var c call
	p.flushLane(ln, &c)
	if err := c.wait(ctx); err != nil {
		return 0, err
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if err := p.enter(ln); err != nil {
		return 0, err
	}
	defer p.leave(ln)
	ln.mu.missed = nil
	return ln.mu.state.Last(), nil
}

// Begin opens a transaction. In this version: ErrUnsupported.
func (p *producer) Begin(context.Context) (Txn, error) { return nil, unsupported("Begin") }

func (p *producer) Close(ctx context.Context) error {
	if p.closed.Swap(true) {
		return waitFor(ctx, p.ended)
	}
	defer close(p.ended)
	p.memory.shut(kafka.ErrClosed)
	err := p.flush(ctx)
	if err != nil {
		err = kafka.ErrClosed
		p.closing.Store(true)
		p.cut(err)
		p.eachLane(p.giveUp)
	}
	p.eachLane(p.rest)
	p.senders.wait()
	p.ackers.wait()
	p.e.b.Wheel().Cancel(&p.promises.timer)
	p.promises.end()
	p.cut(nil)
	p.e.unregister(p)
	return err
}
