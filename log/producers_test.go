package rlog

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
)

// producerModel is what KAFKA's rules say of three producers.
type producerModel struct{ byID map[int64]*modelProducer }

type modelProducer struct {
	epoch   int16
	next    int32
	batches []modelBatch // all of the epoch
}

type modelBatch struct {
	first, count int32
	base         int64
}

func newProducerModel() *producerModel { return &producerModel{map[int64]*modelProducer{}} }

// batchOf makes a batch of count records.
func batchOf(id int64, epoch int16, first, count int32) batch.Batch {
	recs := make([]record, count)
	for i := range recs {
		recs[i] = record{[]byte("k"), []byte("v"), 5}
	}
	return makeBatch(recs, batch.Stamp{ProducerID: id, ProducerEpoch: epoch, BaseSequence: first})
}

func (m *producerModel) step(t *testing.T, l *Log, rng *rand.Rand) {
	t.Helper()
	id := int64(rng.IntN(3))
	p := m.byID[id]
	if p == nil {
		p = &modelProducer{next: int32(rng.IntN(2)) * (math.MaxInt32 - 10)} // some wrap soon
		m.byID[id] = p
	}
	count := 1 + int32(rng.IntN(4))
	switch rng.IntN(8) {
	case 0: // repeat one of the last five
		if n := len(p.batches); n > 0 {
			k := n - 1 - rng.IntN(min(n, 5))
			b := p.batches[k]
			a, err := l.Append(batchOf(id, p.epoch, b.first, b.count))
			if err != nil || !a.Duplicate || a.Base != b.base || a.Last != b.base+int64(b.count)-1 {
				t.Fatalf("repeated batch %+v: %+v %v", b, a, err)
			}
		}
	case 1: // a gap, or a sequence that has left the window
		if len(p.batches) == 0 {
			return
		}
		first := (p.next + 1 + int32(rng.IntN(5))) & math.MaxInt32
		if n := len(p.batches); n > 5 && rng.IntN(2) == 0 {
			first, count = p.batches[n-6].first, p.batches[n-6].count
		}
		end := l.EndOffset()
		if _, err := l.Append(batchOf(id, p.epoch, first, count)); !errors.Is(err, kafka.ErrOutOfOrderSequence) {
			t.Fatalf("gap: %v", err)
		}
		if l.EndOffset() != end {
			t.Fatal("a refused batch was appended")
		}
	case 2: // an old epoch
		if p.epoch > 0 {
			if _, err := l.Append(batchOf(id, p.epoch-1, p.next, count)); !errors.Is(err, kafka.ErrFenced) {
				t.Fatalf("old epoch: %v", err)
			}
		}
	case 3: // a new epoch begins with 0
		if len(p.batches) == 0 {
			return
		}
		if _, err := l.Append(batchOf(id, p.epoch+1, 3, count)); !errors.Is(err, kafka.ErrOutOfOrderSequence) {
			t.Fatalf("new epoch: %v", err)
		}
		p.epoch++
		p.next, p.batches = 0, nil
		m.send(t, l, id, p, count)
	default:
		m.send(t, l, id, p, count)
	}
}

func (m *producerModel) send(t *testing.T, l *Log, id int64, p *modelProducer, count int32) {
	t.Helper()
	a, err := l.Append(batchOf(id, p.epoch, p.next, count))
	if err != nil || a.Duplicate {
		t.Fatalf("producer %d epoch %d sequence %d: %+v %v", id, p.epoch, p.next, a, err)
	}
	p.batches = append(p.batches, modelBatch{p.next, count, a.Base})
	p.next = int32((int64(p.next) + int64(count)) & math.MaxInt32)
}

func TestSnapshotRoundTrip(t *testing.T) {
	ps := producers{}
	for i := range int32(20) {
		b := batchOf(int64(i%4), 0, i/4*2, 2)
		b.SetOffset(int64(i*2), 0)
		ps.note(b)
	}
	enc := ps.encode(nil)
	got, _, err := decodeProducers(enc)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.encode(nil), enc) {
		t.Fatal("another snapshot")
	}
	if n := got[1].n; n != remembered {
		t.Fatalf("%d batches remembered", n)
	}
}

func FuzzDecodeProducers(f *testing.F) {
	ps := producers{}
	ps.note(batchOf(1, 0, 0, 2))
	ps.note(batchOf(1, 0, 2, 1))
	ps.note(batchOf(9, 3, 7, 1))
	f.Add(ps.encode(nil))
	f.Add(producers{}.encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, _, err := decodeProducers(b)
		if err != nil {
			return
		}
		again, _, err := decodeProducers(got.encode(nil))
		if err != nil || len(again) != len(got) {
			t.Fatalf("%d producers, then %d, %v", len(got), len(again), err)
		}
	})
}
