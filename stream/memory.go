package stream

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/wheel"
)

// memory bounds the bytes that a producer has buffered (buffer.memory). A batch takes what it may need before it is opened; it gives most of that back when it has been handed over, and the
// rest when its last promise has run. Those who wait get their
// bytes in the order in which they came, however little a later one asks for.
type memory struct {
	total int64
	// waits is the number of those who wait. Read without the lock: while somebody waits, no batch lingers.
	waits atomic.Int32
	mu    struct {
		sync.Mutex
		free    int64
		waiting []*claim
		err     error // why nobody gets any more
		// For the metrics: how often somebody had to wait, and how long in all.
		blocked     int64
		blockedTime time.Duration
	}
}

// claim is somebody who waits for n bytes.
type claim struct {
	n    int64
	done chan error // has room for one: nil when the bytes are his
}

func (m *memory) init(total int64) {
	m.total = total
	m.mu.free = total
}

// tryTake takes n bytes if they are free and nobody has come before.
func (m *memory) tryTake(n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.err != nil || len(m.mu.waiting) > 0 || m.mu.free < n {
		return false
	}
	m.mu.free -= n
	return true
}

// take takes n bytes, waiting for them up to limit and as long as ctx lasts. pressed is called when there are none: by the first one to wait, and by those who may not.
func (m *memory) take(ctx context.Context, n int64, limit time.Duration, w *wheel.Wheel, pressed func()) error {
	c := &claim{n: n, done: make(chan error, 1)}
	m.mu.Lock()
	switch {
	case m.mu.err != nil:
		defer m.mu.Unlock()
		return m.mu.err
	case len(m.mu.waiting) == 0 && m.mu.free >= n:
		m.mu.free -= n
		m.mu.Unlock()
		return nil
	case limit < 0:
		m.mu.Unlock()
		pressed() // for the next one
		return m.full("and the call does not wait")
	case inPromise():
		m.mu.Unlock()
		pressed()
		return m.full("and a promise does not wait")
	}
	m.mu.waiting = append(m.mu.waiting, c)
	m.waits.Add(1)
	first := len(m.mu.waiting) == 1
	m.mu.blocked++
	m.mu.Unlock()
	if first {
		pressed()
	}
	began := time.Now()
	defer func() {
		m.mu.Lock()
		m.mu.blockedTime += time.Since(began)
		m.mu.Unlock()
	}()
	timeout := wheel.NewTimer(func() { m.leave(c, m.full(fmt.Sprintf("after %v", limit))) })
	w.Schedule(timeout, limit)
	defer w.Cancel(timeout)
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		m.leave(c, kafka.ContextError(ctx))
		return <-c.done
	}
}

func (m *memory) full(how string) error {
	return fmt.Errorf("%w: all of its %d bytes are in use, %s", kafka.ErrBufferFull, m.total, how)
}

// leave ends a claim with err, unless it has been granted.
func (m *memory) leave(c *claim, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(m.mu.waiting, c); i >= 0 {
		m.end(i, err)
		m.grant()
	}
}

// end ends the i-th claim; mu is held.
func (m *memory) end(i int, err error) {
	m.mu.waiting[i].done <- err
	m.mu.waiting = slices.Delete(m.mu.waiting, i, i+1)
	m.waits.Add(-1)
}

// grant gives the first ones what there is; mu is held.
func (m *memory) grant() {
	for len(m.mu.waiting) > 0 && m.mu.waiting[0].n <= m.mu.free {
		m.mu.free -= m.mu.waiting[0].n
		m.end(0, nil)
	}
}

// give gives n bytes back.
func (m *memory) give(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.free += n
	if len(m.mu.waiting) > 0 {
		m.grant()
	}
}

// shut ends all claims, those to come too, with err.
func (m *memory) shut(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.err = err
	for len(m.mu.waiting) > 0 {
		m.end(0, err)
	}
}

// inPromise reports whether the caller is a promise: what it would wait for may be behind it. It looks at the stack, which takes a few microseconds, so it is asked only before a wait.
func inPromise() bool {
	pcs := make([]uintptr, 64)
	for skip := 1; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs)
		if n == 0 {
			return false
		}
		frames := runtime.CallersFrames(pcs[:n])
		for {
			f, more := frames.Next()
			if strings.HasSuffix(f.Function, promiseCaller) {
				return true
			}
			if !more {
				break
			}
		}
	}
}
