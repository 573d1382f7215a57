package crashtest

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// A wallClock is one that anybody may set.
type wallClock struct{ ms atomic.Int64 }

func newWallClock() *wallClock {
	c := new(wallClock)
	c.ms.Store(1_800_000_000_000)
	return c
}

func (c *wallClock) now() time.Time { return time.UnixMilli(c.ms.Load()) }

const hour = int64(time.Hour / time.Millisecond)

// F8, A13: while the wall clock steps back and forth, timestamps follow it, offsets and their order stay, and a lookup by time
// finds what a scan finds, also among timestamps of clients that lie in the far future.
func TestClockSteps(t *testing.T) {
	r := random(startSeed(t), 20)
	dir, tp, clock := t.TempDir(), part("t", 0), newWallClock()
	o := stream.Options{WallClock: clock.now, MinFree: -1}
	eng := openAt(t, dir, o)
	createTopic(t, eng, "t", stream.TopicConfig{SegmentBytes: 16 << 10, Config: map[string]string{
		"segment.ms": "60000", "index.interval.bytes": "300", "segment.index.bytes": "1024",
	}})
	var want []int64
	for life := range 3 {
		if life > 0 {
			eng = openAt(t, dir, o)
		}
		p, err := eng.NewProducer(atOnce(t), stream.ProducerConfig{Acks: stream.AcksWritten})
		if err != nil {
			t.Fatal(err)
		}
		for range 700 {
			clock.ms.Add([]int64{0, 1, 1000, hour, -hour}[r.IntN(5)])
			rec := stream.Record{Topic: "t", Value: fill(r, r.IntN(60))}
			at := clock.ms.Load()
			if chance(r, 0.02) {
				at = []int64{0, at + 1000*24*hour, 253402300799999, math.MaxInt64 - r.Int64N(3)}[r.IntN(4)]
				rec.Timestamp = time.UnixMilli(at)
			}
			rc, err := p.ProduceSync(atOnce(t), &rec)
			if err != nil {
				t.Fatalf("F8: a record of time %d: %v", at, err)
			}
			if rc.Offset != int64(len(want)) || rc.Timestamp.UnixMilli() != at {
				t.Fatalf("F8/A5: the receipt of record %d, of time %d, is %+v", len(want), at, rc)
			}
			want = append(want, at)
		}
		checkTimes(t, r, eng, tp, want)
		if err := eng.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func checkTimes(t *testing.T, r *rand.Rand, eng *stream.Engine, tp stream.TopicPartition, want []int64) {
	t.Helper()
	got, err := readFrom(atOnce(t), eng, tp, 0)
	if err != nil || len(got) != len(want) {
		t.Fatalf("F8: %d records of %d, %v", len(got), len(want), err)
	}
	for i := range got {
		if at := got[i].Timestamp.UnixMilli(); at != want[i] {
			t.Fatalf("F8: record %d is of time %d, want %d", i, at, want[i])
		}
	}
	for range 300 {
		at := want[r.IntN(len(want))]
		if at < math.MaxInt64-2 {
			at += r.Int64N(3) - 1
		}
		scan := int64(-1)
		for i := range want {
			if want[i] >= at {
				scan = int64(i)
				break
			}
		}
		found, err := eng.Admin().OffsetsForTime(atOnce(t), time.UnixMilli(at), tp)
		if err != nil {
			t.Fatalf("A13: the offset for time %d: %v", at, err)
		}
		offset, ok := found[tp]
		if ok != (scan >= 0) || ok && offset.Offset != scan {
			t.Fatalf("A13: the offset for time %d is %d (%t), a scan finds %d", at, offset.Offset, ok, scan)
		}
	}
}

// F8: a clock that swings by an hour with every record, and a client whose clock is a year ahead, do not roll a segment for
// each record.
func TestClockSwingsRollNoSegmentPerRecord(t *testing.T) {
	dir, clock := t.TempDir(), newWallClock()
	eng := openAt(t, dir, stream.Options{WallClock: clock.now, MinFree: -1})
	createTopic(t, eng, "t", stream.TopicConfig{Partitions: 2, Config: map[string]string{"segment.ms": "60000"}})
	p, err := eng.NewProducer(atOnce(t), stream.ProducerConfig{Acks: stream.AcksWritten, Partitioner: stream.ManualPartitioner()})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(500) {
		clock.ms.Add(hour - i%2*2*hour)
		ahead := stream.Record{Topic: "t", Partition: 1}
		if i%2 == 0 {
			ahead.Timestamp = clock.now().AddDate(1, 0, 0)
		}
		for _, rec := range []stream.Record{{Topic: "t"}, ahead} {
			if _, err := p.ProduceSync(atOnce(t), &rec); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := range int32(2) {
		files, err := filepath.Glob(filepath.Join(dir, "topics", part("t", n).String(), "*.log"))
		if err != nil || len(files) == 0 || len(files) > 3 {
			t.Errorf("F8: 500 records of partition %d lie in %d segments, %v", n, len(files), err)
		}
	}
	if err := eng.Close(); err != nil {
		t.Error(err)
	}
}

// F8: timers do not look at the wall clock: polls end, and the background sync comes, while it goes back an hour with every
// reading.
func TestTimersDoNotFollowTheWallClock(t *testing.T) {
	clock := newWallClock()
	back := func() time.Time { return time.UnixMilli(clock.ms.Add(-hour) + 100_000*hour) }
	eng := openAt(t, t.TempDir(), stream.Options{WallClock: back, MinFree: -1})
	createTopic(t, eng, "t", stream.TopicConfig{})
	c, err := eng.NewConsumer(atOnce(t), stream.ConsumerConfig{
		Topics: []string{"t"}, Reset: stream.ResetEarliest, Visibility: stream.Durable, MaxWait: 5 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	book := newLedger()
	s := book.sender(t, eng, "clock", stream.AcksWritten)
	for range 20 {
		if rs, err := c.Poll(atOnce(t), 1); err != nil || len(rs) != 0 {
			t.Fatalf("F8: a poll of an empty log: %d records, %v", len(rs), err)
		}
		s.sendAll(t, part("t", 0), 1)
		for n, ctx := 0, atOnce(t); n == 0; {
			rs, err := c.Poll(ctx, 1)
			if err != nil {
				t.Fatalf("F8: the background sync has not come: %v", err)
			}
			n = len(rs)
		}
	}
	if err := eng.Close(); err != nil {
		t.Error(err)
	}
}
