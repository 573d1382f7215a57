package wheel

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// P12: arming and cancelling, beside the timers of the runtime, with many others pending for a minute to an hour.
//
//	again   one timer of 30 s (the timeout of a request) is armed and cancelled again and again
//	spread  any of the pending timers is cancelled and armed again (the poll interval of many members); with a
//	        million, it and its neighbours in the bucket have to come from main memory
func BenchmarkTimers(b *testing.B) {
	for _, live := range []int{1_000, 10_000, 100_000, 1_000_000} {
		spread := func(i int) time.Duration { return time.Minute + time.Duration(i*7919%3_540_000)*time.Millisecond }
		order := rand.New(rand.NewPCG(1, 2)).Perm(live) // neighbours in a bucket are not neighbours in memory

		b.Run(fmt.Sprintf("live=%d/wheel", live), func(b *testing.B) {
			w := New(Options{})
			defer w.Close()
			timers := make([]*Timer, live)
			for i := range timers {
				timers[i] = NewTimer(func() {})
			}
			for _, i := range order {
				w.Schedule(timers[i], spread(i))
			}
			b.Run("again", func(b *testing.B) {
				timer := NewTimer(func() {})
				b.ReportAllocs()
				for b.Loop() {
					w.Schedule(timer, 30*time.Second)
					w.Cancel(timer)
				}
			})
			b.Run("spread", func(b *testing.B) {
				b.ReportAllocs()
				r := rand.New(rand.NewPCG(3, 4))
				for b.Loop() {
					i := r.IntN(live)
					timer := timers[i]
					w.Cancel(timer)
					w.Schedule(timer, spread(i))
				}
			})
			b.Run("parallel", func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					timer := NewTimer(func() {})
					for pb.Next() {
						w.Schedule(timer, 30*time.Second)
						w.Cancel(timer)
					}
				})
			})
		})

		b.Run(fmt.Sprintf("live=%d/AfterFunc", live), func(b *testing.B) {
			timers := make([]*time.Timer, live)
			for i := range timers {
				timers[i] = time.AfterFunc(time.Hour, func() {})
			}
			for _, i := range order {
				timers[i].Reset(spread(i))
			}
			defer func() {
				for _, t := range timers {
					t.Stop()
				}
			}()
			b.Run("again", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					time.AfterFunc(30*time.Second, func() {}).Stop()
				}
			})
			b.Run("spread", func(b *testing.B) {
				b.ReportAllocs()
				r := rand.New(rand.NewPCG(3, 4))
				for b.Loop() {
					i := r.IntN(live)
					timer := timers[i]
					timer.Stop()
					timer.Reset(spread(i))
				}
			})
			b.Run("parallel", func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						time.AfterFunc(30*time.Second, func() {}).Stop()
					}
				})
			})
		})
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
