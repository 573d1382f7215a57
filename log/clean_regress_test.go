package rlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// pickyFS refuses what refuse says: opening a file for reading, and syncing a directory.
type pickyFS struct {
	vfs.FS
	refuse func(op, name string) error
}

func (p *pickyFS) OpenRead(name string) (vfs.File, error) {
	if err := p.refuse("open", name); err != nil {
		return nil, err
	}
	return p.FS.OpenRead(name)
}

func (p *pickyFS) SyncDir(dir string) error {
	if err := p.refuse("syncdir", dir); err != nil {
		return err
	}
	return p.FS.SyncDir(dir)
}

func pickyEnv(t *testing.T) (*env, *pickyFS) {
	e := memEnv(t)
	p := &pickyFS{e.fs, func(string, string) error { return nil }}
	e.fs = p
	return e, p
}

// ends runs fn, which must end by itself; what does not is ended with the log.
func ends(t *testing.T, l *Log, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		l.Abandon()
		<-done
		t.Fatalf("%s does not end", what)
	}
}

// readOnly opens the log beside whoever writes it.
func (e *env) readOnly(change ...func(*Options)) *Log {
	e.t.Helper()
	o := e.options()
	o.ReadOnly, o.Files = true, nil
	for _, f := range change {
		f(&o)
	}
	l, err := Open(o)
	if err != nil {
		e.t.Fatal(err)
	}
	return l
}

// F2: on a full disk, on which the active segment cannot be rolled though it is due, retention removes what is sealed; with space again it removes the rest.
func TestRetainOnAFullDisk(t *testing.T) {
	e, sim := simEnv(t)
	each(e)
	l := e.open()
	defer l.Abandon()
	aged(t, l, 100, 90, 80, 60)
	wait(t, l)
	r := keepAll()
	r.Age = 50 * time.Hour
	sim.SetFree(0)
	gone, err := l.Retain(r)
	if !errors.Is(err, kafka.ErrDiskFull) {
		t.Fatalf("F2: %v", err)
	}
	if gone.Segments != 3 || l.StartOffset() != 3 || !slices.Equal(e.bases(), []int64{3}) {
		t.Fatalf("F2: %+v, files %v", gone, e.bases())
	}
	sim.SetFree(-1)
	if gone = mustRetain(t, l, r); gone.Segments != 1 || gone.LogStart != 4 {
		t.Fatalf("F2: %+v", gone)
	}
	e.whole(l)
}

// slowStart keeps whoever sets the log start waiting.
type slowStart struct {
	*checkpoints
	in, on chan struct{}
}

func (s slowStart) SetLogStart(offset int64) error {
	close(s.in)
	<-s.on
	return s.checkpoints.SetLogStart(offset)
}

// A11: a log that fails while retention is at work is settled when that has ended: the next life begins where the log does, and all its files are there.
func TestSettleWaitsForRetain(t *testing.T) {
	e := memEnv(t)
	slow := slowStart{e.cp, make(chan struct{}), make(chan struct{})}
	e.opts = func(o *Options) { o.SegmentBytes, o.Checkpoints = 1, slow }
	l := e.open()
	aged(t, l, 100, 90, 80, 1)
	wait(t, l)
	retained, settled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(retained)
		r := keepAll()
		r.Age = 50 * time.Hour
		_, _ = l.Retain(r)
	}()
	<-slow.in
	_ = l.fail(errors.New("disk"))
	go func() {
		defer close(settled)
		l.Settle()
	}()
	for range 1000 {
		runtime.Gosched()
	}
	select {
	case <-settled:
		t.Error("A11: the log is settled, and retention is at work")
	default:
	}
	close(slow.on)
	<-settled
	<-retained
	next, err := e.reopenFailed(l)
	l.Abandon()
	if err != nil {
		t.Fatal(err)
	}
	defer next.Abandon()
	if next.StartOffset() != 3 || e.cp.logStart != 3 {
		t.Fatalf("A11: the log starts at %d, its checkpoint is %d", next.StartOffset(), e.cp.logStart)
	}
	if recs, err := readAll(next, 3); len(recs) != 1 || err != nil {
		t.Fatalf("A11: %d records, %v", len(recs), err)
	}
}

// A12: a pass that may use any amount of memory ends, and does what one with little does.
func TestCompactWithAMapOfAnySize(t *testing.T) {
	for _, size := range []int64{0, 1 << 20, 1 << 40, 1 << 60, 1 << 61, 1 << 62, math.MaxInt64} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			l := cleanEnv(t).open()
			defer l.Abandon()
			put(t, l, "a=1", "b=1", "a=2", "b=2", "a=3", "x=1")
			ends(t, l, "the pass", func() {
				done, err := l.Compact(t.Context(), Compaction{Now: 10_000, MapBytes: size})
				if err != nil || done.To != 5 || done.More {
					t.Errorf("%+v, %v", done, err)
				}
			})
			wantLeft(t, l, "b=2", "a=3", "x=1")
		})
	}
}

// B1: the file of a segment that is removed, or replaced, stays open for the reader that stands in it, however many files others need.
func TestReaderKeepsTheFileOfARemovedSegment(t *testing.T) {
	for how, remove := range map[string]func(t *testing.T, l *Log){
		"trimmed": func(t *testing.T, l *Log) {
			if err := l.TrimTo(t.Context(), 4); err != nil {
				t.Fatal(err)
			}
		},
		"compacted": func(t *testing.T, l *Log) {
			if done := mustCompact(t, l, 10_000); done.Segments == 0 {
				t.Fatalf("%+v", done)
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			e, _ := simEnv(t)
			size := int64(len(plain(record{key: []byte("a"), value: []byte("1"), ts: 1})))
			e.opts = func(o *Options) { o.SegmentBytes, o.Files = 2*size, NewFiles(1) }
			l := e.open()
			defer l.Abandon()
			put(t, l, "a=1", "b=1", "a=2", "b=2", "a=3", "c=1", "d=1", "e=1", "x=1")
			c := l.NewCursor(0)
			defer c.Close()
			b, err := c.Next(2)
			if err != nil {
				t.Fatal(err)
			}
			want := bytes.Clone(b)
			remove(t, l)
			for range 3 { // files come and go
				if _, err := readAll(l, 4); err != nil {
					t.Fatal(err)
				}
			}
			got := make([]byte, len(want))
			if _, err := c.File().ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("B1: the file under a reader: %v", err)
			}
			if how == "compacted" {
				if b, err := c.Next(2); err != nil || b.BaseOffset() != 1 {
					t.Fatalf("B1: the next batch of the old segment: %v", err)
				}
			}
		})
	}
}

// F11: compaction of a log with many more segments than the budget has files stays within the budget, calls nothing damaged, and comes to its end.
func TestCompactManySegmentsWithFewFiles(t *testing.T) {
	const segments, budget = 400, 16
	e, sim := simEnv(t)
	each(e)
	l := e.open()
	for i := range segments {
		put(t, l, fmt.Sprintf("k%d=%d", i%10, i))
	}
	put(t, l, "x=1")
	e.close(l)
	files := NewFiles(budget)
	e.opts = func(o *Options) { o.Files = files } // all of it would fit one segment now
	sim.SetMaxOpen(2 * budget)
	l = e.open()
	defer l.Abandon()
	most := 0
	done, err := l.Compact(t.Context(), Compaction{Now: 10_000, Pace: func(int) error {
		most = max(most, files.Open())
		return nil
	}})
	if err != nil || len(done.Damaged) > 0 || done.To != segments || done.More {
		t.Fatalf("F11: %+v, %v", done, err)
	}
	if most > budget {
		t.Errorf("F11: %d files were open, the budget is %d", most, budget)
	}
	if n := l.Segments(); n > segments*3/4 {
		t.Errorf("F11: %d segments are left of %d", n, segments)
	}
	if recs := left(t, l); len(recs) != 11 {
		t.Errorf("A12: the log holds %q", recs)
	}
}

// F4: a swap that fails half way ends its log: readers of what it replaces, lookups, Verify and later passes say so, and the next life has all of it.
func TestSwapFailsHalfWay(t *testing.T) {
	for at := 1; at <= 3; at++ { // the syncs of the directory in a swap
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			e, fsys := pickyEnv(t)
			e.opts = func(o *Options) { o.SegmentBytes = 1 }
			l := e.open()
			put(t, l, "a=1", "b=1", "a=2", "b=2", "c=1", "d=1", "x=1")
			e.close(l)
			e.opts = func(o *Options) { o.Files = NewFiles(1) }
			l = e.open()
			ready := false
			compact := func() (err error) {
				_, err = l.Compact(t.Context(), Compaction{Now: 10_000, Ready: func() error { ready = true; return nil }})
				return err
			}
			syncs := 0
			fsys.refuse = func(op, _ string) error {
				if op == "syncdir" && ready {
					if syncs++; syncs == at {
						return syscall.EIO
					}
				}
				return nil
			}
			failed := func(what string, fn func() error) {
				t.Helper()
				ends(t, l, what, func() {
					if err := fn(); !errors.Is(err, kafka.ErrPartitionFailed) {
						t.Errorf("F4: %s: %v", what, err)
					}
				})
			}
			failed("the pass", compact)
			if syncs < at {
				t.Fatalf("%d syncs", syncs)
			}
			if recs, err := readAll(l, 4); len(recs) != 3 && !errors.Is(err, kafka.ErrPartitionFailed) { // others' files need room
				t.Fatalf("%d records, %v", len(recs), err)
			}
			failed("a reader", func() error { _, err := readAll(l, 0); return err })
			failed("a lookup by time", func() error { _, _, err := l.OffsetForTime(1000, math.MaxInt64); return err })
			failed("a second pass", compact)
			ends(t, l, "Verify", func() { _ = l.Verify(context.Background(), func(*kafka.CorruptError) {}) })
			next, err := e.reopenFailed(l)
			l.Abandon()
			if err != nil {
				t.Fatal(err)
			}
			defer next.Abandon()
			mustCompact(t, next, 10_000)
			wantLeft(t, next, "a=2", "b=2", "c=1", "d=1", "x=1")
			e.whole(next)
		})
	}
}

// A13: the offset for a time, of a log that is read only, is the writer's, also when that has compacted or deleted what was to be looked at.
func TestOffsetForTimeBesideAWriter(t *testing.T) {
	for how, change := range map[string]func(t *testing.T, l *Log){
		"deletes":  func(t *testing.T, l *Log) { _ = l.TrimTo(t.Context(), 4) },
		"compacts": func(t *testing.T, l *Log) { mustCompact(t, l, 10_000) },
		"merges": func(t *testing.T, l *Log) {
			l.Configure(Settings{SegmentBytes: 64 << 10})
			mustCompact(t, l, 10_000)
		},
	} {
		t.Run(how, func(t *testing.T) {
			e := memEnv(t)
			size := int64(len(plain(record{key: []byte("a"), value: []byte("1"), ts: 1})))
			e.opts = func(o *Options) { o.SegmentBytes = 2 * size }
			l := e.open()
			defer l.Abandon()
			put(t, l, "a=1", "b=1", "b=2", "c=1", "a=2", "b=3", "d=1", "c=2", "x=1")
			wait(t, l)
			ro := e.readOnly(func(o *Options) { o.LogStart = UnknownStart })
			defer ro.Abandon()
			change(t, l)
			for at := int64(999); at < 1010; at++ {
				want, wok, err := l.OffsetForTime(at, math.MaxInt64)
				if err != nil {
					t.Fatal(err)
				}
				if got, ok, err := ro.OffsetForTime(at, math.MaxInt64); err != nil || got != want || ok != wok {
					t.Fatalf("A13: time %d: %+v %v, want %+v %v; %v", at, got, ok, want, wok, err)
				}
			}
		})
	}
}
