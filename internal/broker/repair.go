package broker

import (
	"context"
	"errors"
	"fmt"

	rlog "github.com/runnelmq/runnel/log"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/meta"
)

// SkipCorrupt gives up what is damaged in offsets [from, to) of the partition, durably: its readers pass over it in silence. A partition that cannot be opened since its end is
// lost can be again, if all that is lost is given up; offsets are not used twice.
func (p *Partition) SkipCorrupt(from, to int64) error {
	if from < 0 || to <= from {
		return fmt.Errorf("%s: %w: [%d,%d) is no range of offsets", p.tp, kafka.ErrOffsetOutOfRange, from, to)
	}
	if err := p.b.enterToChange(); err != nil {
		return err
	}
	defer p.b.leave()
	if p.t.Deleted() {
		return p.Gone()
	}
	if err := p.skip(meta.Range{From: from, To: to}); err != nil {
		return err
	}
	p.forgive()
	f, err := p.opened()
	if err != nil {
		return err
	}
	f.l.Skip(rlog.Range{From: from, To: to})
	p.watchers.wake()
	return nil
}

func (p *Partition) skip(r meta.Range) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.b.meta.SetSkip(p.id, r); err != nil {
		return err
	}
	p.mu.err = nil
	return nil
}

func (p *Partition) skips() ([]rlog.Range, error) {
	rs, err := p.b.meta.Skips(p.id)
	out := make([]rlog.Range, len(rs))
	for i, r := range rs {
		out[i] = rlog.Range(r)
	}
	return out, err
}

// Verify reads everything and reports all damage, one call at a time. What it returns is why it did not come to the end; beside an engine that has the directory locked that
// is kafka.ErrLocked in any case, since the metadata cannot be read.
func (b *Broker) Verify(ctx context.Context, report func(*kafka.CorruptError)) error {
	var locked error
	if b.foreign {
		locked = fmt.Errorf("metadata: %w", kafka.ErrLocked)
	} else if err := b.verifyMeta(ctx, report); err != nil {
		return err
	}
	for _, t := range b.list() {
		for _, p := range t.Partitions() {
			if err := p.verify(ctx, report); err != nil && !t.Deleted() {
				return err
			}
		}
	}
	return locked
}

func (p *Partition) verify(ctx context.Context, report func(*kafka.CorruptError)) error {
	f, err := p.Life()
	var lost *kafka.CorruptError
	if errors.As(err, &lost) {
		report(lost)
		return nil
	}
	if err != nil {
		return err
	}
	return f.explain(f.l.Verify(ctx, func(d *kafka.CorruptError) {
		if d.From < d.To && !f.l.Skipped(d.From, d.To) {
			p.damaged(d)
		}
		report(d)
	}))
}

func (b *Broker) verifyMeta(ctx context.Context, report func(*kafka.CorruptError)) error {
	if err := b.enter(); err != nil {
		return err
	}
	defer b.leave()
	err := b.meta.Verify(ctx)
	if errors.Is(err, kafka.ErrCorrupt) {
		report(&kafka.CorruptError{From: -1, To: -1, File: b.o.metaDir(), Reason: err})
		return nil
	}
	return err
}
