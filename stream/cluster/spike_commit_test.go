package cluster_test

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/stream"
)

// positions are what Commit covers.
func (c *consumer) positions() stream.Offsets {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := stream.Offsets{}
	for tp, s := range c.mu.spots {
		if s.position >= 0 {
			o[tp] = stream.OffsetMetadata{Offset: s.position, LeaderEpoch: s.epoch}
		}
	}
	return o
}

func (c *consumer) Commit(ctx context.Context) error { return c.CommitOffsets(ctx, c.positions()) }

func (c *consumer) CommitRecords(ctx context.Context, rs ...stream.Record) error {
	o := stream.Offsets{}
	for i := range rs {
		if at, ok := o[tpOf(&rs[i])]; !ok || rs[i].Offset+1 > at.Offset {
			o[tpOf(&rs[i])] = stream.OffsetMetadata{Offset: rs[i].Offset + 1, LeaderEpoch: rs[i].LeaderEpoch}
		}
	}
	return c.CommitOffsets(ctx, o)
}

func (c *consumer) CommitOffsets(ctx context.Context, o stream.Offsets) error {
	c.mu.Lock()
	closed := c.mu.closed
	c.mu.Unlock()
	if closed {
		return kafka.ErrClosed
	}
	return c.c.commit(ctx, c.Group(), o)
}

func (c *consumer) CommitAsync(o stream.Offsets, done func(stream.Offsets, error)) {
	if o == nil {
		o = c.positions()
	}
	go func() {
		err := c.CommitOffsets(context.Background(), o)
		if done != nil {
			done(o, err)
		}
	}()
}

// autoCommit commits what lies above what is committed, if commits are automatic. The record of an unfinished loop body is left out.
func (c *consumer) autoCommit(ctx context.Context) error {
	if c.cfg.Group == "" || c.cfg.ManualCommit {
		return nil
	}
	o := c.positions()
	if len(o) == 0 {
		return nil
	}
	at, err := c.c.committed(ctx, c.cfg.Group, slices.Collect(maps.Keys(o)))
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.mu.lastCommit = time.Now()
	for tp, to := range o {
		if b := c.mu.body; b != nil && tpOf(b) == tp {
			to.Offset--
			o[tp] = to
		}
		if old, ok := at[tp]; ok && to.Offset <= old.Offset {
			delete(o, tp)
		}
	}
	c.mu.Unlock()
	return c.CommitOffsets(ctx, o)
}

func (c *consumer) Committed(ctx context.Context, tps ...stream.TopicPartition) (stream.Offsets, error) {
	if len(tps) == 0 {
		tps = c.Assignment()
	}
	if err := c.c.known(ctx, tps...); err != nil {
		return nil, err
	}
	return c.c.committed(ctx, c.cfg.Group, tps)
}

// Lag counts the records between positions and ends. The time of the record at a position is that of the log only if it is read; the spike does not.
func (c *consumer) Lag(ctx context.Context, tps ...stream.TopicPartition) (map[stream.TopicPartition]stream.Lag, error) {
	return nil, kafka.ErrUnsupported
}
