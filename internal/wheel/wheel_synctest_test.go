package wheel

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
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
