package stream

import (
	"context"
	"time"

	"github.com/runnelmq/runnel/internal/broker"
)

func (c *consumer) Lag(ctx context.Context, tps ...TopicPartition) (map[TopicPartition]Lag, error) {
	if err := c.lock(); err != nil {
		return nil, err
	}
	ts, err := c.selected(tps)
	at := make([]int64, len(ts))
	for i, t := range ts {
		if err == nil {
			err = c.place(t)
		}
		at[i] = t.position
	}
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	out := make(map[TopicPartition]Lag, len(ts))
	for i, t := range ts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		end, err := c.end(t.p)
		if err != nil {
			return nil, err
		}
		if out[t.tp], err = c.e.lag(t.p, at[i], end); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// lag is what lies between a position and an end.
func (e *Engine) lag(p *broker.Partition, at, end int64) (Lag, error) {
	start, _, _, err := p.Bounds()
	if err != nil {
		return Lag{}, err
	}
	life, err := p.Life()
	if err != nil {
		return Lag{}, err
	}
	n, oldest, err := life.Behind(max(at, start), end)
	if err != nil || n == 0 {
		return Lag{}, err
	}
	return Lag{Records: n, Time: max(0, time.Duration(e.b.NowMillis()-oldest)*time.Millisecond)}, nil
}
