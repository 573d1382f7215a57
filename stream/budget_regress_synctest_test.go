package stream_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// small makes topic "a" with so many small segments, which would all fit one by its settings at the end, and are to be compacted.
func (g *timed) small(segments int) {
	g.t.Helper()
	g.topic("a", stream.TopicConfig{})
	for n := 0; n < segments; _, n = logBytes(g.t, g.fs, "/data", tp("a", 0)) {
		g.keyed(tp("a", 0), 50, 50)
	}
	g.alter("a", map[string]string{"cleanup.policy": "compact", "segment.bytes": "1000000000"})
}

// F11, A12: a topic with more small segments than the process may have files is compacted, and none of them is called damaged.
func TestMoreSegmentsThanFilesAreCompacted(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		g.sim().SetMaxOpen(256)
		g.reopen()
		a := tp("a", 0)
		g.small(300)
		before := g.segmentsOf(a)
		g.wait(10 * time.Minute)
		if n := g.segmentsOf(a); n > before/2 {
			t.Errorf("%d segments are left of %d", n, before)
		}
		if n := len(readAll(t, g.eng, a)); n > 100 {
			t.Errorf("%d records are left of 50 keys", n)
		}
		eq(t, "passes", len(g.seen.compactions()) > 0, true)
		eq(t, "events of damage", len(g.seen.damages()), 0)
	})
}

// F11: while a pass over as many small segments as the process may have files goes on slowly, appends to other partitions go on.
func TestOthersAppendWhileManySegmentsAreCompacted(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		const others = 20
		g.sim().SetMaxOpen(256)
		g.reopen(func(o *stream.Options) { o.CleanRate = 1000 })
		g.topic("b", stream.TopicConfig{Partitions: others})
		for i := range int32(others) {
			g.write(tp("b", i), 1, 0)
		}
		g.small(252)
		p := newProducer(t, g.eng, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
		for range 100 {
			for i := range int32(others) {
				must(p.ProduceSync(t.Context(), &stream.Record{Topic: "b", Partition: i, Value: make([]byte, 100)}))(t)
			}
			g.wait(10 * time.Second)
		}
		eq(t, "passes", len(g.seen.compactions()) > 0, true)
		eq(t, "events of damage", len(g.seen.damages()), 0)
	})
}

// F11: polls that end within batches, one partition after the other, hold no file of each: every record comes, and appends go on.
func TestPollsOfOneRecordOverManyPartitions(t *testing.T) {
	for _, borrow := range []bool{false, true} {
		t.Run(fmt.Sprintf("borrow=%v", borrow), func(t *testing.T) {
			inTime(t, func(t *testing.T, g *timed) {
				const partitions, batch = 400, 3
				g.sim().SetMaxOpen(256)
				g.reopen()
				g.topic("a", stream.TopicConfig{Partitions: partitions})
				p := newProducer(t, g.eng, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
				for i := range int32(partitions) {
					rs := make([]stream.Record, batch)
					for k := range rs {
						rs[k] = stream.Record{Topic: "a", Partition: i, Value: fmt.Append(nil, i, k)}
					}
					must(p.ProduceAll(t.Context(), rs, nil))(t)
				}
				c := newConsumer(t, g.eng, stream.ConsumerConfig{Reset: stream.ResetEarliest, Topics: []string{"a"}, Borrow: borrow})
				next := map[int32]int64{}
				for range partitions * batch {
					rs := must(c.Poll(t.Context(), 1))(t)
					eq(t, "records", len(rs), 1)
					r := rs[0]
					eq(t, "offset", r.Offset, next[r.Partition])
					eq(t, "value", string(r.Value), fmt.Sprint(r.Partition, r.Offset))
					next[r.Partition]++
				}
				eq(t, "partitions", len(next), partitions)
				must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Partition: partitions - 1}))(t)
				check(t, c.Close(t.Context()))
			})
		})
	}
}

// F11, F4: an append that needs a new segment, for which no file is left, fails and takes no partition offline: with a file again the next one is written, and nothing is lost.
func TestAppendWhileNoFileIsLeft(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		a := tp("a", 0)
		g.topic("a", stream.TopicConfig{})
		g.write(a, 1, 0)
		p := newProducer(t, g.eng, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
		const tries = 20
		written := 0
		g.sim().SetMaxOpen(1)
		for range tries {
			if _, err := p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 300)}); err != nil {
				wantErr(t, err, stream.ErrStorage)
			} else {
				written++
			}
		}
		if written == 0 || written == tries {
			t.Fatalf("%d of %d appends had a file", written, tries)
		}
		eq(t, "state", must(g.eng.Admin().Health(t.Context(), a))(t)[0].State, stream.PartitionOK)
		g.sim().SetMaxOpen(0)
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
		eq(t, "records", len(readAll(t, g.eng, a)), 1+written+1)
	})
}
