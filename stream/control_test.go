package stream_test

import (
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// A consumer passes over control records without a word, also where nothing follows: its position, and what it commits, is the log end.
func TestControlRecordsAtTheEnd(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 1)
		fill(t, eng, tp("a", 0), 0, 3)
		p := must(eng.Broker().Partition(tp("a", 0)))(t)
		life := must(p.Life())(t)
		must(life.Append(batch.Marker{Commit: true}.Seal(nil, 1<<40, 0, time.Now().UnixMilli())))(t)
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest, MaxWait: time.Second})
		eq(t, "values", poll(t, c, 10), numbers(0, 3))
		eq(t, "nothing more", len(poll(t, c, 10)), 0)
		eq(t, "position", must(c.Position(tp("a", 0)))(t), 4)
		check(t, c.Commit(t.Context()))
		eq(t, "committed", committed(t, c, tp("a", 0)), 4)
		for _, at := range []int64{3, 4} { // at the marker, and at the end
			check(t, c.Seek(tp("a", 0), at))
			eq(t, "nothing", len(poll(t, c, 10)), 0)
			eq(t, "position", must(c.Position(tp("a", 0)))(t), 4)
		}
		fill(t, eng, tp("a", 0), 3, 5)
		eq(t, "values behind it", poll(t, c, 10), numbers(3, 5))
	})
}
