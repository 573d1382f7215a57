package meta

import (
	"encoding/binary"
	"sync"
	"time"
)

const (
	spaceEngine    = 0x00
	spaceTopic     = 0x01
	spacePartition = 0x02
	spaceName      = 0x03
	spaceDirty     = 0x04
	spaceGroup     = 0x05
)

var (
	keyClean       = []byte("\x00clean")
	keyIncarnation = []byte("\x00incarnation")
	keyProducerID  = []byte("\x00producer-id")
	keyClock       = []byte("\x00clock")
)

// Begin starts a life of the engine: it reports whether the last one was closed in order (a new store was),
// removes the clean mark and, if the last life was not closed in order, raises the incarnation. When it returns, all
// of that is durable: whatever happens next, the following Begin sees an unclean stop unless MarkClean ran.
func (s *Store) Begin() (clean bool, incarnation int32, err error) {
	clean, err = s.get(keyClean, func([]byte) error { return nil })
	if err != nil {
		return false, 0, err
	}
	known, err := s.get(keyIncarnation, func(v []byte) error {
		if len(v) != 4 {
			return corrupt("incarnation", v)
		}
		incarnation = int32(binary.BigEndian.Uint32(v))
		return nil
	})
	if err != nil {
		return false, 0, err
	}
	switch {
	case !known: // the store is new
		clean = true
	case !clean:
		incarnation++
	}
	b := s.NewBatch()
	b.set(keyIncarnation, binary.BigEndian.AppendUint32(nil, uint32(incarnation)))
	b.delete(keyClean)
	return clean, incarnation, b.Commit(true)
}

// RaiseIncarnation begins another incarnation in the middle of a life, durably, and returns it.
func (s *Store) RaiseIncarnation() (n int32, err error) {
	if _, err := s.get(keyIncarnation, func(v []byte) error {
		if len(v) != 4 {
			return corrupt("incarnation", v)
		}
		n = int32(binary.BigEndian.Uint32(v)) + 1
		return nil
	}); err != nil {
		return 0, err
	}
	return n, s.set(keyIncarnation, binary.BigEndian.AppendUint32(nil, uint32(n)), true)
}

// MarkClean records the end of a life: every partition in clean has been synced up to its end, which is its recovery
// point now, and if all of them were, the engine is closed in order. Durable when it returns nil.
func (s *Store) MarkClean(clean map[PartitionID]int64, all bool) error {
	b := s.NewBatch()
	for p, end := range clean {
		b.set(p.key(kindRecovery, ""), putInt64(end))
		b.delete(p.dirtyKey())
	}
	if all {
		b.set(keyClean, nil)
	}
	return b.Commit(true)
}

// Clock is what retention knows of the wall clock.
type Clock struct {
	Wall  int64         // ms, when it was last looked at; 0: never
	Ahead time.Duration // of the time that has passed, as far as that is in doubt
	Held  time.Duration // for how long it has been in doubt
}

// Clock returns what SetClock has recorded; zero if that is nothing.
func (s *Store) Clock() (c Clock, err error) {
	_, err = s.get(keyClock, func(v []byte) error {
		if len(v) != 24 {
			return corrupt("clock", v)
		}
		c = Clock{
			int64(binary.BigEndian.Uint64(v)), time.Duration(binary.BigEndian.Uint64(v[8:])), time.Duration(binary.BigEndian.Uint64(v[16:])),
		}
		return nil
	})
	return c, err
}

// SetClock records c, not synced.
func (s *Store) SetClock(c Clock) error {
	v := binary.BigEndian.AppendUint64(nil, uint64(c.Wall))
	v = binary.BigEndian.AppendUint64(v, uint64(c.Ahead))
	return s.set(keyClock, binary.BigEndian.AppendUint64(v, uint64(c.Held)), false)
}

// idBlock is how many producer ids are claimed at a time.
const idBlock = 1000

// ProducerIDs hands out producer ids, each once in the life of a store. Safe for concurrent use.
type ProducerIDs struct {
	s  *Store
	mu struct {
		sync.Mutex
		next, end int64 // claimed and not handed out: [next, end)
	}
}

// ProducerIDs returns the allocator; a store has one.
func (s *Store) ProducerIDs() *ProducerIDs { return &ProducerIDs{s: s} }

// Next returns an id that no call has returned before, in this life or an earlier one: a block is durably claimed
// before its first id is handed out.
func (p *ProducerIDs) Next() (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.next == p.mu.end {
		var first int64
		if _, err := p.s.get(keyProducerID, func(v []byte) (err error) {
			first, err = getInt64("producer-id", v)
			return err
		}); err != nil {
			return 0, err
		}
		if err := p.s.set(keyProducerID, putInt64(first+idBlock), true); err != nil {
			return 0, err
		}
		p.mu.next, p.mu.end = first, first+idBlock
	}
	id := p.mu.next
	p.mu.next++
	return id, nil
}
