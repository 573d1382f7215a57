package wheel

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Of a firing and a Cancel that reports true there is exactly one, however close they come.
func TestEitherFiresOrIsCancelled(t *testing.T) {
	w := New(Options{})
	n := 5_000
	if testing.Short() {
		n = 1_000
	}
	var wg sync.WaitGroup
	var cancelled, fired atomic.Int64
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range n {
				var firings atomic.Int32
				done := make(chan struct{}, 2)
				timer := NewTimer(func() {
					firings.Add(1)
					done <- struct{}{}
				})
				w.Schedule(timer, time.Duration(r.IntN(3)-1)*time.Millisecond/2)
				var stopped atomic.Int32
				var both sync.WaitGroup
				for range 2 {
					yields := r.IntN(20)
					both.Go(func() {
						for range yields {
							runtime.Gosched()
						}
						if w.Cancel(timer) {
							stopped.Add(1)
						}
					})
				}
				both.Wait()
				switch stopped.Load() {
				case 0:
					<-done
					fired.Add(1)
				case 1:
					cancelled.Add(1)
				default:
					t.Error("cancelled twice")
				}
				if f, s := firings.Load(), stopped.Load(); f+s != 1 {
					t.Errorf("fired %d times and was cancelled %d times", f, s)
				}
			}
		})
	}
	wg.Wait()
	w.Close()
	t.Logf("%d fired, %d cancelled", fired.Load(), cancelled.Load())
}

// F1: Close at any moment, in the middle of everything else.
func TestCloseRacesWithAllCalls(t *testing.T) {
	for round := range 100 {
		w := New(Options{})
		var closed atomic.Bool
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(round), uint64(g)))
				var timers [8]Timer
				for i := range timers {
					timers[i].Init(func() {
						if closed.Load() {
							t.Error("fired after Close")
						}
						w.Schedule(&timers[i], 0)
						if i%2 == 0 {
							w.Cancel(&timers[(i+1)%len(timers)])
						}
					})
				}
				for range 50 {
					w.Schedule(&timers[r.IntN(len(timers))], time.Duration(r.IntN(3))*time.Millisecond)
					w.Cancel(&timers[r.IntN(len(timers))])
					runtime.Gosched()
				}
				w.Close()
				closed.Store(true)
			})
		}
		wg.Wait()
	}
}

func TestScheduleAndCancelDoNotAllocate(t *testing.T) {
	w := New(Options{})
	defer w.Close()
	timer := NewTimer(func() {})
	for _, d := range []time.Duration{time.Millisecond, 30 * time.Millisecond, time.Minute, 24 * time.Hour} {
		w.Schedule(timer, d) // makes the level
		if n := testing.AllocsPerRun(1000, func() {
			w.Schedule(timer, d)
			w.Cancel(timer)
		}); n != 0 {
			t.Errorf("%v: %v allocations", d, n)
		}
	}
}
