package stream_test

import (
	"math"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// A13: the record found for a time is the one that a scan of the whole log finds, whatever the timestamps are and however they lie in
// batches and segments.
func TestOffsetsForTimeIsWhatAScanFinds(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		r := newRand(t)
		rounds := 12
		if testing.Short() || g.disk {
			rounds = 4
		}
		for round := range rounds {
			eng := g.reopen()
			name := string(rune('a' + round))
			check(t, eng.Admin().CreateTopic(t.Context(), name, stream.TopicConfig{
				SegmentBytes: 1024 << r.IntN(5), Config: map[string]string{"index.interval.bytes": []string{"0", "100", "1000", "4096"}[r.IntN(4)]},
			}))
			p := newProducer(t, eng, stream.ProducerConfig{Acks: stream.AcksWritten, BatchSize: 1 + r.IntN(1000)})
			var stamps []int64
			at := int64(1000)
			for range 10 + r.IntN(40) {
				var rs []stream.Record
				for range 1 + r.IntN(20) {
					switch r.IntN(8) {
					case 0:
						at -= r.Int64N(500) // backwards
					case 1, 2, 3:
						at += r.Int64N(50)
					case 4:
						at = r.Int64N(2000)
					}
					at = max(at, 0)
					ms := at
					if r.IntN(60) == 0 {
						ms = math.MaxInt64 - r.Int64N(3) // far future
					}
					stamps = append(stamps, ms)
					rs = append(rs, stream.Record{Topic: name, Timestamp: time.UnixMilli(ms), Value: make([]byte, r.IntN(40))})
				}
				must(p.ProduceAll(t.Context(), rs, nil))(t)
			}
			ask := []int64{-1, 0, 1, math.MaxInt64 - 3, math.MaxInt64 - 1, math.MaxInt64}
			for range 150 {
				ask = append(ask, r.Int64N(3000), stamps[r.IntN(len(stamps))])
			}
			for pass := range 2 { // and with the indexes read from the disk
				for _, ms := range ask {
					want := int64(-1)
					for i, s := range stamps {
						if s >= ms {
							want = int64(i)
							break
						}
					}
					got := int64(-1)
					if o, ok := must(eng.Admin().OffsetsForTime(t.Context(), time.UnixMilli(ms), tp(name, 0)))(t)[tp(name, 0)]; ok {
						got = o.Offset
					}
					if got != want {
						t.Fatalf("round %d, pass %d: time %d: offset %d, a scan finds %d of %d", round, pass, ms, got, want, len(stamps))
					}
				}
				eng = g.reopen()
			}
		}
	})
}

func TestOffsetsForTimeLeavesOutPartitionsWithoutSuchARecord(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 3)
		p := newProducer(t, eng, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Partition: 1, Timestamp: time.UnixMilli(10)}))(t)
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Partition: 2, Timestamp: time.UnixMilli(20)}))(t)
		all := []stream.TopicPartition{tp("a", 0), tp("a", 1), tp("a", 2)}
		at := func(ms int64) stream.Offsets {
			return must(eng.Admin().OffsetsForTime(t.Context(), time.UnixMilli(ms), all...))(t)
		}
		eq(t, "at 10", at(10), stream.Offsets{tp("a", 1): {}, tp("a", 2): {}})
		eq(t, "at 11", at(11), stream.Offsets{tp("a", 2): {}})
		eq(t, "at 21", at(21), stream.Offsets{})
		_, err := eng.Admin().OffsetsForTime(t.Context(), time.UnixMilli(0), tp("a", 3))
		wantErr(t, err, stream.ErrUnknownTopic)
		eq(t, "starts", must(eng.Admin().StartOffsets(t.Context(), all...))(t)[tp("a", 1)].Offset, 0)
		eq(t, "ends", must(eng.Admin().EndOffsets(t.Context(), all...))(t)[tp("a", 1)].Offset, 1)
		eq(t, "end of an empty one", endOf(t, eng, tp("a", 0)), 0)
	})
}
