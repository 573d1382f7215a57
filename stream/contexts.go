package stream

import (
	"context"

	"github.com/runnelmq/runnel/internal/kafka"
)

// contexts are those of a batch's records. Most batches have one for all of their records, or none that can end.
type contexts struct {
	all     context.Context   // of all records, if there is one that can end
	done    <-chan struct{}   // of all; nil: none
	each    []context.Context // of the records, if they have different ones
	watched int               // each is watched up to here
	seen    bool              // all is watched
	stops   []func() bool     // end the watching of each
}

// fits reports whether a record with this context can join, without making the contexts different.
func (c *contexts) fits(ctx context.Context) bool {
	done := ctx.Done()
	return done == c.done && len(c.each) == 0 && (done == nil || ctx.Err() == nil)
}

// add enters the context of a record behind n others.
func (c *contexts) add(ctx context.Context, n int) {
	done := ctx.Done()
	switch {
	case n == 0 && done != nil:
		c.all, c.done = ctx, done
	case n > 0 && done != c.done && len(c.each) == 0:
		for range n {
			c.each = append(c.each, c.all)
		}
		c.each = append(c.each, ctx)
	case len(c.each) > 0:
		c.each = append(c.each, ctx)
	}
}

// watch calls changed when a context ends of those that are each of one record, from now on.
func (c *contexts) watch(changed func()) {
	var last <-chan struct{}
	for _, ctx := range c.each[c.watched:] {
		if ctx != nil && ctx.Done() != last { // neighbours often have the same
			if last = ctx.Done(); last != nil {
				c.stops = append(c.stops, context.AfterFunc(ctx, changed))
			}
		}
	}
	c.watched = len(c.each)
}

func (c *contexts) unwatch() {
	for _, stop := range c.stops {
		stop()
	}
	clear(c.stops)
	c.stops, c.watched = c.stops[:0], 0
}

// reset forgets the contexts, and keeps the memory.
func (c *contexts) reset() {
	clear(c.each)
	*c = contexts{each: c.each[:0], stops: c.stops[:0]}
}

// dropCancelled answers the records whose contexts have ended.
func (b *producerBatch) dropCancelled(p *producer) {
	c := &b.contexts
	if len(c.each) == 0 {
		if c.done == nil || c.all.Err() == nil {
			return
		}
		b.expand()
		for i := range b.entries {
			b.miss(p, i, kafka.ContextError(c.all))
		}
		return
	}
	for i, ctx := range c.each {
		if ctx != nil && ctx.Err() != nil {
			c.each[i] = nil
			b.miss(p, i, kafka.ContextError(ctx))
		}
	}
}

// watched is a context that ends for batches of a lane that wait.
type watched struct {
	done <-chan struct{}
	stop func() bool
}

// maxWatched bounds the contexts that a lane watches for all of its batches.
const maxWatched = 8

// watch answers records of the batch when their contexts end, from now on. The lane is locked.
func (p *producer) watch(ln *lane, b *producerBatch) {
	c, a := &b.contexts, ln.mu.acc
	changed := func() { p.cancelled(ln) }
	if c.watched < len(c.each) {
		c.watch(changed)
	}
	if c.done == nil || c.seen || len(c.each) > 0 {
		return
	}
	c.seen = true
	for _, w := range a.watches {
		if w.done == c.done {
			return
		}
	}
	stop := context.AfterFunc(c.all, changed)
	if len(a.watches) < maxWatched {
		a.watches = append(a.watches, watched{c.done, stop})
	} else {
		c.stops = append(c.stops, stop)
	}
}

// unwatch ends what watch has begun for all batches of a lane, of which none waits any more.
func (a *accumulator) unwatch() {
	for _, w := range a.watches {
		w.stop()
	}
	clear(a.watches)
	a.watches = a.watches[:0]
}

// cancelled answers the records whose contexts have ended, and that have not been handed over.
func (p *producer) cancelled(ln *lane) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.mu.acc.each(func(b *producerBatch) { b.dropCancelled(p) })
	p.dropMissed(ln)
}
