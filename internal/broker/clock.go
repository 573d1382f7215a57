package broker

import (
	"sync/atomic"
	"time"
)

// clock gives the wall clock in milliseconds, for timestamps. It reads the monotonic clock, which is half the cost, and
// the wall clock anew when that has gone on by a millisecond: what it gives is behind a step of the wall clock by no more.
type clock struct {
	wall func() time.Time // nil: time.Now
	last atomic.Pointer[reading]
}

type reading struct {
	at    time.Time // with its monotonic part
	nanos int64     // since 1970
}

func (c *clock) millis() int64 {
	if c.wall != nil {
		return c.wall().UnixMilli()
	}
	if r := c.last.Load(); r != nil {
		if d := time.Since(r.at); d < time.Millisecond {
			return (r.nanos + int64(d)) / int64(time.Millisecond)
		}
	}
	now := time.Now()
	c.last.Store(&reading{now, now.UnixNano()})
	return now.UnixMilli()
}
