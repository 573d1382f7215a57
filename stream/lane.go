package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
)

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
		life     *broker.Life  // of the partition, which the rest is of
		sequence int32         // of the next batch
		state    *broker.State // of a named producer
		missed   missed
		unsynced []sent // records of a named producer that a failure of the partition may lose
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

// note remembers the outcome of a record that has a sequence. One that can never be written is a gap, and holds nothing back.
func (m *missed) note(sequence int64, err error) {
	switch {
	case sequence == 0 || errors.Is(err, kafka.ErrRecordTooLarge) || errors.Is(err, kafka.ErrInvalidRecord):
	case err == nil && sequence >= m.sequence:
		*m = missed{}
	case err != nil && (m.sequence == 0 || sequence < m.sequence):
		*m = missed{sequence, err}
	}
}

// refuse returns an error for a sequence behind the missed one, if that one is not written after all: last is the sequence before.
func (m *missed) refuse(sequence, last int64) error {
	if m.sequence == 0 || sequence <= m.sequence || last >= m.sequence {
		return nil
	}
	return fmt.Errorf("sequence %d before it was not written: %w", m.sequence, m.err)
}

// maxKept is the capacity of an encoding buffer that is kept between calls.
const maxKept = 256 << 10

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

// findRoute returns the route to a topic. There is one for each life of a topic: two would begin their sequences twice.
func (p *producer) findRoute(topic string) (*route, error) {
	if v, ok := p.routes.Load(topic); ok && !v.(*route).t.Deleted() {
		return v.(*route), nil
	}
	for {
		t, err := p.e.topic(topic)
		if err != nil {
			return nil, err
		}
		if rt := p.addRoute(t); rt != nil {
			return rt, nil
		}
	}
}

// addRoute returns the route to a topic, and nil if the topic has been deleted meanwhile.
func (p *producer) addRoute(t *broker.Topic) *route {
	p.routing.Lock()
	defer p.routing.Unlock()
	if v, ok := p.routes.Load(t.Name()); ok && !v.(*route).t.Deleted() {
		return v.(*route)
	}
	if t.Deleted() {
		return nil
	}
	rt := &route{t: t}
	rt.lanes.Store(&[]*lane{})
	p.routes.Store(t.Name(), rt)
	return rt
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

// millis is a record's timestamp: its own, or the clock of its batch, which is read when it is first needed.
func (p *producer) millis(r *Record, now *int64) (int64, error) {
	if r.Timestamp.IsZero() {
		if *now == 0 {
			*now = p.e.b.NowMillis()
		}
		return *now, nil
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
	life, err := ln.p.Life()
	if err != nil {
		return err
	}
	if life != ln.mu.life {
		if err := p.enterLife(ln, life); err != nil {
			return err
		}
	}
	if p.name == nil {
		return nil
	}
	if err := ln.mu.life.Err(); err != nil {
		return err // what it remembers, the disk may not have
	}
	ln.mu.state.Lock()
	if _, err := p.name.Live(p.epoch); err != nil {
		ln.mu.state.Unlock()
		return err
	}
	return nil
}

// enterLife takes up where the partition's log says that the producer stands: what it had sent before, another life may have lost.
func (p *producer) enterLife(ln *lane, life *broker.Life) error {
	var st *broker.State
	if p.name != nil {
		var err error
		if st, err = p.name.State(ln.p, p.epoch); err != nil {
			return err
		}
		life = st.Life()
	}
	if st != nil {
		st.Lock()
		last := st.Last()
		st.Unlock()
		ln.findLost(last)
	}
	ln.mu.life, ln.mu.state = life, st
	ln.mu.sequence = life.NextSequence(p.id, p.epoch)
	return nil
}

// sent is a run of batches of a named producer that follow one another: no sequence lies between two of them.
type sent struct {
	first, last int64 // sequences
	upto        int64 // offset behind the last record
}

// remember notes a batch that is in the log and may not be durable.
func (ln *lane) remember(first, last, upto int64) {
	u := ln.mu.unsynced
	durable := ln.mu.life.DurableEnd()
	n := 0
	for n < len(u) && u[n].upto <= durable {
		n++
	}
	u = slices.Delete(u, 0, n)
	if k := len(u) - 1; k >= 0 && u[k].last+1 == first {
		u[k].last, u[k].upto = last, upto
	} else {
		u = append(u, sent{first, last, upto})
	}
	ln.mu.unsynced = u
}

// findLost finds the first record that was sent and that another life of the partition does not have: last is the greatest sequence that it has. It is missed, like one that
// was never written.
func (ln *lane) findLost(last int64) {
	err := fmt.Errorf("%s: %w", ln.p.TopicPartition(), kafka.ErrPartitionFailed)
	if st := ln.mu.state; st != nil {
		st.Lock()
		if st.Last() > last { // also what an earlier instance has sent, and this one knows of
			ln.mu.missed.note(st.Last(), err)
		}
		st.Unlock()
	}
	for _, s := range ln.mu.unsynced {
		if s.last > last {
			ln.mu.missed.note(max(s.first, last+1), err)
			break
		}
	}
	ln.mu.unsynced = nil
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
func (p *producer) add(ln *lane, r *Record, now *int64, last int64) (ms int64, err error) {
	if ms, err = p.millis(r, now); err != nil {
		return 0, err
	}
	if r.Acks < AcksDefault || r.Acks > AcksSynced {
		return 0, fmt.Errorf("%w: Acks is %v", kafka.ErrInvalidRecord, r.Acks)
	}
	if r.Key == nil && ln.p.Topic().Compacted() {
		return 0, fmt.Errorf("%w: no key, in a topic that is compacted", kafka.ErrInvalidRecord)
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
	default:
		if err := ln.mu.missed.refuse(r.Sequence, last); err != nil {
			return 0, err
		}
		binary.BigEndian.PutUint64(ln.mu.number[:], uint64(r.Sequence))
		ln.mu.headers = append(append(ln.mu.headers[:0], headers...), Header{Key: broker.SequenceHeader, Value: ln.mu.number[:]})
		headers = ln.mu.headers
	}
	limit := min(p.limit, ln.p.Topic().MaxMessageBytes())
	if batch.HeaderSize+batch.SizeBound(r.Key, r.Value, headers) <= limit {
		ln.mu.b.Append(ms, r.Key, r.Value, headers)
		return ms, nil
	}
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
	life  *broker.Life
	base  int64
	epoch int32
}

// send seals the lane's batch and appends it. first and last are the sequences of the batch's first and last record that have one, or 0.
func (p *producer) send(ln *lane, first, last int64) (appended, error) {
	m := &ln.mu
	count := int32(m.b.Count())
	b := m.b.Seal(batch.Stamp{ProducerID: p.id, ProducerEpoch: p.epoch, BaseSequence: m.sequence})
	m.buf = b[:0]
	a, err := ln.append(p, b, last)
	if err != nil {
		return appended{}, err
	}
	if a.Duplicate {
		return appended{}, fmt.Errorf("%w: the log has a batch with sequence %d already", kafka.ErrOutOfOrderSequence, m.sequence)
	}
	// A batch that failed used no sequence.
	m.sequence = (m.sequence + count) & (1<<31 - 1)
	if last != 0 {
		ln.remember(first, last, a.Last+1)
	}
	return appended{m.life, a.Base, a.LeaderEpoch}, nil
}
