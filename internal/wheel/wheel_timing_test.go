package wheel

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// P12: arming and cancelling, beside the timers of the runtime, with many others pending for ten minutes to an hour.
//
//	new       a new timer of 30 s (the timeout of a request) is armed and cancelled
//	again     one such timer is armed and cancelled again and again
//	parallel  the same on every processor, each with a timer of its own
//	spread    any of the pending timers is cancelled and armed again (the poll interval of many members); with a
//	          million, it and its neighbours in the bucket have to come from main memory
func BenchmarkTimers(b *testing.B) {
	for _, live := range []int{1_000, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("live=%d/wheel", live), func(b *testing.B) { benchmarkWheel(b, live) })
		b.Run(fmt.Sprintf("live=%d/AfterFunc", live), func(b *testing.B) { benchmarkAfterFunc(b, live) })
	}
}

const timeout = 30 * time.Second

func spread(i int) time.Duration {
	return 10*time.Minute + time.Duration(i*7919%3_000_000)*time.Millisecond
}

// shuffled is an order in which neighbours in a bucket are not neighbours in memory.
func shuffled(live int) []int { return rand.New(rand.NewPCG(1, 2)).Perm(live) }

// must ends a benchmark in which a timer that has to be pending is not.
func must(b *testing.B, pending bool) {
	if !pending {
		b.Fatal("a timer is not pending")
	}
}

func benchmarkWheel(b *testing.B, live int) {
	w := New(Options{})
	defer w.Close()
	timers := make([]*Timer, live)
	for i := range timers {
		timers[i] = NewTimer(func() {})
	}
	for _, i := range shuffled(live) {
		w.Schedule(timers[i], spread(i))
	}
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			timer := NewTimer(func() {})
			w.Schedule(timer, timeout)
			must(b, w.Cancel(timer))
		}
	})
	b.Run("again", func(b *testing.B) {
		timer := NewTimer(func() {})
		b.ReportAllocs()
		for b.Loop() {
			w.Schedule(timer, timeout)
			must(b, w.Cancel(timer))
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			timer := NewTimer(func() {})
			for pb.Next() {
				w.Schedule(timer, timeout)
				if !w.Cancel(timer) {
					b.Error("a timer is not pending")
					return
				}
			}
		})
	})
	b.Run("spread", func(b *testing.B) {
		b.ReportAllocs()
		r := rand.New(rand.NewPCG(3, 4))
		for b.Loop() {
			i := r.IntN(live)
			must(b, w.Cancel(timers[i]))
			w.Schedule(timers[i], spread(i))
		}
	})
	for _, timer := range timers {
		must(b, w.Cancel(timer))
	}
}

func benchmarkAfterFunc(b *testing.B, live int) {
	timers := make([]*time.Timer, live)
	for i := range timers {
		timers[i] = time.AfterFunc(time.Hour, func() {})
	}
	for _, i := range shuffled(live) {
		timers[i].Reset(spread(i))
	}
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			must(b, time.AfterFunc(timeout, func() {}).Stop())
		}
	})
	b.Run("again", func(b *testing.B) {
		timer := time.AfterFunc(time.Hour, func() {})
		b.ReportAllocs()
		for b.Loop() {
			timer.Reset(timeout)
			must(b, timer.Stop())
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			timer := time.AfterFunc(time.Hour, func() {})
			for pb.Next() {
				timer.Reset(timeout)
				if !timer.Stop() {
					b.Error("a timer is not pending")
					return
				}
			}
		})
	})
	b.Run("spread", func(b *testing.B) {
		b.ReportAllocs()
		r := rand.New(rand.NewPCG(3, 4))
		for b.Loop() {
			i := r.IntN(live)
			must(b, timers[i].Stop())
			timers[i].Reset(spread(i))
		}
	})
	for _, timer := range timers {
		must(b, timer.Stop())
	}
}

// Firing: n timers due at one tick, until the last function has run.
func BenchmarkFire(b *testing.B) {
	const n = 1000
	w := New(Options{})
	defer w.Close()
	done := make(chan struct{}, n)
	timers := make([]*Timer, n)
	for i := range timers {
		timers[i] = NewTimer(func() { done <- struct{}{} })
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, t := range timers {
			w.Schedule(t, 0)
		}
		for range timers {
			<-done
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/timer")
}
