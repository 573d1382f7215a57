package stream_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// keyed appends n records with one of keys keys, at once.
func (g *timed) keyed(to stream.TopicPartition, n, keys int) {
	g.t.Helper()
	g.writeWith(stream.ProducerConfig{Acks: stream.AcksWritten}, to, n, 0, func(i int, r *stream.Record) { r.Key = fmt.Append(nil, i%keys) })
}

// min.compaction.lag.ms: what is younger is all there for whoever reads along; what is older is compacted.
func TestMinCompactionLag(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		a := tp("a", 0)
		g.topic("a", stream.TopicConfig{Cleanup: stream.CleanupCompact, Config: map[string]string{"min.cleanable.dirty.ratio": "0", "min.compaction.lag.ms": "3600000"}})
		for range 6 {
			g.keyed(a, 50, 5)
			g.wait(9 * time.Minute)
		}
		g.wait(4 * time.Minute) // 58 minutes
		eq(t, "passes", len(g.seen.compactions()), 0)
		eq(t, "records", len(readAll(t, g.eng, a)), 300)
		for i := range 5 {
			g.wait(9 * time.Minute)
			rs := readAll(t, g.eng, a)
			young := int64(50 * (i + 1)) // from there on
			n := 0
			for _, r := range rs {
				if r.Offset >= young {
					n++
				}
			}
			eq(t, "young records", int64(n), 300-young)
			if old := len(rs) - n; old > 45 {
				t.Errorf("%d of %d old records are left", old, young)
			}
		}
		// Less lag holds at once.
		g.alter("a", map[string]string{"min.compaction.lag.ms": "0"})
		synctest.Wait()
		g.wait(time.Second)
		if n := len(readAll(t, g.eng, a)); n > 30 {
			t.Errorf("%d records are left", n)
		}
	})
}

// max.compaction.lag.ms: what is older is compacted, whatever the dirty ratio, and though nobody writes and the segment is not full.
func TestMaxCompactionLag(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		a, b := tp("a", 0), tp("b", 0)
		for _, name := range []string{"a", "b"} {
			g.topic(name, stream.TopicConfig{SegmentBytes: 1 << 20, Cleanup: stream.CleanupCompact, Config: map[string]string{"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "7200000"}})
		}
		g.alter("b", nil, "max.compaction.lag.ms")
		g.keyed(a, 100, 5)
		g.keyed(b, 100, 5)
		g.wait(119 * time.Minute)
		eq(t, "passes", len(g.seen.compactions()), 0)
		g.wait(2 * time.Minute)
		eq(t, "records", len(readAll(t, g.eng, a)), 5)
		for range 5 {
			g.keyed(a, 100, 5)
			g.wait(119 * time.Minute)
			eq(t, "records", len(readAll(t, g.eng, a)), 105)
			g.wait(2 * time.Minute)
			eq(t, "records", len(readAll(t, g.eng, a)), 5)
		}
		g.wait(24 * time.Hour)
		eq(t, "records without the limit", len(readAll(t, g.eng, b)), 100)
		for _, p := range g.seen.compactions() {
			eq(t, "partition", p.tp, a)
		}
		eq(t, "end", endOf(t, g.eng, a), 600)
	})
}

// sealedBytes are those of all segments but the last.
func (g *timed) sealedBytes(p stream.TopicPartition) (n int64) {
	g.t.Helper()
	var last int64
	for _, i := range must(g.fs.List("/data/topics/" + p.String()))(g.t) { // by name
		if strings.HasSuffix(i.Name, ".log") {
			n, last = n+last, i.Size
		}
	}
	return n
}

// min.cleanable.dirty.ratio: no pass before so much of the log is new.
func TestDirtyRatio(t *testing.T) {
	for _, ratio := range []float64{0.2, 0.5, 0.8} {
		t.Run(fmt.Sprint(ratio), func(t *testing.T) {
			inTime(t, func(t *testing.T, g *timed) {
				a := tp("a", 0)
				g.topic("a", stream.TopicConfig{Cleanup: stream.CleanupCompact, Config: map[string]string{"min.cleanable.dirty.ratio": "0"}})
				p := newProducer(t, g.eng, stream.ProducerConfig{Acks: stream.AcksWritten})
				write := func(n, keys int) {
					for i := range n {
						must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Key: fmt.Append(nil, i%keys), Value: []byte(strings.Repeat("v", 40))}))(t)
					}
				}
				write(200, 100)
				g.wait(time.Minute)
				g.alter("a", map[string]string{"min.cleanable.dirty.ratio": fmt.Sprint(ratio)})
				for range 4 {
					clean, dirty := g.sealedBytes(a), int64(0)
					for passes := len(g.seen.compactions()); len(g.seen.compactions()) == passes && dirty < 100_000; {
						dirty = g.sealedBytes(a) - clean
						write(5, 5)
						g.wait(31 * time.Second)
					}
					of := func(dirty int64) float64 { return float64(dirty) / float64(clean+dirty) }
					if of(dirty) > ratio || of(dirty+1500) < ratio {
						t.Errorf("a pass with %d new bytes beside %d: %.2f", dirty, clean, of(dirty))
					}
				}
			})
		})
	}
}

// CleanRate: a pass takes as long as its bytes say; nobody else waits for it, and Close ends it at once.
func TestCleanRate(t *testing.T) {
	const rate = 10_000
	slow := func(o *stream.Options) { o.CleanRate = rate }
	inTime(t, func(t *testing.T, g *timed) {
		a := tp("a", 0)
		g.reopen(slow)
		g.topic("a", stream.TopicConfig{Cleanup: stream.CleanupCompact, SegmentBytes: 10_000})
		g.topic("old", stream.TopicConfig{Retention: time.Minute})
		g.alter("a", map[string]string{"min.compaction.lag.ms": "60000"})
		g.keyed(a, 2000, 100)
		g.write(tp("old", 0), 50, 0)
		before, _ := logBytes(t, g.fs, "/data", a)
		g.wait(time.Minute)
		from := time.Now()
		for len(g.seen.compactions()) == 0 {
			// Retention, producers and readers go on meanwhile.
			g.wait(time.Second)
			g.keyed(tp("old", 0), 1, 1)
			if n := len(readAll(t, g.eng, tp("old", 0))); time.Since(from) > 40*time.Second && n > 50 {
				t.Fatalf("%d records of another topic are left after %v", n, time.Since(from))
			}
			if time.Since(from) > time.Hour {
				t.Fatal("no pass has ended in an hour")
			}
		}
		p := g.seen.compactions()[0]
		took := p.at.Sub(from)
		least := time.Duration(float64(p.before+p.after) / rate * float64(time.Second))
		if took < least || took > 3*least+31*time.Second {
			t.Errorf("a pass over %d of %d bytes, of which %d stayed, took %v", p.before, before, p.after, took)
		}
		eq(t, "from", p.from, 0)
		if p.to < 1500 || p.after >= p.before {
			t.Errorf("the event says %+v", p)
		}

		// Another one is stopped in the middle.
		g.keyed(a, 2000, 100)
		g.wait(70 * time.Second)
		n, at := len(g.seen.compactions()), time.Now()
		records := len(readAll(t, g.eng, a))
		g.close()
		if d := time.Since(at); d > 100*time.Millisecond {
			t.Errorf("Close took %v", d)
		}
		eq(t, "passes", len(g.seen.compactions()), n)
		g.open()
		eq(t, "end", endOf(t, g.eng, a), 4000)
		if n := len(readAll(t, g.eng, a)); n > records {
			t.Errorf("%d records are there, before there were %d", n, records)
		}
		g.wait(10 * time.Minute)
		if n := len(readAll(t, g.eng, a)); n > 300 {
			t.Errorf("%d records are left", n)
		}
	})
}

// Events.Compacted: the ranges of the passes follow each other, and the bytes are those of the files.
func TestCompactedEvents(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		a := tp("a", 0)
		g.topic("a", stream.TopicConfig{Cleanup: stream.CleanupCompact, Config: map[string]string{"min.cleanable.dirty.ratio": "0"}})
		next := int64(0)
		seen := 0
		for range 20 {
			g.keyed(a, 50, 7)
			var size int64
			g.wait(time.Minute)
			size, _ = logBytes(t, g.fs, "/data", a)
			for _, p := range g.seen.compactions()[seen:] {
				eq(t, "partition", p.tp, a)
				if p.from != next || p.to <= p.from || p.to > endOf(t, g.eng, a) {
					t.Fatalf("a pass over [%d,%d), the last ended at %d", p.from, p.to, next)
				}
				next = p.to
				if p.after > p.before || p.after > size {
					t.Errorf("%d bytes became %d; the files have %d", p.before, p.after, size)
				}
			}
			seen = len(g.seen.compactions())
		}
		if seen < 15 {
			t.Errorf("%d passes", seen)
		}
		g.reopen()
		g.keyed(a, 50, 7)
		g.wait(time.Minute)
		if p := g.seen.compactions()[seen]; p.from != next {
			t.Errorf("after an open a pass begins at %d, the last ended at %d", p.from, next)
		}
	})
}
