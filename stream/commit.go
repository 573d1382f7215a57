package stream

import (
	"context"
	"fmt"
	"time"

	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
)

// commitDue makes the automatic commit if its interval has passed: of what earlier polls have handed over.
func (c *consumer) commitDue(ctx context.Context) error {
	if c.c.ManualCommit || c.c.Group == "" {
		return nil
	}
	c.mu.Lock()
	due := time.Since(c.mu.lastCommit) >= c.c.CommitInterval
	c.mu.Unlock()
	if !due {
		return nil
	}
	return c.autoCommit(ctx)
}

// autoCommit commits positions that lie above what is committed: an automatic commit never goes back. c.polling is held.
func (c *consumer) autoCommit(ctx context.Context) error {
	c.mu.Lock()
	c.mu.lastCommit = time.Now()
	cs := c.covered(func(t *track) bool { return t.position > t.committed && !t.p.Topic().Deleted() })
	c.mu.Unlock()
	return c.commit(ctx, cs)
}

// covered returns the positions of the tracks that are wanted; c.mu is held.
func (c *consumer) covered(want func(*track) bool) (cs []broker.Commit) {
	for _, t := range c.mu.tracks {
		if t.position >= 0 && want(t) {
			cs = append(cs, broker.Commit{Partition: t.p, Offset: t.position, LeaderEpoch: t.epoch})
		}
	}
	return cs
}

// commit commits and remembers what is committed.
func (c *consumer) commit(ctx context.Context, cs []broker.Commit) error {
	if c.c.Group == "" {
		return fmt.Errorf("%w: this consumer has none", kafka.ErrInvalidGroup)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.e.b.CommitOffsets(ctx, c.c.Group, cs); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range cs {
		if t := c.mu.byTP[o.Partition.TopicPartition()]; t != nil && t.p == o.Partition {
			t.committed = o.Offset
		}
	}
	return nil
}

func (c *consumer) Commit(ctx context.Context) error {
	if err := c.lock(); err != nil {
		return err
	}
	cs := c.covered(func(*track) bool { return true })
	c.mu.Unlock()
	return c.commit(ctx, cs)
}

func (c *consumer) CommitRecords(ctx context.Context, rs ...Record) error {
	o := Offsets{}
	for i := range rs {
		r := &rs[i]
		tp := TopicPartition{Topic: r.Topic, Partition: r.Partition}
		if at, ok := o[tp]; !ok || r.Offset+1 > at.Offset {
			o[tp] = OffsetMetadata{Offset: r.Offset + 1, LeaderEpoch: r.LeaderEpoch}
		}
	}
	return c.CommitOffsets(ctx, o)
}

func (c *consumer) CommitOffsets(ctx context.Context, o Offsets) error {
	cs := make([]broker.Commit, 0, len(o))
	for tp, at := range o {
		p, err := c.e.b.Partition(tp)
		if err != nil {
			return err
		}
		cs = append(cs, broker.Commit{Partition: p, Offset: at.Offset, LeaderEpoch: at.LeaderEpoch, Metadata: at.Metadata})
	}
	if err := c.lock(); err != nil {
		return err
	}
	c.mu.Unlock()
	return c.commit(ctx, cs)
}

// CommitAsync commits without waiting. In this version done gets ErrUnsupported.
func (c *consumer) CommitAsync(o Offsets, done func(Offsets, error)) {
	if done != nil {
		done(o, unsupported("CommitAsync"))
	}
}

func (c *consumer) Committed(ctx context.Context, tps ...TopicPartition) (Offsets, error) {
	if c.c.Group == "" {
		return nil, fmt.Errorf("%w: this consumer has none", kafka.ErrInvalidGroup)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(tps) == 0 {
		tps = c.Assignment()
	}
	out := Offsets{}
	for _, tp := range tps {
		p, err := c.e.b.Partition(tp)
		if err != nil {
			return nil, err
		}
		o, ok, err := c.e.b.CommittedOffset(c.c.Group, p)
		if err != nil {
			return nil, err
		}
		if ok {
			out[tp] = OffsetMetadata{o.Offset, o.LeaderEpoch, o.Metadata}
		}
	}
	return out, nil
}
