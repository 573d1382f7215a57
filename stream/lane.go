package stream

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	rlog "github.com/runnelmq/runnel/log"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
)

// route is a topic as a producer sees it.
type route struct {
	t      *broker.Topic
	lanes  atomic.Pointer[[]*lane]
	sticky sticky // of records without a key
}

// lane is a producer's way into one partition. One at a time hands batches to the partition, so that sequences, records of a named producer and promises have one order: either who holds the lock and
// finds nothing accumulated, or who has the accumulator's flushing.
type lane struct {
	p       *broker.Partition
	waiting atomic.Int32 // batches that are closed and have no answer
	mu      struct {
		sync.Mutex
		acc    *accumulator // nil until something is accumulated
		buf    []byte       // of a record that goes by itself
		missed missed
		counts laneCounts
		// Of whoever hands over.
		life     *broker.Life  // of the partition, which the rest is of
		sequence int32         // of the next batch
		state    *broker.State // of a named producer
		unsynced []sent        // records of a named producer that a failure of the partition may lose
		headers  []Header
		number   [8]byte
	}
}

// missed are the records of a named producer that were not written, by sequence, lowest first. Later sequences of the partition are refused until those before them have been sent again, or until the
// caller has asked for LastSequence: were they written, a retry of the missed record would be taken for a duplicate, and be lost.
type missed []miss

type miss struct {
	sequence int64
	err      error
}

// maxMissed bounds what is remembered of a caller who goes on and on and sends nothing again.
const maxMissed = 1 << 16

// note remembers the outcome of a record that has a sequence. One that can never be written is a gap, and holds nothing back.
func (m *missed) note(sequence int64, err error) {
	switch {
	case sequence == 0 || errors.Is(err, kafka.ErrRecordTooLarge) || errors.Is(err, kafka.ErrInvalidRecord):
		return
	case err == nil && len(*m) == 0:
		return
	}
	i, found := slices.BinarySearchFunc(*m, sequence, func(a miss, s int64) int { return cmp.Compare(a.sequence, s) })
	switch {
	case err == nil && found:
		*m = slices.Delete(*m, 0, i+1)
	case err == nil:
		*m = slices.Delete(*m, 0, i)
	case !found && len(*m) < maxMissed:
		*m = slices.Insert(*m, i, miss{sequence, err})
	}
}

// refuse returns an error for a sequence behind a missed one, if that one is not written after all: last is the sequence before.
func (m missed) refuse(sequence, last int64) error {
	for _, e := range m {
		if sequence <= e.sequence {
			return nil
		}
		if last < e.sequence {
			return fmt.Errorf("sequence %d before it was not written: %w", e.sequence, e.err)
		}
	}
	return nil
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
	var n int32
	if r.Key == nil && p.sticks {
		n = rt.stick(r, p.c.BatchSize, lanes)
	} else {
		n = p.c.Partitioner.Partition(r, len(lanes))
	}
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
	rt.sticky.state.Store(rand.Uint64N(uint64(len(t.Partitions()))) << stickyBits)
	rt.lanes.Store(&[]*lane{})
	if old, ok := p.routes.Swap(t.Name(), rt); ok {
		p.bury(old.(*route))
	}
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

// bury ends the route to a topic that has been deleted. What is on its way there has its answer soon; until then it is remembered. routing is held.
func (p *producer) bury(rt *route) {
	for _, ln := range *rt.lanes.Load() {
		ln.mu.Lock()
		if ln.mu.acc != nil {
			p.fail(ln, func(*producerBatch) bool { return true }, func(*producerBatch) error { return ln.p.Gone() })
		}
		ln.mu.Unlock()
	}
	p.buried = slices.DeleteFunc(append(p.buried, rt), func(rt *route) bool {
		if !rt.atRest() {
			return false
		}
		rt.count(&p.past)
		return true
	})
}

// atRest reports whether nothing is on its way to the topic.
func (rt *route) atRest() bool {
	return !slices.ContainsFunc(*rt.lanes.Load(), func(ln *lane) bool {
		ln.mu.Lock()
		defer ln.mu.Unlock()
		a := ln.mu.acc
		return a != nil && (!a.idle() || a.inflight.len() > 0)
	})
}

// eachLane calls fn with all lanes that have been made before, those to topics that have been deleted too, if something is on its way there.
func (p *producer) eachLane(fn func(ln *lane)) {
	p.routing.Lock()
	all := slices.Clone(p.buried)
	p.routing.Unlock()
	p.routes.Range(func(_, v any) bool {
		all = append(all, v.(*route))
		return true
	})
	for _, rt := range all {
		for _, ln := range *rt.lanes.Load() {
			fn(ln)
		}
	}
}

// enter must succeed before a batch is appended, by whoever hands over; leave follows. It takes up the life of the partition, and a named producer's state, which stays locked until then.
func (p *producer) enter(ln *lane) error {
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

// findLost finds the records that were sent and that another life of the partition does not have: last is the greatest sequence that it has. They are missed, like those that
// were never written.
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
		if s.last > last { // what lies between, nobody remembers
			ln.mu.missed.note(max(s.first, last+1), err)
			ln.mu.missed.note(s.last, err)
		}
	}
	ln.mu.unsynced = nil
}

// leave ends what enter began.
func (p *producer) leave(ln *lane) {
	if p.name != nil {
		ln.mu.state.Unlock()
	}
}

// errDuplicate says that a record of a named producer is there already.
var errDuplicate = errors.New("duplicate")

// check says whether a record can be sent, and with which headers; last is the sequence before it. The lane is locked, and the headers are its own.
func (p *producer) check(ln *lane, r *Record, last int64) ([]Header, error) {
	switch {
	case !r.Timestamp.IsZero() && r.Timestamp.UnixMilli() < 0:
		return nil, fmt.Errorf("%w: timestamp %v is before 1970", kafka.ErrInvalidRecord, r.Timestamp)
	case r.Acks < AcksDefault || r.Acks > AcksSynced:
		return nil, fmt.Errorf("%w: Acks is %v", kafka.ErrInvalidRecord, r.Acks)
	case r.Key == nil && ln.p.Topic().Compacted():
		return nil, fmt.Errorf("%w: no key, in a topic that is compacted", kafka.ErrInvalidRecord)
	case r.Sequence != 0 && (p.name == nil || r.Sequence < 0):
		return nil, fmt.Errorf("%w: Sequence %d (of a named producer, above 0)", kafka.ErrInvalidRecord, r.Sequence)
	case p.name == nil:
		return r.Headers, nil
	}
	headers := ln.withoutSequence(r.Headers)
	if r.Sequence == 0 {
		return headers, nil
	}
	if r.Sequence <= last {
		return nil, errDuplicate
	}
	if err := ln.mu.missed.refuse(r.Sequence, last); err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint64(ln.mu.number[:], uint64(r.Sequence))
	ln.mu.headers = append(append(ln.mu.headers[:0], headers...), Header{Key: broker.SequenceHeader, Value: ln.mu.number[:]})
	return ln.mu.headers, nil
}

// size is the most bytes that a record takes in a batch. One that has no room in a batch of its own is kafka.ErrRecordTooLarge.
func (p *producer) size(ln *lane, r *Record, headers []Header) (int, error) {
	size := batch.SizeBound(r.Key, r.Value, headers)
	limit := min(p.limit, ln.p.Topic().MaxMessageBytes())
	if batch.HeaderSize+size <= limit {
		return size, nil
	}
	var own batch.Builder
	if exact := batch.HeaderSize + own.SizeOf(0, r.Key, r.Value, headers); exact > limit {
		return 0, fmt.Errorf("%w: %d bytes in a batch of its own, the limit is %d", kafka.ErrRecordTooLarge, exact, limit)
	}
	return size, nil
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
	bytes int64
	time  int64 // that the records have been given, in ms; 0: they keep their own
}

// send seals a batch and appends it, as whoever hands over, between enter and leave. first and last are the sequences of the first and last record that have one, or 0.
func (p *producer) send(ln *lane, records *batch.Builder, first, last int64) (appended, error) {
	m := &ln.mu
	count := int32(records.Count())
	b := records.Seal(batch.Stamp{ProducerID: p.id, ProducerEpoch: p.epoch, BaseSequence: m.sequence})
	if p.c.Compression != CompressionNone {
		pk := p.packers.Get().(*packer)
		defer p.packers.Put(pk)
		var err error
		if b, err = pk.pack(b); err != nil {
			return appended{}, err
		}
	}
	a, err := p.append(ln, b, last)
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
	return appended{a.Base, a.LeaderEpoch, int64(len(b)), a.Time}, nil
}

// packer compresses batches.
type packer struct {
	c   *batch.Compressor
	buf []byte
}

// pack returns b compressed, in memory that is the packer's, or as it is if it does not become smaller.
func (pk *packer) pack(b batch.Batch) (batch.Batch, error) {
	packed, err := pk.c.Compress(pk.buf, b)
	if err != nil {
		return nil, err
	}
	if cap(packed) <= maxKept {
		pk.buf = packed[:0]
	}
	if len(packed) >= len(b) {
		return b, nil
	}
	return packed, nil
}

// append hands a sealed batch to the partition.
func (p *producer) append(ln *lane, b batch.Batch, sequence int64) (rlog.Appended, error) {
	if p.name == nil {
		return ln.mu.life.Append(b)
	}
	return p.name.Append(ln.mu.state, p.epoch, b, sequence)
}
