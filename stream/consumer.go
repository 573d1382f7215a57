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
	"sync/atomic"
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
	defaultPollInterval   = 5 * time.Minute
	defaultSession        = 45 * time.Second
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

	assignors   []Assignor
	cooperative bool
	pollTimer   wheel.Timer
	retry       wheel.Timer // wakes the poll when the membership goes on
	answers     answers
	summoned    atomic.Bool // the group wants to be asked
	telling     atomic.Bool // the listener is being called
	async       asyncCommits

	mu struct {
		sync.Mutex
		closing    bool // polls end
		closed     bool
		sub        subscription
		changes    int64 // of the topics, when the subscription was last followed
		member     membership
		watched    pollWatch
		lenders    []*track // given up since the last poll, whose records may still be borrowed
		tracks     []*track // assigned, by topic and number
		byTP       map[TopicPartition]*track
		turn       int // where the next poll begins
		lastCommit time.Time
	}
	arena    []byte             // see copy; c.polling is held
	plainer  batch.Decompressor // c.polling is held
	scratch  []Record           // of Poll; c.polling is held
	watching []*track           // by the poll that waits; c.polling is held
	runs     []run              // of the last collect; c.polling is held
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
	if c.MaxPollInterval == 0 {
		c.MaxPollInterval = defaultPollInterval
	}
	if c.SessionTimeout == 0 {
		c.SessionTimeout = defaultSession
	}
	c.ManualCommit = c.ManualCommit || e.o.ReadOnly
	co := &consumer{e: e, c: c, waiter: broker.NewWaiter(),
		polling: make(chan struct{}, 1), commits: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{})}
	co.timer.Init(co.waiter.Wake)
	co.pollTimer.Init(co.pollTimeout)
	co.retry.Init(co.waiter.Wake)
	co.assignors = c.Assignors
	if len(co.assignors) == 0 {
		co.assignors = []Assignor{CooperativeStickyAssignor()}
	}
	co.cooperative = !slices.ContainsFunc(co.assignors, func(a Assignor) bool { return !a.Cooperative() })
	co.mu.member.generation = -1
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

// lockToPoll is lock for polls, which end first.
func (c *consumer) lockToPoll() error {
	c.mu.Lock()
	if c.mu.closing {
		c.mu.Unlock()
		return kafka.ErrClosed
	}
	return nil
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
	return c.replace(subscription{}, nil)
}

// replace puts another subscription, or assignment, in the place of the one that there is.
func (c *consumer) replace(s subscription, ps []*broker.Partition) error {
	// What is given up is committed first.
	if err := c.lastCommit(context.Background()); err != nil {
		return err
	}
	c.mu.Lock()
	inGroup := c.mu.member.phase != phaseOut
	revoked := c.assigned()
	c.mu.Unlock()
	if inGroup {
		c.tell(RebalanceListener.Revoked, revoked)
	}
	if err := c.lock(); err != nil {
		return err
	}
	defer c.mu.Unlock()
	c.mu.sub = s
	c.leaveGroup()
	c.assign(ps)
	return nil
}

func (c *consumer) subscribe(s subscription) (err error) {
	if c.e.o.AutoCreate != nil {
		for _, t := range s.topics {
			if _, err := c.e.topic(t); err != nil {
				return err
			}
		}
	}
	if c.c.Group != "" {
		return c.subscribeInGroup(s)
	}
	if err := c.lock(); err != nil {
		return err
	}
	defer c.mu.Unlock()
	old := c.mu.sub
	c.mu.sub = s
	if err := c.follow(true); err != nil {
		c.mu.sub = old
		return err
	}
	return nil
}

// subscribeInGroup makes the subscription, and takes the first steps in the group, so that a member that has nobody to wait for has its assignment. The rest is done by polls.
func (c *consumer) subscribeInGroup(s subscription) error {
	if err := c.lastCommit(context.Background()); err != nil {
		return err
	}
	if err := c.lock(); err != nil {
		return err
	}
	if c.mu.member.phase == phaseOut {
		c.assign(nil) // of Assign
	}
	c.mu.sub = s
	c.mu.member.again = true
	c.mu.Unlock()
	c.waiter.Wake()
	if c.c.Listener != nil {
		return nil
	}
	select {
	case c.polling <- struct{}{}:
	default:
		return nil // a poll that is running does it
	}
	defer c.polled()
	if err := c.attend(context.Background()); err != nil {
		var late *PollTimeoutError
		if errors.As(err, &late) { // for the next poll, which is to hear of it
			c.mu.Lock()
			c.mu.member.evicted = late
			c.mu.Unlock()
		}
		c.e.o.Logger.Warn("join", "group", c.c.Group, "error", err) // the next poll meets it again
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
	return c.replace(subscription{}, ps)
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
			if paused && !t.paused {
				t.pausedAt = time.Now()
			}
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
	id := c.identity()
	return GroupMetadata{Group: id.Group, MemberID: id.MemberID, InstanceID: c.c.InstanceID, Generation: id.Generation}
}

func (c *consumer) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.mu.closing {
		c.mu.Unlock()
		if c.telling.Load() { // perhaps from the listener, for which the first Close waits
			return nil
		}
		return waitFor(ctx, c.ended)
	}
	defer close(c.ended)
	c.mu.closing = true
	close(c.closing)
	c.waiter.Wake()
	c.mu.Unlock()
	err := c.stopPolling(ctx)
	c.mu.Lock()
	revoked := c.assigned()
	inGroup := c.mu.member.phase != phaseOut
	c.mu.Unlock()
	if inGroup {
		c.tell(RebalanceListener.Revoked, revoked)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.closed = true
	c.e.b.Wheel().Cancel(&c.retry)
	c.leaveGroup()
	c.assign(nil)
	c.takeBack()
	c.e.unregister(c)
	return err
}

// stopPolling waits for the poll that is running, whose records are handed over before, and commits. From within the listener there is nobody to wait for.
func (c *consumer) stopPolling(ctx context.Context) error {
	if !c.telling.Load() {
		select {
		case c.polling <- struct{}{}:
			defer c.polled()
		case <-ctx.Done():
			return kafka.ContextError(ctx)
		}
	}
	return errors.Join(c.afterAsync(ctx), c.lastCommit(ctx))
}

// lastCommit is the automatic commit before partitions are given up. If the group refuses it, somebody else reads again what it would have covered.
func (c *consumer) lastCommit(ctx context.Context) error {
	err := c.autoCommit(ctx)
	if fenced(err) {
		c.e.o.Logger.Warn("commit before partitions are given up", "group", c.c.Group, "error", err)
		return nil
	}
	return err
}

// fenced reports whether a commit was refused since the member is not, or not any more, of the group's generation.
func fenced(err error) bool {
	for _, e := range []error{kafka.ErrRebalance, kafka.ErrUnknownMember, kafka.ErrIllegalGeneration, kafka.ErrFenced} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// takeBack lets go of what has been lent to the caller; c.mu is held.
func (c *consumer) takeBack() {
	for _, t := range c.mu.lenders {
		t.leave()
		t.takeBack()
	}
	c.mu.lenders = nil
}
