package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// What a record has to survive.
const (
	promisedNothing = iota
	promisedWritten // everything but a power cut and the failure of its partition
	promisedSynced
)

// An item is one record of the model, however often it is sent.
type item struct {
	chain, value string // value begins with the chain and the number in it
	n            int    // place in the chain: order of the calls of one goroutine
	part         int32
	maybe        bool // it is, or may be, in the log
	inFlight     int  // attempts without an answer
	runs, sends  int  // promises that have run, attempts
	level        int
	offset       int64 // -1: not known
	epoch        int32
	stamp        int64
	at           int64 // where it was found last, -1: nowhere
	cancels      bool  // its ctx may end
	story        []string
}

// tell adds to the story that a failure prints.
func (it *item) tell(format string, args ...any) {
	it.story = append(it.story, time.Now().Format("4:05.000 ")+fmt.Sprintf(format, args...))
}

func (it *item) String() string {
	return fmt.Sprintf("%s/%d in partition %d, level %d, offset %d\n\t%s", it.chain, it.n, it.part, it.level, it.offset, strings.Join(it.story, "\n\t"))
}

// A chain is what one goroutine sends by one producer, in this order.
type chain struct {
	items []*item
	named bool // sequences 1, 2, … in one partition: what is there is always a prefix
}

// A producerModel is what the log may and must hold. Everything in it is guarded by mu.
type producerModel struct {
	t      *testing.T
	seed   uint64
	mu     sync.Mutex
	chains map[string]*chain
	byID   map[string]*item
	// Of the current life.
	dead    bool // what is answered now is answered by a process that is no more
	faults  map[string]bool
	tainted map[int32]bool // partitions with syncs that have failed
	failure string
}

func newProducerModel(t *testing.T, seed uint64) *producerModel {
	return &producerModel{t: t, seed: seed, chains: map[string]*chain{}, byID: map[string]*item{}}
}

// fail notes the first failure; goroutines go on, so that the bubble ends.
func (m *producerModel) fail(format string, args ...any) {
	if m.failure == "" {
		m.failure = fmt.Sprintf(format, args...)
	}
}

// add makes the next item of a chain.
func (m *producerModel) add(name string, named bool, part int32, padding int) *item {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.chains[name]
	if c == nil {
		c = &chain{named: named}
		m.chains[name] = c
	}
	it := &item{chain: name, n: len(c.items), part: part, offset: -1, at: -1}
	id := name + "/" + strconv.Itoa(it.n)
	it.value = id + " " + strings.Repeat("x", padding)
	c.items = append(c.items, it)
	m.byID[id] = it
	return it
}

// send notes that an attempt begins.
func (m *producerModel) send(verb string, ctx context.Context, its ...*item) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, it := range its {
		it.tell("%s, ctx %v", verb, ctx.Err())
		if it.sends++; !m.dead {
			it.inFlight++
		}
	}
}

// answer notes the answer to an attempt that asked for acks.
func (m *producerModel) answer(it *item, acks stream.Acks, rec stream.Receipt, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if it.runs++; it.runs > it.sends {
		m.fail("%s is answered %d times, it was sent %d times", it.chain, it.runs, it.sends)
	}
	it.tell("answered: acks %v, %+v, %v (dead %t)", acks, rec, err, m.dead)
	if m.dead {
		return
	}
	it.inFlight--
	if err != nil {
		m.explained(it, err)
		if errors.Is(err, stream.ErrOutcomeUnknown) {
			it.maybe = true
		}
		return
	}
	it.maybe = true
	if rec.Acks != acks || rec.Topic != "a" || rec.Partition != it.part {
		m.fail("%s/%d: receipt %+v for acks %v, partition %d", it.chain, it.n, rec, acks, it.part)
	}
	if acks == stream.AcksNone {
		if rec.Offset != -1 {
			m.fail("%s/%d: offset %d for AcksNone", it.chain, it.n, rec.Offset)
		}
		return
	}
	if level := promisedWritten + int(acks-stream.AcksWritten); level > it.level {
		it.level = level
	}
	switch {
	case rec.Duplicate && m.chains[it.chain].named:
	case rec.Duplicate || rec.Offset < 0:
		m.fail("%s/%d: receipt %+v", it.chain, it.n, rec)
	default:
		it.offset, it.epoch, it.stamp = rec.Offset, rec.LeaderEpoch, rec.Timestamp.UnixMilli()
	}
}

// explained checks that something in this life can be the reason of an error.
func (m *producerModel) explained(it *item, err error) {
	held := m.chains[it.chain].named // a record with a sequence fails with the error of one before it
	fault := len(m.faults) > 0
	for reason, ok := range map[error]bool{
		context.Canceled:          it.cancels || held && m.faults["cancel"],
		context.DeadlineExceeded:  it.cancels || held && m.faults["cancel"],
		stream.ErrBufferFull:      true,
		stream.ErrDiskFull:        m.faults["full"],
		stream.ErrPartitionFailed: m.faults["sync"] || held,
		stream.ErrTimeout:         m.faults["sync"] || m.faults["full"] || m.faults["slow"] || m.faults["timeout"] && fault,
		stream.ErrClosed:          m.faults["closing"],
	} {
		if errors.Is(err, reason) {
			if !ok {
				m.fail("nothing explains %v: %v", err, it)
			}
			return
		}
	}
	m.fail("unexpected error %v: %v, faults %v", err, it, m.faults)
}

// lost notes that partitions may have lost what was written and not synced.
func (m *producerModel) lost(part int32) {
	for _, it := range m.byID {
		if it.part == part && it.level == promisedWritten {
			it.tell("the partition has failed and come back")
			it.level = promisedNothing
		}
	}
}

// die ends the life of a process: what it has not answered stays open. image is taken while nothing can be answered.
func (m *producerModel) die(power bool, image func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	image()
	m.dead = true
	for _, it := range m.byID {
		it.tell("end of the process (power %t, tainted %t)", power, m.tainted[it.part])
		if it.inFlight > 0 {
			it.maybe, it.inFlight = true, 0
		}
		if it.level == promisedWritten && (power || m.tainted[it.part]) {
			it.level = promisedNothing
		}
	}
}

// closed notes that the engine was closed in order: what it holds is durable.
func (m *producerModel) closed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, it := range m.byID {
		if it.runs != it.sends || it.inFlight != 0 {
			m.fail("%s/%d: %d answers to %d attempts, %d open", it.chain, it.n, it.runs, it.sends, it.inFlight)
		}
		if it.level == promisedWritten {
			it.level = promisedSynced
			if m.tainted[it.part] {
				it.level = promisedNothing
			}
		}
	}
}

// check compares the log with the model, and takes what it sees for what is there. It ends one life and begins the next.
func (m *producerModel) check(eng *stream.Engine, partitions int) {
	t := m.t
	t.Helper()
	var all [][]stream.Record
	for n := range int32(partitions) {
		all = append(all, readAll(t, eng, tp("a", n)))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, it := range m.byID {
		it.at = -1
		it.tell("checked")
	}
	for n, rs := range all {
		last := map[string]int{}
		for _, r := range rs {
			id, _, _ := strings.Cut(string(r.Value), " ")
			it := m.byID[id]
			if it == nil || it.value != string(r.Value) || it.part != int32(n) {
				t.Fatalf("seed %d: partition %d, offset %d: no such record was sent: %.60q", m.seed, n, r.Offset, r.Value)
			}
			switch prev, ok := last[it.chain]; {
			case it.at >= 0:
				t.Fatalf("seed %d: partition %d: %s is at offset %d and at %d", m.seed, n, id, it.at, r.Offset)
			case ok && prev > it.n:
				t.Fatalf("seed %d: behind %v\ncomes %v", m.seed, m.chains[it.chain].items[prev], it)
			case !it.maybe:
				t.Fatalf("seed %d: at offset %d is what was refused, or lost already: %v", m.seed, r.Offset, it)
			case it.level > promisedNothing && it.offset >= 0 && (it.offset != r.Offset || it.epoch != r.LeaderEpoch || it.stamp != r.Timestamp.UnixMilli()):
				t.Fatalf("seed %d: at offset %d, epoch %d: %v", m.seed, r.Offset, r.LeaderEpoch, it)
			}
			it.at, last[it.chain] = r.Offset, it.n
		}
	}
	for name, c := range m.chains {
		missing := -1
		for _, it := range c.items {
			switch {
			case it.at < 0 && it.level > promisedNothing:
				later := slices.IndexFunc(c.items[it.n:], func(o *item) bool { return o.at >= 0 })
				if later < 0 {
					t.Fatalf("seed %d: lost: %v\nnone of its chain is behind it", m.seed, it)
				}
				t.Fatalf("seed %d: lost: %v\nthis is behind it: %v", m.seed, it, c.items[it.n+later])
			case it.at < 0 && missing < 0:
				missing = it.n
			case it.at >= 0 && missing >= 0 && c.named:
				t.Fatalf("seed %d: %s has a hole: %v\nis missing, this is there: %v", m.seed, name, c.items[missing], it)
			}
			if it.at < 0 {
				it.maybe, it.offset = false, -1
			}
		}
	}
	if m.failure != "" {
		t.Fatalf("seed %d: %s", m.seed, m.failure)
	}
	m.dead, m.faults, m.tainted = false, map[string]bool{}, map[int32]bool{}
}

// present returns how many items of a named chain the log held when it was checked.
func (m *producerModel) present(name string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.chains[name]; c != nil {
		n = slices.IndexFunc(c.items, func(it *item) bool { return it.at < 0 })
		if n < 0 {
			n = len(c.items)
		}
	}
	return n
}
