package stream_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// small makes a topic with segments of 1 KiB.
func small(t testing.TB, eng *stream.Engine, topic string, partitions int) {
	t.Helper()
	check(t, eng.Admin().CreateTopic(t.Context(), topic, stream.TopicConfig{Partitions: partitions, SegmentBytes: 1 << 10}))
}

// trim deletes the records of a partition before an offset.
func trim(eng *stream.Engine, p stream.TopicPartition, offset int64) error {
	return eng.Admin().DeleteRecords(context.Background(), map[stream.TopicPartition]int64{p: offset})
}

// A11: DeleteRecords moves the log start to anywhere in the log, at once and durably, also to the middle of a batch; doing it again, or further down, changes nothing.
func TestDeleteRecords(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		small(t, eng, "a", 2)
		a := tp("a", 0)
		fill(t, eng, a, 0, 100) // batches of many records
		for i := 100; i < 140; i++ {
			fill(t, eng, a, i, i+1)
		}
		fill(t, eng, tp("a", 1), 0, 50)
		start := int64(0)
		for _, step := range []struct{ ask, want int64 }{{0, 0}, {1, 1}, {57, 57}, {30, 57}, {57, 57}, {99, 99}, {100, 100}, {123, 123}, {0, 123}} {
			check(t, trim(eng, a, step.ask))
			check(t, trim(eng, a, step.ask))
			start = step.want
			eq(t, "log start", startOf(t, eng, a), start)
			eq(t, "records", values(readAll(t, eng, a)), numbers(int(start), 140))
			eq(t, "end", endOf(t, eng, a), 140)
		}
		for _, bad := range []int64{141, 1 << 40, -2, -1 << 40} {
			wantErr(t, trim(eng, a, bad), stream.ErrOffsetOutOfRange)
		}
		wantErr(t, trim(eng, tp("a", 7), 0), stream.ErrUnknownTopic)
		wantErr(t, trim(eng, tp("b", 0), 0), stream.ErrUnknownTopic)
		eng = g.reopen()
		eq(t, "log start", startOf(t, eng, a), 123)
		eq(t, "records", values(readAll(t, eng, a)), numbers(123, 140))

		// To the end: nothing is left, offsets go on, and it holds for ever.
		check(t, trim(eng, a, -1))
		check(t, trim(eng, a, -1))
		check(t, trim(eng, a, 140))
		eq(t, "log start", startOf(t, eng, a), 140)
		eq(t, "records", len(readAll(t, eng, a)), 0)
		eng = g.reopen()
		eq(t, "log start", startOf(t, eng, a), 140)
		fill(t, eng, a, 140, 150)
		eq(t, "records", values(readAll(t, eng, a)), numbers(140, 150))
		eng = g.reopen()
		eq(t, "records", values(readAll(t, eng, a)), numbers(140, 150))
		eq(t, "records of the other", values(readAll(t, eng, tp("a", 1))), numbers(0, 50))
		for _, base := range g.segments(a)[:1] {
			if base < 100 {
				t.Errorf("segments %v are left", g.segments(a))
			}
		}
	})
}

// Of several partitions each is done that can be; the error tells of those that cannot, and asking again does the rest.
func TestDeleteRecordsOfSeveralPartitions(t *testing.T) {
	eng := openMemory(t)
	ctx := t.Context()
	small(t, eng, "a", 4)
	for i := range int32(4) {
		fill(t, eng, tp("a", i), 0, 60)
	}
	err := eng.Admin().DeleteRecords(ctx, map[stream.TopicPartition]int64{tp("a", 0): 20, tp("a", 1): 61, tp("a", 2): -1, tp("a", 9): 5, tp("gone", 0): 1})
	wantErr(t, err, stream.ErrOffsetOutOfRange)
	wantErr(t, err, stream.ErrUnknownTopic)
	containsAll(t, err, "a-1", "a-9", "gone")
	for i, want := range []int64{20, 0, 60, 0} {
		eq(t, "log start", startOf(t, eng, tp("a", int32(i))), want)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	wantErr(t, eng.Admin().DeleteRecords(gone, map[stream.TopicPartition]int64{tp("a", 3): 5}), context.Canceled)
	eq(t, "log start", startOf(t, eng, tp("a", 3)), 0)
	check(t, eng.Admin().DeleteRecords(ctx, nil))
	check(t, eng.Close())
	wantErr(t, trim(eng, tp("a", 0), 30), stream.ErrClosed)
}

func openMemory(t *testing.T) *stream.Engine {
	t.Helper()
	eng := must(stream.OpenMemory(nil))(t)
	t.Cleanup(func() { check(t, eng.Close()) })
	return eng
}

// A11, A2: what DeleteRecords has reported survives a loss of power, also where the records had only been written; the log start never leads the log.
func TestDeleteRecordsIsDurable(t *testing.T) {
	r := newRand(t)
	for range 20 {
		sim := vfs.NewSim(r.Uint64())
		eng := must(stream.Open("/data", &stream.Options{FS: sim, MinFree: -1}))(t)
		small(t, eng, "a", 1)
		a := tp("a", 0)
		n, start := 0, int64(0)
		for range 3 {
			more := 5 + r.IntN(60)
			fill(t, eng, a, n, n+more) // AcksWritten
			n += more
			start = r.Int64N(int64(n) + 1)
			check(t, trim(eng, a, start))
		}
		start = startOf(t, eng, a)
		next := sim.Cut(vfs.Cut{Seed: r.Uint64(), Keep: []float64{0, -1}[r.IntN(2)]})
		check(t, eng.Close())
		eng = must(stream.Open("/data", &stream.Options{FS: next, MinFree: -1}))(t)
		eq(t, "log start", startOf(t, eng, a), start)
		end := endOf(t, eng, a)
		if end < start {
			t.Fatalf("the log starts at %d and ends at %d", start, end)
		}
		eq(t, "records", values(readAll(t, eng, a)), numbers(int(start), int(end)))
		fill(t, eng, a, int(end), int(end)+3)
		eq(t, "records", values(readAll(t, eng, a)), numbers(int(start), int(end)+3))
		check(t, eng.Close())
	}
}

// B1, A11: beside producers and consumers, of owned and of borrowed records, records are deleted all the time: nobody sees a wrong byte, a gap that is none of a deletion, or an error.
func TestDeleteRecordsUnderLiveReadersAndWriters(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		small(t, eng, "a", 1)
		a := tp("a", 0)
		total := 3000
		if g.disk {
			total = 300
		}
		var low atomic.Int64 // the greatest offset that was ever asked for
		var writers, all sync.WaitGroup
		var end atomic.Bool
		for range 2 {
			writers.Go(func() {
				p := newProducer(t, eng, stream.ProducerConfig{Acks: stream.AcksWritten})
				var out []stream.Result
				for n := 0; n < total; n += 10 {
					var rs []stream.Record
					for i := range 10 {
						rs = append(rs, stream.Record{Topic: "a", Value: []byte(strings.Repeat(strconv.Itoa(n+i)+",", 10))})
					}
					var err error
					out, err = p.ProduceAll(context.Background(), rs, out)
					report(t, err)
				}
				report(t, p.Close(context.Background()))
			})
		}
		for i := range 4 {
			all.Go(func() {
				c, err := eng.NewConsumer(context.Background(), stream.ConsumerConfig{Reset: stream.ResetEarliest, Borrow: i%2 == 0, MaxWait: -1})
				if err != nil {
					t.Error(err)
					return
				}
				report(t, c.Assign(a))
				next := int64(0)
				for {
					last := end.Load()
					rs, err := c.Poll(context.Background(), 50)
					if err != nil {
						t.Errorf("poll at %d: %v", next, err)
						return
					}
					for _, r := range rs {
						if r.Offset < next || r.Offset > next && next >= low.Load() {
							t.Errorf("offset %d where %d is due, the log starts at %d at most", r.Offset, next, low.Load())
							return
						}
						next = r.Offset + 1
						if f := strings.Split(string(r.Value), ","); len(f) != 11 || f[0] != f[9] {
							t.Errorf("offset %d has %q", r.Offset, r.Value)
							return
						}
					}
					if len(rs) == 0 && last {
						if next != int64(2*total) {
							t.Errorf("the reader came to %d", next)
						}
						report(t, c.Close(context.Background()))
						return
					}
				}
			})
		}
		all.Go(func() {
			for i := 0; !end.Load(); i++ {
				at := endOf(t, eng, a)
				to := max(0, at-int64(i%70))
				if to > low.Load() {
					low.Store(to)
				}
				if err := trim(eng, a, to); err != nil {
					t.Errorf("delete records: %v", err)
					return
				}
				if start := startOf(t, eng, a); start < to {
					t.Errorf("the log starts at %d, and %d was asked for", start, to)
					return
				}
			}
		})
		writers.Wait()
		end.Store(true)
		all.Wait()
		eq(t, "end", endOf(t, eng, a), int64(2*total))
	})
}

// What is asked for a partition whose disk fails changes nothing, is an error, and can be done again.
func TestDeleteRecordsWhileTheDiskFails(t *testing.T) {
	onSim(t, func(t *testing.T, g *ground) {
		eng := g.open()
		small(t, eng, "a", 1)
		a := tp("a", 0)
		for i := range 100 {
			fill(t, eng, a, i, i+1)
		}
		check(t, trim(eng, a, 5)) // durable up to there
		for _, kind := range []vfs.OpKind{vfs.OpRemove, vfs.OpSyncDir} {
			start := startOf(t, eng, a)
			g.sim.Inject(func(op vfs.Op) error {
				if op.Kind == kind && strings.Contains(op.Name, "/topics/") {
					return errors.New("injected")
				}
				return nil
			})
			err := trim(eng, a, start+30)
			g.sim.Inject(nil)
			now := startOf(t, eng, a)
			if err == nil {
				t.Fatalf("%v fails, and nobody says so", kind)
			}
			if now != start && now != start+30 {
				t.Fatalf("the log starts at %d, before at %d", now, start)
			}
			eq(t, "records", values(readAll(t, eng, a)), numbers(int(now), 100))
			check(t, trim(eng, a, start+30))
			eng = g.reopen()
			eq(t, "records", values(readAll(t, eng, a)), numbers(int(start)+30, 100))
		}
		if n := len(g.segments(a)); n > 60 {
			t.Error(fmt.Sprint(n, " segments are left"))
		}
	})
}
