package broker

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/runnelmq/runnel/internal/wheel"
)

// flusher syncs in the background what nobody waits for: a while after the first unsynced append, or when a partition has many unsynced
// bytes. One goroutine, asleep on kick while nothing is unsynced.
type flusher struct {
	b     *Broker
	timer wheel.Timer
	kick  chan struct{} // has room for one
	quit  chan struct{}
	done  chan struct{}
	mu    struct {
		sync.Mutex
		queue []*Partition
	}
}

func (f *flusher) start(b *Broker) {
	f.b = b
	f.kick, f.quit, f.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	f.timer.Init(f.now)
	go f.run()
}

// stop ends the goroutine; the partitions that are queued are flushed by Close.
func (f *flusher) stop() {
	if f.quit == nil {
		return
	}
	close(f.quit)
	<-f.done
	f.quit = nil
}

// now wakes the goroutine.
func (f *flusher) now() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// add queues a partition that has been appended to; urgent does not wait for the interval.
func (f *flusher) add(p *Partition, urgent bool) {
	if p.queued.CompareAndSwap(false, true) {
		f.mu.Lock()
		f.mu.queue = append(f.mu.queue, p)
		first := len(f.mu.queue) == 1
		f.mu.Unlock()
		if first {
			f.b.wheel.Schedule(&f.timer, f.b.o.SyncInterval)
		}
	}
	if urgent {
		f.now()
	}
}

func (f *flusher) run() {
	defer close(f.done)
	for {
		select {
		case <-f.quit:
			return
		case <-f.kick:
		}
		f.mu.Lock()
		queue := f.mu.queue
		f.mu.queue = nil
		f.mu.Unlock()
		f.flushAll(queue)
	}
}

// flushAll flushes partitions.
func (f *flusher) flushAll(queue []*Partition) {
	var moved atomic.Bool // a recovery point
	atOnce(queue, func(p *Partition) {
		// Appends from here on queue the partition again.
		p.unsynced.Store(0)
		p.queued.Store(false)
		if f.flush(p) {
			moved.Store(true)
		}
	})
	// The recovery points of all of them, with one sync: left in the store's buffer, the end of the process would lose them, and recovery read what is long durable.
	if moved.Load() {
		if err := f.b.meta.Sync(); err != nil {
			f.b.o.Logger.Warn("recovery points", "error", err)
		}
	}
}

// flush makes a partition durable and moves its checkpoints; it reports whether it has. Errors have taken the partition offline, or will show at the next append.
func (f *flusher) flush(p *Partition) bool {
	life := p.life.Load()
	if life == nil || p.t.Deleted() {
		return false
	}
	states := p.named.snapshot(life)
	if err := life.l.Flush(context.Background()); err != nil {
		if !p.t.Deleted() {
			f.b.o.Logger.Warn("background sync", "partition", p.tp, "error", err)
		}
		return false
	}
	if err := p.saveNamed(states); err != nil {
		f.b.o.Logger.Warn("producer checkpoints", "partition", p.tp, "error", err)
	}
	p.forget(life)
	return true
}
