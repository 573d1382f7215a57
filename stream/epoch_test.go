package stream_test

import (
	"math"
	"testing"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// C1, C2: a name that has used up its epochs goes on under another producer id: what it has written is known, and its older instance is fenced.
func TestNameWhoseEpochsAreUsedUp(t *testing.T) {
	g := &ground{t: t, fs: vfs.NewMemory(), dir: "/data"}
	defer g.close()
	eng := g.open()
	create(t, eng, "a", 1)
	p := newProducer(t, eng, stream.ProducerConfig{Name: "n"})
	must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: 7, Value: []byte("7")}))(t)
	first := batches(t, eng, tp("a", 0))[0]
	var epoch int16
	for n := 0; epoch < math.MaxInt16-1; n++ {
		_, id, e, err := eng.Broker().OpenName("n")
		check(t, err)
		eq(t, "producer id", id, first.ProducerID())
		epoch = e
	}
	last := newProducer(t, eng, stream.ProducerConfig{Name: "n"})
	must(last.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: 8, Value: []byte("8")}))(t)
	next := newProducer(t, eng, stream.ProducerConfig{Name: "n"})
	_, err := last.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: 9, Value: []byte("fenced")})
	wantErr(t, err, stream.ErrFenced)
	for range 2 {
		eq(t, "last sequence", must(next.LastSequence(t.Context(), tp("a", 0)))(t), 8)
		eq(t, "duplicate", must(next.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: 8}))(t).Duplicate, true)
		eng = g.reopen()
		next = newProducer(t, eng, stream.ProducerConfig{Name: "n"})
	}
	must(next.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: 9, Value: []byte("9")}))(t)
	bs := batches(t, eng, tp("a", 0))
	eq(t, "batches", len(bs), 3)
	eq(t, "epoch of the last instance", bs[1].ProducerEpoch(), math.MaxInt16)
	if bs[2].ProducerID() == first.ProducerID() || bs[2].ProducerEpoch() > 2 {
		t.Errorf("the next one has id %d, epoch %d; the first had id %d", bs[2].ProducerID(), bs[2].ProducerEpoch(), first.ProducerID())
	}
}
