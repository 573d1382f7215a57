package stream_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// F8: with message.timestamp.type=LogAppendTime records have the time at which they were appended, whatever their own was; it does not go back with the clock, also not over a restart.
func TestRecordsGetTheTimeOfTheirAppend(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		var now atomic.Int64
		now.Store(1_700_000_000_000)
		clock := func(o *stream.Options) { o.WallClock = func() time.Time { return time.UnixMilli(now.Load()) } }
		eng := g.open(clock)
		check(t, eng.Admin().CreateTopic(t.Context(), "a", stream.TopicConfig{Config: map[string]string{"message.timestamp.type": "LogAppendTime"}}))
		var want []int64
		send := func(at int64, codec stream.Compression) {
			t.Helper()
			p := newProducer(t, eng, stream.ProducerConfig{Compression: codec})
			defer p.Close(context.Background())
			for name, produce := range verbs {
				own := time.UnixMilli(1_000_000_000_000) // long ago
				rec := must(produce(p, t.Context(), &stream.Record{Topic: "a", Key: []byte("k"), Value: make([]byte, 300), Timestamp: own}))(t)
				eq(t, name, rec.Timestamp.UnixMilli(), at)
				want = append(want, at)
			}
		}
		send(1_700_000_000_000, stream.CompressionNone)
		now.Add(5000)
		send(1_700_000_005_000, stream.CompressionZstd)
		now.Add(-3_600_000)
		send(1_700_000_005_000, stream.CompressionNone)
		eng = g.reopen(clock)
		send(1_700_000_005_000, stream.CompressionLZ4)
		now.Add(3_700_000)
		send(now.Load(), stream.CompressionNone)
		var got []int64
		for _, r := range readAll(t, eng, tp("a", 0)) {
			got = append(got, r.Timestamp.UnixMilli())
		}
		eq(t, "timestamps", got, want)
		o := must(eng.Admin().OffsetsForTime(t.Context(), time.UnixMilli(1_700_000_000_001), tp("a", 0)))(t)
		eq(t, "offset for a time", o[tp("a", 0)].Offset, int64(len(verbs)))
		// And their own again.
		check(t, eng.Admin().AlterTopic(t.Context(), "a", map[string]string{"message.timestamp.type": "CreateTime"}))
		p := newProducer(t, eng, stream.ProducerConfig{})
		rec := must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Timestamp: time.UnixMilli(77)}))(t)
		eq(t, "its own time", rec.Timestamp.UnixMilli(), 77)
		wantErr(t, eng.Admin().AlterTopic(t.Context(), "a", map[string]string{"message.timestamp.type": "now"}), stream.ErrInvalidConfig)
	})
}
