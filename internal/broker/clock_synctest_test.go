package broker

import (
	"testing"
	"testing/synctest"
	"time"
)

// The clock is the wall clock, to the millisecond, however seldom or often it is asked.
func TestClockFollowsTheWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		for _, d := range []time.Duration{0, 300 * time.Microsecond, 600 * time.Microsecond, time.Microsecond, 5 * time.Millisecond, time.Hour, 999 * time.Microsecond, time.Nanosecond} {
			time.Sleep(d)
			for range 3 {
				if got, want := c.millis(), time.Now().UnixMilli(); got != want {
					t.Fatalf("after %v: %d, want %d", d, got, want)
				}
			}
		}
	})
	at := time.UnixMilli(5)
	stepped := clock{wall: func() time.Time { return at }}
	for _, ms := range []int64{5, 4, 1 << 40} {
		if at = time.UnixMilli(ms); stepped.millis() != ms {
			t.Fatalf("%d, want %d", stepped.millis(), ms)
		}
	}
}
