package broker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/wheel"
)

// CleanOptions says how old records are removed.
type CleanOptions struct {
	Interval time.Duration // between two looks (log.retention.check.interval.ms, log.cleaner.backoff.ms)
	Rate     int64         // bytes that compaction reads and writes a second; 0: no limit (log.cleaner.io.max.bytes.per.second)
	Memory   int64         // bytes for the keys of a compaction (log.cleaner.dedupe.buffer.size)
}

// slowly is the time between two removals of segments that only a clock in doubt calls too old.
const slowly = 5 * time.Minute

// cleaner removes and compacts old records in the background: one goroutine, which looks when a segment has been sealed, when settings change, and every Interval while a topic has
// a policy. Retention goes on in between while it compacts.
type cleaner struct {
	b     *Broker
	timer wheel.Timer
	kick  chan struct{} // has room for one
	ctx   context.Context
	end   context.CancelFunc
	done  chan struct{}
	once  sync.Once

	// Only the goroutine looks at these.
	offsets time.Time // when it last looked for offsets that are too old
	clock   clockWatch
	jumped  bool // the jump has been reported
	pacer   pacer
}

// cleaning is what the cleaner knows of a partition.
type cleaning struct {
	pending atomic.Bool // something has changed since retention looked
	rolled  atomic.Bool // and since compaction looked
	trimmed atomic.Bool // its log start is not 0: segments before it are to go, whatever the policy
	due     int64       // in ms: nothing to do before if nothing changes
	slow    time.Time   // when segments were last removed that only a clock in doubt calls too old, or it was first in doubt
}

// changed makes the cleaner look at the partition when it is woken.
func (c *cleaning) changed() {
	c.pending.Store(true)
	c.rolled.Store(true)
}

func (c *cleaner) start(b *Broker) {
	c.b = b
	c.kick, c.done = make(chan struct{}, 1), make(chan struct{})
	c.ctx, c.end = context.WithCancel(context.Background())
	c.pacer = pacer{rate: b.o.Clean.Rate}
	c.timer.Init(c.now)
	go c.run()
}

// stop ends the goroutine, in the middle of a compaction if need be.
func (c *cleaner) stop() {
	if c.end == nil {
		return
	}
	c.once.Do(func() {
		c.end()
		<-c.done
	})
}

// now wakes the goroutine, if there is anything that it may do.
func (c *cleaner) now() {
	if c.b.o.ReadOnly {
		return
	}
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// rolled hears that a segment of p has been sealed. It is called with the log locked.
func (c *cleaner) rolled(p *Partition) {
	if cfg := p.t.config.Load(); cfg.Expires() || cfg.Compact || p.clean.trimmed.Load() {
		p.clean.changed()
		c.now()
	}
}

func (c *cleaner) run() {
	defer close(c.done)
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.kick:
		}
		if c.look() {
			c.b.wheel.Schedule(&c.timer, c.b.o.Clean.Interval)
		}
	}
}

// look makes one round and reports whether there will be something to look at later.
func (c *cleaner) look() bool {
	offsets := c.expireOffsets()
	expires := c.expire()
	compacts := c.ctx.Err() == nil && c.compact()
	return offsets || expires || compacts
}

// each calls fn with the partitions of topics that have a policy, until the cleaner is stopped. It reports whether there is something
// to do later.
func (c *cleaner) each(policy func(cfg *topicConfig) bool, fn func(p *Partition)) (any bool) {
	for _, t := range c.b.list() {
		has := policy(t.config.Load())
		any = any || has
		for _, p := range t.Partitions() {
			if c.ctx.Err() != nil {
				return true
			}
			if has || p.clean.trimmed.Load() {
				fn(p)
				any = any || p.clean.pending.Load() // it could not be done
			}
		}
	}
	return any
}

// pacer spreads work over time.
type pacer struct {
	rate  int64     // bytes a second; 0: no limit
	ready time.Time // when what was allowed so far has been paid for
}

// pacing is how far the pacer lets work run ahead: timers are not finer than that.
const pacing = 20 * time.Millisecond

// pace accounts for n bytes and waits if they come too soon.
func (p *pacer) pace(ctx context.Context, n int) error {
	if p.rate <= 0 {
		return nil
	}
	cost := time.Duration(float64(n) / float64(p.rate) * float64(time.Second))
	now := time.Now()
	if p.ready.Before(now) {
		p.ready = now
	}
	p.ready = p.ready.Add(cost)
	ahead := p.ready.Sub(now)
	if ahead < pacing {
		return nil
	}
	t := time.NewTimer(ahead)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return kafka.ErrClosed
	}
}
