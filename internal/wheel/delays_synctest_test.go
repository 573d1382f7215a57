package wheel

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var delayStep = flag.Int64("delaystep", 32, "one in so many of the delays of the highest level of TestFiresAtEveryDelay (3) "+
	"and of TestFiresAtEveryDelayAlone (2) is tried; 1: all of them")

// A shot is a timer, and what became of it.
type shot struct {
	timer   *Timer
	delay   time.Duration
	want    time.Duration // all times are since the wheel's tick 0
	at      atomic.Int64
	firings atomic.Int64
}

// shoot arms a new timer now, at the time that is given.
func shoot(w *Wheel, begin time.Time, now, delay time.Duration) *shot {
	s := &shot{delay: delay, want: now}
	if delay > 0 {
		s.want = (now + delay + tick - 1).Truncate(tick)
	}
	s.timer = NewTimer(func() {
		s.at.Store(int64(time.Since(begin)))
		s.firings.Add(1)
	})
	w.Schedule(s.timer, delay)
	return s
}

// checkShots waits until long after the last timer and checks that each has fired once, at its tick.
func checkShots(t *testing.T, begin time.Time, shots []*shot) {
	t.Helper()
	last := slices.MaxFunc(shots, func(a, b *shot) int { return cmp.Compare(a.want, b.want) }).want
	time.Sleep(time.Until(begin.Add(2*last + time.Hour)))
	synctest.Wait()
	for _, s := range shots {
		if n, at := s.firings.Load(), time.Duration(s.at.Load()); n != 1 || at != s.want {
			t.Fatalf("a timer of %v for %v fired %d times, the last time at %v", s.delay, s.want, n, at)
		}
	}
}

// span is how many ticks the ring of a level reaches.
func span(level int) int64 {
	n := int64(slots)
	for range level {
		n *= slots
	}
	return n
}

// phases are times since tick 0: tick 0, ticks just before, at and after the beginning of a bucket of the level and of the
// one above, and any time, also within a tick.
func phases(r *rand.Rand, level int) []time.Duration {
	width := span(level) / slots
	p := []time.Duration{0}
	for _, begin := range []int64{width, 3 * width, width * slots} {
		for n := max(begin-1, 1); n <= begin+1; n++ {
			p = append(p, time.Duration(n)*tick)
		}
	}
	p = append(p, time.Duration(r.Int64N(2*span(level)))*tick, time.Duration(r.Int64N(int64(tick)*2*span(level))))
	slices.Sort(p)
	return slices.Compact(p)
}

// delays are those from nothing to twice what the level reaches, in random order: all, or of each step of them any one. With
// the race detector the steps of levels 2 and 3 are longer.
func delays(r *rand.Rand, level int, step int64) []time.Duration {
	if raceEnabled && level > 1 {
		step *= 16
	}
	var all []time.Duration
	for n := int64(0); n <= 2*span(level); n += step {
		all = append(all, time.Duration(n+r.Int64N(step))*tick)
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// fireTogether arms delays at each phase of one wheel, while the timers of the earlier phases fire.
func fireTogether(t *testing.T, phases []time.Duration, delays func() []time.Duration) {
	t.Helper()
	bubble(t, func(t *testing.T, w *Wheel) {
		begin := time.Now()
		var shots []*shot
		for _, now := range phases {
			time.Sleep(time.Until(begin.Add(now)))
			for _, d := range delays() {
				shots = append(shots, shoot(w, begin, now, d))
			}
		}
		checkShots(t, begin, shots)
		checkNoTimer(t, w)
	})
}

// fireAlone arms delays at one phase, each in a wheel of its own, where nothing else makes the clock wake: a wheel that is
// new, or one that has all levels since tick 0 and has been idle.
func fireAlone(t *testing.T, now time.Duration, delays []time.Duration, idle bool) {
	t.Helper()
	for some := range slices.Chunk(delays, 1000) { // for the memory of the wheels
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			var wheels []*Wheel
			for range some {
				w := New(Options{})
				defer w.Close()
				wheels = append(wheels, w)
				if idle {
					far := NewTimer(func() { t.Error("a cancelled timer fired") })
					w.Schedule(far, math.MaxInt64)
					w.Cancel(far)
				}
			}
			time.Sleep(now)
			var shots []*shot
			for i, d := range some {
				shots = append(shots, shoot(wheels[i], begin, now, d))
			}
			checkShots(t, begin, shots)
			for _, w := range wheels {
				checkNoTimer(t, w)
			}
		})
	}
}

// Every delay from nothing to twice what a level reaches fires once, at its tick.
func TestFiresAtEveryDelay(t *testing.T) {
	r := newRand(t)
	for level, step := range []int64{1, 1, 1, *delayStep} {
		t.Run(fmt.Sprintf("level=%d", level), func(t *testing.T) {
			fireTogether(t, phases(r, level), func() []time.Duration { return delays(r, level, step) })
		})
	}
}

// The same without any other timer.
func TestFiresAtEveryDelayAlone(t *testing.T) {
	r := newRand(t)
	for level, step := range []int64{1, 1, *delayStep} {
		for _, idle := range []bool{false, true} {
			t.Run(fmt.Sprintf("level=%d/idle=%v", level, idle), func(t *testing.T) {
				for _, now := range phases(r, level) {
					fireAlone(t, now, delays(r, level, step), idle)
				}
			})
		}
	}
}

// The borders of all levels up to the one that reaches 15 days, counted from the wheel's tick 0 and from the moment of
// arming, in a crowd and alone.
func TestFiresAtEveryBorder(t *testing.T) {
	r := newRand(t)
	for level := range 7 {
		t.Run(fmt.Sprintf("phases of level=%d", level), func(t *testing.T) {
			all := phases(r, level)
			fireTogether(t, all, func() []time.Duration { return borders(all) })
			for _, now := range all {
				fireAlone(t, now, borders([]time.Duration{now}), false)
				fireAlone(t, now, borders([]time.Duration{now}), true)
			}
		})
	}
}

// borders are the delays that end at a border of a level, one tick earlier or later, when counted from tick 0, or from the
// moment of arming, which is one of these.
func borders(armed []time.Duration) []time.Duration {
	var all []time.Duration
	for level := range 7 {
		for _, border := range []int64{span(level), 2 * span(level), span(level) + span(max(level-2, 0))} {
			for n := border - 1; n <= border+1; n++ {
				d := time.Duration(n) * tick
				all = append(all, d)
				for _, now := range armed {
					all = append(all, max(d-now, 0))
				}
			}
		}
	}
	return all
}
