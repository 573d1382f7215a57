package rlog

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var cleanLogs = flag.Int("cleanlogs", 2000, "random logs that TestCompactAsAModel compacts; CI: 10000")

// A12, C1, C3, A13: random logs are compacted, opened again and read as a map of their keys says. Nothing goes but what has a successor, has no key, or is a
// tombstone whose time is over; all else is at its offset as it was written, and a producer's last batches are known again.
func TestCompactAsAModel(t *testing.T) {
	n := *cleanLogs
	if testing.Short() {
		n /= 20
	}
	s, r := seed(t)
	for i := range n {
		c := newCleanRun(t, rand.New(rand.NewPCG(r.Uint64(), 1)))
		if err := c.run(); err != nil {
			t.Fatalf("log %d from seed %d: %s: %v", i, s, c.step, err)
		}
	}
}

// A12: a key map that is too small for a log takes several passes, which lead to what one would.
func TestCompactWithASmallMap(t *testing.T) {
	n := max(*cleanLogs/500, 4)
	if testing.Short() {
		n = 2
	}
	s, r := seed(t)
	for i := range n {
		c := newCleanRun(t, rand.New(rand.NewPCG(r.Uint64(), 2)))
		c.keys, c.segment = 2000+c.r.IntN(4000), 32<<10
		if err := c.narrow(); err != nil {
			t.Fatalf("log %d from seed %d: %s: %v", i, s, c.step, err)
		}
	}
}

// narrow fills the map again and again.
func (c *cleanRun) narrow() error {
	defer c.close()
	c.mapSize = 0
	c.l = c.e.open()
	for range 2 {
		c.step = "append"
		for range 200 + c.r.IntN(200) {
			if err := c.append(20); err != nil {
				return err
			}
		}
		passes := 0
		for {
			from := c.l.cleaned.Load()
			if err := c.compact(); err != nil {
				return err
			}
			if c.l.cleaned.Load() == from {
				break
			}
			passes++
			if c.r.IntN(4) == 0 {
				if err := c.reopen(); err != nil {
					return err
				}
			}
		}
		if passes < 2 {
			return fmt.Errorf("%d passes", passes)
		}
	}
	last := map[string]int{}
	for o, rec := range c.recs[:c.l.cleaned.Load()] {
		if old, ok := last[string(rec.key)]; ok && !rec.gone {
			return fmt.Errorf("A12: a key is at offsets %d and %d", old, o)
		}
		if !rec.gone {
			last[string(rec.key)] = o
		}
	}
	return c.finish()
}

// A10, A12: segments that are trimmed away at any moment of a pass end neither the pass nor the log, and are no damage.
func TestCompactBesideTrim(t *testing.T) {
	n := 60
	s, r := seed(t)
	for i := range n {
		c := newCleanRun(t, rand.New(rand.NewPCG(r.Uint64(), 3)))
		c.segment, c.keys = 1<<10, 5
		if err := c.beside(i + 1); err != nil {
			t.Fatalf("moment %d from seed %d: %s: %v", i+1, s, c.step, err)
		}
	}
}

// beside trims the log at the given moment of a pass.
func (c *cleanRun) beside(moment int) error {
	defer c.close()
	c.l = c.e.open()
	for range 30 {
		if err := c.append(1 + c.r.IntN(10)); err != nil {
			return err
		}
	}
	if c.r.IntN(2) == 0 {
		if err := c.reopen(); err != nil { // then nothing is open
			return err
		}
	}
	c.step = "compact and trim"
	at := c.r.Int64N(int64(len(c.recs)))
	paced := 0
	trim := func(int) error {
		if paced++; paced != moment {
			return nil
		}
		return c.l.TrimTo(context.Background(), at)
	}
	done, err := c.l.Compact(context.Background(), Compaction{Now: c.now, DeleteRetention: time.Hour, MapBytes: 1 << 20, Pace: trim})
	if err != nil || len(done.Damaged) > 0 {
		return fmt.Errorf("%+v, %v", done, err)
	}
	c.l.Abandon()
	if c.l, err = Open(c.e.options()); err != nil {
		return err
	}
	c.e.whole(c.l)
	start := c.l.StartOffset()
	last := map[string]int64{}
	for o, rec := range c.recs {
		if rec.key != nil {
			last[string(rec.key)] = int64(o)
		}
	}
	have := map[string]int64{}
	recs, err := c.scan(start)
	for o := range recs {
		if k := string(c.recs[o].key); c.recs[o].key != nil {
			have[k] = max(have[k], o)
		}
	}
	for k, o := range last {
		if o >= start && have[k] != o {
			return fmt.Errorf("A12: the last record of %q is at %d, want %d", k, have[k], o)
		}
	}
	return err
}
