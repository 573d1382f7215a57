package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/runnelmq/runnel/internal/kafka"
)

// AlterTopic changes settings of a topic, by Kafka's names, durably: those in set get these values, those in unset, which need not be set, their defaults again. They hold from now on. All faults
// are reported at once, and then nothing changes.
func (b *Broker) AlterTopic(name string, set map[string]string, unset []string) error {
	return b.change(name, func(t *Topic) error { return b.alterTopic(t, set, unset) })
}

func (b *Broker) alterTopic(t *Topic, set map[string]string, unset []string) error {
	info := t.described()
	info.Config = maps.Clone(info.Config)
	if info.Config == nil {
		info.Config = map[string]string{}
	}
	maps.Copy(info.Config, set)
	var errs []error
	for _, k := range unset {
		if _, both := set[k]; both {
			errs = append(errs, fmt.Errorf("%w: %s is both set and unset", kafka.ErrInvalidConfig, k))
			continue
		}
		delete(info.Config, k)
	}
	_, err := ParseConfig(info.Config)
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("topic %s: %w", t.Name(), err)
	}
	if err := b.meta.PutTopic(info); err != nil {
		return err
	}
	if err := t.configure(info.Config); err != nil {
		return err
	}
	b.clean.now()
	return nil
}

// configure makes settings those of the topic and of its open logs.
func (t *Topic) configure(given map[string]string) error {
	if maps.Equal(given, t.Config()) {
		return nil
	}
	c, err := ParseConfig(given)
	if err != nil {
		return fmt.Errorf("topic %s: %w", t.Name(), err)
	}
	t.config.Store(&topicConfig{given, c})
	for _, p := range t.Partitions() {
		if f := p.life.Load(); f != nil {
			f.l.Configure(c.Settings)
		}
		p.clean.changed()
	}
	return nil
}

// DeleteRecords makes offset, or the log end if it is -1, the partition's log start offset, durably, and removes what lies before it. See rlog.Log.TrimTo.
func (p *Partition) DeleteRecords(ctx context.Context, offset int64) error {
	f, err := p.Life()
	if err != nil {
		return err
	}
	if offset == kafka.NoOffset {
		offset = f.l.EndOffset()
	}
	if offset < 0 || offset > f.l.EndOffset() {
		return fmt.Errorf("%s: %w: offset %d, the log ends at %d", p.tp, kafka.ErrOffsetOutOfRange, offset, f.l.EndOffset())
	}
	if err := f.WaitDurable(ctx, offset); err != nil { // not while the engine is kept open
		return err
	}
	if err := p.b.enterToChange(); err != nil {
		return err
	}
	defer p.b.leave()
	err = f.explain(f.l.TrimTo(ctx, offset))
	p.clean.trimmed.Store(true)
	p.clean.pending.Store(true)
	p.b.clean.now()
	return kafka.Storage(err)
}
