package wheel

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var seed = flag.Uint64("seed", 0, "seed of the random tests; 0 takes a new one")

func newRand(t *testing.T) *rand.Rand {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("seed %d (repeat with -args -seed=%d)", s, s)
	return rand.New(rand.NewPCG(s, 0))
}

// bubble runs f with a wheel in virtual time.
func bubble(t *testing.T, f func(t *testing.T, w *Wheel)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := New(Options{})
		defer w.Close()
		f(t, w)
	})
}

// firing arms a new timer that sends the time at which it fires.
func firing(w *Wheel, d time.Duration) (*Timer, <-chan time.Time) {
	c := make(chan time.Time, 1)
	t := NewTimer(func() { c <- time.Now() })
	w.Schedule(t, d)
	return t, c
}

func TestFiresAtExactTime(t *testing.T) {
	const ms = time.Millisecond
	borders := []time.Duration{1, 2, 19, 20, 21, 39, 40, 41, 399, 400, 401, 450, 7999, 8000, 8001, 8020,
		159999, 160000, 160001, 160400, 3199999, 3200000, 3200001, 3208420}
	for _, start := range []time.Duration{0, 1, 19, 20, 15, 399, 401, 7999, 8000, 159_993, 1_234_567} {
		for _, d := range borders {
			t.Run(fmt.Sprintf("%v+%v", start*ms, d*ms), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *Wheel) {
					time.Sleep(start * ms)
					begin := time.Now()
					_, c := firing(w, d*ms)
					if got := (<-c).Sub(begin); got != d*ms {
						t.Fatalf("fired after %v", got)
					}
				})
			})
		}
	}
}

func TestFiresAtFirstTickThatIsNotEarly(t *testing.T) {
	for _, tc := range []struct{ start, d, want time.Duration }{
		{0, 1, time.Millisecond},
		{0, 999_999, time.Millisecond},
		{0, 1_000_001, 2 * time.Millisecond},
		{300_000, 1_000_000, 2 * time.Millisecond},
		{300_000, 700_000, time.Millisecond},
		{300_000, 0, 300_000},
		{300_000, -1, 300_000},
		{0, 0, 0},
		{5_000_000, 0, 5_000_000},
		{5_000_001, math.MinInt64, 5_000_001},
	} {
		t.Run(fmt.Sprintf("%v+%v", tc.start, tc.d), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *Wheel) {
				begin := time.Now()
				time.Sleep(tc.start)
				_, c := firing(w, tc.d)
				if got := (<-c).Sub(begin); got != tc.want {
					t.Fatalf("fired at %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// A day, a hundred years and the longest duration there is: all levels are made, and nothing overflows.
func TestLongDurations(t *testing.T) {
	for _, d := range []time.Duration{24 * time.Hour, 100 * 365 * 24 * time.Hour} {
		bubble(t, func(t *testing.T, w *Wheel) {
			begin := time.Now()
			_, c := firing(w, d)
			if got := (<-c).Sub(begin); got != d {
				t.Fatalf("%v fired after %v", d, got)
			}
		})
	}
	bubble(t, func(t *testing.T, w *Wheel) {
		time.Sleep(time.Hour)
		longest, c := firing(w, math.MaxInt64)
		time.Sleep(100 * 365 * 24 * time.Hour)
		select {
		case <-c:
			t.Fatal("fired")
		default:
		}
		if len(w.mu.levels) != 10 {
			t.Errorf("%d levels, want 10", len(w.mu.levels))
		}
		if !w.Cancel(longest) {
			t.Error("not pending")
		}
	})
}

// The example of the package comment.
func TestTimerTravelsDownTheLevels(t *testing.T) {
	bubble(t, func(t *testing.T, w *Wheel) {
		where := func(want string) {
			t.Helper()
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			got := "nowhere"
			for i, l := range w.mu.levels {
				for _, b := range l.buckets {
					if b.queued {
						got = fmt.Sprintf("level %d [%d,%d)", i, b.begin, b.begin+l.width)
					}
				}
			}
			if got != want {
				t.Errorf("at tick %d the timer is in %s, want %s", w.mu.now, got, want)
			}
		}
		time.Sleep(15 * time.Millisecond)
		_, c := firing(w, 450*time.Millisecond)
		where("level 2 [400,800)")
		time.Sleep(384 * time.Millisecond)
		where("level 2 [400,800)")
		time.Sleep(1 * time.Millisecond)
		where("level 1 [460,480)")
		time.Sleep(60 * time.Millisecond)
		where("level 0 [465,466)")
		if len(c) != 0 {
			t.Error("fired early")
		}
		time.Sleep(5 * time.Millisecond)
		where("nowhere")
		if len(c) != 1 {
			t.Error("not fired")
		}
	})
}

// The clock of an idle wheel does not turn, yet a timer goes as low as if it did.
func TestIdleTimeCostsNoLevels(t *testing.T) {
	bubble(t, func(t *testing.T, w *Wheel) {
		for range 3 {
			time.Sleep(time.Hour)
			_, c := firing(w, 5*time.Millisecond)
			<-c
		}
		if n := len(w.mu.levels); n != 1 {
			t.Errorf("%d levels for timers of 5 ms", n)
		}
	})
}

func TestScheduleAgainReplaces(t *testing.T) {
	bubble(t, func(t *testing.T, w *Wheel) {
		begin := time.Now()
		timer, c := firing(w, 10*time.Millisecond)
		time.Sleep(9 * time.Millisecond)
		w.Schedule(timer, 500*time.Millisecond)
		w.Schedule(timer, 25*time.Millisecond)
		if got := (<-c).Sub(begin); got != 34*time.Millisecond {
			t.Errorf("fired after %v", got)
		}
		time.Sleep(time.Hour)
		if len(c) != 0 {
			t.Error("fired twice")
		}
	})
}

func TestScheduleFromItsOwnFunction(t *testing.T) {
	bubble(t, func(t *testing.T, w *Wheel) {
		begin := time.Now()
		var at []time.Duration
		done := make(chan struct{})
		var timer Timer
		timer.Init(func() {
			at = append(at, time.Since(begin))
			if len(at) == 500 {
				close(done)
				return
			}
			w.Schedule(&timer, time.Duration(len(at))*time.Millisecond)
		})
		w.Schedule(&timer, 0)
		<-done
		for i, d := range at {
			if want := time.Duration(i*(i+1)/2) * time.Millisecond; d != want {
				t.Fatalf("firing %d at %v, want %v", i, d, want)
			}
		}
	})
}

func TestCancel(t *testing.T) {
	bubble(t, func(t *testing.T, w *Wheel) {
		if w.Cancel(NewTimer(func() {})) {
			t.Error("a timer that was never armed was cancelled")
		}
		timer, c := firing(w, 450*time.Millisecond)
		time.Sleep(449 * time.Millisecond)
		if !w.Cancel(timer) {
			t.Error("Cancel before the time reports false")
		}
		if w.Cancel(timer) {
			t.Error("the second Cancel reports true")
		}
		time.Sleep(time.Hour)
		if len(c) != 0 {
			t.Error("fired after Cancel")
		}
		w.Schedule(timer, time.Millisecond)
		<-c
		if w.Cancel(timer) {
			t.Error("Cancel after the firing reports true")
		}
	})
}

// A blocked function, or a thousand of them, delays none of the others, not even by a tick.
func TestBlockedFunctionDelaysNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, w *Wheel) {
		release := make(chan struct{})
		defer close(release)
		begin := time.Now()
		for range 1000 {
			w.Schedule(NewTimer(func() { <-release }), 5*time.Millisecond)
		}
		for _, d := range []time.Duration{5, 6, 450} {
			_, c := firing(w, d*time.Millisecond)
			if got := (<-c).Sub(begin); got != d*time.Millisecond {
				t.Errorf("fired after %v, want %v", got, d*time.Millisecond)
			}
			begin = time.Now()
		}
	})
}

func TestPanicIsContained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(chan any, 10)
		w := New(Options{OnPanic: func(v any) {
			got <- v
			panic("in OnPanic")
		}})
		defer w.Close()
		w.Schedule(NewTimer(func() { panic("oops") }), time.Millisecond)
		w.Schedule(NewTimer(nil), time.Millisecond)
		w.Schedule(NewTimer(runtime.Goexit), time.Millisecond)
		_, c := firing(w, time.Millisecond)
		<-c
		synctest.Wait()
		if len(got) != 2 {
			t.Fatalf("%d panics reported, want 2", len(got))
		}
		for range 2 {
			if v := <-got; v != "oops" {
				if _, ok := v.(runtime.Error); !ok {
					t.Errorf("reported %v", v)
				}
			}
		}
	})
	bubble(t, func(t *testing.T, w *Wheel) { // without OnPanic
		w.Schedule(NewTimer(func() { panic("oops") }), time.Millisecond)
		_, c := firing(w, 2*time.Millisecond)
		<-c
	})
}

// F1: Close waits for functions that run, and no timer fires after it.
func TestCloseWithPendingTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Options{})
		running, ended := make(chan struct{}), false
		w.Schedule(NewTimer(func() {
			close(running)
			time.Sleep(time.Minute)
			ended = true
		}), 0)
		<-running
		var timers []*Timer
		var fired []<-chan time.Time
		for _, d := range []time.Duration{time.Millisecond, 450 * time.Millisecond, time.Hour} {
			timer, c := firing(w, time.Minute-time.Millisecond+d)
			timers, fired = append(timers, timer), append(fired, c)
		}
		begin := time.Now()
		for range 3 {
			go w.Close()
		}
		w.Close()
		if !ended || time.Since(begin) != time.Minute {
			t.Errorf("Close returned after %v, before the function", time.Since(begin))
		}
		w.Close()
		late, c := firing(w, 0)
		timers, fired = append(timers, late), append(fired, c)
		time.Sleep(2 * time.Hour)
		for i, c := range fired {
			if len(c) != 0 {
				t.Errorf("timer %d fired after Close", i)
			}
			if !w.Cancel(timers[i]) {
				t.Errorf("timer %d is not pending after Close", i)
			}
		}
	})
}

// A function that runs while Close waits for it can make no other run.
func TestScheduleWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Options{})
		other := NewTimer(func() { t.Error("fired") })
		running := make(chan struct{})
		w.Schedule(NewTimer(func() {
			close(running)
			time.Sleep(time.Minute)
			w.Schedule(other, 0)
		}), 0)
		<-running
		w.Close()
	})
}

// A timer that is armed when a bucket has begun, and the clock has yet to turn, must not meet that bucket in the ring.
func TestScheduleWhileClockIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWheel(Options{}) // its clock turns when the test says so
		begin := time.Now()
		firing := func(d time.Duration) <-chan time.Duration {
			c := make(chan time.Duration, 1)
			w.Schedule(NewTimer(func() { c <- time.Since(begin) }), d)
			checkInvariants(t, w)
			return c
		}
		turn := func() time.Duration {
			d, _ := w.turn()
			synctest.Wait()
			return d
		}
		a := firing(10 * time.Millisecond)
		time.Sleep(15 * time.Millisecond)
		b := firing(15 * time.Millisecond) // tick 30 has the slot of tick 10
		if d := turn(); d != 5*time.Millisecond || len(a) != 1 || len(b) != 0 {
			t.Errorf("after 15 ms: %d and %d firings, next turn in %v", len(a), len(b), d)
		}
		time.Sleep(15 * time.Millisecond)
		if d := turn(); d != never || len(b) != 1 {
			t.Errorf("after 30 ms: %d firings, next turn in %v", len(b), d)
		}
	})
}

// The clock wakes at most once for timers that were cancelled, and sleeps without an alarm after that.
func TestIdleWheelIsNotArmed(t *testing.T) {
	bubble(t, func(t *testing.T, w *Wheel) {
		asleep := func() int64 {
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.mu.sleep
		}
		if s := asleep(); s != never {
			t.Errorf("a new wheel sleeps to tick %d", s)
		}
		var timers []*Timer
		for i := range 1000 {
			timer, _ := firing(w, time.Duration(10+i*i)*time.Millisecond)
			timers = append(timers, timer)
		}
		if s := asleep(); s != 10 {
			t.Errorf("the clock sleeps to tick %d, want 10", s)
		}
		for _, timer := range timers {
			w.Cancel(timer)
		}
		if s := asleep(); s != 10 {
			t.Errorf("the clock sleeps to tick %d, want 10", s)
		}
		time.Sleep(10 * time.Millisecond)
		if s := asleep(); s != never {
			t.Errorf("the clock of an idle wheel sleeps to tick %d", s)
		}
	})
}

// More timers than move down at a time, so that others come and go while a bucket is half moved.
func TestManyTimersInOneBucket(t *testing.T) {
	bubble(t, func(t *testing.T, w *Wheel) {
		const n = 20 * moveBatch
		begin := time.Now()
		fired := make(chan time.Duration, n)
		for i := range n {
			want := time.Duration(8000+i) * time.Millisecond
			w.Schedule(NewTimer(func() { fired <- time.Since(begin) - want }), want)
		}
		for range n {
			if late := <-fired; late != 0 {
				t.Fatalf("late by %v", late)
			}
		}
	})
}

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
