package rlog

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
)

// cleanEnv is a log of which each record has a segment of its own.
func cleanEnv(t *testing.T) *env {
	e := memEnv(t)
	each(e)
	return e
}

// put appends records "key=value"; without "=", tombstones.
func put(t *testing.T, l *Log, recs ...string) {
	t.Helper()
	for _, s := range recs {
		r := record{ts: 1000 + l.EndOffset()}
		key, value, ok := strings.Cut(s, "=")
		r.key = []byte(key)
		if ok {
			r.value = []byte(value)
		}
		mustAppend(t, l, plain(r))
	}
}

// left is what the log holds, in the form of put.
func left(t *testing.T, l *Log) (recs []string) {
	t.Helper()
	got, err := readAll(l, l.StartOffset())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range got {
		s := string(r.key)
		if r.value != nil {
			s += "=" + string(r.value)
		}
		recs = append(recs, s)
	}
	return recs
}

func wantLeft(t *testing.T, l *Log, want ...string) {
	t.Helper()
	if got := left(t, l); !slices.Equal(got, want) {
		t.Fatalf("A12: the log holds %q, want %q", got, want)
	}
}

func mustCompact(t *testing.T, l *Log, now int64) Compacted {
	t.Helper()
	done, err := l.Compact(context.Background(), Compaction{Now: now, DeleteRetention: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// flip damages the last byte of a segment's file.
func (e *env) flip(base int64) {
	e.t.Helper()
	f, err := e.fs.Open(fileName(e.options().Dir, base, suffixLog), 0)
	if err != nil {
		e.t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err = f.ReadAt(b, f.Size()-1); err == nil {
		b[0] ^= 1
		_, err = f.WriteAt(b, f.Size()-1)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		e.t.Fatal(err)
	}
}

// A12: a tombstone stays for its time from the first pass that met it on, and takes no older value back when it goes.
func TestCompactTombstones(t *testing.T) {
	e := cleanEnv(t)
	l := e.open()
	defer func() { l.Abandon() }()
	put(t, l, "a=1", "b=1", "a", "c=1", "x=1")
	mustCompact(t, l, 10_000)
	wantLeft(t, l, "b=1", "a", "c=1", "x=1")
	put(t, l, "x=2")
	mustCompact(t, l, 10_999)
	wantLeft(t, l, "b=1", "a", "c=1", "x=1", "x=2") // x=2 is in the active segment
	e.close(l)
	l = e.open()
	put(t, l, "x=3")
	mustCompact(t, l, 11_000)
	wantLeft(t, l, "b=1", "c=1", "x=2", "x=3")
}

// A8, A12: a segment that is damaged stays as it is and is reported once; the others are compacted.
func TestCompactLeavesDamageAlone(t *testing.T) {
	e := cleanEnv(t)
	l := e.open()
	put(t, l, "a=1", "b=1", "a=2", "b=2", "a=3", "x=1")
	e.close(l)
	e.flip(2)
	name := fileName(e.options().Dir, 2, suffixLog)
	before, err := readFile(e.fs, name)
	if err != nil {
		t.Fatal(err)
	}
	l = e.open()
	defer func() { l.Abandon() }()
	done := mustCompact(t, l, 10_000)
	if len(done.Damaged) != 1 || !errors.Is(done.Damaged[0], kafka.ErrCorrupt) {
		t.Fatalf("%+v", done)
	}
	put(t, l, "x=2", "x=3")
	if done = mustCompact(t, l, 10_000); len(done.Damaged) != 0 {
		t.Fatalf("reported again: %+v", done)
	}
	if after, err := readFile(e.fs, name); err != nil || !bytes.Equal(after, before) {
		t.Fatalf("A8: the damaged segment was changed: %v", err)
	}
	c := l.NewCursor(3)
	defer c.Close()
	recs, err := readAll(l, 3)
	if err != nil || len(recs) != 4 || string(recs[0].value) != "2" || string(recs[1].value) != "3" {
		t.Fatalf("%d records from 3 on, %v", len(recs), err)
	}
	if _, err := readAll(l, 0); !errors.Is(err, kafka.ErrCorrupt) {
		t.Fatalf("A8: reading the damage: %v", err)
	}
}

// A12: while a segment cannot be compacted, the tombstones behind it stay: it may hold an older value of theirs.
func TestCompactKeepsTombstonesBehindDamage(t *testing.T) {
	e := memEnv(t)
	size := int64(len(plain(record{key: []byte("a"), value: []byte("1"), ts: 1})))
	e.opts = func(o *Options) { o.SegmentBytes = 2 * size }
	l := e.open()
	put(t, l, "a=1", "b=1", "a", "c=1", "x=1")
	e.close(l)
	e.flip(0) // b=1
	l = e.open()
	defer func() { l.Abandon() }()
	for i := range int64(4) {
		mustCompact(t, l, 10_000*(i+1))
		put(t, l, "x=2", "x=3", "x=4")
	}
	recs, err := readAll(l, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		if string(r.key) == "a" {
			return
		}
	}
	t.Fatalf("A12: of %d records none is the tombstone of a, and a=1 is there", len(recs))
}

// min.compaction.lag.ms: nothing from the first segment on that has a younger record is touched.
func TestCompactMinLag(t *testing.T) {
	e := cleanEnv(t)
	l := e.open()
	defer l.Abandon()
	put(t, l, "a=1", "a=2", "a=3", "a=4", "a=5") // at 1000 to 1004 ms
	lag := Compaction{Now: 2001, MinLag: 999 * time.Millisecond}
	if d := l.Dirty(lag.Now, lag.MinLag); d.Oldest != 1000 || d.Dirty == 0 {
		t.Fatalf("%+v", d)
	}
	done, err := l.Compact(context.Background(), lag)
	if err != nil || done.To != 3 {
		t.Fatalf("%+v, %v", done, err)
	}
	wantLeft(t, l, "a=3", "a=4", "a=5")
	lag.Now++
	if _, err = l.Compact(context.Background(), lag); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, l, "a=4", "a=5")
}

// A pass that is told to end, at whatever moment, leaves what was there, or a part of it compacted, and no file of its own.
func TestCompactIsEnded(t *testing.T) {
	stop := errors.New("stop")
	for _, how := range []string{"pace", "ready", "context", "abandon"} {
		for at := 1; ; at++ {
			e := cleanEnv(t)
			l := e.open()
			put(t, l, "a=1", "b=1", "a=2", "b=2", "c", "a=3", "x=1")
			ctx, cancel := context.WithCancel(context.Background())
			n := 0
			hit := func(is string) error {
				if n++; how != is && (is != "pace" || how == "ready") || n != at {
					return nil
				}
				switch how {
				case "context":
					cancel()
					return nil
				case "abandon":
					l.Abandon()
					return nil
				}
				return stop
			}
			c := Compaction{Now: 10_000, DeleteRetention: time.Second, Pace: func(int) error { return hit("pace") }}
			if how == "ready" {
				c.Pace, c.Ready = nil, func() error { return hit("ready") }
			}
			_, err := l.Compact(ctx, c)
			cancel()
			if err == nil {
				break // at is behind the last moment
			}
			if want := map[string]error{"pace": stop, "ready": stop, "context": context.Canceled, "abandon": kafka.ErrClosed}[how]; !errors.Is(err, want) {
				t.Fatalf("%s %d: %v", how, at, err)
			}
			if how != "abandon" {
				e.whole(l)
				l.Abandon()
			}
			e.epoch++
			l = e.open()
			e.whole(l)
			mustCompact(t, l, 10_000)
			wantLeft(t, l, "b=2", "c", "a=3", "x=1")
			e.whole(l)
			l.Abandon()
		}
	}
}

// Segments that have become small are made into one; one that nothing is taken from stays as it is.
func TestCompactMakesFewSegments(t *testing.T) {
	e := memEnv(t)
	e.opts = func(o *Options) { o.SegmentBytes = 200 }
	l := e.open()
	defer l.Abandon()
	put(t, l, "a=1", "b=1", "c=1", "a=2", "b=2", "c=2", "d=1", "e=1", "x=1")
	mustCompact(t, l, 1)
	put(t, l, "x=2", "x=3", "x=4", "x=5")
	mustCompact(t, l, 1)
	wantLeft(t, l, "a=2", "b=2", "c=2", "d=1", "e=1", "x=4", "x=5")
	bases := e.bases()
	if bases[1] < 4 {
		t.Fatalf("A12: small segments were left: %v", bases)
	}
	e.touch(testNow)
	put(t, l, "y=1", "y=2", "y=3")
	mustCompact(t, l, 1)
	info, err := e.fs.Stat(fileName(e.options().Dir, bases[1], suffixLog))
	if err != nil || info.ModTime.UnixMilli() != testNow {
		t.Fatalf("written anew though nothing went: %+v, %v", info, err)
	}
}

// F2: a pass does not take the space that is kept free.
func TestCompactLeavesSpaceFree(t *testing.T) {
	e := cleanEnv(t)
	l := e.open()
	put(t, l, "a=1", "a=2", "x=1")
	e.close(l)
	e.opts = func(o *Options) { o.SegmentBytes, o.MinFree = 1, 1<<62 }
	l = e.open()
	defer l.Abandon()
	if _, err := l.Compact(context.Background(), Compaction{Now: 1}); !errors.Is(err, kafka.ErrDiskFull) {
		t.Fatal(err)
	}
	wantLeft(t, l, "a=1", "a=2", "x=1")
	e.whole(l)
}
