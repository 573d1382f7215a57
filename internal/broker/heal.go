package broker

import (
	"strings"
	"sync"
	"time"

	"github.com/runnelmq/runnel/internal/meta"
	"github.com/runnelmq/runnel/internal/wheel"
)

// How long after a repair that failed the next one is tried: each time twice as long.
const (
	healFirst = 100 * time.Millisecond
	healLast  = 10 * time.Second
)

// healer tries a repair until it succeeds, the first time at once. Its zero value is not good: see newHealer.
type healer struct {
	wheel  *wheel.Wheel
	repair func() error
	timer  wheel.Timer
	mu     struct {
		sync.Mutex
		needed bool // also while repair runs: it was asked for again
		busy   bool // armed or running
		wait   time.Duration
		healed time.Time // when it last succeeded
	}
}

func newHealer(w *wheel.Wheel, repair func() error) *healer {
	h := &healer{wheel: w, repair: repair}
	h.timer.Init(h.run)
	return h
}

// need asks for the repair. It may be called with any lock held.
func (h *healer) need() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.needed = true
	if h.mu.busy {
		return
	}
	h.mu.busy = true
	if time.Since(h.mu.healed) < healLast { // it did not last
		h.schedule()
		return
	}
	h.mu.wait = healFirst
	h.wheel.Schedule(&h.timer, 0)
}

// schedule arms the timer; h.mu is held.
func (h *healer) schedule() {
	h.wheel.Schedule(&h.timer, h.mu.wait)
	h.mu.wait = min(2*h.mu.wait, healLast)
}

func (h *healer) run() {
	h.mu.Lock()
	h.mu.needed = false
	h.mu.Unlock()
	err := h.repair()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && !h.mu.needed {
		h.mu.busy = false
		h.mu.healed = time.Now()
		return
	}
	h.schedule()
}

// healMeta brings the metadata store back after a storage error, and takes back the space that was given away on a full disk.
func (b *Broker) healMeta() error {
	if err := b.enter(); err != nil {
		return nil // the next Open opens it
	}
	defer b.leave()
	failed := b.meta.Err()
	if failed != nil && !b.metaFailed {
		b.metaFailed, b.resync = true, true
		b.o.Logger.Error("metadata store failed", "error", failed)
		if b.o.Events.MetaFailed != nil {
			b.o.Events.MetaFailed(failed)
		}
	}
	err := b.meta.Heal()
	if b.meta.Err() != nil {
		return err
	}
	if b.metaFailed {
		b.metaFailed = false
		b.o.Logger.Info("metadata store works again")
		if b.o.Events.MetaRecovered != nil {
			b.o.Events.MetaRecovered()
		}
	}
	if b.resync {
		if err := b.resyncTopics(); err != nil {
			return err
		}
		b.resync = false
	}
	return err
}

// resyncTopics learns the outcome of changes of topics that failed with the store: one that was made is there, one that was deleted is gone.
func (b *Broker) resyncTopics() error {
	b.admin.Lock()
	defer b.admin.Unlock()
	infos, err := b.meta.Topics()
	if err != nil {
		return err
	}
	for _, info := range infos {
		if err := b.resyncTopic(info); err != nil {
			return err
		}
	}
	b.clean.now()
	return nil
}

func (b *Broker) resyncTopic(info meta.Topic) error {
	key := strings.ToLower(info.Name)
	if d, ok := b.topics.deleting[key]; ok && d.ID == info.ID {
		if info.State != meta.Deleting {
			if err := b.meta.PutTopic(d); err != nil {
				return err
			}
		}
		if err := b.finishDelete(d); err != nil {
			return err
		}
		delete(b.topics.deleting, key)
		return nil
	}
	t, err := b.Topic(info.Name)
	switch {
	case err != nil:
		return b.addTopic(info)
	case t.info.ID == info.ID && len(t.Partitions()) < info.Partitions:
		t.grow(b, info.Partitions)
		b.changed()
	}
	return t.configure(info.Config)
}
