package stream_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// F8, A11: an engine that is never open for long, nor closed for long, doubts no clock: what is too old goes in lives of minutes too.
func TestRetentionInShortLives(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		a := g.hundred(48 * time.Hour)
		g.wait(time.Minute)
		for range 12 * 5 { // days
			g.close()
			time.Sleep(2 * time.Hour)
			g.open()
			g.wait(4 * time.Minute)
		}
		if n := g.segmentsOf(a); n > 10 {
			t.Errorf("after five days %d segments are left, retention is two", n)
		}
		eq(t, "events", len(g.seen.jumps), 0)
	})
}

// F8, A11: a few records in an engine that runs for eight hours a day go as they would if it ran all day.
func TestRetentionInOfficeHours(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		a := tp("a", 0)
		g.topic("a", stream.TopicConfig{Retention: 48 * time.Hour})
		g.write(a, 3, 0)
		day := func() {
			g.close()
			time.Sleep(16 * time.Hour)
			g.open()
			g.wait(8 * time.Hour)
		}
		day()
		eq(t, "bounds after a day", g.bounds(a), [2]int64{0, 3})
		for range 4 {
			day()
		}
		eq(t, "bounds after five days", g.bounds(a), [2]int64{3, 3})
		eq(t, "events", len(g.seen.jumps), 0)
	})
}

// F8, A11: when a clock that was a year ahead for some minutes is right again, in the same life of the engine or in the next one, it is believed: what is written then goes in its time, and no
// sooner.
func TestRetentionAfterTheClockIsRightAgain(t *testing.T) {
	for name, right := range map[string]func(g *timed){
		"while open": func(g *timed) { g.off.Store(0) },
		"while closed": func(g *timed) {
			g.close()
			g.off.Store(0)
			g.open()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, g *timed) {
				a := tp("a", 0)
				g.topic("a", stream.TopicConfig{Retention: 2 * time.Hour})
				g.wait(time.Minute)
				g.off.Store(int64(365 * 24 * time.Hour))
				g.wait(10 * time.Minute)
				right(g)
				g.write(a, 3, 0)
				g.wait(110 * time.Minute)
				eq(t, "bounds before two hours are over", g.bounds(a), [2]int64{0, 3})
				g.wait(30 * time.Minute)
				eq(t, "bounds behind two hours", g.bounds(a), [2]int64{3, 3})
			})
		})
	}
}

// holes reads a partition from its start and returns the damage that its reader is told of, and how many records there are.
func (g *timed) holes(p stream.TopicPartition) (n int, damage []*stream.CorruptError) {
	g.t.Helper()
	c := newConsumer(g.t, g.eng, stream.ConsumerConfig{Reset: stream.ResetEarliest})
	check(g.t, c.Assign(p))
	for range 100 {
		rs, err := c.Poll(g.t.Context(), 0)
		n += len(rs)
		if err == nil && len(rs) == 0 {
			check(g.t, c.Close(g.t.Context()))
			return n, damage
		}
		var d *stream.CorruptError
		if errors.As(err, &d) {
			damage = append(damage, d)
			err = c.Seek(p, d.To)
		}
		check(g.t, err)
	}
	g.t.Fatal("a hundred polls did not come to the end")
	return
}

// A8, F7: damage that has been given up stays so: Verify reports it, and nobody calls the partition damaged again, nor tells of it once more.
func TestSkippedDamageLeavesThePartitionHealthy(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		a := tp("a", 0)
		g.topic("a", stream.TopicConfig{})
		g.write(a, 30, 0)
		g.close()
		g.damage(a, 3)
		g.open()
		n, damage := g.holes(a)
		eq(t, "records", n, 29)
		eq(t, "holes", len(damage), 1)
		state := func() stream.PartitionState { return must(g.eng.Admin().Health(t.Context(), a))(t)[0].State }
		eq(t, "state", state(), stream.PartitionDamaged)
		check(t, g.eng.SkipCorrupt(t.Context(), a, damage[0].From, damage[0].To))
		eq(t, "state", state(), stream.PartitionOK)
		told := len(g.seen.damages())
		for range 2 {
			reports := 0
			check(t, g.eng.Verify(t.Context(), func(*stream.CorruptError) { reports++ }))
			eq(t, "reports", reports, 1)
			eq(t, "state after Verify", state(), stream.PartitionOK)
			g.reopen()
		}
		eq(t, "events", len(g.seen.damages()), told)
	})
}

// A8: a range that is given up stays given up when a smaller one with the same beginning is, at once and in later lives.
func TestSkipDoesNotShrink(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		a := tp("a", 0)
		g.topic("a", stream.TopicConfig{})
		g.write(a, 7, 0)
		g.close()
		g.damage(a, 1)
		g.damage(a, 4)
		g.open()
		_, damage := g.holes(a)
		eq(t, "holes", len(damage), 2)
		check(t, g.eng.SkipCorrupt(t.Context(), a, 1, 5))
		for _, to := range []int64{2, 5, 3} {
			check(t, g.eng.SkipCorrupt(t.Context(), a, 1, to))
			for range 2 {
				n, damage := g.holes(a)
				eq(t, "records", n, 5)
				eq(t, "holes", len(damage), 0)
				g.reopen()
			}
		}
	})
}

// F5: a long poll of an engine that is read only sees soon what another engine appends.
func TestReadOnlyPollSeesWhatAnotherEngineAppends(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		a := tp("a", 0)
		g.topic("a", stream.TopicConfig{})
		g.write(a, 1, 0)
		ro := must(stream.Open("/data", &stream.Options{FS: g.fs, ReadOnly: true}))(t)
		c := newConsumer(t, ro, stream.ConsumerConfig{Reset: stream.ResetEarliest, MaxWait: time.Hour})
		check(t, c.Assign(a))
		eq(t, "records", len(must(c.Poll(t.Context(), 10))(t)), 1)
		written := make(chan struct{})
		from := time.Now()
		go func() {
			defer close(written)
			time.Sleep(time.Minute)
			g.write(a, 1, 0)
		}()
		eq(t, "records", len(must(c.Poll(t.Context(), 10))(t)), 1)
		if d := time.Since(from); d > 61*time.Second {
			t.Errorf("what was appended after a minute was seen after %v", d)
		}
		<-written
		check(t, c.Close(t.Context()))
		check(t, ro.Close())
	})
}

// F5: the cleaner of an engine that is read only does nothing: no byte, no warning and no event of the clock, whatever is too old or deleted.
func TestReadOnlyEngineCleansNothing(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		a := tp("a", 0)
		g.topic("a", stream.TopicConfig{Retention: time.Hour})
		g.write(a, 30, 0)
		check(t, trim(g.eng, a, 10))
		g.close()
		time.Sleep(20 * 24 * time.Hour)
		ops := g.sim().Ops()
		var out strings.Builder
		g.open(func(o *stream.Options) {
			o.ReadOnly, o.Logger = true, slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
		})
		eq(t, "bounds", g.bounds(a), [2]int64{10, 30})
		g.wait(10 * time.Minute)
		eq(t, "bounds", g.bounds(a), [2]int64{10, 30})
		g.close()
		eq(t, "warnings", out.String(), "")
		eq(t, "events", len(g.seen.jumps), 0)
		eq(t, "changes of the disk", g.sim().Ops()-ops, 0)
	})
}

// A11, F7: damage between where a named producer is known to stand and its last record keeps neither retention nor DeleteRecords from their work, and is told.
func TestDamageOfANamedProducersRecordsStopsNothing(t *testing.T) {
	for name, remove := range map[string]func(g *timed, a stream.TopicPartition) error{
		"retention": func(g *timed, a stream.TopicPartition) error {
			g.alter("a", map[string]string{"retention.ms": "3600000"})
			g.wait(24 * time.Hour)
			return nil
		},
		"deletion": func(g *timed, a stream.TopicPartition) error { return trim(g.eng, a, -1) },
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, g *timed) {
				a := tp("a", 0)
				g.topic("a", stream.TopicConfig{})
				// All at once: a roll makes records durable, and where the producer stands is recorded later.
				g.writeWith(stream.ProducerConfig{Name: "n"}, a, 60, 0, func(i int, r *stream.Record) { r.Sequence = int64(i + 1) })
				cut := g.sim().Cut(vfs.Cut{Seed: 1, Keep: -1})
				g.close()
				g.fs = cut
				g.damage(a, 1)
				g.open()
				g.write(a, 1, 0)
				check(t, remove(g, a))
				eq(t, "bounds", g.bounds(a), [2]int64{61, 61})
				eq(t, "events", len(g.seen.damages()), 1)
			})
		})
	}
}
