package stream_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// A topic is deleted in the middle of a pass that has stopped to leave the disk to others: at once, and the pass ends without a trace.
func TestDeleteTopicInTheMiddleOfAPass(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		g.reopen(func(o *stream.Options) { o.CleanRate = 2000 })
		a, b := tp("a", 0), tp("b", 0)
		config := stream.TopicConfig{Cleanup: stream.CleanupCompact, Config: map[string]string{"min.cleanable.dirty.ratio": "0"}}
		for life := range int64(5) {
			g.topic("a", config)
			g.keyed(a, 300, 10)
			g.wait(time.Duration(1+7*life) * time.Second)
			at := time.Now()
			check(t, g.eng.Admin().DeleteTopic(t.Context(), "a"))
			if d := time.Since(at); d > time.Second {
				t.Errorf("DeleteTopic took %v", d)
			}
			eq(t, "directories", len(must(g.fs.List("/data/topics"))(t)), 0)
		}
		gone := time.Now()
		g.topic("b", config)
		g.topic("a", config)
		g.keyed(a, 20, 10)
		g.wait(10 * time.Minute)
		g.keyed(b, 300, 10)
		g.wait(10 * time.Minute)
		eq(t, "records", len(readAll(t, g.eng, a)) <= 20, true)
		if n := len(readAll(t, g.eng, b)); n > 30 {
			t.Errorf("%d records of another topic are left", n)
		}
		synctest.Wait()
		for _, p := range g.seen.compactions() {
			if p.tp == a && p.to > 20 && p.at.After(gone) {
				t.Errorf("the pass %+v of a topic that is deleted has ended", p)
			}
		}
	})
}
