package stream

import "sync"

// crew are goroutines that are made when there is work, and end when there is none: nobody waits for a lane that has nothing to do.
type crew struct {
	work func(ln *lane)
	most int // goroutines
	mu   struct {
		sync.Mutex
		queue   fifo[*lane]
		running int
		ended   chan struct{} // closed when the last one has ended; made by who waits
	}
}

// add makes somebody work on a lane.
func (c *crew) add(ln *lane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.queue.push(ln)
	if c.mu.running < c.most {
		c.mu.running++
		go c.run()
	}
}

func (c *crew) run() {
	for {
		c.mu.Lock()
		if c.mu.queue.len() == 0 {
			c.mu.running--
			if c.mu.running == 0 && c.mu.ended != nil {
				close(c.mu.ended)
				c.mu.ended = nil
			}
			c.mu.Unlock()
			return
		}
		ln := c.mu.queue.pop()
		c.mu.Unlock()
		c.work(ln)
	}
}

// wait waits until nobody works. It is called once, by Close.
func (c *crew) wait() {
	c.mu.Lock()
	if c.mu.running == 0 {
		c.mu.Unlock()
		return
	}
	ended := make(chan struct{})
	c.mu.ended = ended
	c.mu.Unlock()
	<-ended
}
