package wheel

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// MODEL: random operations against a list that is sorted by time.
func TestModel(t *testing.T) {
	r := newRand(t)
	rounds := 25
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		bubble(t, func(t *testing.T, w *Wheel) { model(t, w, r) })
	}
}

func model(t *testing.T, w *Wheel, r *rand.Rand) {
	type firing struct {
		timer int
		at    time.Duration
	}
	var (
		begin   = time.Now()
		timers  [64]*Timer
		pending []firing // sorted by time
		fired   = make(chan firing, 1000)
		other   = NewTimer(func() {})
	)
	for i := range timers {
		timers[i] = NewTimer(func() { fired <- firing{i, time.Since(begin)} })
	}
	// span is a duration of any magnitude: as many below a tick as around a level's border or an hour.
	span := func() time.Duration {
		d := time.Duration(r.Int64N(1 << (12 + r.IntN(31))))
		if r.IntN(3) == 0 {
			d = d.Round(20 * time.Millisecond)
		}
		return d
	}
	forget := func(timer int) bool {
		n := len(pending)
		pending = slices.DeleteFunc(pending, func(f firing) bool { return f.timer == timer })
		return len(pending) < n
	}
	byTime := func(a, b firing) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.timer, b.timer))
	}
	check := func() {
		synctest.Wait()
		var got []firing
		for len(fired) > 0 {
			got = append(got, <-fired)
		}
		slices.SortFunc(got, byTime)
		due := 0
		for due < len(pending) && pending[due].at <= time.Since(begin) {
			due++
		}
		if !slices.Equal(got, pending[:due]) {
			t.Fatalf("fired %v, want %v", got, pending[:due])
		}
		pending = pending[due:]
	}
	for range 500 {
		i := r.IntN(len(timers))
		switch r.IntN(10) {
		default:
			now, d := time.Since(begin), span()
			w.Schedule(timers[i], d)
			forget(i)
			if d > 0 {
				now = (now + d + time.Millisecond - 1).Truncate(time.Millisecond)
			}
			pending = append(pending, firing{i, now})
			slices.SortFunc(pending, byTime)
			if d == 0 {
				check() // else a Cancel may or may not come in time
			}
			checkInvariants(t, w)
		case 0, 1, 2:
			if got, want := w.Cancel(timers[i]), forget(i); got != want {
				t.Fatalf("Cancel reports %v, want %v", got, want)
			}
		case 3, 4, 5:
			time.Sleep(span())
			checkInvariants(t, w)
			if r.IntN(2) == 0 { // the clock may have yet to turn
				w.Schedule(other, span())
				checkInvariants(t, w)
				w.Cancel(other)
			}
			check()
		}
	}
	time.Sleep(3 * time.Hour)
	check()
	if len(pending) != 0 {
		t.Fatalf("never fired: %v", pending)
	}
}

// checkInvariants checks what the package comment says about the buckets.
func checkInvariants(t *testing.T, w *Wheel) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	queued := 0
	for i, l := range w.mu.levels {
		if l.now != w.mu.now-w.mu.now%l.width {
			t.Fatalf("level %d is at tick %d when the wheel is at %d", i, l.now, w.mu.now)
		}
		for j := range l.buckets {
			b := &l.buckets[j]
			if !b.queued {
				if !b.empty() {
					t.Fatalf("level %d, bucket %d has timers and is not in the queue", i, j)
				}
				continue
			}
			queued++
			moving := b == w.mu.queue[0] && b.begin == w.mu.now
			if !moving && (b.begin <= w.mu.now || b.begin >= l.now+l.width*slots) || b.begin/l.width%slots != int64(j) {
				t.Fatalf("level %d, bucket %d begins at tick %d when the wheel is at %d", i, j, b.begin, w.mu.now)
			}
			for timer := b.root.next; timer != &b.root; timer = timer.next {
				if timer.when < b.begin || timer.when >= b.begin+l.width {
					t.Fatalf("bucket [%d,%d) holds a timer for tick %d", b.begin, b.begin+l.width, timer.when)
				}
			}
		}
	}
	if queued != len(w.mu.queue) {
		t.Fatalf("%d buckets are queued, the queue has %d", queued, len(w.mu.queue))
	}
}

// checkNoTimer checks that the wheel holds none.
func checkNoTimer(t *testing.T, w *Wheel) {
	t.Helper()
	checkInvariants(t, w)
	w.mu.Lock()
	defer w.mu.Unlock()
	left := !w.mu.ready.empty()
	for _, l := range w.mu.levels {
		for i := range l.buckets {
			left = left || !l.buckets[i].empty()
		}
	}
	if left {
		t.Fatal("the wheel holds a timer")
	}
}
