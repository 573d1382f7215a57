package stream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
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

// route is a topic as a producer sees it.
type route struct {
	t     *broker.Topic
	lanes atomic.Pointer[[]*lane]
}

// lane is a producer's way into one partition. Its lock is held from the first byte of a batch to its offset, so that sequences, records of a named
// producer and promises have one order.
type lane struct {
	p  *broker.Partition
	mu struct {
		sync.Mutex
		b        batch.Builder
		buf      []byte
		sequence int32         // of the next batch
		state    *broker.State // of a named producer
		missed   missed
		headers  []Header
		number   [8]byte
	}
}

// missed is the first record of a named producer that was not written. Later sequences of the partition are refused until it has been sent again, or
// until the caller has asked for LastSequence: were they written, a retry of the missed record would be taken for a duplicate, and be lost.
type missed struct {
	sequence int64 // 0: none
	err      error
}

// note remembers the outcome of a record that has a sequence.
func (m *missed) note(sequence int64, err error) {
	switch {
	case sequence == 0:
	case err == nil && sequence >= m.sequence:
		*m = missed{}
	case err != nil && (m.sequence == 0 || sequence < m.sequence):
		*m = missed{sequence, err}
	}
}

// refuse returns an error for a sequence behind the missed one.
func (m *missed) refuse(sequence int64) error {
	if m.sequence == 0 || sequence <= m.sequence {
		return nil
	}
	return fmt.Errorf("sequence %d before it was not written: %w", m.sequence, m.err)
}

// maxKept is the capacity of an encoding buffer that is kept between calls.
const maxKept = 256 << 10

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

// lane finds the way of a record.
func (p *producer) lane(r *Record) (*lane, error) {
	if p.closed.Load() {
		return nil, kafka.ErrClosed
	}
	rt := p.recent.Load()
	if rt == nil || rt.t.Name() != r.Topic || rt.t.Deleted() {
		var err error
		if rt, err = p.findRoute(r.Topic); err != nil {
			return nil, err
		}
		p.recent.Store(rt)
	}
	lanes := *rt.lanes.Load()
	if n := len(rt.t.Partitions()); n != len(lanes) {
		lanes = p.widen(rt)
	}
	n := p.c.Partitioner.Partition(r, len(lanes))
	if n < 0 || int(n) >= len(lanes) {
		return nil, fmt.Errorf("%w: %s-%d, the topic has %d partitions", kafka.ErrUnknownTopic, r.Topic, n, len(lanes))
	}
	return lanes[n], nil
}

// laneOf is the way into a partition.
func (p *producer) laneOf(bp *broker.Partition) (*lane, error) {
	rt, err := p.findRoute(bp.TopicPartition().Topic)
	if err != nil {
		return nil, err
	}
	lanes := *rt.lanes.Load()
	if n := bp.TopicPartition().Partition; int(n) >= len(lanes) {
		lanes = p.widen(rt)
	}
	return lanes[bp.TopicPartition().Partition], nil
}

func (p *producer) findRoute(topic string) (*route, error) {
	if v, ok := p.routes.Load(topic); ok {
		if rt := v.(*route); !rt.t.Deleted() {
			return rt, nil
		}
	}
	t, err := p.e.topic(topic)
	if err != nil {
		return nil, err
	}
	p.routing.Lock()
	defer p.routing.Unlock()
	if v, ok := p.routes.Load(topic); ok && v.(*route).t == t {
		return v.(*route), nil
	}
	rt := &route{t: t}
	rt.lanes.Store(&[]*lane{})
	p.routes.Store(topic, rt)
	return rt, nil
}

// widen gives a route the lanes of partitions that it does not know.
func (p *producer) widen(rt *route) []*lane {
	p.routing.Lock()
	defer p.routing.Unlock()
	parts := rt.t.Partitions()
	lanes := append([]*lane(nil), *rt.lanes.Load()...)
	for _, bp := range parts[min(len(lanes), len(parts)):] {
		lanes = append(lanes, &lane{p: bp})
	}
	rt.lanes.Store(&lanes)
	return lanes
}

// acks is the level of a record.
func (p *producer) acks(r *Record) Acks {
	if r.Acks == AcksDefault {
		return p.c.Acks
	}
	return r.Acks
}

// millis is a record's timestamp; now is the clock of its batch.
func millis(r *Record, now int64) (int64, error) {
	if r.Timestamp.IsZero() {
		return now, nil
	}
	ms := r.Timestamp.UnixMilli()
	if ms < 0 {
		return 0, fmt.Errorf("%w: timestamp %v is before 1970", kafka.ErrInvalidRecord, r.Timestamp)
	}
	return ms, nil
}

// open begins a batch in the lane, which is locked, and reads a named producer's state, which stays locked until done.
func (p *producer) open(ln *lane) error {
	ln.mu.b.Reset(ln.mu.buf)
	if p.name == nil {
		return nil
	}
	if ln.mu.state == nil {
		st, err := p.name.State(ln.p, p.epoch)
		if err != nil {
			return err
		}
		ln.mu.state = st
	}
	ln.mu.state.Lock()
	if _, err := p.name.Live(p.epoch); err != nil {
		ln.mu.state.Unlock()
		return err
	}
	return nil
}

// done ends what open began.
func (p *producer) done(ln *lane) {
	if p.name != nil && ln.mu.state != nil {
		ln.mu.state.Unlock()
	}
	if cap(ln.mu.buf) > maxKept {
		ln.mu.buf = nil
	}
}

// errDuplicate says that a record of a named producer is there already.
var errDuplicate = errors.New("duplicate")

// add encodes a record into the lane's open batch. It returns the record's timestamp. last is the sequence before it.
func (p *producer) add(ln *lane, r *Record, now, last int64) (ms int64, err error) {
	if ms, err = millis(r, now); err != nil {
		return 0, err
	}
	if r.Acks < AcksDefault || r.Acks > AcksSynced {
		return 0, fmt.Errorf("%w: Acks is %v", kafka.ErrInvalidRecord, r.Acks)
	}
	headers := r.Headers
	if p.name != nil {
		headers = ln.withoutSequence(headers)
	}
	switch {
	case r.Sequence == 0:
	case p.name == nil || r.Sequence < 0:
		return 0, fmt.Errorf("%w: Sequence %d (of a named producer, above 0)", kafka.ErrInvalidRecord, r.Sequence)
	case r.Sequence <= last:
		return ms, errDuplicate
	case ln.mu.missed.refuse(r.Sequence) != nil:
		return 0, ln.mu.missed.refuse(r.Sequence)
	default:
		binary.BigEndian.PutUint64(ln.mu.number[:], uint64(r.Sequence))
		ln.mu.headers = append(append(ln.mu.headers[:0], headers...), Header{Key: broker.SequenceHeader, Value: ln.mu.number[:]})
		headers = ln.mu.headers
	}
	limit := min(p.limit, ln.p.Topic().MaxMessageBytes())
	if size := ln.mu.b.SizeOf(ms, r.Key, r.Value, headers); batch.HeaderSize+size > limit {
		return 0, fmt.Errorf("%w: %d bytes in a batch of its own, the limit is %d", kafka.ErrRecordTooLarge, batch.HeaderSize+size, limit)
	}
	ln.mu.b.Append(ms, r.Key, r.Value, headers)
	return ms, nil
}

// withoutSequence leaves out sequences that came with a record from another producer: they are not this one's.
func (ln *lane) withoutSequence(headers []Header) []Header {
	foreign := func(h Header) bool { return h.Key == broker.SequenceHeader }
	if !slices.ContainsFunc(headers, foreign) {
		return headers
	}
	return slices.DeleteFunc(slices.Clone(headers), foreign)
}

// appended is a batch in the log.
type appended struct {
	base  int64
	epoch int32
}

// send seals the lane's batch and appends it. sequence is that of the batch's last record that has one, or 0.
func (p *producer) send(ln *lane, sequence int64) (appended, error) {
	m := &ln.mu
	count := int32(m.b.Count())
	b := m.b.Seal(batch.Stamp{ProducerID: p.id, ProducerEpoch: p.epoch, BaseSequence: m.sequence})
	m.buf = b[:0]
	a, err := ln.append(p, b, sequence)
	if err != nil {
		return appended{}, err
	}
	// A batch that failed used no sequence.
	m.sequence = (m.sequence + count) & (1<<31 - 1)
	return appended{a.Base, a.LeaderEpoch}, nil
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
func (p *producer) one(ctx context.Context, r *Record, then func(rec Receipt, bp *broker.Partition, upto int64, err error)) (rec Receipt, bp *broker.Partition, upto int64, err error) {
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
		then(rec, ln.p, upto, err)
	}
	return rec, ln.p, upto, err
}

func (p *producer) single(ln *lane, r *Record, acks Acks) (rec Receipt, upto int64, err error) {
	var last int64
	if ln.mu.state != nil {
		last = ln.mu.state.Last()
	}
	ms, err := p.add(ln, r, p.e.b.Now().UnixMilli(), last)
	if err == errDuplicate {
		// The earlier record may have been written with a lower level: wait for it as this one asks.
		return p.duplicate(ln, ms, acks), durableFor(acks, ln.mu.state.Next()), nil
	}
	if err != nil {
		return Receipt{}, 0, err
	}
	a, err := p.send(ln, r.Sequence)
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
	rec, bp, upto, err := p.one(ctx, r, nil)
	if err == nil && upto > 0 {
		if err = bp.WaitDurable(ctx, upto); err != nil {
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
	_, _, _, err := p.one(ctx, r, func(rec Receipt, bp *broker.Partition, upto int64, err error) {
		queued = true
		p.promises.add(pending{promise, rec, err, bp, upto})
	})
	if !queued {
		p.promises.add(pending{promise: promise, err: err})
	}
}

func ignore(Receipt, error) {}

func (p *producer) Flush(ctx context.Context) error { return p.promises.flush(ctx) }

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
