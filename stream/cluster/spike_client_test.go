package cluster_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/stream"
)

// client is stream.Client on a Kafka cluster: how far the declarations can be met there. Producers and consumers have a kgo.Client each; requests
// of its own go through one more, which is held to versions that name topics by name and transactions whose end raises no epoch.
type client struct {
	seeds []string
	raw   *kgo.Client
	mu    struct {
		sync.Mutex
		closed bool
		open   map[interface{ Close(context.Context) error }]struct{}
	}
	limits sync.Map // topic → max.message.bytes, int32
}

var _ stream.Client = (*client)(nil)

// connect returns a client of the cluster at these addresses.
func connect(seeds ...string) (*client, error) {
	c := &client{seeds: seeds}
	c.mu.open = map[interface{ Close(context.Context) error }]struct{}{}
	v := kversion.Stable()
	v.SetMaxKeyVersion(int16(kmsg.OffsetCommit), 9)
	v.SetMaxKeyVersion(int16(kmsg.OffsetFetch), 9)
	v.SetMaxKeyVersion(int16(kmsg.EndTxn), 4)
	v.SetMaxKeyVersion(int16(kmsg.TxnOffsetCommit), 4)
	var err error
	c.raw, err = c.dial(kgo.MaxVersions(v))
	return c, err
}

// dial makes a kgo client. Metadata may be fetched again soon: a partition that is new to a client is found by it.
func (c *client) dial(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.seeds...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(20 * time.Millisecond)}, opts...)...)
}

func (c *client) register(o interface{ Close(context.Context) error }) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return kafka.ErrClosed
	}
	c.mu.open[o] = struct{}{}
	return nil
}

func (c *client) unregister(o interface{ Close(context.Context) error }) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.open, o)
}

// closeTimeout is how long Close waits for producers to flush.
const closeTimeout = 30 * time.Second

func (c *client) Close() error {
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return nil
	}
	c.mu.closed = true
	open := c.mu.open
	c.mu.open = nil
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var first error
	for o := range open {
		if err := o.Close(ctx); err != nil && first == nil {
			first = err
		}
	}
	c.raw.Close()
	return first
}

func (c *client) Admin() stream.Admin { return admin{c} }

// metadata describes topics; without names, all of them. A topic that is not there is ErrUnknownTopic.
func (c *client) metadata(ctx context.Context, age time.Duration, names ...string) ([]kmsg.MetadataResponseTopic, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, n := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(n)
		req.Topics = append(req.Topics, t)
	}
	ask := func() (*kmsg.MetadataResponse, error) { return req.RequestWith(ctx, c.raw) }
	if age > 0 {
		ask = func() (*kmsg.MetadataResponse, error) { return c.raw.RequestCachedMetadata(ctx, req, age) }
	}
	resp, err := ask()
	if err != nil {
		return nil, fault(err)
	}
	var ts []kmsg.MetadataResponseTopic
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return nil, fault(fmt.Errorf("%s: %w", *t.Topic, err))
		}
		ts = append(ts, t)
	}
	return ts, nil
}

// metadataAge is how old what is known of a topic may be.
const metadataAge = time.Second

// partitions returns the number of partitions of a topic. What is remembered of a missing topic is never believed.
func (c *client) partitions(ctx context.Context, topic string) (int, error) {
	if err := kafka.CheckTopicName(topic); err != nil {
		return 0, fmt.Errorf("%w: %w", kafka.ErrUnknownTopic, err)
	}
	ts, err := c.metadata(ctx, metadataAge, topic)
	if err != nil {
		if ts, err = c.metadata(ctx, 0, topic); err != nil {
			return 0, err
		}
	}
	return len(ts[0].Partitions), nil
}

// known returns ErrUnknownTopic for a partition that is not there.
func (c *client) known(ctx context.Context, tps ...stream.TopicPartition) error {
	for _, tp := range tps {
		n, err := c.partitions(ctx, tp.Topic)
		if err != nil {
			return err
		}
		if tp.Partition < 0 || int(tp.Partition) >= n {
			return fmt.Errorf("%w: %s, the topic has %d partitions", kafka.ErrUnknownTopic, tp, n)
		}
	}
	return nil
}

// byTopic groups partitions by topic.
func byTopic(tps []stream.TopicPartition) map[string][]int32 {
	m := map[string][]int32{}
	for _, tp := range tps {
		m[tp.Topic] = append(m[tp.Topic], tp.Partition)
	}
	return m
}

// Times of ListOffsets that stand for the ends of a log.
const (
	atEnd   = -1
	atStart = -2
)

// list asks for the offsets at a time; a partition without one is absent.
func (c *client) list(ctx context.Context, ms int64, iso stream.Isolation, tps []stream.TopicPartition) (stream.Offsets, error) {
	if err := c.known(ctx, tps...); err != nil {
		return nil, err
	}
	out := stream.Offsets{}
	if len(tps) == 0 {
		return out, nil
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = int8(iso)
	for topic, ps := range byTopic(tps) {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		for _, n := range ps {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp = n, ms
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	for _, s := range c.raw.RequestSharded(ctx, req) {
		if s.Err != nil {
			return nil, fault(s.Err)
		}
		for _, t := range s.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, fault(fmt.Errorf("%s-%d: %w", t.Topic, p.Partition, err))
				}
				if p.Offset >= 0 {
					out[stream.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = stream.OffsetMetadata{Offset: p.Offset, LeaderEpoch: p.LeaderEpoch}
				}
			}
		}
	}
	return out, nil
}

// committed returns a group's offsets: of tps, or all of them if tps is nil.
func (c *client) committed(ctx context.Context, group string, tps []stream.TopicPartition) (stream.Offsets, error) {
	if group == "" {
		return nil, fmt.Errorf("%w: this consumer has none", kafka.ErrInvalidGroup)
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	for topic, ps := range byTopic(tps) {
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.Partitions = topic, ps
		g.Topics = append(g.Topics, t)
	}
	req.Groups = append(req.Groups, g)
	for {
		out, stable, err := c.fetchOffsets(ctx, req)
		if err != nil || stable {
			return out, err
		}
		select { // a transaction that holds these offsets is about to end
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, kafka.ContextError(ctx)
		}
	}
}

// fetchOffsets sends one OffsetFetch and reports whether no transaction holds any of the offsets.
func (c *client) fetchOffsets(ctx context.Context, req *kmsg.OffsetFetchRequest) (out stream.Offsets, stable bool, err error) {
	resp, err := req.RequestWith(ctx, c.raw)
	if err != nil {
		return nil, false, fault(err)
	}
	out = stream.Offsets{}
	for _, g := range resp.Groups {
		// Brokers answer a group that nobody knows without an error; the in-process one has an error for it.
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil && err != kerr.GroupIDNotFound {
			return nil, false, fault(err)
		}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				switch err := kerr.ErrorForCode(p.ErrorCode); {
				case err == kerr.UnstableOffsetCommit:
					return nil, false, nil
				case err != nil:
					return nil, false, fault(fmt.Errorf("%s-%d: %w", t.Topic, p.Partition, err))
				}
				if p.Offset < 0 {
					continue
				}
				m := stream.OffsetMetadata{Offset: p.Offset, LeaderEpoch: p.LeaderEpoch}
				if p.Metadata != nil {
					m.Metadata = *p.Metadata
				}
				out[stream.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = m
			}
		}
	}
	return out, true, nil
}

// commit commits a group's offsets as a member, or as nobody: which is allowed while the group has no members.
func (c *client) commit(ctx context.Context, who stream.GroupMetadata, o stream.Offsets) error {
	if who.Group == "" {
		return fmt.Errorf("%w: this consumer has none", kafka.ErrInvalidGroup)
	}
	if len(o) == 0 {
		return ctx.Err()
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = who.Group, who.MemberID, who.Generation
	if who.InstanceID != "" {
		req.InstanceID = kmsg.StringPtr(who.InstanceID)
	}
	for topic, ps := range offsetsByTopic(o) {
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic = topic
		for n, at := range ps {
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = n, at.Offset, at.LeaderEpoch, kmsg.StringPtr(at.Metadata)
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, c.raw)
	if err != nil {
		return fault(err)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fault(fmt.Errorf("%s-%d: %w", t.Topic, p.Partition, err))
			}
		}
	}
	return nil
}

func offsetsByTopic(o stream.Offsets) map[string]map[int32]stream.OffsetMetadata {
	m := map[string]map[int32]stream.OffsetMetadata{}
	for tp, at := range o {
		if m[tp.Topic] == nil {
			m[tp.Topic] = map[int32]stream.OffsetMetadata{}
		}
		m[tp.Topic][tp.Partition] = at
	}
	return m
}
