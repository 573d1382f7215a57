package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/runnelmq/runnel/group"
	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
)

// commitDue makes the automatic commit if its interval has passed: of what earlier polls have handed over. One that failed with the storage is made by a later poll.
func (c *consumer) commitDue(ctx context.Context) error {
	if !c.commitsItself() { // nor looks at the clock
		return nil
	}
	c.mu.Lock()
	due := time.Since(c.mu.lastCommit) >= c.c.CommitInterval
	c.mu.Unlock()
	if !due {
		return nil
	}
	err := c.autoCommit(ctx)
	if errors.Is(err, kafka.ErrMetaFailed) || errors.Is(err, kafka.ErrPartitionFailed) || fenced(err) {
		// It passes by itself, the engine has reported it, and the next commit covers what this one should have: reading goes on.
		c.e.o.Logger.Warn("automatic commit", "group", c.c.Group, "error", err)
		return nil
	}
	return err
}

func (c *consumer) commitsItself() bool { return c.c.Group != "" && !c.c.ManualCommit }

// autoCommit commits positions that lie above what is committed, if commits are automatic: one never goes back, and they run one at a time.
func (c *consumer) autoCommit(ctx context.Context) error {
	if !c.commitsItself() {
		return nil
	}
	select {
	case c.commits <- struct{}{}:
		defer func() { <-c.commits }()
	case <-ctx.Done():
		return kafka.ContextError(ctx)
	}
	if err := c.afterAsync(ctx); err != nil { // it has the last word about what is committed
		return err
	}
	c.mu.Lock()
	c.mu.lastCommit = time.Now()
	id := c.committer()
	var cs []broker.Commit
	for _, t := range c.mu.tracks {
		o, due, err := c.automatic(t)
		if err != nil {
			c.mu.Unlock()
			return err
		}
		if due {
			cs = append(cs, o)
		}
	}
	c.mu.Unlock()
	// A partition that cannot be made durable keeps no other from being committed; its own reader will hear of it.
	good := cs[:0]
	for i, err := range broker.WaitDurable(ctx, cs) {
		o := cs[i]
		if err == nil {
			good = append(good, o)
			continue
		}
		if ctx.Err() != nil || errors.Is(err, kafka.ErrClosed) {
			return err
		}
		c.leftOut(o.Partition.TopicPartition(), err)
	}
	if len(good) == 0 {
		return nil
	}
	return c.commit(ctx, id, good)
}

// leftOut says that an automatic commit goes on without a partition: its own reader will hear of the reason.
func (c *consumer) leftOut(tp TopicPartition, err error) {
	c.e.o.Logger.Warn("partition is left out of an automatic commit", "group", c.c.Group, "partition", tp, "error", err)
}

// automatic returns what an automatic commit covers of a track; c.mu is held.
func (c *consumer) automatic(t *track) (o broker.Commit, due bool, err error) {
	if t.position < 0 || t.p.Topic().Deleted() {
		return o, false, nil
	}
	if err := c.enterLife(t); err != nil {
		if passing(err) || errors.Is(err, kafka.ErrClosed) {
			return o, false, err
		}
		c.leftOut(t.tp, err)
		return o, false, nil
	}
	o = broker.Commit{Partition: t.p, Offset: t.position, LeaderEpoch: t.epoch, Life: t.life}
	if t.body >= 0 {
		o.Offset = min(o.Offset, t.body)
	}
	if t.committed == unknownOffset {
		at, ok, err := c.e.b.CommittedOffset(c.c.Group, t.p)
		if err != nil {
			return o, false, err
		}
		t.committed = kafka.NoOffset
		if ok {
			t.committed = at.Offset
		}
	}
	least := t.committed
	if c.c.Reset == ResetEarliest {
		least = max(least, 0) // who reads nothing of an empty log begins there anyway
	}
	if o.Offset <= least {
		return o, false, nil
	}
	_, end, _, err := t.p.Bounds()
	return o, o.Offset <= end, err
}

// commit commits as who the consumer was when cs was found, after the asynchronous commits that were there before.
func (c *consumer) commit(ctx context.Context, id committer, cs []broker.Commit) error {
	if err := c.afterAsync(ctx); err != nil {
		return err
	}
	defer c.async.beginSync()()
	return c.commitNow(ctx, id, cs)
}

// committer is who commits.
type committer struct {
	group.Identity
	out bool // it has to be a member and is none
}

// committer is who the consumer is; c.mu is held.
func (c *consumer) committer() committer {
	return committer{c.identity(), c.grouped() && c.mu.member.id == ""}
}

// commitNow commits and remembers what is committed.
func (c *consumer) commitNow(ctx context.Context, id committer, cs []broker.Commit) error {
	if c.c.Group == "" {
		return fmt.Errorf("%w: this consumer has none", kafka.ErrInvalidGroup)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if id.out {
		return fmt.Errorf("%w: the consumer is not in group %s now", kafka.ErrUnknownMember, c.c.Group)
	}
	if len(cs) == 0 {
		return nil
	}
	err := c.e.b.CommitOffsets(ctx, id.Identity, cs)
	if errors.Is(err, kafka.ErrIllegalGeneration) && c.followed(&id.Identity, cs) {
		err = c.e.b.CommitOffsets(ctx, id.Identity, cs)
	}
	if err == nil {
		c.committed(cs)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if fenced(err) && c.mu.closed {
		return kafka.ErrClosed // it has left the group meanwhile
	}
	if errors.Is(err, kafka.ErrFenced) && c.mu.member.id != id.MemberID && c.mu.member.fatal == nil { // by itself, come back under another id
		return fmt.Errorf("%w: %s", kafka.ErrUnknownMember, id.MemberID)
	}
	if err != nil {
		return err
	}
	for _, o := range cs {
		if t := c.mu.byTP[o.Partition.TopicPartition()]; t != nil && t.p == o.Partition {
			t.committed = o.Offset
		}
	}
	return nil
}

func (c *consumer) Commit(ctx context.Context) error {
	id, cs, err := c.whereItIs()
	if err != nil {
		return err
	}
	return c.commit(ctx, id, cs)
}

// whereItIs is what Commit covers, and who commits it.
func (c *consumer) whereItIs() (id committer, cs []broker.Commit, err error) {
	if err := c.lock(); err != nil {
		return id, nil, err
	}
	defer c.mu.Unlock()
	for _, t := range c.mu.tracks {
		if t.position < 0 {
			continue
		}
		if err := c.enterLife(t); err != nil {
			return id, nil, err
		}
		cs = append(cs, broker.Commit{Partition: t.p, Offset: t.position, LeaderEpoch: t.epoch, Life: t.life})
	}
	return c.committer(), cs, nil
}

func (c *consumer) CommitRecords(ctx context.Context, rs ...Record) error {
	o := Offsets{}
	for i := range rs {
		r := &rs[i]
		tp := TopicPartition{Topic: r.Topic, Partition: r.Partition}
		if c.isLost(r) {
			return fmt.Errorf("%s: %w: the partition has failed since, and lost the record at offset %d", tp, kafka.ErrOffsetOutOfRange, r.Offset)
		}
		if at, ok := o[tp]; !ok || r.Offset+1 > at.Offset {
			o[tp] = OffsetMetadata{Offset: r.Offset + 1, LeaderEpoch: r.LeaderEpoch}
		}
	}
	return c.CommitOffsets(ctx, o)
}

// isLost reports whether a record was handed over by this consumer and has been lost since.
func (c *consumer) isLost(r *Record) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.mu.byTP[TopicPartition{Topic: r.Topic, Partition: r.Partition}]
	if t == nil || t.position < 0 || c.enterLife(t) != nil {
		return false // what is wrong shows when the offset is committed
	}
	return r.Offset >= t.lost.from && r.Offset < t.lost.to && r.LeaderEpoch < t.life.Epoch()
}

func (c *consumer) CommitOffsets(ctx context.Context, o Offsets) error {
	id, cs, err := c.commitsOf(o)
	if err != nil {
		return err
	}
	return c.commit(ctx, id, cs)
}

// commitsOf is what CommitOffsets covers, and who commits it.
func (c *consumer) commitsOf(o Offsets) (id committer, cs []broker.Commit, err error) {
	if cs, err = c.e.commits(o); err != nil {
		return id, nil, err
	}
	if err := c.lock(); err != nil {
		return id, nil, err
	}
	defer c.mu.Unlock()
	return c.committer(), cs, nil
}

// commits finds the partitions of offsets.
func (e *Engine) commits(o Offsets) ([]broker.Commit, error) {
	cs := make([]broker.Commit, 0, len(o))
	for tp, at := range o {
		p, err := e.b.Partition(tp)
		if err != nil {
			return nil, err
		}
		cs = append(cs, broker.Commit{Partition: p, Offset: at.Offset, LeaderEpoch: at.LeaderEpoch, Metadata: at.Metadata})
	}
	return cs, nil
}

func (c *consumer) Committed(ctx context.Context, tps ...TopicPartition) (Offsets, error) {
	if c.c.Group == "" {
		return nil, fmt.Errorf("%w: this consumer has none", kafka.ErrInvalidGroup)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := c.lock(); err != nil {
		return nil, err
	}
	c.mu.Unlock()
	if len(tps) == 0 {
		tps = c.Assignment()
	}
	out := Offsets{}
	for _, tp := range tps {
		p, err := c.e.b.Partition(tp)
		if err != nil {
			return nil, err
		}
		o, ok, err := c.e.b.CommittedOffset(c.c.Group, p)
		if err != nil {
			return nil, err
		}
		if ok {
			out[tp] = OffsetMetadata{o.Offset, o.LeaderEpoch, o.Metadata}
		}
	}
	return out, nil
}
