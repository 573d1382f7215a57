package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"

	rlog "github.com/runnelmq/runnel/log"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/meta"
	"github.com/runnelmq/runnel/internal/vfs"
)

// SequenceHeader is the record header in which a named producer's sequence travels: int64, big-endian.
const SequenceHeader = "runnel.seq"

// names are the named producers of this life of the engine.
type names struct {
	sync.Mutex
	byName map[string]*Name
}

// Name is a producer that lives on across restarts: one producer id, an epoch for each of its instances, and the last
// sequence of its source in each partition.
type Name struct {
	b    *Broker
	name string

	// Taken after a State's lock: an append looks at both.
	mu struct {
		sync.Mutex
		id    int64
		epoch int16
	}
}

func (n *Name) set(id int64, epoch int16) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.id, n.mu.epoch = id, epoch
}

// OpenName makes the caller the only live instance of the named producer: earlier ones get kafka.ErrFenced from now on.
func (b *Broker) OpenName(name string) (n *Name, id int64, epoch int16, err error) {
	if err := b.enterToChange(); err != nil {
		return nil, 0, 0, err
	}
	defer b.leave()
	b.names.Lock()
	defer b.names.Unlock()
	n = b.names.byName[name]
	if n == nil {
		n = &Name{b: b, name: name}
	}
	last, known, err := b.meta.Name(name)
	if err != nil {
		return nil, 0, 0, err
	}
	next := meta.Name{ProducerID: last.ProducerID, Epoch: last.Epoch + 1}
	if known && last.Epoch == math.MaxInt16 {
		// The records of the old id are found by it, so what they say has to be known first; nobody adds to them from here on.
		n.set(last.ProducerID, kafka.NoEpoch)
		if err := b.settleName(name, last.ProducerID); err != nil {
			return nil, 0, 0, err
		}
		known = false
	}
	if !known {
		id, err := b.ids.Next()
		if err != nil {
			return nil, 0, 0, err
		}
		next = meta.Name{ProducerID: id}
	}
	if err := b.meta.SetName(name, next); err != nil {
		return nil, 0, 0, err
	}
	n.set(next.ProducerID, next.Epoch)
	if b.names.byName == nil {
		b.names.byName = map[string]*Name{}
	}
	b.names.byName[name] = n
	return n, next.ProducerID, next.Epoch, nil
}

// settleName checkpoints a name in every partition.
func (b *Broker) settleName(name string, id int64) error {
	for _, t := range b.list() {
		for _, p := range t.Partitions() {
			if err := p.settleName(name, id); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Partition) settleName(name string, id int64) error {
	st, err := p.namedState(name, id)
	if err != nil {
		return err
	}
	st.Lock()
	defer st.Unlock()
	if err := st.f.l.Flush(context.Background()); err != nil {
		return err
	}
	return p.saveNamed([]savedState{{name, meta.Sequence{Sequence: st.last, Next: st.next}}})
}

// settleNames checkpoints every named producer that has written to the partition, durably, before records that say so are taken away.
func (p *Partition) settleNames() error {
	f := p.life.Load()
	if f == nil {
		return nil
	}
	names, err := p.b.meta.Names()
	if err != nil || len(names) == 0 {
		return err
	}
	for _, n := range names {
		last := f.l.LastOffset(n.ProducerID)
		if last < 0 {
			continue
		}
		cp, err := p.b.meta.Sequence(p.id, n.Name)
		if err != nil {
			return err
		}
		if cp.Next > last {
			continue
		}
		if err := p.settleBehindDamage(n.Name, n.ProducerID); err != nil {
			return err
		}
	}
	states := p.named.snapshot(f)
	if len(states) == 0 {
		return nil
	}
	// The recovery point too: what lies behind it may be taken for a torn tail, and the checkpoints must not know more than the log.
	if err := f.l.Flush(context.Background()); err != nil && !errors.Is(err, kafka.ErrDiskFull) { // for index files, which can wait
		return err
	}
	if err := p.saveNamed(states); err != nil {
		return err
	}
	return p.b.meta.Sync()
}

// Live returns the producer id, or kafka.ErrFenced if epoch is not that of the live instance.
func (n *Name) Live(epoch int16) (id int64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if epoch != n.mu.epoch {
		return 0, fmt.Errorf("%w: producer %q", kafka.ErrFenced, n.name)
	}
	return n.mu.id, nil
}

// State is where a named producer stands in one partition. It is locked while a batch of it is appended, so that the sequence is looked at,
// the batch appended and the sequence moved as one step. It is of one life of the partition.
type State struct {
	sync.Mutex
	f    *Life
	last int64 // sequence of the last record in the log
	next int64 // offset from which the log says more
}

type namedStates struct {
	sync.Mutex
	byName map[string]*State
}

// State returns where the producer stands in p. An instance that has been fenced gets kafka.ErrFenced.
func (n *Name) State(p *Partition, epoch int16) (*State, error) {
	if err := p.b.enter(); err != nil {
		return nil, err
	}
	defer p.b.leave()
	id, err := n.Live(epoch)
	if err != nil {
		return nil, err
	}
	return p.namedState(n.name, id)
}

// Life is the partition's life that the state is of.
func (s *State) Life() *Life { return s.f }

// Last is the sequence of the producer's last record in the partition, 0 if there is none. The state is locked.
func (s *State) Last() int64 { return s.last }

// Next is the offset behind the producer's last record, or one at which that record is known to lie below. The state is locked.
func (s *State) Next() int64 { return s.next }

// Append appends a batch of the instance with this epoch, whose last record with a sequence has this one (0: none has). The
// state is locked.
func (n *Name) Append(s *State, epoch int16, b batch.Batch, sequence int64) (rlog.Appended, error) {
	if _, err := n.Live(epoch); err != nil {
		return rlog.Appended{}, err
	}
	a, err := s.f.Append(b)
	if err != nil || a.Duplicate {
		return a, err
	}
	s.next = a.Last + 1
	if sequence != 0 {
		s.last = sequence
	}
	return a, nil
}

// namedState returns the state of a name, reading it from its checkpoint and the records behind that the first time.
func (p *Partition) namedState(name string, id int64) (*State, error) {
	f, err := p.opened()
	if err != nil {
		return nil, err
	}
	p.named.Lock()
	defer p.named.Unlock()
	if p.life.Load() != f {
		return nil, f.explain(kafka.ErrClosed) // it has been opened again meanwhile
	}
	if st := p.named.byName[name]; st != nil && st.f == f {
		return st, nil
	}
	st, err := p.readState(f, name, id, nil)
	if err != nil {
		if ferr := f.l.Err(); ferr != nil {
			return nil, ferr // it has failed meanwhile, and recovery may be cutting what was read
		}
		return nil, kafka.Storage(f.explain(err))
	}
	if p.named.byName == nil {
		p.named.byName = map[string]*State{}
	}
	p.named.byName[name] = st
	return st, nil
}

// readState reads where a name stands from its checkpoint and the records behind that; see replay for passOver.
func (p *Partition) readState(f *Life, name string, id int64, passOver func(err error)) (*State, error) {
	cp, err := p.b.meta.Sequence(p.id, name)
	if err != nil {
		return nil, err
	}
	l := f.l
	st := &State{f: f, last: cp.Sequence, next: max(cp.Next, l.StartOffset())}
	end := l.LastOffset(id) + 1
	if cp.Next > l.EndOffset() { // the log has lost its end: what is left of it tells
		st.last, st.next, end = 0, l.StartOffset(), l.EndOffset()
	}
	if err := st.replay(l, id, end, passOver); err != nil {
		return nil, err
	}
	if st.last == 0 {
		st.last = cp.Sequence
	}
	return st, nil
}

// settleBehindDamage reads where a name stands. Damage on the way must not keep records for ever: it is reported, and what is known behind it is checkpointed, since the records that
// tell the rest are lost, and those that tell this much are about to go.
func (p *Partition) settleBehindDamage(name string, id int64) error {
	_, err := p.namedState(name, id)
	f := p.life.Load()
	if !errors.Is(err, kafka.ErrCorrupt) || f == nil {
		return err
	}
	st, err := p.readState(f, name, id, func(err error) { _ = f.ReadError(err) })
	if err != nil {
		return f.explain(err)
	}
	if err := f.l.WaitDurable(context.Background(), st.next); err != nil {
		return err
	}
	return p.saveNamed([]savedState{{name, meta.Sequence{Sequence: st.last, Next: st.next}}})
}

// replay reads the records behind the checkpoint, up to the producer's last one. passOver, if there is one, is told of damage, which is an error otherwise.
func (s *State) replay(l *rlog.Log, id, end int64, passOver func(err error)) error {
	c := l.NewCursor(s.next)
	defer c.Close()
	var plainer batch.Decompressor
	for s.next < end {
		b, err := c.Next(l.EndOffset())
		var damaged *kafka.CorruptError
		switch {
		case passOver != nil && errors.As(err, &damaged) && damaged.To > s.next:
			passOver(err)
			s.next = damaged.To
			c.MoveTo(s.next)
			continue
		case errors.Is(err, kafka.ErrOffsetOutOfRange) && s.next < l.StartOffset():
			s.next = l.StartOffset()
			c.MoveTo(s.next)
			continue
		}
		if b == nil || err != nil {
			return err
		}
		if err := s.look(c, b, id, &plainer); err != nil {
			return err
		}
		s.next = c.Offset()
	}
	return nil
}

func (s *State) look(c *rlog.Cursor, b batch.Batch, id int64, plainer *batch.Decompressor) (err error) {
	defer vfs.Catch(vfs.Arm(), c.File(), &err)
	if b.ProducerID() != id {
		return nil
	}
	var buf []byte
	plain, err := plainer.Plain(b, &buf, rlog.MaxPlain)
	if err != nil {
		return err
	}
	it := plain.Iter()
	var r batch.Record
	for it.Next(&r) {
		if v, ok := r.Header(SequenceHeader); ok && len(v) == 8 {
			s.last = max(s.last, int64(binary.BigEndian.Uint64(v)))
		}
	}
	return it.Err()
}

type savedState struct {
	name string
	seq  meta.Sequence
}

// snapshot copies the states before a sync that will cover them. A state that is locked has nothing in flight, so it is known up to the log's end.
func (ns *namedStates) snapshot(f *Life) []savedState {
	ns.Lock()
	defer ns.Unlock()
	var out []savedState
	for name, st := range ns.byName {
		if st.f != f {
			continue
		}
		st.Lock()
		out = append(out, savedState{name, meta.Sequence{Sequence: st.last, Next: f.EndOffset()}})
		st.Unlock()
	}
	return out
}

// saveNamed checkpoints states that the log is durable for.
func (p *Partition) saveNamed(states []savedState) error {
	if len(states) == 0 {
		return nil
	}
	b := p.b.meta.NewBatch()
	for _, s := range states {
		b.SetSequence(p.id, s.name, s.seq)
	}
	return b.Commit(false)
}
