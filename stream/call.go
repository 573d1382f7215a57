package stream

import (
	"context"
	"errors"
	"sync"

	"github.com/runnelmq/runnel/internal/kafka"
)

// call is what a caller waits for: the records of a ProduceSync or ProduceAll, or the batches of a Flush.
type call struct {
	mu struct {
		sync.Mutex
		left int
		out  []Result      // of records; those that are not resolved have the error errPending
		done chan struct{} // made when somebody waits and something is left
	}
}

// errPending marks a result that is still to come. No caller sees it.
var errPending = errors.New("pending")

// newCall waits for the results in out.
func newCall(out []Result) *call {
	c := &call{}
	c.mu.out = out
	c.mu.left = len(out)
	for i := range out {
		out[i].Err = errPending
	}
	return c
}

// resolve sets the i-th result, if nobody has.
func (c *call) resolve(i int, rec Receipt, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.out == nil || c.mu.out[i].Err != errPending {
		return
	}
	c.mu.out[i] = Result{rec, err}
	c.less()
}

// add has one more to wait for, that done is called for.
func (c *call) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.left++
}

func (c *call) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.less()
}

func (c *call) less() {
	c.mu.left--
	if c.mu.left == 0 && c.mu.done != nil {
		close(c.mu.done)
	}
}

// wait waits for all, or for the end of ctx.
func (c *call) wait(ctx context.Context) error {
	c.mu.Lock()
	if c.mu.left == 0 {
		c.mu.Unlock()
		return nil
	}
	if c.mu.done == nil {
		c.mu.done = make(chan struct{})
	}
	done := c.mu.done
	c.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return kafka.ContextError(ctx)
	}
}

// abandon gives those that are left up: their outcome is unknown. Nobody looks at the results afterwards, which are the caller's.
func (c *call) abandon(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.mu.out {
		if c.mu.out[i].Err == errPending {
			c.mu.out[i] = Result{Err: kafka.OutcomeUnknown(err)}
		}
	}
	c.mu.out = nil
}
