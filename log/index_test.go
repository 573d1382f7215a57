package rlog

import (
	"fmt"
	"math/rand/v2"
	"path"
	"testing"
)

// randomTimes makes timestamps as clients send them: mostly rising, some backwards, some equal, some from the far future.
func randomTime(rng *rand.Rand, last int64) int64 {
	switch rng.IntN(10) {
	case 0:
		return max(last-int64(rng.IntN(1000)), 0)
	case 1:
		return last
	case 2:
		return last + 1<<40
	default:
		return last%(1<<40) + int64(rng.IntN(50))
	}
}

// history is a log of several segments with all that its readers may ask.
func history(t testing.TB, e *env, rng *rand.Rand, n int) []record {
	e.opts = func(o *Options) { o.SegmentBytes = 8 << 10; o.IndexInterval = 200; o.SegmentAge = 1 << 62 }
	l := e.open()
	var all []record
	ts := int64(1000)
	for len(all) < n {
		var recs []record
		for range 1 + rng.IntN(4) {
			ts = randomTime(rng, ts)
			recs = append(recs, record{fmt.Append(nil, len(all)+len(recs)), make([]byte, rng.IntN(120)), ts})
		}
		mustAppend(t, l, plain(recs...))
		all = append(all, recs...)
	}
	e.close(l)
	return all
}

// A13: the offset for a time is that of the first record at or after it, in offset order.
func TestOffsetForTimeIsALinearScan(t *testing.T) {
	_, rng := seed(t)
	for range 20 {
		e := memEnv(t)
		all := history(t, e, rng, 400)
		l := e.open()
		checkTimes(t, l, all, rng, 300)
		// Also while the segment is active, and after more has been appended to it.
		for range 50 {
			r := record{[]byte("k"), make([]byte, 100), randomTime(rng, all[len(all)-1].ts)}
			mustAppend(t, l, plain(r))
			all = append(all, r)
		}
		checkTimes(t, l, all, rng, 100)
		l.Abandon()
	}
}

// A13: also where all timestamps are 0, which no index entry can say.
func TestOffsetForTimeZero(t *testing.T) {
	e := memEnv(t)
	l := e.open()
	mustAppend(t, l, plain(record{[]byte("k"), []byte("v"), 0}))
	for range 2 {
		f, ok, err := l.OffsetForTime(0, 1)
		if err != nil || !ok || f.Offset != 0 {
			t.Fatalf("%+v %v %v", f, ok, err)
		}
		e.opts = func(o *Options) { o.SegmentBytes = 1 }
		e.close(l)
		l = e.open()
	}
	mustAppend(t, l, plain(record{[]byte("k"), []byte("v"), 0})) // rolls
	for range 2 {
		for at, want := range map[int64]bool{0: true, 1: false} {
			f, ok, err := l.OffsetForTime(at, l.EndOffset())
			if err != nil || ok != want || f.Offset != 0 {
				t.Fatalf("time %d: %+v %v %v", at, f, ok, err)
			}
		}
		e.close(l)
		l = e.open()
	}
	l.Abandon()
	if e.built != 0 {
		t.Fatalf("%d indexes rebuilt", e.built)
	}
}

func checkTimes(t testing.TB, l *Log, all []record, rng *rand.Rand, n int) {
	t.Helper()
	for range n {
		at := all[rng.IntN(len(all))].ts + int64(rng.IntN(3)) - 1
		want := -1
		for i, r := range all {
			if r.ts >= at {
				want = i
				break
			}
		}
		f, ok, err := l.OffsetForTime(at, l.EndOffset())
		if err != nil {
			t.Fatal(err)
		}
		if ok != (want >= 0) || ok && (f.Offset != int64(want) || f.Timestamp != all[want].ts) {
			t.Fatalf("time %d: found %v %+v, want offset %d", at, ok, f, want)
		}
	}
}

// A14: whatever happens to an index file, the answers are the same.
func TestIndexesAreHints(t *testing.T) {
	_, rng := seed(t)
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	for range rounds {
		e := memEnv(t)
		all := history(t, e, rng, 300)
		for range 5 {
			names := append(e.list(".index"), e.list(".timeindex")...)
			what := ""
			for range 1 + rng.IntN(3) {
				name := names[rng.IntN(len(names))]
				what += name + " " + mutate(t, e, rng, name, names) + "; "
			}
			l := e.open()
			func() {
				defer func() {
					if t.Failed() {
						t.Logf("after %s", what)
					}
				}()
				for range 30 {
					off := rng.IntN(len(all))
					c := l.NewCursor(int64(off))
					b, err := c.Next(l.EndOffset())
					if err != nil {
						t.Fatalf("%s: offset %d: %v", what, off, err)
					}
					got, err := copyRecords(c, b, int64(off), nil)
					c.Close()
					if err != nil || len(got) == 0 || !got[0].equal(all[off]) {
						t.Fatalf("%s: offset %d: another record, %v", what, off, err)
					}
				}
				checkTimes(t, l, all, rng, 60)
			}()
			e.close(l)
		}
	}
}

// mutate damages an index file and says how.
func mutate(t testing.TB, e *env, rng *rand.Rand, name string, names []string) string {
	full := path.Join(e.dir, "topics", "t-0", name)
	switch rng.IntN(6) {
	case 0:
		if err := e.fs.Remove(full); err != nil {
			return "was missing"
		}
		return "removed"
	case 1:
		if !e.has(name) {
			return "missing"
		}
		e.edit(name, func(b []byte) []byte { return b[:rng.IntN(len(b)+1)] })
		return "cut"
	case 2:
		if !e.has(name) {
			return "missing"
		}
		e.edit(name, func(b []byte) []byte { clear(b[rng.IntN(len(b)+1):]); return b })
		return "zeroed"
	case 3:
		other := names[rng.IntN(len(names))]
		if !e.has(name) || !e.has(other) {
			return "missing"
		}
		e.edit(name, func([]byte) []byte { return e.read(other) })
		return "is " + other
	default:
		if !e.has(name) {
			return "missing"
		}
		e.edit(name, func(b []byte) []byte {
			if len(b) > 0 {
				b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
			}
			return b
		})
		return "one bit flipped"
	}
}

func (e *env) has(name string) bool {
	_, err := e.fs.Stat(path.Join(e.dir, "topics", "t-0", name))
	return err == nil
}

// A14, after a crash: the indexes of the segment that is recovered are as little trusted.
func TestIndexesAreHintsInRecovery(t *testing.T) {
	_, rng := seed(t)
	for range 60 {
		e := memEnv(t)
		all := history(t, e, rng, 120)
		l := e.open()
		for range 60 {
			r := record{[]byte("k"), make([]byte, rng.IntN(100)), randomTime(rng, all[len(all)-1].ts)}
			mustAppend(t, l, plain(r))
			all = append(all, r)
			if rng.IntN(10) == 0 {
				if err := l.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		l.Abandon()
		e.epoch++
		names := append(e.list(".index"), e.list(".timeindex")...)
		name := names[len(names)-1-rng.IntN(2)]
		what := name + " " + mutate(t, e, rng, name, names)
		l = e.open()
		got, err := readAll(l, 0)
		if err != nil || len(got) != len(all) {
			t.Fatalf("%s: %d records of %d, %v", what, len(got), len(all), err)
		}
		checkTimes(t, l, all, rng, 60)
		e.close(l)
	}
}

// The producers of a log are the same whether they come from snapshots or from the records (C3), and repeated batches are answered
// as they were the first time (C1), gaps and old epochs refused (C2).
func TestProducerState(t *testing.T) {
	_, rng := seed(t)
	for range 30 {
		e := memEnv(t)
		e.opts = func(o *Options) { o.SegmentBytes = 2 << 10 }
		l := e.open()
		m := newProducerModel()
		for range 200 {
			switch rng.IntN(20) {
			case 0:
				e.close(l)
				damageSnapshots(e, rng)
				l = e.open()
			case 1:
				l.Abandon()
				e.epoch++
				damageSnapshots(e, rng)
				l = e.open()
			default:
				m.step(t, l, rng)
			}
		}
		e.close(l)
	}
}

func damageSnapshots(e *env, rng *rand.Rand) {
	for _, name := range e.list(".snapshot") {
		if rng.IntN(3) == 0 {
			e.edit(name, func(b []byte) []byte {
				b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
				return b
			})
		}
	}
}
