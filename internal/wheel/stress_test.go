package wheel

import (
	"flag"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var manyTimers = flag.Int("timers", 1_000_000, "timers of TestManyTimers, with -short or the race detector at most 200 000; "+
	"a tenth of them is pending at once")

// A storm is timers that come and go, in real time.
type storm struct {
	w     *Wheel
	begin time.Time
	live  []atomic.Pointer[drop]             // the timers that may be pending
	last  [stormThreads]atomic.Pointer[drop] // of each goroutine the one that it armed last
	left  atomic.Int64                       // timers that have neither fired nor been cancelled
	over  chan struct{}                      // closed when none is left

	armed, fired, cancelled, refused, peak atomic.Int64
	early, again                           atomic.Int64 // timers that fired too early, that came to another end
}

const stormThreads = 16

// A drop is one timer of a storm.
type drop struct {
	timer Timer
	due   time.Duration // it may not fire earlier, counted since the storm's begin
	ends  atomic.Int32  // how often it has fired or been cancelled
}

func (s *storm) add(delay time.Duration) *drop {
	d := &drop{due: time.Since(s.begin) + delay}
	d.timer.Init(func() {
		if time.Since(s.begin) < d.due {
			s.early.Add(1)
		}
		s.fired.Add(1)
		s.end(d)
	})
	s.armed.Add(1)
	s.w.Schedule(&d.timer, delay)
	return d
}

func (s *storm) cancel(d *drop) {
	if d == nil {
		return
	}
	if !s.w.Cancel(&d.timer) {
		s.refused.Add(1)
		return
	}
	s.cancelled.Add(1)
	s.end(d)
}

func (s *storm) end(d *drop) {
	if d.ends.Add(1) != 1 {
		s.again.Add(1)
		return
	}
	if s.left.Add(-1) == 0 {
		close(s.over)
	}
}

// run is one of the goroutines, which has n timers to arm.
func (s *storm) run(r *rand.Rand, self, n int, longest time.Duration) {
	for i := range n {
		slot := &s.live[r.IntN(len(s.live))]
		s.cancel(slot.Swap(nil)) // before the next is armed: no more are pending than may be
		var delay time.Duration
		switch r.IntN(8) {
		case 0: // of any magnitude
			delay = time.Duration(math.Exp(r.Float64() * math.Log(float64(longest))))
		case 1: // due while it is cancelled
			delay = time.Duration(r.Int64N(int64(2*tick))) - tick
		default: // as a timeout
			delay = (longest + time.Duration(r.Int64N(int64(longest)))) / 2
		}
		d := s.add(delay)
		s.cancel(slot.Swap(d)) // somebody else's, who found the slot empty too
		s.last[self].Store(d)
		switch r.IntN(8) {
		case 0:
			s.cancel(d)
		case 1, 2:
			s.cancel(s.last[r.IntN(stormThreads)].Load())
		}
		if i%1024 == 0 {
			pending := s.armed.Load() - s.fired.Load() - s.cancelled.Load()
			for p := s.peak.Load(); pending > p && !s.peak.CompareAndSwap(p, pending); p = s.peak.Load() {
			}
		}
	}
}

// Millions of timers are armed and cancelled from many goroutines, in real time: each fires once and not early, or is
// cancelled by one Cancel that reports true, never both. In the end the wheel holds none.
func TestManyTimers(t *testing.T) {
	n := *manyTimers
	if testing.Short() || raceEnabled {
		n = min(n, 200_000)
	}
	n -= n % stormThreads
	// A timer stays for as long as it takes to arm as many as may be pending, a tenth of the whole, then another takes its
	// place. So most of the longer ones are cancelled.
	longest := max(100*time.Millisecond, time.Duration(n)*400*time.Nanosecond)

	r := newRand(t)
	s := &storm{w: New(Options{OnPanic: func(v any) { t.Errorf("panic: %v", v) }}), begin: time.Now()}
	defer s.w.Close()
	s.live = make([]atomic.Pointer[drop], n/10)
	s.left.Store(int64(n))
	s.over = make(chan struct{})
	var wg sync.WaitGroup
	for self := range stormThreads {
		own := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
		wg.Go(func() { s.run(own, self, n/stormThreads, longest) })
	}
	wg.Wait()
	armed := time.Since(s.begin)

	select {
	case <-s.over:
	case <-time.After(longest + time.Minute):
		buf := make([]byte, 1<<20)
		t.Errorf("%d timers are lost\n%s", s.left.Load(), buf[:runtime.Stack(buf, true)])
	}
	checkNoTimer(t, s.w)
	s.w.Close()
	goleak.VerifyNone(t)
	if e := s.early.Load(); e != 0 {
		t.Errorf("%d timers fired early", e)
	}
	if a := s.again.Load(); a != 0 {
		t.Errorf("timers that had fired or been cancelled did so again, %d times", a)
	}
	t.Logf("%d timers of up to %v: %d fired, %d were cancelled, %d calls of Cancel came too late; at most %d at once; %v, %v of it arming",
		n, longest, s.fired.Load(), s.cancelled.Load(), s.refused.Load(), s.peak.Load(), time.Since(s.begin), armed)
}
