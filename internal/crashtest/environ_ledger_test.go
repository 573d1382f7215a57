package crashtest

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/runnelmq/runnel/stream"
)

// An entry is what an acknowledgement said of a record. Exported fields, because ledgers are written with gob.
type entry struct {
	Hash   uint64
	Epoch  int32
	Synced bool
}

// A ledger holds what was sent and what the answers were, against what is there. Values are those of a killID, so that
// whoever reads a record knows what it has to be. Safe for concurrent use.
type ledger struct {
	mu      sync.Mutex
	Acked   map[stream.TopicPartition]map[int64]entry
	Refused map[string]string // ids of records that were not kept, and why
}

func newLedger() *ledger {
	return &ledger{Acked: map[stream.TopicPartition]map[int64]entry{}, Refused: map[string]string{}}
}

// A sender sends records of its own, one after the other, and enters them in a ledger.
type sender struct {
	book   *ledger
	p      stream.Producer
	name   string
	acks   stream.Acks
	number int64
}

func (l *ledger) sender(t *testing.T, eng *stream.Engine, name string, acks stream.Acks) *sender {
	t.Helper()
	p, err := eng.NewProducer(atOnce(t), stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
	if err != nil {
		t.Fatalf("producer: %v", err)
	}
	return &sender{book: l, p: p, name: name, acks: acks}
}

// send sends the next record to a partition.
func (s *sender) send(ctx context.Context, tp stream.TopicPartition) (stream.Receipt, error) {
	id := killID{s.name, 1, s.number, tp.Partition}
	s.number++
	r := &stream.Record{Topic: tp.Topic, Partition: tp.Partition, Key: []byte(s.name), Value: id.value(), Acks: s.acks}
	rc, err := s.p.ProduceSync(ctx, r)
	l := s.book
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if !errors.Is(err, stream.ErrOutcomeUnknown) {
			l.Refused[tp.Topic+" "+id.String()] = err.Error()
		}
		return rc, err
	}
	if l.Acked[tp] == nil {
		l.Acked[tp] = map[int64]entry{}
	}
	if old, twice := l.Acked[tp][rc.Offset]; twice && (old.Synced || rc.LeaderEpoch <= old.Epoch) {
		return rc, fmt.Errorf("A5: offset %d of %v was given twice: %+v, then %+v", rc.Offset, tp, old, rc)
	}
	l.Acked[tp][rc.Offset] = entry{hashRecord(r.Key, r.Value), rc.LeaderEpoch, s.acks == stream.AcksSynced}
	return rc, nil
}

// sendAll sends n records.
func (s *sender) sendAll(t *testing.T, tp stream.TopicPartition, n int) {
	t.Helper()
	ctx := atOnce(t)
	for range n {
		if _, err := s.send(ctx, tp); err != nil {
			t.Fatalf("%s to %v: %v", s.name, tp, err)
		}
	}
}

// claim enters records that the engine shows as durable: they are as good as acknowledged.
func (l *ledger) claim(t *testing.T, rs []stream.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range rs {
		r := &rs[i]
		if _, err := parseKillID(r.Value); err != nil {
			t.Errorf("offset %d: %v", r.Offset, err)
		}
		tp := stream.TopicPartition{Topic: r.Topic, Partition: r.Partition}
		if l.Acked[tp] == nil {
			l.Acked[tp] = map[int64]entry{}
		}
		l.Acked[tp][r.Offset] = entry{hashRecord(r.Key, r.Value), r.LeaderEpoch, true}
	}
}

// verify reads a partition from its start and compares. With lossy, what was not acknowledged as synced may be lost: a
// suffix, whose offsets later incarnations may have given again; and a partition that has failed is read up to its durable end.
func (l *ledger) verify(t *testing.T, eng *stream.Engine, lossy bool, tps ...stream.TopicPartition) {
	t.Helper()
	for _, tp := range tps {
		got, err := readFrom(atOnce(t), eng, tp, 0)
		if err != nil && !(lossy && errors.Is(err, stream.ErrPartitionFailed)) {
			t.Errorf("A1/A2: %v, after %d records: %v", tp, len(got), err)
			continue
		}
		if err := l.compare(tp, got, lossy); err != nil {
			t.Errorf("%v: %v", tp, err)
		}
	}
}

func (l *ledger) compare(tp stream.TopicPartition, got []stream.Record, lossy bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[killID]int64{}
	for i := range got {
		r := &got[i]
		id, err := parseKillID(r.Value)
		if err != nil {
			return fmt.Errorf("offset %d: %w", r.Offset, err)
		}
		if at, twice := seen[id]; twice {
			return fmt.Errorf("C1: %v is at offset %d and at %d", id, at, r.Offset)
		}
		seen[id] = r.Offset
		if why, ok := l.Refused[tp.Topic+" "+id.String()]; ok {
			return fmt.Errorf("A1: %v is at offset %d, and its error was %s", id, r.Offset, why)
		}
	}
	durable := int64(-1) // the last offset that was acknowledged as synced: all before it is durable too
	for offset, e := range l.Acked[tp] {
		if e.Synced {
			durable = max(durable, offset)
		}
	}
	for offset, e := range l.Acked[tp] {
		mayGo := lossy && offset > durable
		if offset >= int64(len(got)) {
			if !mayGo {
				return fmt.Errorf("A1/A2: offset %d (synced %t) was acknowledged, the log ends at %d", offset, e.Synced, len(got))
			}
			continue
		}
		r := &got[offset]
		if hashRecord(r.Key, r.Value) != e.Hash && !(mayGo && r.LeaderEpoch > e.Epoch) {
			return fmt.Errorf("A1/A5: offset %d (synced %t, epoch %d) holds another record, of epoch %d", offset, e.Synced, e.Epoch, r.LeaderEpoch)
		}
	}
	return nil
}

// readFrom reads a partition from an offset to its end, which is looked up first. What was read is returned beside an error.
func readFrom(ctx context.Context, eng *stream.Engine, tp stream.TopicPartition, from int64) (got []stream.Record, err error) {
	ends, err := eng.Admin().EndOffsets(ctx, tp)
	if err != nil {
		return nil, fmt.Errorf("end: %w", err)
	}
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Reset: stream.ResetNone, MaxWait: -1})
	if err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	if err := errors.Join(c.Assign(tp), c.Seek(tp, from)); err != nil {
		return nil, fmt.Errorf("assign: %w", err)
	}
	for at := from; at < ends[tp].Offset; {
		rs, err := c.Poll(ctx, 0)
		if err != nil {
			return got, fmt.Errorf("poll at %d: %w", at, err)
		}
		if len(rs) == 0 {
			return got, fmt.Errorf("A3: nothing at %d, the log ends at %d", at, ends[tp].Offset)
		}
		for i := range rs {
			if rs[i].Offset != at {
				return got, fmt.Errorf("A5: offset %d follows %d", rs[i].Offset, at-1)
			}
			at++
		}
		got = append(got, rs...)
	}
	return got, nil
}

// save writes the ledger for another process.
func (l *ledger) save(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := errors.Join(gob.NewEncoder(f).Encode(l), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func loadLedger(t *testing.T, name string) *ledger {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger()
	if err := errors.Join(gob.NewDecoder(f).Decode(l), f.Close()); err != nil {
		t.Fatal(err)
	}
	return l
}
