package stream_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// Retention is off unless it is asked for: nothing goes in years, and nobody looks, neither at the clock nor at the disk.
func TestNothingExpiresUnasked(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		g.topic("a", stream.TopicConfig{})
		g.topic("b", stream.TopicConfig{Config: map[string]string{"retention.ms": "-1", "retention.bytes": "-1"}})
		g.write(tp("a", 0), 100, 0)
		g.write(tp("b", 0), 100, 0)
		g.wait(time.Hour) // background syncs
		asks, ops := g.asks.Load(), g.sim().Ops()
		_, files := logBytes(t, g.fs, "/data", tp("a", 0))
		g.wait(3 * 365 * 24 * time.Hour)
		if files < 5 {
			t.Fatalf("%d segments", files)
		}
		eq(t, "looks at the clock", g.asks.Load()-asks, 0)
		eq(t, "operations on the disk", g.sim().Ops()-ops, 0)
		for _, name := range []string{"a", "b"} {
			eq(t, "bounds", g.bounds(tp(name, 0)), [2]int64{0, 100})
		}
		eq(t, "records", len(readAll(t, g.eng, tp("a", 0))), 100)
		eq(t, "events", g.seen.removals(), nil)

		// With a policy somebody looks, and with none again nobody.
		g.alter("a", map[string]string{"retention.ms": "999999999999"})
		g.wait(time.Hour)
		if g.asks.Load() < asks+100 {
			t.Error("nobody looks at a topic with a policy")
		}
		g.alter("a", nil, "retention.ms")
		g.wait(time.Hour)
		asks = g.asks.Load()
		g.wait(1000 * time.Hour)
		eq(t, "looks at the clock", g.asks.Load()-asks, 0)
	})
}

// A11, F8: retention by time takes whole segments, none that holds a record that is young enough, and soon all that do not.
func TestRetentionByTime(t *testing.T) {
	for _, retention := range []time.Duration{10 * time.Minute, time.Hour, 26 * time.Hour} {
		t.Run(retention.String(), func(t *testing.T) {
			inTime(t, func(t *testing.T, g *timed) {
				g.topic("a", stream.TopicConfig{Retention: retention, Partitions: 2})
				g.topic("keep", stream.TopicConfig{})
				g.write(tp("keep", 0), 50, 0)
				begin := time.Now()
				apart := retention / 40
				var start int64
				var times []time.Time
				for range 25 {
					g.writeWith(stream.ProducerConfig{}, tp("a", 1), 8, apart, func(int, *stream.Record) { times = append(times, time.Now()) })
					g.wait(31 * time.Second)
					now := g.bounds(tp("a", 1))[0]
					if now < start {
						t.Fatalf("log start went back from %d to %d", start, now)
					}
					start = now
					first := must(g.eng.Admin().OffsetsForTime(t.Context(), time.Now().Add(-retention-35*time.Second-12*apart), tp("a", 1)))(t)
					if o := first[tp("a", 1)].Offset; o > start {
						t.Fatalf("after %v offset %d is the first that may be there, the log starts at %d", time.Since(begin), o, start)
					}
					if start > 0 {
						if age := time.Since(times[start-1]); age < retention {
							t.Fatalf("offset %d was %v old at most", start-1, age)
						}
					}
					rs := readAll(t, g.eng, tp("a", 1))
					eq(t, "first record", rs[0].Offset, start)
					eq(t, "records", int64(len(rs)), endOf(t, g.eng, tp("a", 1))-start)
					if age := time.Since(rs[0].Timestamp); start > 0 && age > retention+35*time.Second+13*apart {
						t.Fatalf("the first record is %v old", age)
					}
				}
				if start < 100 {
					t.Fatalf("the log starts at %d: too little has gone", start)
				}
				eq(t, "the other topic", g.bounds(tp("keep", 0)), [2]int64{0, 50})
			})
		})
	}
}

// What retention has removed is told: segments, bytes and the log start, in order; the files are gone.
func TestExpiredEvents(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		g.topic("a", stream.TopicConfig{Retention: time.Hour})
		g.write(tp("a", 0), 100, time.Minute)
		before, files := logBytes(t, g.fs, "/data", tp("a", 0))
		gone := int64(0)
		for _, r := range g.seen.removals() {
			gone += r.segments
		}
		if gone == 0 || files < 3 {
			t.Fatalf("%d segments have gone, %d are there", gone, files)
		}
		g.seen.mu.Lock()
		g.seen.removed = nil
		g.seen.mu.Unlock()
		g.wait(30 * time.Minute)
		var segments, bytes, start int64
		for _, r := range g.seen.removals() {
			eq(t, "partition", r.tp, tp("a", 0))
			if r.segments < 1 || r.bytes < 1 || r.logStart <= start {
				t.Errorf("event %+v after log start %d", r, start)
			}
			segments, bytes, start = segments+r.segments, bytes+r.bytes, r.logStart
		}
		after, left := logBytes(t, g.fs, "/data", tp("a", 0))
		eq(t, "log start", startOf(t, g.eng, tp("a", 0)), start)
		eq(t, "segments", int64(files-left), segments)
		eq(t, "bytes", before-after, bytes)
	})
}

// Retention by bytes: the log does not fall below them, and is above by less than a segment.
func TestRetentionByBytes(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		const keep = 5000
		g.topic("a", stream.TopicConfig{RetentionBytes: keep})
		var start int64
		for i := range 30 {
			g.write(tp("a", 0), 20, 0)
			g.wait(time.Minute)
			// What is reserved for the active segment does not count.
			var size int64
			for _, r := range readAll(t, g.eng, tp("a", 0)) {
				size += 61 + int64(len(r.Value)) + 8
			}
			if i > 4 && (size < keep-100 || size > keep+2048) {
				t.Fatalf("the log has about %d bytes", size)
			}
			now := startOf(t, g.eng, tp("a", 0))
			if now < start {
				t.Fatalf("log start went back from %d to %d", start, now)
			}
			start = now
		}
		if start < 400 {
			t.Fatalf("the log starts at %d", start)
		}
		// Bytes do not grow old: one more segment goes when the last one is full of age (segment.ms), and then none.
		g.wait(200 * time.Hour)
		now := startOf(t, g.eng, tp("a", 0))
		if now > start+10 {
			t.Errorf("the log started at %d, and now at %d", start, now)
		}
		g.wait(300 * time.Hour)
		eq(t, "log start", startOf(t, g.eng, tp("a", 0)), now)
	})
}

// A topic that nobody writes to rolls and expires whole, its offsets go on; with time and compaction off it is rolled by segment.ms alone without a loss.
func TestIdleTopicExpires(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		g.topic("a", stream.TopicConfig{Retention: time.Hour, SegmentBytes: 1 << 20})
		g.topic("far", stream.TopicConfig{Retention: time.Hour, SegmentBytes: 1 << 20})
		g.write(tp("a", 0), 10, 0)
		g.writeWith(stream.ProducerConfig{}, tp("far", 0), 10, 0, func(i int, r *stream.Record) {
			r.Timestamp = time.Now().Add(time.Duration(i+1) * 1000 * time.Hour)
		})
		g.wait(59 * time.Minute)
		eq(t, "bounds", g.bounds(tp("a", 0)), [2]int64{0, 10})
		g.wait(2 * time.Minute)
		eq(t, "bounds", g.bounds(tp("a", 0)), [2]int64{10, 10})
		g.wait(time.Minute) // by which the time of the last change may be behind
		eq(t, "bounds with times in the future", g.bounds(tp("far", 0)), [2]int64{10, 10})
		eq(t, "offset of a time", len(must(g.eng.Admin().OffsetsForTime(t.Context(), time.UnixMilli(0), tp("a", 0)))(t)), 0)
		g.write(tp("a", 0), 3, 0)
		eq(t, "bounds", g.bounds(tp("a", 0)), [2]int64{10, 13})
		rs := readAll(t, g.eng, tp("a", 0))
		eq(t, "records", len(rs), 3)
		eq(t, "offset", rs[0].Offset, 10)
		at := must(g.eng.Admin().OffsetsForTime(t.Context(), time.UnixMilli(0), tp("a", 0)))(t)
		eq(t, "offset of a time", at[tp("a", 0)].Offset, 10)
		g.reopen()
		eq(t, "bounds", g.bounds(tp("a", 0)), [2]int64{10, 13})
		g.crash(true, 1)
		eq(t, "bounds", g.bounds(tp("a", 0)), [2]int64{10, 13})
	})
}

// A topic that is empty when somebody looks at it, or has become so, is looked at again when records are old that have come since, however few.
func TestFewRecordsExpireAgainAndAgain(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		a := tp("a", 0)
		g.topic("a", stream.TopicConfig{Retention: time.Hour, SegmentBytes: 1 << 20})
		g.wait(5 * time.Minute)
		for i := range int64(5) {
			g.write(a, 3, 0)
			g.wait(59 * time.Minute)
			eq(t, "bounds", g.bounds(a), [2]int64{3 * i, 3*i + 3})
			g.wait(2 * time.Minute)
			eq(t, "bounds", g.bounds(a), [2]int64{3*i + 3, 3*i + 3})
			switch i {
			case 1:
				g.reopen()
			case 2:
				g.crash(true, 1)
			}
			g.wait(time.Duration(i) * 24 * time.Hour)
		}
	})
}

// F8: a record from the far future does not keep its segment, nor those behind it, for ever.
func TestFutureTimestampsExpire(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		g.topic("a", stream.TopicConfig{Retention: 2 * time.Hour})
		g.writeWith(stream.ProducerConfig{}, tp("a", 0), 100, time.Minute, func(i int, r *stream.Record) {
			if i%7 == 3 {
				r.Timestamp = time.Now().Add(10 * 365 * 24 * time.Hour)
			}
		})
		g.wait(10 * time.Minute)
		eq(t, "log start", startOf(t, g.eng, tp("a", 0)), 0)
		g.wait(70 * time.Minute)
		start := startOf(t, g.eng, tp("a", 0))
		if start < 35 || start > 60 {
			t.Fatalf("the log starts at %d", start)
		}
		g.wait(2 * time.Hour)
		eq(t, "bounds", g.bounds(tp("a", 0)), [2]int64{100, 100})
	})
}

// A second look at one instant removes nothing more.
func TestSecondLookRemovesNothing(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		g.topic("a", stream.TopicConfig{Retention: time.Hour, RetentionBytes: 20_000})
		g.write(tp("a", 0), 300, 10*time.Second)
		for i := range 20 {
			g.wait(47 * time.Second)
			// Several segments are too old, or too many, at once.
			g.alter("a", map[string]string{"retention.ms": fmt.Sprint(3_600_000 - 170_000*i), "retention.bytes": fmt.Sprint(20_000 - 900*i)})
			synctest.Wait()
			start, n := startOf(t, g.eng, tp("a", 0)), len(g.seen.removals())
			for j := range 3 {
				g.alter("a", map[string]string{"max.message.bytes": fmt.Sprint(200_000 + 10*i + j)})
				synctest.Wait()
			}
			eq(t, "log start", startOf(t, g.eng, tp("a", 0)), start)
			eq(t, "removals", len(g.seen.removals()), n)
		}
	})
}

// B1: a consumer whose position expires goes on as its reset policy says, and what it has in hand stays as it was.
func TestConsumerWhosePositionExpires(t *testing.T) {
	for _, borrow := range []bool{false, true} {
		for _, reset := range []stream.Reset{stream.ResetEarliest, stream.ResetLatest, stream.ResetNone} {
			t.Run(fmt.Sprintf("reset %d borrow %t", reset, borrow), func(t *testing.T) {
				inTime(t, func(t *testing.T, g *timed) {
					ctx := t.Context()
					g.topic("a", stream.TopicConfig{Retention: time.Hour})
					value := func(i int64) string { return fmt.Sprintf("%040d", i) }
					write := func(first, n int) {
						g.writeWith(stream.ProducerConfig{}, tp("a", 0), n, time.Minute, func(i int, r *stream.Record) { r.Value = []byte(value(int64(first + i))) })
					}
					write(0, 40)
					c := newConsumer(t, g.eng, stream.ConsumerConfig{Reset: reset, Borrow: borrow, MaxWait: -1})
					check(t, c.Assign(tp("a", 0)))
					check(t, c.Seek(tp("a", 0), 3))
					inHand := must(c.Poll(ctx, 1))(t)
					eq(t, "offset", inHand[0].Offset, 3)
					write(40, 60)
					g.wait(time.Minute)
					start := startOf(t, g.eng, tp("a", 0))
					if start < 15 {
						t.Fatalf("the log starts at %d", start)
					}
					eq(t, "the record in hand", string(inHand[0].Value), value(3))
					var got []stream.Record
					var err error
					for range 20 { // the rest of the segment that it holds may come first
						if got, err = c.Poll(ctx, 500); err != nil || len(got) == 0 || got[0].Offset >= start {
							break
						}
						for i, r := range got {
							if r.Offset < start && r.Offset != got[0].Offset+int64(i) || string(r.Value) != value(r.Offset) {
								t.Fatalf("offset %d after %d is %s", r.Offset, got[0].Offset, r.Value)
							}
							if r.Offset >= start {
								t.Fatalf("offsets %d and %d in one poll, the log starts at %d", got[0].Offset, r.Offset, start)
							}
						}
					}
					switch reset {
					case stream.ResetEarliest:
						check(t, err)
						eq(t, "first offset", got[0].Offset, start)
						eq(t, "value", string(got[0].Value), value(start))
					case stream.ResetLatest:
						check(t, err)
						eq(t, "records", len(got), 0)
						eq(t, "position", must(c.Position(tp("a", 0)))(t), 100)
					case stream.ResetNone:
						var pe *stream.PartitionError
						if !errors.Is(err, stream.ErrOffsetOutOfRange) || !errors.As(err, &pe) || pe.TopicPartition != tp("a", 0) {
							t.Fatalf("error %v, %d records", err, len(got))
						}
					}
				})
			})
		}
	}
}

// E3: a committed offset that lies below the log start is still told; reading goes on by the reset policy, and commits go on too.
func TestCommittedOffsetBelowTheLogStart(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		ctx := t.Context()
		g.topic("a", stream.TopicConfig{Retention: time.Hour})
		g.write(tp("a", 0), 20, time.Minute)
		group := stream.ConsumerConfig{Group: "g", Reset: stream.ResetEarliest, ManualCommit: true, MaxWait: -1}
		c := newConsumer(t, g.eng, group)
		check(t, c.Assign(tp("a", 0)))
		check(t, c.CommitOffsets(ctx, stream.Offsets{tp("a", 0): {Offset: 5, LeaderEpoch: -1}}))
		check(t, c.Close(ctx))
		g.write(tp("a", 0), 80, time.Minute)
		for range 3 {
			c = newConsumer(t, g.eng, group)
			check(t, c.Assign(tp("a", 0)))
			eq(t, "committed", committed(t, c, tp("a", 0)), 5)
			start := startOf(t, g.eng, tp("a", 0))
			if start <= 5 {
				t.Fatalf("the log starts at %d", start)
			}
			eq(t, "first record", must(c.Poll(ctx, 1))(t)[0].Offset, start)
			check(t, c.Close(ctx))
			g.reopen()
		}
		c = newConsumer(t, g.eng, group)
		check(t, c.Assign(tp("a", 0)))
		must(c.Poll(ctx, 7))(t)
		check(t, c.Commit(ctx))
		eq(t, "committed", committed(t, c, tp("a", 0)), must(c.Position(tp("a", 0)))(t))
		check(t, c.Close(ctx))
	})
}
