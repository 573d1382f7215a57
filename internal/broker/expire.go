package broker

import (
	"errors"
	"time"

	rlog "github.com/runnelmq/runnel/log"

	"github.com/runnelmq/runnel/internal/kafka"
)

// lookAgainAfter bounds the time between two looks at a partition: records may be old when they are appended.
const lookAgainAfter = 5 * time.Minute

// loadClock goes on with what an earlier life of the engine has known of the wall clock.
func (c *cleaner) loadClock(now int64) {
	if err := c.b.enter(); err != nil {
		return
	}
	defer c.b.leave()
	last, err := c.b.meta.Clock()
	if err != nil {
		c.b.o.Logger.Warn("retention clock", "error", err)
		return
	}
	c.clock.resume(last, now)
}

// expire removes old segments, and reports whether any topic has segments that grow old.
func (c *cleaner) expire() bool {
	looked := false
	var doubt time.Duration
	return c.each(func(cfg *topicConfig) bool { return cfg.Expires() || cfg.Compact }, func(p *Partition) {
		now := c.b.clock.millis() // others may have taken their time
		if !looked {
			looked, doubt = true, c.inDoubt(now)
		}
		c.expirePartition(p, now, doubt)
	})
}

// inDoubt finds out by how much the clock is in doubt, and reports a jump once.
func (c *cleaner) inDoubt(now int64) time.Duration {
	if c.clock.at.IsZero() {
		if c.loadClock(now); c.clock.at.IsZero() {
			return forever
		}
	}
	doubt := c.clock.doubt(now)
	if doubt > 0 && !c.jumped {
		c.b.o.Logger.Warn("wall clock is ahead of the time that has passed: what only it calls too old goes slowly", "ahead", doubt)
		if c.b.o.Events.ClockJumped != nil {
			c.b.o.Events.ClockJumped(doubt)
		}
	}
	c.jumped = doubt > 0
	if c.b.enter() == nil {
		if err := c.b.meta.SetClock(c.clock.Clock); err != nil {
			c.b.o.Logger.Warn("retention clock", "error", err)
		}
		c.b.leave()
	}
	return doubt
}

func (c *cleaner) expirePartition(p *Partition, now int64, doubt time.Duration) {
	if wait := p.clean.due - now; !p.clean.pending.Swap(false) && wait > 0 && wait <= lookAgainAfter.Milliseconds() { // longer, if the clock has been put back
		return
	}
	f, err := p.Life()
	if err != nil || f.l.Err() != nil {
		p.clean.pending.Store(true) // when it is open again
		return
	}
	cfg := p.t.config.Load() // now: who changes it says so afterwards
	r := rlog.Retention{Now: now, Age: -1, Bytes: -1, Doubt: doubt}
	if cfg.Delete {
		r.Age, r.Bytes = cfg.Retention, cfg.RetentionBytes
	}
	if doubt == 0 {
		p.clean.slow = time.Time{}
	}
	if doubt > 0 && p.clean.slow.IsZero() { // otherwise to open the engine again and again would be a way around it
		p.clean.slow = time.Now()
	}
	if doubt > 0 && time.Since(p.clean.slow) >= slowly {
		r.Most = (f.l.Segments() + 9) / 10
		p.clean.slow = time.Now()
	}
	gone, err := c.retain(f, r)
	p.clean.due = min(gone.Next, now+lookAgainAfter.Milliseconds())
	if gone.Held > 0 {
		c.b.o.Logger.Warn("segments that only a clock in doubt calls too old are kept for now", "partition", p.tp, "segments", gone.Held, "ahead", doubt)
	}
	if err != nil {
		p.clean.pending.Store(true)
		if !errors.Is(err, kafka.ErrClosed) {
			c.b.o.Logger.Warn("retention", "partition", p.tp, "error", err)
		}
	}
	if gone.Segments > 0 {
		c.b.o.Logger.Info("old segments removed", "partition", p.tp, "segments", gone.Segments, "bytes", gone.Bytes, "start", gone.LogStart)
		if c.b.o.Events.Expired != nil {
			c.b.o.Events.Expired(p.tp, gone.Segments, gone.Bytes, gone.LogStart)
		}
	}
}

// retain runs with the engine kept open, since what it removes is recorded in meta.
func (c *cleaner) retain(f *Life, r rlog.Retention) (rlog.Removed, error) {
	if err := c.b.enter(); err != nil {
		return rlog.Removed{}, err
	}
	defer c.b.leave()
	return f.l.Retain(r)
}
