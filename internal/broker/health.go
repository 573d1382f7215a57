package broker

import (
	"context"
	"errors"

	"github.com/runnelmq/runnel/internal/kafka"
)

// Health is what a partition can do, and why it cannot do more.
type Health struct {
	State kafka.PartitionState
	Err   error // nil while the state is ok
}

// health is a partition's state as it was last reported.
type health struct {
	err    error
	healer *healer // made when it is first needed
}

// note reports that the partition is in a state worse than the one that is known.
func (p *Partition) note(s kafka.PartitionState, err error) {
	p.health.Lock()
	defer p.health.Unlock()
	if int32(s) <= p.state.Load() {
		return
	}
	p.become(s, err)
	if s == kafka.PartitionFailed && p.life.Load() != nil {
		if p.health.healer == nil {
			p.health.healer = newHealer(p.b.wheel, p.reopen)
		}
		p.health.healer.need()
	}
}

// better reports that the partition has left a state.
func (p *Partition) better(from kafka.PartitionState) {
	p.health.Lock()
	defer p.health.Unlock()
	if p.state.Load() == int32(from) {
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

// Health says how the partition is. One that nobody has used since the engine was opened is opened for that.
func (p *Partition) Health() (Health, error) {
	if _, err := p.Life(); errors.Is(err, kafka.ErrClosed) || errors.Is(err, kafka.ErrUnknownTopic) {
		return Health{}, err
	}
	if p.state.Load() == int32(kafka.PartitionDiskFull) && p.b.hasSpace(p.refused.Load()) {
		p.better(kafka.PartitionDiskFull)
	}
	p.health.Lock()
	defer p.health.Unlock()
	return Health{kafka.PartitionState(p.state.Load()), p.health.err}, nil
}

// hasSpace reports whether n bytes more leave the space free that they have to.
func (b *Broker) hasSpace(n int64) bool {
	free, _, err := b.o.FS.Free(b.o.Dir)
	return err == nil && free-n >= b.o.MinFree
}

// reopen begins another life of a partition that has failed, through recovery: what was durable is there again, of the rest a prefix or nothing.
// The leader epoch rises, so that a reader can tell.
func (p *Partition) reopen() error {
	if err := p.b.enter(); err != nil {
		return nil // the next Open recovers
	}
	defer p.b.leave()
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.life.Load()
	if p.mu.closed || p.t.Deleted() || old.l.Err() == nil {
		return nil
	}
	if err := p.b.raiseEpoch(); err != nil {
		return err
	}
	f, err := p.open(old.l.Believed())
	var lost *kafka.CorruptError
	if err == nil {
		// A disk that does not sync does not work.
		if err := f.l.WaitDurable(context.Background(), f.EndOffset()); err != nil {
			f.l.Abandon()
			return err
		}
	} else if !errors.As(err, &lost) {
		return err
	}
	old.l.Abandon() // not before: what is durable was read until now
	p.named.forget()
	p.life.Store(f)
	p.better(kafka.PartitionFailed)
	p.watchers.wake()
	if err != nil { // that does not pass
		p.mu.err = err
		p.note(kafka.PartitionDamaged, err)
	}
	return nil
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
