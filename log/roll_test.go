package rlog

import (
	"testing"
	"time"
)

// A segment takes a batch that ends exactly at its limit and no byte more; a batch larger than a segment gets its own.
func TestRollBySize(t *testing.T) {
	one := int64(len(plain(val(1, 100))))
	for _, c := range []struct {
		name  string
		limit int64
		want  int // segments after 12 batches
	}{
		{"ends at the limit", 4 * one, 3},
		{"one byte below", 4*one - 1, 4},
		{"one byte above", 4*one + 1, 3},
		{"smaller than a batch", one - 1, 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			onAll(t, func(t *testing.T, e *env) {
				e.opts = func(o *Options) { o.SegmentBytes = c.limit }
				l := e.open()
				var want []record
				for i := range 12 {
					r := val(1, 100)
					mustAppend(t, l, plain(r))
					want = append(want, r)
					if i == 6 {
						e.close(l)
						l = e.open()
					}
				}
				wantRecords(t, l, want)
				if got := len(e.list(".log")); got != c.want {
					t.Fatalf("%d segments, want %d", got, c.want)
				}
				e.close(l)
				l = e.open()
				wantRecords(t, l, want)
				e.close(l)
			})
		})
	}
}

func TestRollByAge(t *testing.T) {
	e := memEnv(t)
	e.opts = func(o *Options) { o.SegmentAge = time.Minute }
	l := e.open()
	defer l.Abandon()
	for _, ms := range []int64{1000, 61_000, 61_001, 500, 1 << 60, 2000, 61_002} {
		mustAppend(t, l, plain(record{[]byte("k"), []byte("v"), ms}))
	}
	// 61 001 is more than a minute behind 1 000, the far future behind 61 001.
	if got := len(e.list(".log")); got != 3 {
		t.Fatalf("%d segments", got)
	}
	if recs, err := readAll(l, 0); err != nil || len(recs) != 7 {
		t.Fatalf("%d records, %v", len(recs), err)
	}
}

func TestRollByFullIndex(t *testing.T) {
	e := memEnv(t)
	e.opts = func(o *Options) { o.IndexBytes = 10 * 8; o.IndexInterval = 1; o.SegmentBytes = 1 << 20 }
	l := e.open()
	defer l.Abandon()
	var want []record
	for i := range 50 {
		mustAppend(t, l, plain(val(i, 20)))
		want = append(want, val(i, 20))
	}
	if got := len(e.list(".log")); got < 4 {
		t.Fatalf("%d segments", got)
	}
	wantRecords(t, l, want)
}

// Only one snapshot that is not at a segment's base is kept, however often the log is closed.
func TestSnapshotsDoNotPileUp(t *testing.T) {
	e := memEnv(t)
	for i := range 10 {
		l := e.open()
		mustAppend(t, l, plain(val(i, 20)))
		e.close(l)
	}
	if got := e.list(".snapshot"); len(got) != 1 {
		t.Fatalf("%v", got)
	}
}
