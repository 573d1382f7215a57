package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/stream"
)

func (c *consumer) Poll(ctx context.Context, max int) ([]stream.Record, error) {
	if max < 1 {
		max = 500
	}
	dst := make([]stream.Record, min(max, 10_000))
	n, err := c.PollInto(ctx, dst)
	return dst[:n:n], err
}

func (c *consumer) PollInto(ctx context.Context, dst []stream.Record) (int, error) {
	if err := c.fetch(ctx, len(dst)); err != nil {
		return 0, err
	}
	n := 0
	for ; n < len(dst); n++ {
		r, ok := c.take()
		if !ok {
			break
		}
		dst[n] = r
	}
	return n, nil
}

// take hands over the next record that was fetched.
func (c *consumer) take() (stream.Record, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.ahead) == 0 {
		return stream.Record{}, false
	}
	r := c.mu.ahead[0]
	c.mu.ahead = c.mu.ahead[1:]
	s := c.mu.spots[tpOf(&r)]
	s.position, s.epoch = r.Offset+1, r.LeaderEpoch
	return r, true
}

// fetch waits until there is a record to hand over, or MaxWait has passed.
func (c *consumer) fetch(ctx context.Context, max int) error {
	select {
	case c.polling <- struct{}{}:
		defer func() { <-c.polling }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	c.mu.body = nil
	due := !c.cfg.ManualCommit && c.cfg.Group != "" && time.Since(c.mu.lastCommit) >= c.cfg.CommitInterval
	c.mu.Unlock()
	if due {
		if err := c.autoCommit(ctx); err != nil {
			return err
		}
	}
	deadline := time.Now().Add(c.cfg.MaxWait)
	for {
		again, err := c.fetchOnce(ctx, deadline, max)
		if err != nil || !again {
			return err
		}
	}
}

// fetchOnce reports whether it has to be called again: the subscription was replaced while it waited.
func (c *consumer) fetchOnce(ctx context.Context, deadline time.Time, max int) (again bool, err error) {
	c.mu.Lock()
	cl, closed, ready := c.mu.cl, c.mu.closed, len(c.mu.ahead) > 0
	var failure *stream.PartitionError
	if !ready && len(c.mu.failures) > 0 {
		failure, c.mu.failures = c.mu.failures[0], c.mu.failures[1:]
	}
	c.mu.Unlock()
	switch {
	case closed:
		return false, kafka.ErrClosed
	case cl == nil:
		return false, kafka.ErrNoSubscription
	case ready || max == 0:
		return false, nil
	case failure != nil:
		return false, failure
	}
	if err := c.feed(ctx); err != nil {
		return false, err
	}
	var wait context.Context // nil: PollRecords takes what is there
	if c.cfg.MaxWait >= 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	fs := cl.PollRecords(wait, max)
	return c.keep(ctx, cl, fs)
}

// keep takes in what a poll of cl brought.
func (c *consumer) keep(ctx context.Context, cl *kgo.Client, fs kgo.Fetches) (again bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return false, kafka.ErrClosed
	}
	if c.mu.cl != cl {
		return true, nil
	}
	fs.EachRecord(func(k *kgo.Record) {
		r := delivered(k)
		s := c.mu.spots[tpOf(&r)]
		if s != nil && !s.idle() && s.fed { // else its position was set meanwhile
			c.mu.ahead = append(c.mu.ahead, r)
		}
	})
	for _, e := range fs.Errors() {
		switch {
		case errors.Is(e.Err, context.DeadlineExceeded) || errors.Is(e.Err, context.Canceled):
		case e.Partition < 0 || e.Topic == "":
			return false, fault(e.Err)
		default:
			s := c.mu.spots[stream.TopicPartition{Topic: e.Topic, Partition: e.Partition}]
			if s == nil || s.failed || !s.fed {
				continue // given up, or told already, or of where it is not read any more
			}
			if k := (*kerr.Error)(nil); c.mu.member && c.cfg.Reset == stream.ResetNone && !errors.As(e.Err, &k) {
				e.Err = kafka.ErrNoOffset // kgo has an error for it that has no name
			}
			s.failed, s.fed = true, false
			c.mu.failures = append(c.mu.failures, partitionFault(e, s.position))
		}
	}
	if len(c.mu.ahead) == 0 && len(c.mu.failures) > 0 {
		err, c.mu.failures = c.mu.failures[0], c.mu.failures[1:]
		return false, err
	}
	if len(c.mu.ahead) == 0 {
		return false, ctx.Err()
	}
	return false, nil
}

func partitionFault(e kgo.FetchError, at int64) *stream.PartitionError {
	return &stream.PartitionError{TopicPartition: stream.TopicPartition{Topic: e.Topic, Partition: e.Partition}, Offset: at, Err: fault(e.Err)}
}

// delivered is a record as it came.
func delivered(k *kgo.Record) stream.Record {
	r := stream.Record{Topic: k.Topic, Partition: k.Partition, Key: k.Key, Value: k.Value, Timestamp: k.Timestamp, Offset: k.Offset, LeaderEpoch: k.LeaderEpoch}
	for _, h := range k.Headers {
		r.Headers = append(r.Headers, stream.Header{Key: h.Key, Value: h.Value})
	}
	return r
}

// feed makes kgo read where the positions are. Partitions of a member without a position are left to kgo, which asks for the committed offsets itself.
func (c *consumer) feed(ctx context.Context) error {
	if err := c.follow(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	cl, member := c.mu.cl, c.mu.member
	c.mu.Unlock()
	if cl == nil {
		return nil
	}
	if !member {
		if err := c.place(ctx, c.Assignment()); err != nil {
			return err
		}
	}
	add, set := map[string]map[int32]kgo.Offset{}, map[string]map[int32]kgo.EpochOffset{}
	c.mu.Lock()
	for tp, s := range c.mu.spots {
		if s.fed || s.position < 0 || s.idle() {
			continue
		}
		s.fed = true
		if member {
			put(set, tp, kgo.EpochOffset{Epoch: -1, Offset: s.position})
		} else {
			put(add, tp, kgo.NewOffset().At(s.position))
		}
	}
	c.mu.Unlock()
	if len(set) > 0 {
		cl.SetOffsets(set)
	}
	if len(add) > 0 {
		out := map[string][]int32{}
		for topic, ps := range add {
			for n := range ps {
				out[topic] = append(out[topic], n)
			}
		}
		cl.RemoveConsumePartitions(out)
		cl.AddConsumePartitions(add)
	}
	return nil
}

func put[T any](m map[string]map[int32]T, tp stream.TopicPartition, v T) {
	if m[tp.Topic] == nil {
		m[tp.Topic] = map[int32]T{}
	}
	m[tp.Topic][tp.Partition] = v
}

func (c *consumer) Records(ctx context.Context) iter.Seq2[stream.Record, error] {
	return func(yield func(stream.Record, error) bool) {
		for {
			if err := c.fetch(ctx, 256); err != nil {
				if !yield(stream.Record{}, err) || ctx.Err() != nil || errors.Is(err, kafka.ErrClosed) || errors.Is(err, kafka.ErrNoSubscription) {
					return
				}
				continue
			}
			if !c.yieldAll(yield) {
				return
			}
		}
	}
}

// yieldAll yields what was fetched and reports whether the loop goes on. A position moves behind a record before the body sees it.
func (c *consumer) yieldAll(yield func(stream.Record, error) bool) bool {
	for {
		r, ok := c.take()
		if !ok {
			return true
		}
		c.mu.Lock()
		c.mu.body = &r
		c.mu.Unlock()
		if !yield(r, nil) {
			return false
		}
		c.mu.Lock()
		c.mu.body = nil
		c.mu.Unlock()
	}
}

func (c *consumer) Batches(ctx context.Context, max int, wait time.Duration) iter.Seq2[[]stream.Record, error] {
	return func(yield func([]stream.Record, error) bool) { yield(nil, kafka.ErrUnsupported) }
}

func (c *consumer) Pause(tps ...stream.TopicPartition)  { c.setPaused(tps, true) }
func (c *consumer) Resume(tps ...stream.TopicPartition) { c.setPaused(tps, false) }

func (c *consumer) setPaused(tps []stream.TopicPartition, paused bool) {
	c.mu.Lock()
	tps = slices.DeleteFunc(slices.Clone(tps), func(tp stream.TopicPartition) bool { return c.mu.spots[tp] == nil })
	for _, tp := range tps {
		c.mu.spots[tp].paused = paused
		c.mu.spots[tp].failed = c.mu.spots[tp].failed && paused
		c.mu.spots[tp].fed = false // kgo is behind what it has given: it begins at the position again
		c.drop(tp)
	}
	cl := c.mu.cl
	c.mu.Unlock()
	if cl == nil || len(tps) == 0 {
		return
	}
	if paused {
		cl.PauseFetchPartitions(byTopic(tps))
	} else {
		cl.ResumeFetchPartitions(byTopic(tps))
	}
}

func (c *consumer) Seek(tp stream.TopicPartition, offset int64) error {
	if offset < 0 {
		return fmt.Errorf("%w: %d", kafka.ErrOffsetOutOfRange, offset)
	}
	return c.move(stream.Offsets{tp: {Offset: offset}})
}

// move sets positions; kgo follows at the next poll.
func (c *consumer) move(o stream.Offsets) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return kafka.ErrClosed
	}
	for tp := range o {
		if c.mu.spots[tp] == nil {
			return fmt.Errorf("%w: %s", kafka.ErrNotAssigned, tp)
		}
	}
	for tp, at := range o {
		s := c.mu.spots[tp]
		s.position, s.epoch, s.fed, s.failed = at.Offset, -1, false, false
		c.drop(tp)
	}
	return nil
}

// moveTo sets positions to where a time, or an end, is; a partition without a record at or after that time is set to its end.
func (c *consumer) moveTo(ctx context.Context, ms int64, tps []stream.TopicPartition) error {
	if len(tps) == 0 {
		tps = c.Assignment()
	}
	to, err := c.c.list(ctx, atEnd, c.cfg.Isolation, tps)
	if err != nil {
		return err
	}
	if ms != atEnd {
		found, err := c.c.list(ctx, ms, c.cfg.Isolation, tps)
		if err != nil {
			return err
		}
		for tp, at := range found {
			to[tp] = at
		}
	}
	return c.move(to)
}

func (c *consumer) SeekToTime(ctx context.Context, t time.Time, tps ...stream.TopicPartition) error {
	return c.moveTo(ctx, t.UnixMilli(), tps)
}

func (c *consumer) SeekToStart(tps ...stream.TopicPartition) error {
	return c.moveTo(context.Background(), atStart, tps)
}

func (c *consumer) SeekToEnd(tps ...stream.TopicPartition) error {
	return c.moveTo(context.Background(), atEnd, tps)
}

func (c *consumer) Position(tp stream.TopicPartition) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := c.place(ctx, []stream.TopicPartition{tp}); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return 0, kafka.ErrClosed
	}
	s := c.mu.spots[tp]
	if s == nil {
		return 0, fmt.Errorf("%w: %s", kafka.ErrNotAssigned, tp)
	}
	return s.position, nil
}
