package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/stream"
)

// admin implements stream.Admin with Kafka's own requests.
type admin struct{ c *client }

// codeFault is the error of a response's code.
func codeFault(code int16, what string) error {
	if err := kerr.ErrorForCode(code); err != nil {
		return fault(fmt.Errorf("%s: %w", what, err))
	}
	return nil
}

// settings returns a topic's configuration by Kafka's names. What Runnel keeps forever unless told otherwise, Kafka deletes after a week: it is told.
func settings(c stream.TopicConfig) map[string]string {
	m := map[string]string{"retention.ms": "-1", "retention.bytes": "-1"}
	maps.Copy(m, c.Config)
	if c.SegmentBytes != 0 {
		m["segment.bytes"] = strconv.FormatInt(c.SegmentBytes, 10)
	}
	if c.RetentionBytes != 0 {
		m["retention.bytes"] = strconv.FormatInt(c.RetentionBytes, 10)
	}
	if c.Retention != 0 {
		m["retention.ms"] = strconv.FormatInt(c.Retention.Milliseconds(), 10)
	}
	if c.DeleteRetention != 0 {
		m["delete.retention.ms"] = strconv.FormatInt(c.DeleteRetention.Milliseconds(), 10)
	}
	m["cleanup.policy"] = [...]string{"delete", "compact", "compact,delete"}[c.Cleanup]
	return m
}

// CreateTopic returns when this client's brokers know the topic: the controller answers before.
func (a admin) CreateTopic(ctx context.Context, name string, c stream.TopicConfig) error {
	if err := kafka.CheckTopicName(name); err != nil {
		return err
	}
	if c.Partitions < 0 {
		return fmt.Errorf("%w: %d", kafka.ErrInvalidPartitions, c.Partitions)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, int32(max(c.Partitions, 1)), -1
	for k, v := range settings(c) {
		e := kmsg.NewCreateTopicsRequestTopicConfig()
		e.Name, e.Value = k, kmsg.StringPtr(v)
		t.Configs = append(t.Configs, e)
	}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, a.c.raw)
	if err != nil {
		return fault(err)
	}
	if err := codeFault(resp.Topics[0].ErrorCode, name); err != nil {
		return err
	}
	return a.await(ctx, name, max(c.Partitions, 1))
}

// await waits for a topic to have so many partitions with leaders.
func (a admin) await(ctx context.Context, name string, partitions int) error {
	for {
		ts, err := a.c.metadata(ctx, 0, name)
		led := 0
		if err == nil {
			for _, p := range ts[0].Partitions {
				if p.Leader >= 0 {
					led++
				}
			}
		}
		if led >= partitions {
			return nil
		}
		if err != nil && !errors.Is(err, kafka.ErrUnknownTopic) {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return kafka.ContextError(ctx)
		}
	}
}

func (a admin) DeleteTopic(ctx context.Context, name string) error {
	req := kmsg.NewPtrDeleteTopicsRequest()
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.Topic = kmsg.StringPtr(name)
	req.Topics, req.TopicNames = append(req.Topics, t), append(req.TopicNames, name)
	resp, err := req.RequestWith(ctx, a.c.raw)
	if err != nil {
		return fault(err)
	}
	return codeFault(resp.Topics[0].ErrorCode, name)
}

func (a admin) Topics(ctx context.Context, names ...string) ([]stream.TopicInfo, error) {
	ts, err := a.c.metadata(ctx, 0, names...)
	if err != nil {
		return nil, err
	}
	var out []stream.TopicInfo
	for _, t := range ts {
		if t.IsInternal || strings.HasPrefix(*t.Topic, "__") {
			continue
		}
		cfg, err := a.c.topicConfig(ctx, *t.Topic)
		if err != nil {
			return nil, err
		}
		info := stream.TopicInfo{Name: *t.Topic, ID: t.TopicID, Partitions: len(t.Partitions), Config: map[string]string{}}
		for k, e := range cfg {
			if e.Source == kmsg.ConfigSourceDynamicTopicConfig && e.Value != nil {
				info.Config[k] = *e.Value
			}
		}
		out = append(out, info)
	}
	slices.SortFunc(out, func(x, y stream.TopicInfo) int { return strings.Compare(x.Name, y.Name) })
	return out, nil
}

func (a admin) AddPartitions(ctx context.Context, topic string, total int) error {
	req := kmsg.NewPtrCreatePartitionsRequest()
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = topic, int32(total)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, a.c.raw)
	if err != nil {
		return fault(err)
	}
	if err := codeFault(resp.Topics[0].ErrorCode, topic); err != nil {
		return err
	}
	return a.await(ctx, topic, total)
}

func (a admin) AlterTopic(ctx context.Context, topic string, set map[string]string, unset ...string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	add := func(name string, op kmsg.IncrementalAlterConfigOp, value *string) {
		e := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		e.Name, e.Op, e.Value = name, op, value
		res.Configs = append(res.Configs, e)
	}
	for k, v := range set {
		add(k, kmsg.IncrementalAlterConfigOpSet, kmsg.StringPtr(v))
	}
	for _, k := range unset {
		add(k, kmsg.IncrementalAlterConfigOpDelete, nil)
	}
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(ctx, a.c.raw)
	if err != nil {
		return fault(err)
	}
	a.c.limits.Delete(topic)
	return codeFault(resp.Resources[0].ErrorCode, topic)
}

func (a admin) DeleteRecords(ctx context.Context, before map[stream.TopicPartition]int64) error {
	req := kmsg.NewPtrDeleteRecordsRequest()
	for topic, ps := range byTopic(slices.Collect(maps.Keys(before))) {
		t := kmsg.NewDeleteRecordsRequestTopic()
		t.Topic = topic
		for _, n := range ps {
			p := kmsg.NewDeleteRecordsRequestTopicPartition()
			p.Partition, p.Offset = n, before[stream.TopicPartition{Topic: topic, Partition: n}]
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	for _, s := range a.c.raw.RequestSharded(ctx, req) {
		if s.Err != nil {
			return fault(s.Err)
		}
		for _, t := range s.Resp.(*kmsg.DeleteRecordsResponse).Topics {
			for _, p := range t.Partitions {
				if err := codeFault(p.ErrorCode, t.Topic); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (a admin) StartOffsets(ctx context.Context, tps ...stream.TopicPartition) (stream.Offsets, error) {
	return a.c.list(ctx, atStart, stream.ReadUncommitted, tps)
}

func (a admin) EndOffsets(ctx context.Context, tps ...stream.TopicPartition) (stream.Offsets, error) {
	return a.c.list(ctx, atEnd, stream.ReadUncommitted, tps)
}

func (a admin) OffsetsForTime(ctx context.Context, t time.Time, tps ...stream.TopicPartition) (stream.Offsets, error) {
	return a.c.list(ctx, t.UnixMilli(), stream.ReadUncommitted, tps)
}

// Groups describes groups; without names all of them, also those that keep the sequences of named producers out of sight.
func (a admin) Groups(ctx context.Context, names ...string) ([]stream.GroupInfo, error) {
	if len(names) == 0 {
		for _, s := range a.c.raw.RequestSharded(ctx, kmsg.NewPtrListGroupsRequest()) {
			if s.Err != nil {
				return nil, fault(s.Err)
			}
			for _, g := range s.Resp.(*kmsg.ListGroupsResponse).Groups {
				if !strings.HasPrefix(g.Group, namePrefix) {
					names = append(names, g.Group)
				}
			}
		}
	}
	slices.Sort(names)
	var out []stream.GroupInfo
	if len(names) == 0 {
		return nil, nil
	}
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = names
	for _, s := range a.c.raw.RequestSharded(ctx, req) {
		if s.Err != nil {
			return nil, fault(s.Err)
		}
		for _, g := range s.Resp.(*kmsg.DescribeGroupsResponse).Groups {
			if err := codeFault(g.ErrorCode, g.Group); err != nil {
				return nil, err
			}
			o, err := a.c.committed(ctx, g.Group, nil)
			if err != nil {
				return nil, err
			}
			out = append(out, stream.GroupInfo{Group: g.Group, State: g.State, Offsets: o})
		}
	}
	slices.SortFunc(out, func(x, y stream.GroupInfo) int { return strings.Compare(x.Group, y.Group) })
	return out, nil
}

func (a admin) DeleteGroup(ctx context.Context, group string) error {
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = []string{group}
	for _, s := range a.c.raw.RequestSharded(ctx, req) {
		if s.Err != nil {
			return fault(s.Err)
		}
		for _, g := range s.Resp.(*kmsg.DeleteGroupsResponse).Groups {
			if err := codeFault(g.ErrorCode, g.Group); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a admin) ResetOffsets(context.Context, string, stream.OffsetSpec, ...stream.TopicPartition) (stream.Offsets, error) {
	return nil, stream.ErrUnsupported
}

// SetOffsets commits as nobody: the cluster allows it while the group has no members.
func (a admin) SetOffsets(ctx context.Context, group string, o stream.Offsets) error {
	if err := a.c.known(ctx, slices.Collect(maps.Keys(o))...); err != nil {
		return err
	}
	return a.c.commit(ctx, stream.GroupMetadata{Group: group, Generation: -1}, o)
}

func (a admin) DeleteOffsets(ctx context.Context, group string, tps ...stream.TopicPartition) error {
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = group
	for topic, ps := range byTopic(tps) {
		t := kmsg.NewOffsetDeleteRequestTopic()
		t.Topic = topic
		for _, n := range ps {
			p := kmsg.NewOffsetDeleteRequestTopicPartition()
			p.Partition = n
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, a.c.raw)
	if err != nil {
		return fault(err)
	}
	if err := codeFault(resp.ErrorCode, group); err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := codeFault(p.ErrorCode, t.Topic); err != nil {
				return err
			}
		}
	}
	return nil
}
