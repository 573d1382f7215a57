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
			runs, err := c.gather(ctx, buf, wait)
			if err != nil {
				if !yield(nil, err) || loopEnds(ctx, err) {
					return
				}
				continue
			}
			if len(runs) > 0 && !c.yieldTogether(buf, runs, yield) {
				return
			}
		}
	}
}

// gather fetches as many records as there is room for, and waits for more for so long after the first. What has been fetched when something goes wrong is returned, and the error met again.
func (c *consumer) gather(ctx context.Context, dst []Record, wait time.Duration) (runs []run, err error) {
	if err := c.turnToPoll(ctx); err != nil {
		return nil, err
	}
	defer c.polled()
	n, err := c.poll(ctx, dst)
	if err != nil {
		return nil, err
	}
	runs = slices.Clone(c.runs)
	deadline := time.Now().Add(wait)
	for n > 0 && n < len(dst) && !c.c.Borrow { // what is borrowed lasts until the next fetch
		left := time.Until(deadline)
		if left <= 0 {
			break
		}
		k, err := c.await(ctx, dst[n:], left)
		if err != nil || k == 0 {
			break
		}
		n += k
		runs = append(runs, c.runs...)
	}
	if n == 0 {
		return nil, nil
	}
	c.consumed(dst[:n])
	return runs, nil
}

// yieldTogether yields what has been fetched and is still what the partitions give next, and reports whether the loop goes on. Positions move behind it before, so that a commit in the loop body covers it.
func (c *consumer) yieldTogether(rs []Record, runs []run, yield func([]Record, error) bool) bool {
	defer c.rewind(runs)
	var out []Record
	c.mu.Lock()
	for _, r := range runs {
		of := rs[:r.n]
		rs = rs[r.n:]
		if r.n == 0 || !c.holds(r) || r.t.idle() {
			continue
		}
		if r.t.body < 0 {
			r.t.body = of[0].Offset
		}
		last := of[r.n-1]
		r.t.position, r.t.epoch = last.Offset+1, last.LeaderEpoch
		c.mu.watched.hand = r.t
		out = append(out, of...)
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
