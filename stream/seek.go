package stream

import (
	"context"
	"fmt"
	"time"

	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
)

func (c *consumer) Seek(tp TopicPartition, offset int64) error {
	if offset < 0 {
		return fmt.Errorf("%w: %d", kafka.ErrOffsetOutOfRange, offset)
	}
	if err := c.lock(); err != nil {
		return err
	}
	defer c.mu.Unlock()
	t, err := c.track(tp)
	if err != nil {
		return err
	}
	t.seek(offset)
	c.waiter.Wake()
	return nil
}

// seekAll moves tracks to where fn says.
func (c *consumer) seekAll(tps []TopicPartition, fn func(p *broker.Partition) (int64, error)) error {
	if err := c.lock(); err != nil {
		return err
	}
	defer c.mu.Unlock()
	ts, err := c.selected(tps)
	if err != nil {
		return err
	}
	to := make([]int64, len(ts))
	for i, t := range ts {
		if to[i], err = fn(t.p); err != nil {
			return err
		}
	}
	for i, t := range ts {
		t.seek(to[i])
	}
	c.waiter.Wake()
	return nil
}

func (c *consumer) SeekToStart(tps ...TopicPartition) error {
	return c.seekAll(tps, func(p *broker.Partition) (int64, error) {
		start, _, _, err := p.Bounds()
		return start, err
	})
}

func (c *consumer) SeekToEnd(tps ...TopicPartition) error {
	return c.seekAll(tps, c.end)
}

// end is where a consumer of this visibility reads up to.
func (c *consumer) end(p *broker.Partition) (int64, error) {
	_, end, durable, err := p.Bounds()
	if c.c.Visibility == Durable {
		end = durable
	}
	return end, err
}

func (c *consumer) SeekToTime(ctx context.Context, at time.Time, tps ...TopicPartition) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.seekAll(tps, func(p *broker.Partition) (int64, error) {
		f, ok, err := p.OffsetForTime(at.UnixMilli())
		if err != nil || ok {
			return f.Offset, err
		}
		return c.end(p)
	})
}

func (c *consumer) Position(tp TopicPartition) (int64, error) {
	if err := c.lock(); err != nil {
		return 0, err
	}
	defer c.mu.Unlock()
	t, err := c.track(tp)
	if err != nil {
		return 0, err
	}
	if err := c.place(t); err != nil {
		return 0, err
	}
	return t.position, nil
}
