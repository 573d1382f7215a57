package stream

import (
	"context"
	"iter"
	"slices"
	"time"
)

func (c *consumer) Batches(ctx context.Context, max int, wait time.Duration) iter.Seq2[[]Record, error] {
	return func(yield func([]Record, error) bool) {
		if max < 1 {
			max = defaultMaxRecords
		}
		buf := make([]Record, min(max, maxRecords))
		for {
			runs, shown, err := c.gather(ctx, buf, wait)
			if len(runs) > 0 && !c.yieldTogether(buf, shown, runs, yield) {
				return
			}
			if err != nil && (!yield(nil, err) || loopEnds(ctx, err)) {
				return
			}
		}
	}
}

// gather fetches as many records as there is room for, and waits for more for so long after the first. What has been fetched when something goes wrong is returned with the error.
func (c *consumer) gather(ctx context.Context, dst []Record, wait time.Duration) (runs []run, shown []Record, err error) {
	if err := c.turnToPoll(ctx); err != nil {
		return nil, nil, err
	}
	defer c.polled()
	n, err := c.poll(ctx, dst, c.loopWait())
	if n == 0 || err != nil {
		return nil, nil, err
	}
	runs = slices.Clone(c.runs)
	deadline := time.Now().Add(wait)
	for n < len(dst) && !c.c.Borrow { // what is borrowed lasts until the next fetch
		left := time.Until(deadline)
		if left <= 0 {
			break
		}
		k, err := c.await(ctx, dst[n:], left)
		if k == 0 && passing(err) {
			err = nil
		}
		if err != nil || k == 0 {
			return runs, c.shown(dst[:n]), err
		}
		n += k
		runs = append(runs, c.runs...)
	}
	return runs, c.shown(dst[:n]), nil
}

// yieldTogether yields what has been fetched and is still what the partitions give next, and reports whether the loop goes on. Positions move behind it before, so that a commit in the loop body covers it.
func (c *consumer) yieldTogether(rs, shown []Record, runs []run, yield func([]Record, error) bool) bool {
	defer c.rewind(runs)
	var out []Record
	c.mu.Lock()
	for _, r := range runs {
		of, show := rs[:r.n], shown[:r.n]
		rs, shown = rs[r.n:], shown[r.n:]
		if r.n == 0 || !c.holds(r) || r.t.idle() {
			continue
		}
		if r.t.body < 0 {
			r.t.body = of[0].Offset
		}
		last := of[r.n-1]
		r.t.position, r.t.epoch = last.Offset+1, last.LeaderEpoch
		c.mu.watched.hand = r.t
		out = append(out, show...)
	}
	c.mu.Unlock()
	if len(out) == 0 {
		return true
	}
	if !yield(out, nil) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range runs {
		r.t.body = -1
	}
	c.mu.watched.progress++
	return true
}
