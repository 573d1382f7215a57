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

// looks is how often the timer looks within the interval for progress of Records, of which it does not know when it was. It finds out that there is none so much too late.
const looks = 8

// startPollTimer begins to watch; c.mu is held.
func (c *consumer) startPollTimer() {
	if p := &c.mu.watched; !p.on {
		p.on, p.last, p.seen = true, time.Now(), p.progress
		c.e.b.Wheel().Schedule(&c.pollTimer, c.c.MaxPollInterval/looks)
	}
}

// stopPollTimer ends the watch; c.mu is held.
func (c *consumer) stopPollTimer() {
	c.mu.watched.on = false
	c.e.b.Wheel().Cancel(&c.pollTimer)
}

// heard notes that the consumer has polled; c.mu is held.
func (c *consumer) heard() {
	if p := &c.mu.watched; p.on {
		p.last, p.seen = time.Now(), p.progress
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
	if len(c.polling) > 0 || p.progress != p.seen { // it is at it
		p.last, p.seen = time.Now(), p.progress
	}
	limit := c.c.MaxPollInterval
	elapsed := time.Since(p.last)
	if left := limit - elapsed; left > 0 {
		c.e.b.Wheel().Schedule(&c.pollTimer, min(left, limit/looks))
		return
	}
	e := c.tooLate(elapsed)
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

// tooLate says what a member that has not polled for so long had in hand; c.mu is held.
func (c *consumer) tooLate(elapsed time.Duration) *PollTimeoutError {
	e := &PollTimeoutError{Member: c.mu.member.id, Offset: kafka.NoOffset, Elapsed: elapsed, Limit: c.c.MaxPollInterval}
	if t := c.mu.watched.hand; t != nil {
		e.TopicPartition, e.Offset = t.tp, t.position-1
	}
	c.e.o.Logger.Warn("member is out of its group: it does not poll", "group", c.c.Group, "error", e)
	return e
}
