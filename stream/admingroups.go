package stream

import (
	"context"
	"errors"
	"time"

	"github.com/runnelmq/runnel/group"

	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
)

func (a admin) Groups(ctx context.Context, names ...string) ([]GroupInfo, error) {
	all := len(names) == 0
	if all {
		var err error
		if names, err = a.e.b.Groups(); err != nil {
			return nil, err
		}
	}
	out := make([]GroupInfo, 0, len(names))
	for _, n := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		g, err := a.group(n)
		if all && errors.Is(err, kafka.ErrUnknownGroup) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, nil
}

func (a admin) group(name string) (GroupInfo, error) {
	d, offsets, err := a.e.b.DescribeGroup(name)
	if err != nil {
		return GroupInfo{}, err
	}
	g := GroupInfo{Group: name, State: d.State.String(), Assignor: d.Protocol, Generation: d.Generation, Leader: d.Leader, Offsets: Offsets{}, Lag: map[TopicPartition]Lag{}}
	at := map[TopicPartition]int64{}
	for _, o := range offsets {
		tp := o.Partition.TopicPartition()
		g.Offsets[tp] = OffsetMetadata{o.Offset.Offset, o.LeaderEpoch, o.Metadata}
		at[tp] = o.Offset.Offset
	}
	for _, m := range d.Members {
		mi := MemberInfo{MemberID: m.ID, InstanceID: m.InstanceID, ClientID: m.ClientID, Host: m.Host, Assignment: assignment(d, m)}
		for _, tp := range mi.Assignment {
			if _, ok := at[tp]; !ok {
				at[tp] = 0
			}
		}
		g.Members = append(g.Members, mi)
	}
	for tp, from := range at {
		if p, err := a.e.b.Partition(tp); err == nil {
			if _, end, _, err := p.Bounds(); err == nil {
				if lag, err := a.e.lag(p, from, end); err == nil {
					g.Lag[tp] = lag
				}
			}
		}
	}
	return g, nil
}

// assignment is what a member of a group of consumers has.
func assignment(d group.Description, m group.MemberDescription) []TopicPartition {
	if d.ProtocolType != group.ConsumerProtocol {
		return nil
	}
	tps, _ := group.ParseAssignment(m.Assignment)
	return tps
}

func (a admin) DeleteGroup(ctx context.Context, group string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return a.e.b.DeleteGroup(group)
}

func (a admin) SetOffsets(ctx context.Context, group string, o Offsets) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	cs, err := a.e.commits(o)
	if err != nil {
		return err
	}
	return a.e.b.SetOffsets(ctx, group, cs)
}

func (a admin) DeleteOffsets(ctx context.Context, group string, tps ...TopicPartition) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ps := make([]*broker.Partition, 0, len(tps))
	for _, tp := range tps {
		p, err := a.e.b.Partition(tp)
		if err != nil {
			return err
		}
		ps = append(ps, p)
	}
	return a.e.b.DeleteOffsets(group, ps)
}

func (a admin) ResetOffsets(ctx context.Context, group string, to OffsetSpec, tps ...TopicPartition) (Offsets, error) {
	d, offsets, err := a.e.b.DescribeGroup(group)
	if err != nil && (len(tps) == 0 || !errors.Is(err, kafka.ErrUnknownGroup)) {
		return nil, err
	}
	if len(d.Members) > 0 {
		return nil, kafka.ErrGroupNotEmpty
	}
	committed := map[TopicPartition]int64{}
	for _, o := range offsets {
		tp := o.Partition.TopicPartition()
		committed[tp] = o.Offset.Offset
	}
	if len(tps) == 0 {
		for _, o := range offsets {
			tps = append(tps, o.Partition.TopicPartition())
		}
	}
	out, err := a.each(ctx, tps, func(p *broker.Partition) (OffsetMetadata, bool, error) {
		start, end, _, err := p.Bounds()
		if err != nil {
			return OffsetMetadata{}, false, err
		}
		offset, err := to.Resolve(committed[p.TopicPartition()], start, end, func(t time.Time) (int64, bool, error) {
			f, ok, err := p.OffsetForTime(t.UnixMilli())
			return f.Offset, ok, err
		})
		return OffsetMetadata{Offset: offset, LeaderEpoch: -1}, true, err
	})
	if err != nil {
		return nil, err
	}
	return out, a.SetOffsets(ctx, group, out)
}
