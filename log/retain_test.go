package rlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

const (
	hour    = int64(3_600_000)
	testNow = int64(1_800_000_000_000) // the wall clock of retention tests, in ms
	noTime  = -1 << 40                 // for aged: without a timestamp
)

// each is the log of retention tests: every batch has a segment of its own, of about its size.
func each(e *env) {
	e.opts = func(o *Options) { o.SegmentBytes = 1; o.SegmentAge = 1000 * time.Hour }
}

// aged appends records whose timestamps are so many hours before testNow.
func aged(t testing.TB, l *Log, hours ...int64) {
	t.Helper()
	for _, h := range hours {
		ts := testNow - h*hour
		if h == noTime {
			ts = kafka.NoTimestamp
		}
		mustAppend(t, l, plain(record{key: []byte("k"), value: make([]byte, 100), ts: ts}))
	}
}

// touch sets the time of the last change of every segment.
func (e *env) touch(ms int64) {
	e.t.Helper()
	for _, name := range e.list(".log") {
		if err := e.fs.SetModTime(e.options().Dir+"/"+name, time.UnixMilli(ms)); err != nil {
			e.t.Fatal(err)
		}
	}
}

// bases are the base offsets of the segment files.
func (e *env) bases() (bases []int64) {
	for _, name := range e.list(".log") {
		base, _, _ := parseName(name)
		bases = append(bases, base)
	}
	return bases
}

// whole says that the directory holds the segments and nothing of others.
func (e *env) whole(l *Log) {
	e.t.Helper()
	infos, err := e.fs.List(e.options().Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.t.Fatal(err)
	}
	for _, i := range infos {
		base, suffix, ok := parseName(i.Name)
		if !ok && i.Name == fileMetadata || suffix == suffixSnapshot && base == l.mu.extra {
			continue
		}
		known := suffix == suffixLog || suffix == suffixIndex || suffix == suffixTimeIndex || suffix == suffixSnapshot
		if !ok || !known || !l.isBase(base) {
			e.t.Fatalf("A10: %s belongs to no segment of %v", i.Name, e.bases())
		}
	}
}

func keepAll() Retention { return Retention{Now: testNow, Age: -1, Bytes: -1, Most: 1000} }

func mustRetain(t testing.TB, l *Log, r Retention) Removed {
	t.Helper()
	gone, err := l.Retain(r)
	if err != nil {
		t.Fatal(err)
	}
	if gone.LogStart != l.StartOffset() {
		t.Fatalf("%+v, but the log starts at %d", gone, l.StartOffset())
	}
	return gone
}

// What Retain removes: the oldest segments, by age, by size and by the log start, each stopping at the first that stays.
func TestRetain(t *testing.T) {
	one := int64(len(plain(record{key: []byte("k"), value: make([]byte, 100)})))
	with := func(fn func(r *Retention)) Retention {
		r := keepAll()
		fn(&r)
		return r
	}
	ageOf := func(h int64) Retention { return with(func(r *Retention) { r.Age = time.Duration(h) * time.Hour }) }
	bytesOf := func(n int64) Retention { return with(func(r *Retention) { r.Bytes = n }) }
	for _, c := range []struct {
		name  string
		hours []int64 // before now, of each segment's record
		touch int64   // hours before now of the files' last change
		r     Retention
		start int64 // offset after
		last  int64 // base of the active segment after
		held  int
	}{
		{name: "nothing is asked", hours: []int64{9, 8, 7}, r: keepAll(), start: 0, last: 2},
		{name: "an empty log", r: ageOf(0)},
		{name: "age", hours: []int64{9, 8, 7, 6}, r: ageOf(7), start: 2, last: 3},
		{name: "of exactly the age", hours: []int64{7, 6}, r: ageOf(7), start: 0, last: 1},
		{name: "age stops at the first that stays", hours: []int64{9, 5, 8, 4}, r: ageOf(7), start: 1, last: 3},
		{name: "all of them are too old, the active one too", hours: []int64{9, 8, 8}, r: ageOf(7), start: 3, last: 3},
		{name: "the active one is old behind one that stays", hours: []int64{9, 5, 8}, r: ageOf(7), start: 1, last: 3},
		{name: "bytes", hours: []int64{9, 8, 7, 6}, r: bytesOf(2 * one), start: 2, last: 3},
		{name: "one byte more is kept than asked", hours: []int64{9, 8, 7, 6}, r: bytesOf(2*one + 1), start: 1, last: 3},
		{name: "one byte less", hours: []int64{9, 8, 7, 6}, r: bytesOf(2*one - 1), start: 2, last: 3},
		{name: "no bytes: the active one stays", hours: []int64{9, 8, 7, 6}, r: bytesOf(0), start: 3, last: 3},
		{name: "bytes and age: the larger of both", hours: []int64{9, 8, 7, 6}, r: with(func(r *Retention) { r.Bytes, r.Age = 3*one, 6*time.Hour+30*time.Minute }), start: 3, last: 3},
		{name: "age and bytes: the larger of both", hours: []int64{9, 8, 7, 6}, r: with(func(r *Retention) { r.Bytes, r.Age = one, 8*time.Hour+30*time.Minute }), start: 3, last: 3},
		{name: "a timestamp in the future: the file's time counts", hours: []int64{-9000, 8, 7}, touch: 10, r: ageOf(7), start: 2, last: 2},
		{name: "a timestamp in the future, and a young file", hours: []int64{-9000, 9, 6}, touch: 1, r: ageOf(7), start: 0, last: 2},
		{name: "the active one's is in the future", hours: []int64{9, -9000}, touch: 10, r: ageOf(7), start: 2, last: 2},
		{name: "no timestamp: the file's time counts", hours: []int64{noTime, 6}, touch: 1, r: ageOf(7), start: 0, last: 1},
		{name: "no timestamp and an old file", hours: []int64{noTime, 6}, touch: 10, r: ageOf(7), start: 1, last: 1},
		{name: "a clock in doubt removes so many", hours: []int64{9, 9, 9, 9, 9}, r: with(func(r *Retention) { r.Age, r.Doubt, r.Most = 7*time.Hour, 5*time.Hour, 2 }), start: 2, last: 4, held: 2},
		{name: "what is sure does not count", hours: []int64{20, 20, 9, 9, 9}, r: with(func(r *Retention) { r.Age, r.Doubt, r.Most = 7*time.Hour, 5*time.Hour, 1 }), start: 3, last: 4, held: 1},
		{name: "a clock in doubt and none may go", hours: []int64{9, 9, 9}, r: with(func(r *Retention) { r.Age, r.Doubt, r.Most = 7*time.Hour, 5*time.Hour, 0 }), start: 0, last: 2, held: 2},
		{name: "a clock in doubt does not touch the active segment", hours: []int64{2000}, r: with(func(r *Retention) { r.Age, r.Doubt, r.Most = 7*time.Hour, 3000*time.Hour, 1 })},
	} {
		t.Run(c.name, func(t *testing.T) {
			onAll(t, func(t *testing.T, e *env) {
				each(e)
				l := e.open()
				defer func() { l.Abandon() }()
				aged(t, l, c.hours...)
				if len(c.hours) > 0 {
					e.touch(testNow - c.touch*hour)
				}
				gone := mustRetain(t, l, c.r)
				if gone.LogStart != c.start || gone.Held != c.held {
					t.Fatalf("%+v, want the start at %d and %d held", gone, c.start, c.held)
				}
				if len(c.hours) == 0 {
					return
				}
				if got := e.bases(); got[0] != c.start || got[len(got)-1] != c.last || len(got) != int(c.last-c.start)+1 {
					t.Fatalf("segments %v, want those from %d to %d", got, c.start, c.last)
				}
				if e.cp.logStart != c.start {
					t.Fatalf("A11: the log start is kept as %d", e.cp.logStart)
				}
				e.whole(l)
				if gone.Segments != int(c.start) || gone.Bytes != c.start*one {
					t.Fatalf("%+v", gone)
				}
				if again := mustRetain(t, l, c.r); c.held == 0 && again.Segments != 0 {
					t.Fatalf("again at the same moment: %+v", again)
				}
			})
		})
	}
}

// A segment that nobody appends to is rolled when it has come of age, and goes, or can be compacted, like any other.
func TestRetainRollsByAge(t *testing.T) {
	e := memEnv(t)
	e.opts = func(o *Options) { o.SegmentAge = time.Hour }
	l := e.open()
	defer func() { l.Abandon() }()
	r := keepAll()
	mustRetain(t, l, r) // an empty log has nothing to roll
	aged(t, l, 0, 0, 0)
	r.Now += hour
	mustRetain(t, l, r)
	if got := e.bases(); len(got) != 1 {
		t.Fatalf("rolled at exactly its age: %v", got)
	}
	r.Now++
	mustRetain(t, l, r)
	mustRetain(t, l, r)
	if got := e.bases(); !slices.Equal(got, []int64{0, 3}) {
		t.Fatalf("segments %v, want 0 and 3: an empty one stays as it is", got)
	}
	// One whose first record is of the future is of age so long after it was first looked at.
	aged(t, l, -9000)
	mustRetain(t, l, r)
	r.Now += hour
	mustRetain(t, l, r)
	if got := e.bases(); len(got) != 2 {
		t.Fatalf("segments %v", got)
	}
	r.Now++
	mustRetain(t, l, r)
	if got := e.bases(); !slices.Equal(got, []int64{0, 3, 4}) {
		t.Fatalf("segments %v, want 0, 3 and 4", got)
	}
	e.close(l)
	l = e.open()
	if recs, err := readAll(l, 0); err != nil || len(recs) != 4 {
		t.Fatalf("%d records, %v", len(recs), err)
	}
}

// A11: the log start moves to any offset up to the end and never back, is kept before files go, and hides what is below it.
func TestTrimTo(t *testing.T) {
	onAll(t, func(t *testing.T, e *env) {
		e.opts = func(o *Options) { o.SegmentBytes = 1000 }
		ctx := context.Background()
		l := e.open()
		defer func() { l.Abandon() }()
		if err := l.TrimTo(ctx, 0); err != nil || l.StartOffset() != 0 {
			t.Fatalf("an empty log trimmed to 0: %v", err)
		}
		if err := l.TrimTo(ctx, 1); !errors.Is(err, kafka.ErrOffsetOutOfRange) || l.StartOffset() != 0 {
			t.Fatalf("an empty log trimmed to 1: %v", err)
		}
		const n = 40
		for i := range n {
			mustAppend(t, l, plain(val(i, 100)))
		}
		bases := e.bases()
		middle := bases[2] + 1
		for _, at := range []int64{1, middle, middle, 3, -7, bases[3], n, n, 0} {
			before := l.StartOffset()
			if err := l.TrimTo(ctx, at); err != nil {
				t.Fatalf("to %d: %v", at, err)
			}
			start := max(before, at)
			if l.StartOffset() != start || e.cp.logStart != start {
				t.Fatalf("A11: trimmed from %d to %d: it starts at %d, kept is %d", before, at, l.StartOffset(), e.cp.logStart)
			}
			if at > before && l.DurableEnd() < at {
				t.Fatalf("the log start %d leads the durable end %d", at, l.DurableEnd())
			}
			if got := e.bases(); got[0] > start || len(got) > 1 && got[1] <= start {
				t.Fatalf("it starts at %d, the segments at %v", start, got)
			}
			e.whole(l)
			if _, err := l.NewCursor(start - 1).Next(n); !errors.Is(err, kafka.ErrOffsetOutOfRange) {
				t.Fatalf("reading below the start: %v", err)
			}
			if recs, err := readAll(l, start); err != nil || len(recs) != n-int(start) || len(recs) > 0 && !recs[0].equal(val(int(start), 100)) {
				t.Fatalf("from %d there are %d records, %v", start, len(recs), err)
			}
			if found, ok, err := l.OffsetForTime(0, n); err != nil || ok != (start < n) || ok && found.Offset != start {
				t.Fatalf("the first record of %d is %+v, %t, %v", start, found, ok, err)
			}
			if at == 3 {
				e.close(l)
				l = e.open()
			} else if at == bases[3] {
				l.Abandon()
				e.epoch++
				l = e.open()
			}
			if l.StartOffset() != start {
				t.Fatalf("A11: opened again it starts at %d, before at %d", l.StartOffset(), start)
			}
		}
		if err := l.TrimTo(ctx, n+1); !errors.Is(err, kafka.ErrOffsetOutOfRange) || l.StartOffset() != n {
			t.Fatalf("behind the end: %v", err)
		}
		mustAppend(t, l, plain(val(n, 100)))
		if recs, err := readAll(l, n); err != nil || len(recs) != 1 || !recs[0].equal(val(n, 100)) {
			t.Fatalf("%d records, %v", len(recs), err)
		}
		e.close(l)
		if err := l.TrimTo(ctx, n+1); !errors.Is(err, kafka.ErrClosed) {
			t.Fatalf("closed: %v", err)
		}
		if _, err := l.Retain(keepAll()); !errors.Is(err, kafka.ErrClosed) {
			t.Fatalf("closed: %v", err)
		}
		l = e.open()
	})
}

// A trimmed offset that is not durable is made so first, and a caller that does not wait for that changes nothing.
func TestTrimToWaitsForTheDisk(t *testing.T) {
	e := memEnv(t)
	l := e.open()
	defer l.Abandon()
	mustAppend(t, l, plain(val(0, 10)))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := l.TrimTo(ctx, 1); err != nil && !errors.Is(err, context.Canceled) || err != nil && l.StartOffset() != 0 {
		t.Fatalf("%v, and the log starts at %d", err, l.StartOffset())
	}
	if err := l.TrimTo(context.Background(), 1); err != nil || l.DurableEnd() != 1 || l.StartOffset() != 1 {
		t.Fatalf("%v, durable %d, start %d", err, l.DurableEnd(), l.StartOffset())
	}
}

// retainModel is what the doc of Retain says, over a list of segments.
type retainModel struct {
	segs  []retainSegment // the last one is the active one
	start int64
	age   int64 // settings' segment age
}

type retainSegment struct {
	base, next  int64
	size        int64
	first, most int64 // timestamps
	mtime       int64
	seen        int64
}

func (s retainSegment) time(now int64) int64 {
	if credible(s.most, now) {
		return s.most
	}
	return s.mtime
}

// idle reports whether a run would change nothing.
func (m *retainModel) idle(r Retention) bool {
	c := *m
	c.segs = slices.Clone(m.segs)
	c.retain(r)
	return len(c.segs) == len(m.segs) && c.start == m.start
}

func (m *retainModel) retain(r Retention) (held int) {
	a := &m.segs[len(m.segs)-1]
	if a.size > 0 {
		if a.seen == 0 {
			a.seen = r.Now
		}
		first := a.first
		if !credible(first, r.Now) {
			first = a.seen
		}
		last := a.time(r.Now)
		if !credible(a.most, r.Now) {
			last += unseenChange.Milliseconds()
		}
		old := r.Age >= 0 && r.Now-last-r.Doubt.Milliseconds() > r.Age.Milliseconds()
		if r.Now-first-r.Doubt.Milliseconds() > m.age || old || m.start == a.next && a.size >= reserveMin {
			m.segs = append(m.segs, retainSegment{base: a.next, next: a.next, first: -1, most: -1})
		}
	}
	total := int64(0)
	for _, s := range m.segs {
		total += s.size
	}
	gone := 0
	goes := func(i int) { gone = max(gone, i+1) }
	sealed := m.segs[:len(m.segs)-1]
	for i := 0; i < len(sealed) && sealed[i].next <= m.start; i++ {
		goes(i)
	}
	left := total
	for i := 0; r.Bytes >= 0 && i < len(sealed) && left-sealed[i].size >= r.Bytes; i++ {
		left -= sealed[i].size
		goes(i)
	}
	if r.Age >= 0 {
		tooOld := func(i int, doubt int64) bool {
			return r.Now-sealed[i].time(r.Now)-doubt > r.Age.Milliseconds()
		}
		maybe := gone
		for i := gone; i < len(sealed) && tooOld(i, 0); i++ {
			maybe = i + 1
		}
		for i := gone; i < maybe; i++ {
			if tooOld(i, r.Doubt.Milliseconds()) {
				goes(i)
			}
		}
		if maybe > gone {
			let := min(maybe-gone, r.Most)
			held = maybe - gone - let
			gone += let
		}
	}
	if gone > 0 {
		m.start = max(m.start, sealed[gone-1].next)
	}
	m.segs = m.segs[gone:]
	return held
}

// A11: random logs are retained and trimmed as a list of segments is. The start never goes back, what is left is what was appended, whatever way the log is
// opened again, and a second run at the same moment removes nothing.
func TestRetainAsAModel(t *testing.T) {
	n := 400
	if testing.Short() {
		n = 100
	}
	s, r := seed(t)
	for i := range n {
		if err := retainRun(t, r); err != nil {
			t.Fatalf("run %d from seed %d: %v", i, s, err)
		}
	}
}

func retainRun(t *testing.T, r *rand.Rand) (err error) {
	fsys := vfs.NewMemory()
	defer fsys.Close()
	if err := fsys.Mkdir("/d"); err != nil {
		return err
	}
	e := newEnv(t, fsys, "/d")
	each(e)
	now := testNow
	m := retainModel{age: 1000 * hour, segs: []retainSegment{{first: -1, most: -1}}}
	var want []record
	l := e.open()
	defer func() { l.Abandon() }()
	for range 3 + r.IntN(20) {
		switch k := r.IntN(10); {
		case k < 6:
			rec := record{key: []byte("k"), value: make([]byte, r.IntN(300)), ts: now - r.Int64N(3000*hour)}
			switch r.IntN(8) {
			case 0:
				rec.ts = now + r.Int64N(10_000*hour)
			case 1:
				rec.ts = -1
			}
			b := plain(rec)
			a := mustAppend(t, l, b)
			seg := &m.segs[len(m.segs)-1]
			if seg.size > 0 {
				m.segs = append(m.segs, retainSegment{base: a.Base})
				seg = &m.segs[len(m.segs)-1]
			}
			*seg = retainSegment{base: a.Base, next: a.Base + 1, size: int64(len(b)), first: rec.ts, most: rec.ts}
			want = append(want, rec)
		case k < 7:
			at := r.Int64N(int64(len(want)) + 1)
			if err := l.TrimTo(context.Background(), at); err != nil {
				return err
			}
			for at > m.start && len(m.segs) > 1 && m.segs[0].next <= at {
				m.segs = m.segs[1:]
			}
			m.start = max(m.start, at)
		case k < 8:
			if r.IntN(2) == 0 {
				e.close(l)
			} else {
				l.Abandon()
				e.epoch++
			}
			l = e.open()
			m.segs[len(m.segs)-1].seen = 0
			for len(m.segs) > 1 && m.segs[0].next <= m.start {
				m.segs = m.segs[1:]
			}
		default:
			now += r.Int64N(500 * hour)
			if len(want) == 0 {
				continue
			}
			for i := range m.segs {
				m.segs[i].mtime = now - r.Int64N(3000*hour)
				if err := fsys.SetModTime(fileName(e.options().Dir, m.segs[i].base, suffixLog), time.UnixMilli(m.segs[i].mtime)); err != nil {
					return err
				}
			}
			ret := Retention{Now: now, Age: -1, Bytes: -1, Most: r.IntN(3)}
			if r.IntN(3) > 0 {
				ret.Age = time.Duration(r.Int64N(4000)) * time.Hour
			}
			if r.IntN(3) == 0 {
				ret.Bytes = r.Int64N(1500)
			}
			if r.IntN(3) == 0 {
				ret.Doubt = time.Duration(r.Int64N(2000)) * time.Hour
			}
			before := m.segs
			held := m.retain(ret)
			gone, err := l.Retain(ret)
			if err != nil {
				return err
			}
			if gone.LogStart != m.start || gone.Held != held {
				return fmt.Errorf("%+v of %+v at the start %d: %+v, want the start at %d and %d held", ret, before, l.StartOffset(), gone, m.start, held)
			}
			if later := ret; later.Doubt == 0 && held == 0 {
				// Bytes and the log start may be due at any time.
				for _, later.Now = range []int64{now + r.Int64N(1000*hour), gone.Next - 1} {
					if later.Now < gone.Next && !m.idle(later) {
						return fmt.Errorf("%+v said %+v, but at %d there is something to do", ret, gone, later.Now)
					}
				}
			}
			if held == 0 {
				if gone, err = l.Retain(ret); err != nil || gone.Segments != 0 {
					return fmt.Errorf("%+v of %+v, again at the same moment: %+v, %v", ret, before, gone, err)
				}
			}
		}
		if l.StartOffset() != m.start || e.cp.logStart != m.start {
			return fmt.Errorf("A11: the log starts at %d, kept is %d, want %d", l.StartOffset(), e.cp.logStart, m.start)
		}
		if len(want) == 0 {
			continue
		}
		var bases []int64
		for _, seg := range m.segs {
			bases = append(bases, seg.base)
		}
		if got := e.bases(); !slices.Equal(got, bases) {
			return fmt.Errorf("segments %v, want %v", got, bases)
		}
		e.whole(l)
		recs, err := readAll(l, m.start)
		if err != nil || !slices.EqualFunc(recs, want[m.start:], record.equal) {
			return fmt.Errorf("A1: from %d there are %d records of %d, %v", m.start, len(recs), len(want)-int(m.start), err)
		}
		if len(e.cuts) > 0 {
			return errors.New(strings.Join(e.cuts, ", "))
		}
	}
	return nil
}
