package broker

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Waiter is how a reader waits for partitions: it watches them, looks at each once more, and receives from C. A Waiter may be
// used again.
type Waiter struct {
	C chan struct{} // has room for one
}

// NewWaiter returns a waiter that watches nothing.
func NewWaiter() *Waiter { return &Waiter{C: make(chan struct{}, 1)} }

// Wake makes C ready, if it is not.
func (w *Waiter) Wake() {
	select {
	case w.C <- struct{}{}:
	default:
	}
}

// watchers are those who wait for something to move: a partition's end, its durable end, or the topics. An append that nobody waits for pays one
// atomic load: a watcher counts itself before it looks at the end for the last time, an append publishes the end before it looks at the
// count, so one of the two sees the other.
type watchers struct {
	n  atomic.Int32
	mu struct {
		sync.Mutex
		list []*Waiter
	}
}

func (ws *watchers) any() bool { return ws.n.Load() > 0 }

func (ws *watchers) wake() {
	if !ws.any() {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.mu.list {
		w.Wake()
	}
}

func (ws *watchers) add(w *Waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.mu.list = append(ws.mu.list, w)
	ws.n.Add(1)
}

func (ws *watchers) remove(w *Waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if i := slices.Index(ws.mu.list, w); i >= 0 {
		ws.mu.list = slices.Delete(ws.mu.list, i, i+1)
		ws.n.Add(-1)
	}
}

// Watch makes w wake when the partition's end or durable end moves, and when it closes.
func (p *Partition) Watch(w *Waiter) { p.watchers.add(w) }

// Unwatch undoes Watch.
func (p *Partition) Unwatch(w *Waiter) { p.watchers.remove(w) }
