package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/wheel"
)

// Defaults of ConsumerConfig.
const (
	defaultCommitInterval = 5 * time.Second
	defaultMaxWait        = 500 * time.Millisecond
	defaultMaxBytes       = 50 << 20
	defaultMaxRecords     = 500    // max.poll.records
	maxRecords            = 10_000 // of one Poll
)

// consumer implements Consumer on an engine.
type consumer struct {
	e *Engine
	c ConsumerConfig

	polling chan struct{} // has room for the call that polls
	commits chan struct{} // has room for the automatic commit that runs
	closing chan struct{} // closed when Close begins
	waiter  *broker.Waiter
	timer   wheel.Timer
	ended   chan struct{} // closed when Close has ended

	mu struct {
		sync.Mutex
		closed     bool
		sub        subscription
		changes    int64          // of the topics, when the subscription was last followed
		member     *broker.Member // nil until subscribed in a group
		tracks     []*track       // assigned, by topic and number
		byTP       map[TopicPartition]*track
		turn       int // where the next poll begins
		lastCommit time.Time
		// body is the record whose loop body has not ended: automatic commits leave it out. nil: none.
		body *track
	}
	arena   []byte             // see copy; c.polling is held
	plainer batch.Decompressor // c.polling is held
	scratch []Record           // of Poll; c.polling is held
	runs    []run              // of the last collect; c.polling is held
}

// subscription is what the assignment follows.
type subscription struct {
	topics  []string
	pattern *regexp.Regexp // of the whole name
}

func (s *subscription) empty() bool { return len(s.topics) == 0 && s.pattern == nil }

// NewConsumer returns a consumer of this engine.
func (e *Engine) NewConsumer(ctx context.Context, c ConsumerConfig) (Consumer, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.CommitInterval == 0 {
		c.CommitInterval = defaultCommitInterval
	}
	if c.MaxWait == 0 {
		c.MaxWait = defaultMaxWait
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = defaultMaxBytes
	}
	c.ManualCommit = c.ManualCommit || e.o.ReadOnly
	co := &consumer{e: e, c: c, waiter: broker.NewWaiter(),
		polling: make(chan struct{}, 1), commits: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{})}
	co.timer.Init(co.waiter.Wake)
	co.mu.lastCommit = time.Now()
	if err := e.register(co); err != nil {
		return nil, err
	}
	if len(c.Topics) > 0 {
		if err := co.Subscribe(c.Topics...); err != nil {
			return nil, errors.Join(err, co.Close(ctx))
		}
	}
	return co, nil
}

func (c *consumer) lock() error {
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return kafka.ErrClosed
	}
	return nil
}

func (c *consumer) Subscribe(topics ...string) error {
	for _, t := range topics {
		if err := kafka.CheckTopicName(t); err != nil {
			return err
		}
	}
	if len(topics) == 0 {
		return c.Unsubscribe()
	}
	return c.subscribe(subscription{topics: slices.Clone(topics)})
}

func (c *consumer) SubscribeRegexp(re *regexp.Regexp) error {
	if re == nil {
		return c.Unsubscribe()
	}
	whole, err := regexp.Compile(`\A(?:` + re.String() + `)\z`)
	if err != nil {
		return fmt.Errorf("%w: %w", kafka.ErrInvalidConfig, err)
	}
	return c.subscribe(subscription{pattern: whole})
}

func (c *consumer) Unsubscribe() error {
	if err := c.autoCommit(context.Background()); err != nil {
		return err
	}
	if err := c.lock(); err != nil {
		return err
	}
	defer c.mu.Unlock()
	c.mu.sub = subscription{}
	c.leaveGroup()
	c.assign(nil)
	return nil
}

func (c *consumer) leaveGroup() {
	if c.mu.member != nil {
		c.mu.member.Leave()
		c.mu.member = nil
	}
}

func (c *consumer) subscribe(s subscription) (err error) {
	// What is given up is committed first.
	if err := c.autoCommit(context.Background()); err != nil {
		return err
	}
	if err := c.lock(); err != nil {
		return err
	}
	defer c.mu.Unlock()
	if c.c.Group != "" && c.mu.member == nil {
		if c.mu.member, err = c.e.b.Join(c.c.Group); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				c.leaveGroup()
			}
		}()
	}
	if c.e.o.AutoCreate != nil {
		for _, t := range s.topics {
			if _, err := c.e.topic(t); err != nil {
				return err
			}
		}
	}
	old := c.mu.sub
	c.mu.sub = s
	if err := c.follow(true); err != nil {
		c.mu.sub = old
		return err
	}
	return nil
}

// follow brings the assignment up to date with the topics that the subscription means. A partition that is found later than the subscription
// is read from its first record: it was made meanwhile.
func (c *consumer) follow(first bool) error {
	changes := c.e.b.Changes() // before the topics: one that is missed now is seen next time
	if c.mu.sub.empty() || !first && changes == c.mu.changes {
		return nil
	}
	topics, err := c.e.b.Topics()
	if err != nil {
		return err
	}
	var ps []*broker.Partition
	for _, t := range topics {
		if c.mu.sub.matches(t.Name()) {
			ps = append(ps, t.Partitions()...)
		}
	}
	old := c.mu.byTP
	c.assign(ps)
	c.mu.changes = changes
	for tp, t := range c.mu.byTP {
		t.fresh = t.fresh || !first && old[tp] != t
	}
	return nil
}

func (s *subscription) matches(topic string) bool {
	if s.pattern == nil {
		return slices.Contains(s.topics, topic)
	}
	return s.pattern.MatchString(topic)
}

func (c *consumer) Assign(tps ...TopicPartition) error {
	var ps []*broker.Partition
	for _, tp := range tps {
		if _, err := c.e.topic(tp.Topic); err != nil {
			return err
		}
		p, err := c.e.b.Partition(tp)
		if err != nil {
			return err
		}
		ps = append(ps, p)
	}
	if err := c.autoCommit(context.Background()); err != nil {
		return err
	}
	if err := c.lock(); err != nil {
		return err
	}
	defer c.mu.Unlock()
	c.mu.sub = subscription{}
	c.leaveGroup()
	c.assign(ps)
	return nil
}

// assign makes ps the assignment; what stays keeps its position.
func (c *consumer) assign(ps []*broker.Partition) {
	old := c.mu.byTP
	c.mu.byTP = make(map[TopicPartition]*track, len(ps))
	c.mu.tracks = nil
	for _, p := range ps {
		tp := p.TopicPartition()
		if c.mu.byTP[tp] != nil {
			continue
		}
		t := old[tp]
		if t == nil || t.p != p {
			t = newTrack(p)
		}
		c.mu.byTP[tp] = t
		c.mu.tracks = append(c.mu.tracks, t)
	}
	for tp, t := range old {
		if c.mu.byTP[tp] != t {
			t.leave()
			t.takeBack()
		}
	}
	slices.SortFunc(c.mu.tracks, func(a, b *track) int { return compareTP(a.tp, b.tp) })
	c.waiter.Wake()
}

func compareTP(a, b TopicPartition) int {
	if n := strings.Compare(a.Topic, b.Topic); n != 0 {
		return n
	}
	return cmp.Compare(a.Partition, b.Partition)
}

// track finds an assigned partition; c.mu is held.
func (c *consumer) track(tp TopicPartition) (*track, error) {
	t := c.mu.byTP[tp]
	if t == nil {
		return nil, fmt.Errorf("%w: %s", kafka.ErrNotAssigned, tp)
	}
	return t, nil
}

// selected returns the tracks of tps, all if there are none; c.mu is held.
func (c *consumer) selected(tps []TopicPartition) ([]*track, error) {
	if len(tps) == 0 {
		return slices.Clone(c.mu.tracks), nil
	}
	var ts []*track
	for _, tp := range tps {
		t, err := c.track(tp)
		if err != nil {
			return nil, err
		}
		ts = append(ts, t)
	}
	return ts, nil
}

func (c *consumer) Assignment() []TopicPartition {
	return c.list(func(*track) bool { return true })
}

func (c *consumer) Paused() []TopicPartition {
	return c.list((*track).idle)
}

func (c *consumer) list(want func(*track) bool) (tps []TopicPartition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.mu.tracks {
		if want(t) {
			tps = append(tps, t.tp)
		}
	}
	return tps
}

func (c *consumer) Pause(tps ...TopicPartition) { c.setPaused(tps, true) }

func (c *consumer) Resume(tps ...TopicPartition) { c.setPaused(tps, false) }

func (c *consumer) setPaused(tps []TopicPartition, paused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tp := range tps {
		if t := c.mu.byTP[tp]; t != nil {
			t.paused = paused
			if !paused {
				t.failure = nil
			}
		}
	}
	c.waiter.Wake()
}

// forgive goes on in a partition that was passed over since it is damaged: some of the damage has been given up.
func (c *consumer) forgive(tp TopicPartition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.mu.byTP[tp]; t != nil && errors.Is(t.failure, kafka.ErrCorrupt) {
		t.failure = nil
		c.waiter.Wake()
	}
}

func (c *consumer) Group() GroupMetadata {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.member == nil {
		return GroupMetadata{Group: c.c.Group, Generation: -1}
	}
	return GroupMetadata{Group: c.c.Group, MemberID: c.mu.member.ID, Generation: 1}
}

func (c *consumer) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return waitFor(ctx, c.ended)
	}
	defer close(c.ended)
	c.mu.closed = true
	close(c.closing)
	c.waiter.Wake()
	c.mu.Unlock()
	// A poll that is running sees closed and leaves; its records are handed over before.
	var err error
	select {
	case c.polling <- struct{}{}:
		defer c.polled()
		err = c.autoCommit(ctx)
	case <-ctx.Done():
		err = kafka.ContextError(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaveGroup()
	c.assign(nil)
	c.e.unregister(c)
	return err
}
