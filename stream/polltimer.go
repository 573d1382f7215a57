package stream

import (
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
)

// pollWatch watches that a member of a group polls. A poll costs it one look at the clock; the timer finds out by itself how much time is left.
type pollWatch struct {
	on       bool
	last     time.Time // when the consumer was last heard of
	progress int       // records that Records has yielded, which is as good as a poll
	seen     int
	hand     *track // whose record was handed over last
}

// progressLooks is how often the timer looks for progress of Records within the interval. It finds out that there is none so much too late.
const progressLooks = 8

// startPollTimer begins to watch; c.mu is held.
func (c *consumer) startPollTimer() {
	if p := &c.mu.watched; !p.on {
		p.on, p.last = true, time.Now()
		c.e.b.Wheel().Schedule(&c.pollTimer, c.c.MaxPollInterval)
	}
}

// stopPollTimer ends the watch; c.mu is held.
func (c *consumer) stopPollTimer() {
	c.mu.watched.on = false
	c.e.b.Wheel().Cancel(&c.pollTimer)
}

// heard notes that the consumer has polled; c.mu is held.
func (c *consumer) heard() {
	if c.mu.watched.on {
		c.mu.watched.last = time.Now()
	}
}

// pollTimeout is what the timer does: a member that has not polled for too long is out of the group.
func (c *consumer) pollTimeout() {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.mu.watched
	if !p.on {
		return
	}
	limit := c.c.MaxPollInterval
	switch {
	case len(c.polling) > 0: // it is at it
		p.last = time.Now()
	case p.progress != p.seen:
		p.seen, p.last = p.progress, time.Now()
		c.e.b.Wheel().Schedule(&c.pollTimer, limit/progressLooks)
		return
	}
	elapsed := time.Since(p.last)
	if left := limit - elapsed; left > 0 {
		if p.progress > 0 {
			left = min(left, limit/progressLooks)
		}
		c.e.b.Wheel().Schedule(&c.pollTimer, left)
		return
	}
	e := &PollTimeoutError{Member: c.mu.member.id, Offset: kafka.NoOffset, Elapsed: elapsed, Limit: limit}
	if t := p.hand; t != nil {
		e.TopicPartition, e.Offset = t.tp, t.position-1
	}
	c.e.o.Logger.Warn("member is out of its group: it does not poll", "group", c.c.Group, "error", e)
	lost := c.assigned()
	c.leaveGroup()
	c.mu.member.lost = append(c.mu.member.lost, lost...)
	c.mu.member.evicted = e
	// What was borrowed stays until the next poll.
	if c.c.Borrow {
		for _, t := range c.mu.tracks {
			t.lend()
		}
		c.mu.lenders = append(c.mu.lenders, c.mu.tracks...)
		c.mu.tracks, c.mu.byTP = nil, nil
	}
	c.assign(nil)
}
