package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/runnelmq/runnel/stream"
)

// COMMIT: every lane is a caller of CommitOffsets with a partition for itself, whose records are durable: it commits the position behind each of them in turn. What it
// has committed is read back at once, on both sides, and the last positions once more after everything has been closed and opened again.

// commitGroups has each caller commit with a consumer, and a group, of its own.
func commitGroups(_ context.Context, e *env, w *workload) (*job, error) {
	return newCommitJob(e, w, w.lanes)
}

// commitOne has them share one.
func commitOne(_ context.Context, e *env, w *workload) (*job, error) {
	return newCommitJob(e, w, 1)
}

func newCommitJob(e *env, w *workload, groups int) (*job, error) {
	c := &commitWork{e: e, w: w, gen: newGenerator(100), groups: groups}
	return &job{
		sides: []side{{runnelLabel, c.runnel}, {"pebble: Set with Sync of keys and values of the same sizes, Get", c.pebble}},
		close: noClose,
	}, nil
}

type commitWork struct {
	e      *env
	w      *workload
	gen    *generator // of the records
	groups int
}

// groupOf names the group that a lane commits for.
func (c *commitWork) groupOf(lane int) string { return fmt.Sprintf("group-%02d", lane%c.groups) }

func partition(lane int) stream.TopicPartition {
	return stream.TopicPartition{Topic: topic, Partition: int32(lane)}
}

func (c *commitWork) runnel(ctx context.Context) (_ sample, err error) {
	s, err := c.e.start(ctx, c.w.lanes)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	n := c.w.perLane(c.e)
	for lane := range c.w.lanes {
		if err := fill(ctx, s.client, c.gen, lane, n); err != nil {
			return sample{}, err
		}
	}
	consumers := make([]stream.Consumer, c.groups)
	for i := range consumers {
		if consumers[i], err = committer(ctx, s, c.groupOf(i)); err != nil {
			return sample{}, err
		}
		defer func() { err = errors.Join(err, consumers[i].Close(ctx)) }()
	}
	calls := make([]call, c.w.lanes)
	for lane := range calls {
		calls[lane] = commitCall(ctx, consumers[lane%c.groups], partition(lane))
	}
	taken, err := c.run(calls)
	if err != nil {
		return sample{}, err
	}
	if err := s.reopen(c.e); err != nil {
		return sample{}, err
	}
	for lane := range c.w.lanes {
		at, err := c.committed(ctx, s.client, lane)
		if err = errors.Join(err, c.last(lane, at)); err != nil {
			return sample{}, err
		}
	}
	taken.read = c.w.records(c.e)
	return taken, nil
}

// committer returns a member of a group that has all partitions and reads nothing.
func committer(ctx context.Context, s *session, group string) (stream.Consumer, error) {
	consumer, err := s.client.NewConsumer(ctx, stream.ConsumerConfig{Group: group, Topics: []string{topic}, ManualCommit: true, MaxWait: -1})
	if err != nil {
		return nil, err
	}
	if _, err := consumer.PollInto(ctx, make([]stream.Record, 1)); err != nil {
		return nil, errors.Join(err, consumer.Close(ctx))
	}
	return consumer, nil
}

// commitCall commits the position behind one record after the other, and returns where the group stands then.
func commitCall(ctx context.Context, consumer stream.Consumer, tp stream.TopicPartition) call {
	o := stream.Offsets{}
	next := int64(0)
	return func(_, _ []byte) (int64, error) {
		next++
		o[tp] = stream.OffsetMetadata{Offset: next}
		if err := consumer.CommitOffsets(ctx, o); err != nil {
			return 0, err
		}
		stands, err := consumer.Committed(ctx, tp)
		return stands[tp].Offset, err
	}
}

// run has the callers commit, and compares what they were told.
func (c *commitWork) run(calls []call) (sample, error) {
	n := c.w.perLane(c.e)
	callers := newCallers(c.gen, calls, n)
	taken, err := callers.run(n, true)
	if err != nil {
		return sample{}, err
	}
	for lane, told := range callers.receipts {
		for i, at := range told {
			if at != int64(i+1) {
				return sample{}, fmt.Errorf("partition %d of %s: offset %d is committed where %d was", lane, c.groupOf(lane), at, i+1)
			}
		}
	}
	return taken, nil
}

// last compares what is there after everything has been opened again with the last commit of a lane.
func (c *commitWork) last(lane int, at int64) error {
	if n := c.w.perLane(c.e); at != int64(n) {
		return fmt.Errorf("partition %d of %s: offset %d is committed after opening again where %d was", lane, c.groupOf(lane), at, n)
	}
	return nil
}

// committed asks somebody who is not of the group.
func (c *commitWork) committed(ctx context.Context, client stream.Client, lane int) (int64, error) {
	group, tp := c.groupOf(lane), partition(lane)
	infos, err := client.Admin().Groups(ctx, group)
	if err != nil {
		return 0, err
	}
	return infos[0].Offsets[tp].Offset, nil
}
