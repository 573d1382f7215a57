package cluster_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/stream"
)

// fetchWait is how long a broker holds a fetch without records, and so how long a partition that was resumed may wait for its next fetch.
const fetchWait = 100 * time.Millisecond

// consumer implements stream.Consumer. The positions are its own; kgo fetches and, for a subscription in a group, is the member. A kgo client is made
// for each subscription or assignment, because one is either a member of a group or reads given partitions, for life.
type consumer struct {
	c       *client
	cfg     stream.ConsumerConfig
	polling chan struct{} // has room for the call that polls

	mu struct {
		sync.Mutex
		closed     bool
		cl         *kgo.Client // nil: nothing is subscribed or assigned
		member     bool        // cl is in the group
		topics     []string    // subscribed without a group
		spots      map[stream.TopicPartition]*spot
		ahead      []stream.Record          // fetched, not handed over
		failures   []*stream.PartitionError // found beside records: for the next polls
		body       *stream.Record           // whose loop body has not ended
		lastCommit time.Time
	}
}

// spot is where a consumer is in a partition.
type spot struct {
	position int64 // -1: not placed yet
	epoch    int32
	paused   bool
	failed   bool // polls pass it over until Seek or Resume
	fed      bool // kgo reads on behind what it has given last; else it is told to go to position
}

func (s *spot) idle() bool { return s.paused || s.failed }

func newSpot() *spot { return &spot{position: -1, epoch: -1} }

func (c *client) NewConsumer(ctx context.Context, cfg stream.ConsumerConfig) (stream.Consumer, error) {
	if cfg.MaxWait == 0 {
		cfg.MaxWait = 500 * time.Millisecond
	}
	if cfg.CommitInterval == 0 {
		cfg.CommitInterval = 5 * time.Second
	}
	co := &consumer{c: c, cfg: cfg, polling: make(chan struct{}, 1)}
	co.mu.spots = map[stream.TopicPartition]*spot{}
	co.mu.lastCommit = time.Now()
	if err := c.register(co); err != nil {
		return nil, err
	}
	if len(cfg.Topics) > 0 {
		if err := co.Subscribe(cfg.Topics...); err != nil {
			return nil, err
		}
	}
	return co, nil
}

func resetOffset(r stream.Reset) kgo.Offset {
	switch r {
	case stream.ResetEarliest:
		return kgo.NewOffset().AtStart()
	case stream.ResetLatest:
		return kgo.NewOffset().AtEnd()
	}
	return kgo.NewOffset().AtCommitted() // kgo.NoResetOffset begins at the end
}

func (c *consumer) options() []kgo.Opt {
	iso := kgo.ReadUncommitted()
	if c.cfg.Isolation == stream.ReadCommitted {
		iso = kgo.ReadCommitted()
	}
	return []kgo.Opt{kgo.FetchIsolationLevel(iso), kgo.FetchMaxWait(fetchWait), kgo.ConsumeResetOffset(resetOffset(c.cfg.Reset)), kgo.ConsumeStartOffset(resetOffset(c.cfg.Reset))}
}

// replace puts a new kgo client, or none, in the place of the old one, and keeps the positions of keep.
func (c *consumer) replace(cl *kgo.Client, member bool, topics []string, keep []stream.TopicPartition) error {
	if err := c.autoCommit(context.Background()); err != nil {
		return err
	}
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		if cl != nil {
			cl.Close()
		}
		return kafka.ErrClosed
	}
	old := c.mu.cl
	c.mu.cl, c.mu.member, c.mu.topics = cl, member, topics
	spots := c.mu.spots
	c.mu.spots = map[stream.TopicPartition]*spot{}
	for _, tp := range keep {
		s := spots[tp]
		if s == nil {
			s = newSpot()
		}
		s.fed = false
		c.mu.spots[tp] = s
	}
	c.mu.ahead, c.mu.failures = nil, nil
	c.mu.Unlock()
	if old != nil {
		old.Close()
	}
	return nil
}

func (c *consumer) Subscribe(topics ...string) error {
	if len(topics) == 0 {
		return c.Unsubscribe()
	}
	for _, t := range topics {
		if err := kafka.CheckTopicName(t); err != nil {
			return err
		}
	}
	if c.cfg.Group == "" {
		cl, err := c.c.dial(c.options()...)
		if err != nil {
			return err
		}
		return c.replace(cl, false, slices.Clone(topics), nil)
	}
	return c.join(kgo.ConsumeTopics(topics...))
}

func (c *consumer) SubscribeRegexp(re *regexp.Regexp) error {
	if re == nil {
		return c.Unsubscribe()
	}
	if c.cfg.Group == "" {
		return fmt.Errorf("SubscribeRegexp without a group: %w", kafka.ErrUnsupported)
	}
	return c.join(kgo.ConsumeTopics(`\A(?:`+re.String()+`)\z`), kgo.ConsumeRegex())
}

// join makes a member.
func (c *consumer) join(what ...kgo.Opt) error {
	opts := append(append(c.options(), what...), kgo.ConsumerGroup(c.cfg.Group), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(c.assigned), kgo.OnPartitionsRevoked(c.revoked), kgo.OnPartitionsLost(c.lost))
	if c.cfg.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(c.cfg.InstanceID))
	}
	if c.cfg.SessionTimeout > 0 {
		opts = append(opts, kgo.SessionTimeout(c.cfg.SessionTimeout))
	}
	if err := c.replace(nil, false, nil, nil); err != nil { // a member of the same group leaves first
		return err
	}
	c.mu.Lock() // the callbacks wait for the client to be in its place
	defer c.mu.Unlock()
	cl, err := c.c.dial(opts...)
	if err != nil {
		return err
	}
	c.mu.cl, c.mu.member = cl, true
	return nil
}

func (c *consumer) assigned(_ context.Context, _ *kgo.Client, tps map[string][]int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for topic, ps := range tps {
		for _, n := range ps {
			if tp := (stream.TopicPartition{Topic: topic, Partition: n}); c.mu.spots[tp] == nil {
				c.mu.spots[tp] = newSpot()
				c.mu.spots[tp].fed = true // kgo asks for the committed offset itself
			}
		}
	}
}

// revoked commits what has been handed over, and lets go.
func (c *consumer) revoked(ctx context.Context, cl *kgo.Client, tps map[string][]int32) {
	c.mu.Lock()
	own := c.mu.cl == cl && !c.mu.closed
	c.mu.Unlock()
	if own {
		_ = c.autoCommit(ctx) // what is not committed comes again
	}
	c.lost(ctx, cl, tps)
}

func (c *consumer) lost(_ context.Context, cl *kgo.Client, tps map[string][]int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.cl != cl {
		return // of an earlier subscription
	}
	for topic, ps := range tps {
		for _, n := range ps {
			tp := stream.TopicPartition{Topic: topic, Partition: n}
			delete(c.mu.spots, tp)
			c.drop(tp)
		}
	}
}

// drop forgets what was fetched ahead of a partition, and that it failed; c.mu is held.
func (c *consumer) drop(tp stream.TopicPartition) {
	c.mu.failures = slices.DeleteFunc(c.mu.failures, func(e *stream.PartitionError) bool { return e.TopicPartition == tp })
	c.mu.ahead = slices.DeleteFunc(c.mu.ahead, func(r stream.Record) bool { return tpOf(&r) == tp })
}

func (c *consumer) Unsubscribe() error { return c.replace(nil, false, nil, nil) }

func (c *consumer) Assign(tps ...stream.TopicPartition) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := c.c.known(ctx, tps...); err != nil {
		return err
	}
	cl, err := c.c.dial(c.options()...)
	if err != nil {
		return err
	}
	return c.replace(cl, false, nil, tps)
}

// follow finds the partitions of topics that are subscribed to without a group.
func (c *consumer) follow(ctx context.Context) error {
	c.mu.Lock()
	topics := c.mu.topics
	c.mu.Unlock()
	for _, topic := range topics {
		n, err := c.c.partitions(ctx, topic)
		if err != nil {
			continue // a subscription waits for its topics to be made
		}
		c.mu.Lock()
		for i := range n {
			if tp := (stream.TopicPartition{Topic: topic, Partition: int32(i)}); c.mu.spots[tp] == nil {
				c.mu.spots[tp] = newSpot()
			}
		}
		c.mu.Unlock()
	}
	return ctx.Err()
}

// place finds the positions of partitions that have none: the group's committed offsets, or what the reset policy says.
func (c *consumer) place(ctx context.Context, tps []stream.TopicPartition) error {
	c.mu.Lock()
	tps = slices.DeleteFunc(slices.Clone(tps), func(tp stream.TopicPartition) bool {
		s := c.mu.spots[tp]
		return s == nil || s.position >= 0
	})
	c.mu.Unlock()
	if len(tps) == 0 {
		return nil
	}
	found := stream.Offsets{}
	if c.cfg.Group != "" {
		o, err := c.c.committed(ctx, c.cfg.Group, tps)
		if err != nil {
			return err
		}
		maps.Copy(found, o)
	}
	rest := slices.DeleteFunc(slices.Clone(tps), func(tp stream.TopicPartition) bool { _, ok := found[tp]; return ok })
	if len(rest) > 0 && c.cfg.Reset == stream.ResetNone {
		return &stream.PartitionError{TopicPartition: rest[0], Offset: -1, Err: kafka.ErrNoOffset}
	}
	ms := int64(atEnd)
	if c.cfg.Reset == stream.ResetEarliest {
		ms = atStart
	}
	o, err := c.c.list(ctx, ms, c.cfg.Isolation, rest)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tp := range tps {
		s := c.mu.spots[tp]
		if s == nil || s.position >= 0 {
			continue
		}
		if at, ok := found[tp]; ok {
			s.position, s.epoch = at.Offset, at.LeaderEpoch
			continue
		}
		s.position = o[tp].Offset
	}
	return nil
}

func (c *consumer) Assignment() []stream.TopicPartition {
	return c.which(func(*spot) bool { return true })
}

func (c *consumer) Paused() []stream.TopicPartition {
	return c.which((*spot).idle)
}

func (c *consumer) which(want func(*spot) bool) (tps []stream.TopicPartition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for tp, s := range c.mu.spots {
		if want(s) {
			tps = append(tps, tp)
		}
	}
	slices.SortFunc(tps, func(a, b stream.TopicPartition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return tps
}

func (c *consumer) Group() stream.GroupMetadata {
	c.mu.Lock()
	cl, member := c.mu.cl, c.mu.member
	c.mu.Unlock()
	g := stream.GroupMetadata{Group: c.cfg.Group, InstanceID: c.cfg.InstanceID, Generation: -1}
	if member {
		g.MemberID, g.Generation = cl.GroupMetadata()
	}
	return g
}

func (c *consumer) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return nil
	}
	c.mu.Unlock()
	err := c.autoCommit(ctx)
	c.mu.Lock()
	c.mu.closed = true
	cl := c.mu.cl
	c.mu.Unlock()
	if cl != nil {
		cl.Close()
	}
	c.mu.Lock()
	clear(c.mu.spots)
	c.mu.Unlock()
	c.c.unregister(c)
	return err
}
