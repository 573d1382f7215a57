package stream

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/runnelmq/runnel/internal/broker"
)

// Admin returns the verbs that manage topics and groups.
func (e *Engine) Admin() Admin { return admin{e} }

type admin struct{ e *Engine }

func (a admin) CreateTopic(ctx context.Context, name string, c TopicConfig) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	return a.e.b.CreateTopic(name, max(c.Partitions, 1), c.settings())
}

func (a admin) DeleteTopic(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return a.e.b.DeleteTopic(name)
}

func (a admin) AddPartitions(ctx context.Context, topic string, total int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return a.e.b.AddPartitions(topic, total)
}

func (a admin) Topics(ctx context.Context, names ...string) ([]TopicInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ts, err := a.e.b.Topics()
	if err != nil {
		return nil, err
	}
	if len(names) > 0 {
		ts = ts[:0]
		for _, n := range names {
			t, err := a.e.b.Topic(n)
			if err != nil {
				return nil, err
			}
			ts = append(ts, t)
		}
	}
	out := make([]TopicInfo, 0, len(ts))
	for _, t := range ts {
		out = append(out, TopicInfo{Name: t.Name(), ID: t.ID(), Partitions: len(t.Partitions()), Config: maps.Clone(t.Config())})
	}
	return out, nil
}

// each asks partitions for an offset; a partition for which fn has none is left out.
func (a admin) each(ctx context.Context, tps []TopicPartition, fn func(p *broker.Partition) (o OffsetMetadata, ok bool, err error)) (Offsets, error) {
	out := make(Offsets, len(tps))
	for _, tp := range tps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p, err := a.e.b.Partition(tp)
		if err != nil {
			return nil, err
		}
		o, ok, err := fn(p)
		if err != nil {
			return nil, err
		}
		if ok {
			out[tp] = o
		}
	}
	return out, nil
}

func (a admin) StartOffsets(ctx context.Context, tps ...TopicPartition) (Offsets, error) {
	return a.each(ctx, tps, func(p *broker.Partition) (OffsetMetadata, bool, error) {
		start, _, _, err := p.Bounds()
		return OffsetMetadata{Offset: start, LeaderEpoch: -1}, true, err
	})
}

func (a admin) EndOffsets(ctx context.Context, tps ...TopicPartition) (Offsets, error) {
	return a.each(ctx, tps, func(p *broker.Partition) (OffsetMetadata, bool, error) {
		_, end, _, err := p.Bounds()
		return OffsetMetadata{Offset: end, LeaderEpoch: -1}, true, err
	})
}

func (a admin) OffsetsForTime(ctx context.Context, t time.Time, tps ...TopicPartition) (Offsets, error) {
	return a.each(ctx, tps, func(p *broker.Partition) (OffsetMetadata, bool, error) {
		f, ok, err := p.OffsetForTime(t.UnixMilli())
		return OffsetMetadata{Offset: f.Offset, LeaderEpoch: f.LeaderEpoch}, ok, err
	})
}

func (a admin) Health(ctx context.Context, tps ...TopicPartition) ([]PartitionHealth, error) {
	ts, err := a.e.b.Topics()
	if err != nil {
		return nil, err
	}
	all := len(tps) == 0
	if all {
		for _, t := range ts {
			for _, p := range t.Partitions() {
				tps = append(tps, p.TopicPartition())
			}
		}
	}
	out := make([]PartitionHealth, 0, len(tps))
	for _, tp := range tps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p, err := a.e.b.Partition(tp)
		if err != nil && all {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		s, why := p.Health()
		out = append(out, PartitionHealth{tp, s, why})
	}
	return out, nil
}

func (a admin) AlterTopic(ctx context.Context, topic string, set map[string]string, unset ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return a.e.b.AlterTopic(topic, set, unset)
}

func (a admin) DeleteRecords(ctx context.Context, before map[TopicPartition]int64) error {
	var errs []error
	for tp, offset := range before {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		p, err := a.e.b.Partition(tp)
		if err == nil {
			err = p.DeleteRecords(ctx, offset)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// The rest comes with transactions.

func (admin) Transactions(context.Context) ([]TxnInfo, error) {
	return nil, unsupported("Transactions")
}

func (admin) Producers(context.Context, ...TopicPartition) ([]ProducerInfo, error) {
	return nil, unsupported("Producers")
}

func (admin) AbortTransaction(context.Context, TopicPartition, int64) error {
	return unsupported("AbortTransaction")
}
