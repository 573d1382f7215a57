package stream_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// segmentsOf counts a partition's segments.
func (g *timed) segmentsOf(p stream.TopicPartition) int {
	g.t.Helper()
	_, n := logBytes(g.t, g.fs, "/data", p)
	return n
}

// hundred makes a topic with a hundred segments, none of which is old enough to go, however long it took.
func (g *timed) hundred(retention time.Duration) stream.TopicPartition {
	g.t.Helper()
	g.topic("a", stream.TopicConfig{Retention: retention})
	for g.segmentsOrNone() < 100 {
		g.write(tp("a", 0), 5, time.Second)
	}
	return tp("a", 0)
}

func (g *timed) segmentsOrNone() int {
	if _, err := g.fs.Stat("/data/topics/a-0"); err != nil {
		return 0
	}
	return g.segmentsOf(tp("a", 0))
}

// F8: a wall clock that jumps forward wipes nothing: what only the jump makes too old goes slowly, a tenth in five minutes, for a day; then the clock is believed. One event tells.
func TestClockJumpsForward(t *testing.T) {
	for _, by := range []time.Duration{2 * time.Hour, 24 * time.Hour, 365 * 24 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			inTime(t, func(t *testing.T, g *timed) {
				// Without the jump all of it would go after 36 hours.
				a := g.hundred(by / 2)
				if by > 3*24*time.Hour {
					g.alter("a", map[string]string{"retention.ms": fmt.Sprint((36 * time.Hour).Milliseconds())})
				}
				g.wait(time.Minute)
				before := g.segmentsOf(a)
				eq(t, "log start", startOf(t, g.eng, a), 0)
				g.off.Add(int64(by))
				from := time.Now()
				for range 4 {
					g.wait(4*time.Minute + 50*time.Second)
					n := g.segmentsOf(a)
					if gone := before - n; gone > before/10+1 {
						t.Fatalf("%d of %d segments have gone within %v", gone, before, time.Since(from))
					}
					before = n
					g.wait(10 * time.Second)
				}
				if before == 101 || before < 60 {
					t.Fatalf("%d segments are left after %v", before, time.Since(from))
				}
				eq(t, "events", len(g.seen.jumps), 1)
				if d := g.seen.jumps[0] - by; d < -time.Minute || d > time.Minute {
					t.Fatalf("the clock has jumped by %v, the event says %v", by, g.seen.jumps[0])
				}
				// What is written after the jump stays; and in a day the rest has gone, whatever the clock says.
				g.write(a, 1, 0)
				g.wait(time.Hour)
				g.write(a, 1, 0)
				g.wait(24 * time.Hour)
				eq(t, "events", len(g.seen.jumps), 1)
				if n := g.segmentsOf(a); n > 8 {
					t.Errorf("%d segments are left after a day", n)
				}
			})
		})
	}
}

// F8: a clock that is in doubt for a day is believed at once from then on; before, it is not, also if it jumps once more meanwhile.
func TestClockIsBelievedAfterADay(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		a := g.hundred(20 * 24 * time.Hour)
		g.off.Add(int64(2 * time.Hour)) // nothing is too old for it
		g.wait(23 * time.Hour)
		eq(t, "log start", startOf(t, g.eng, a), 0)
		eq(t, "events", len(g.seen.jumps), 1)
		g.off.Add(int64(365 * 24 * time.Hour))
		g.wait(70 * time.Minute)
		if n := g.segmentsOf(a); n < 15 {
			t.Fatalf("an hour after a jump of a year %d segments are left", n)
		}
		g.wait(24 * time.Hour)
		if n := g.segmentsOf(a); n > 2 {
			t.Errorf("%d segments are left after a day", n)
		}
	})
}

// F8: what has gone on for a day is the time: what only the jump makes too old goes at once then, and slowly before.
func TestClockIsBelievedForWhatComesLater(t *testing.T) {
	for _, after := range []time.Duration{22 * time.Hour, 26 * time.Hour} {
		t.Run(after.String(), func(t *testing.T) {
			inTime(t, func(t *testing.T, g *timed) {
				a := g.hundred(1000 * time.Hour)
				g.wait(time.Minute)
				g.off.Add(int64(2 * time.Hour))
				g.wait(after)
				// By the clock they are two hours older than they are.
				g.alter("a", map[string]string{"retention.ms": fmt.Sprint((after + time.Hour).Milliseconds())})
				g.wait(time.Second)
				n := g.segmentsOf(a)
				if after < 24*time.Hour && n < 85 || after > 24*time.Hour && n > 2 {
					t.Errorf("%d segments are left, %v after the jump", n, after)
				}
			})
		})
	}
}

// F8: a jump that is taken back costs no more than what had gone; a later one is told again.
func TestClockJumpsForthAndBack(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		a := g.hundred(48 * time.Hour)
		for i := range 3 {
			before := startOf(t, g.eng, a)
			g.off.Add(int64(30 * 24 * time.Hour))
			g.wait(6 * time.Minute)
			eq(t, "events", len(g.seen.jumps), i+1)
			start := startOf(t, g.eng, a)
			if start == before && i == 0 {
				t.Error("nothing has gone")
			}
			g.off.Store(0)
			g.wait(time.Hour)
			eq(t, "log start", startOf(t, g.eng, a), start)
			eq(t, "events", len(g.seen.jumps), i+1)
		}
		if n := g.segmentsOf(a); n < 45 {
			t.Errorf("%d segments are left", n)
		}
	})
}

// F8: a clock that jumps back breaks nothing: records get its time, nothing goes before its time has come by the new clock, and what is written then expires.
func TestClockJumpsBack(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, 24 * time.Hour, 365 * 24 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			inTime(t, func(t *testing.T, g *timed) {
				a := tp("a", 0)
				g.topic("a", stream.TopicConfig{Retention: 3 * time.Hour})
				g.write(a, 30, time.Minute)
				g.off.Add(-int64(by))
				g.write(a, 30, time.Minute)
				rs := readAll(t, g.eng, a)
				eq(t, "records", len(rs), 60)
				if d := rs[29].Timestamp.Sub(rs[30].Timestamp) - by + time.Minute; d < -time.Second || d > time.Second {
					t.Errorf("the clock went back by %v, times are %v and %v", by, rs[29].Timestamp, rs[30].Timestamp)
				}
				eq(t, "events", len(g.seen.jumps), 0)
				at := must(g.eng.Admin().OffsetsForTime(t.Context(), rs[30].Timestamp, a))(t)[a].Offset
				if rs[at].Timestamp.Before(rs[30].Timestamp) || at > 30 {
					t.Errorf("the time of offset 30 is found at %d", at)
				}
				// Old records have times in the future now, and so do their files: they wait for their time.
				g.wait(4 * time.Hour)
				g.write(a, 3, time.Minute)
				g.wait(4 * time.Hour)
				if start := startOf(t, g.eng, a); by > 8*time.Hour && start != 0 || by < 8*time.Hour && start < 60 {
					t.Errorf("the log starts at %d", start)
				}
				if by > 8*time.Hour {
					g.off.Store(0)
					g.wait(26 * time.Hour)
					if start := startOf(t, g.eng, a); start < 60 {
						t.Errorf("the clock is right again, and the log starts at %d", start)
					}
				}
				g.crash(true, 3)
				g.write(a, 3, time.Minute)
				g.wait(4 * time.Hour)
				eq(t, "bounds", g.bounds(a)[1], 66)
			})
		})
	}
}

// F8: the time in which no engine was open counts as a jump, and a clock that jumps while it is closed wipes nothing either.
func TestClockJumpsWhileClosed(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		a := g.hundred(48 * time.Hour)
		g.wait(time.Minute)
		g.close()
		g.off.Add(int64(365 * 24 * time.Hour))
		g.open()
		g.wait(4 * time.Minute)
		if n := g.segmentsOf(a); n < 85 {
			t.Fatalf("%d segments are left", n)
		}
		eq(t, "events", len(g.seen.jumps), 1)
		// Closing and opening again is no way around the doubt.
		for range 20 {
			g.reopen()
			g.wait(10 * time.Second)
		}
		if n := g.segmentsOf(a); n < 70 {
			t.Errorf("%d segments are left, some minutes later and opened again and again", n)
		}
	})
}
