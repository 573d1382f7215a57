package stream_test

import (
	"math"
	"testing"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/stream"
)

// life returns the life that a partition is in.
func life(t *testing.T, eng *stream.Engine, tp stream.TopicPartition) *broker.Life {
	t.Helper()
	return must(must(eng.Broker().Partition(tp))(t).Life())(t)
}

// batches returns the batches of a partition.
func batches(t *testing.T, eng *stream.Engine, tp stream.TopicPartition) (bs []batch.Batch) {
	t.Helper()
	f := life(t, eng, tp)
	c := f.NewCursor(0)
	defer c.Close()
	for {
		b := must(c.Next(f.EndOffset()))(t)
		if b == nil {
			return bs
		}
		bs = append(bs, append(batch.Batch(nil), b...))
	}
}

// C1, C2: sequences go on behind 2^31-1 with 0, whether a batch ends there or goes over it, and a batch that is repeated is found on both sides, also after the engine was opened again.
func TestSequencesGoAroundTheirEnd(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 2)
		p := newProducer(t, eng, stream.ProducerConfig{Partitioner: stream.ManualPartitioner(), BatchSize: 200})
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
		id := batches(t, eng, tp("a", 0))[0].ProducerID()
		// In the other partition the producer's sequence is near its end already.
		var b batch.Builder
		b.Reset(nil)
		b.Append(1, nil, []byte("first"), nil)
		first := b.Seal(batch.Stamp{ProducerID: id, BaseSequence: math.MaxInt32 - 5})
		must(life(t, eng, tp("a", 1)).Append(first))(t)
		want := int32(math.MaxInt32 - 4)
		for n := range 10 {
			rs := make([]stream.Record, 1+n%3)
			for i := range rs {
				rs[i] = stream.Record{Topic: "a", Partition: 1, Value: make([]byte, 10)}
			}
			must(p.ProduceAll(t.Context(), rs, nil))(t)
		}
		check := func(eng *stream.Engine) {
			t.Helper()
			next := want
			around := 0
			for i, b := range batches(t, eng, tp("a", 1))[1:] {
				eq(t, "sequence", b.BaseSequence(), next)
				next = (b.LastSequence() + 1) & math.MaxInt32
				if b.LastSequence() < b.BaseSequence() {
					around++
				}
				if i < 5 {
					continue
				}
				// One of the last five batches, sent again.
				a := must(life(t, eng, tp("a", 1)).Append(append(batch.Batch(nil), b...)))(t)
				if !a.Duplicate || a.Base != b.BaseOffset() {
					t.Errorf("a batch at offset %d that is repeated: %+v", b.BaseOffset(), a)
				}
			}
			eq(t, "batches over the end", around, 1)
			eq(t, "sequences", next, (want+19)&math.MaxInt32)
		}
		check(eng)
		check(g.reopen())
	})
}
