package broker

import (
	"errors"
	"fmt"
	"sync"

	"github.com/runnelmq/runnel/internal/kafka"
)

// health is a partition's state as it was last reported.
type health struct {
	sync.Mutex
	err    error
	damage error          // the first damage that was found since the engine was opened: a failure that passes does not mend it
	places map[place]bool // of damage that has been reported
	healer *healer        // made when it is first needed
}

// note reports that the partition is in a state; one that is no worse than the one that is known changes nothing.
func (p *Partition) note(s kafka.PartitionState, err error) {
	p.health.Lock()
	defer p.health.Unlock()
	if s == kafka.PartitionDamaged && p.health.damage == nil {
		p.health.damage = err
	}
	if int32(s) <= p.state.Load() {
		return
	}
	p.become(s, err)
	if s == kafka.PartitionFailed {
		if p.health.healer == nil {
			p.health.healer = newHealer(p.b.wheel, p.heal)
		}
		p.health.healer.need()
	}
}

// place is where damage begins.
type place struct {
	file string
	pos  int64
}

// mostPlaces bounds what is remembered of a disk that falls to pieces.
const mostPlaces = 1000

// damaged notes damage, and reports it if it is new.
func (p *Partition) damaged(err error) {
	p.note(kafka.PartitionDamaged, err)
	var d *kafka.CorruptError
	if !errors.As(err, &d) {
		return
	}
	at := place{d.File, d.Pos}
	p.health.Lock()
	defer p.health.Unlock()
	if p.health.places[at] || len(p.health.places) >= mostPlaces {
		return
	}
	if p.health.places == nil {
		p.health.places = map[place]bool{}
	}
	p.health.places[at] = true
	p.b.o.Logger.Error("data is damaged", "partition", p.tp, "error", err)
	if p.b.o.Events.Corrupt != nil {
		p.b.o.Events.Corrupt(d)
	}
}

// forgive forgets the damage that has been found: what is left of it is found again.
func (p *Partition) forgive() {
	p.health.Lock()
	p.health.damage, p.health.places = nil, nil
	p.health.Unlock()
	p.better(kafka.PartitionDamaged)
}

// better reports that the partition has left a state.
func (p *Partition) better(from kafka.PartitionState) {
	p.health.Lock()
	defer p.health.Unlock()
	switch {
	case p.state.Load() != int32(from):
	case p.health.damage != nil:
		p.become(kafka.PartitionDamaged, p.health.damage)
	default:
		p.become(kafka.PartitionOK, nil)
	}
}

// become changes the state and says so; the health is locked.
func (p *Partition) become(s kafka.PartitionState, err error) {
	p.state.Store(int32(s))
	p.health.err = err
	lg := p.b.o.Logger
	if s == kafka.PartitionOK {
		lg.Info("partition is well again", "partition", p.tp)
	} else {
		lg.Error("partition is not well", "partition", p.tp, "state", s, "error", err)
	}
	if p.b.o.Events.PartitionState != nil {
		p.b.o.Events.PartitionState(p.tp, s, err)
	}
}

// Health says how the partition is, as far as anybody has noticed, and why it is not well.
func (p *Partition) Health() (kafka.PartitionState, error) {
	if p.state.Load() == int32(kafka.PartitionDiskFull) && p.b.hasSpace(p.refused.Load()) {
		p.better(kafka.PartitionDiskFull)
	}
	p.health.Lock()
	defer p.health.Unlock()
	return kafka.PartitionState(p.state.Load()), p.health.err
}

// hasSpace reports whether n bytes more leave the space free that they have to.
func (b *Broker) hasSpace(n int64) bool {
	free, _, err := b.o.FS.Free(b.o.Dir)
	return err == nil && free-n >= b.o.MinFree
}

// heal opens a partition that has failed: for the first time, or again.
func (p *Partition) heal() error {
	if err := p.b.enter(); err != nil {
		return nil // the next Open recovers
	}
	defer p.b.leave()
	err := p.reopen()
	if p.life.Load() == nil && !p.t.Deleted() {
		_, err = p.opened()
	}
	var lost *kafka.CorruptError
	if errors.As(err, &lost) {
		return nil // that does not pass
	}
	return err
}

// reopen begins another life of a partition that has failed, through recovery: what was durable is there again, of the rest a prefix or nothing.
// The leader epoch rises, so that a reader can tell.
func (p *Partition) reopen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.life.Load()
	if old == nil || p.mu.closed || p.t.Deleted() || old.l.Err() == nil {
		return nil
	}
	if err := p.b.raiseEpoch(); err != nil {
		return err
	}
	old.l.Settle()
	if old.l.Unproven() {
		old.l.Abandon()
		if !old.l.Released() {
			return fmt.Errorf("%s: %w: it is still being read", p.tp, kafka.ErrPartitionFailed)
		}
	}
	f, err := p.open(old)
	var lost *kafka.CorruptError
	if errors.As(err, &lost) {
		p.mu.err = err
		p.damaged(err)
	} else if err != nil {
		return err
	} else if err := f.l.Prove(); err != nil {
		f.l.Abandon()
		return err
	}
	old.l.Abandon() // not before: what is durable was read until now
	if f != nil {
		p.begin(f)
	} else {
		p.life.Store(nil)
	}
	p.better(kafka.PartitionFailed)
	if f != nil && f.l.Err() != nil { // already, and unnoticed since the state was that
		p.note(kafka.PartitionFailed, f.l.Err())
	}
	p.watchers.wake()
	return err
}

// raiseEpoch begins another incarnation of the engine.
func (b *Broker) raiseEpoch() error {
	b.raising.Lock() // partitions fail together
	defer b.raising.Unlock()
	epoch, err := b.meta.RaiseIncarnation()
	if err == nil {
		b.epoch.Store(epoch)
	}
	return err
}
