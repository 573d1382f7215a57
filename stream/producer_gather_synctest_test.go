package stream_test

import (
	"testing"
	"testing/synctest"

	"github.com/runnelmq/runnel/stream"
)

// F14: behind a full window records gather in one batch.
func TestRecordsGatherBehindTheWindow(t *testing.T) {
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		p := newProducer(t, eng, stream.ProducerConfig{MaxInFlight: 1, BufferMemory: 20 << 14, MaxBlock: -1})
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
		release := d.hang()
		defer release()
		a := newAnswers(t)
		for i := range 100 {
			p.Produce(t.Context(), &stream.Record{Topic: "a"}, a.promise(i))
			synctest.Wait()
		}
		release()
		check(t, p.Flush(t.Context()))
		for _, got := range a.some(100) {
			check(t, got.err)
		}
		eq(t, "batches", p.(interface{ Metrics() stream.ProducerMetrics }).Metrics().Batches, 3)
	})
}
