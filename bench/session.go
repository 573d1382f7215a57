package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/runnelmq/runnel/stream"
)

// pollSize is how many records a poll may return.
const pollSize = 2048

// A session is an engine in a new directory with the topic in it.
type session struct {
	client stream.Client
	dir    string
	remove func() error
}

func (e *env) start(ctx context.Context, partitions int) (_ *session, err error) {
	dir, remove, err := e.scratch()
	if err != nil {
		return nil, err
	}
	s := &session{dir: dir, remove: remove}
	if s.client, err = e.open(dir); err != nil {
		return nil, errors.Join(err, remove())
	}
	if err := s.client.Admin().CreateTopic(ctx, topic, stream.TopicConfig{Partitions: partitions}); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// close closes the engine and removes the directory.
func (s *session) close() error { return errors.Join(s.client.Close(), s.remove()) }

// reopen closes the engine and opens it again.
func (s *session) reopen(e *env) error {
	if err := s.client.Close(); err != nil {
		return err
	}
	client, err := e.open(s.dir)
	if err == nil {
		s.client = client
	}
	return err
}

// consumer returns a consumer at the start of the partition.
func (s *session) consumer(ctx context.Context, partition int, borrow bool) (stream.Consumer, error) {
	c, err := s.client.NewConsumer(ctx, stream.ConsumerConfig{Reset: stream.ResetEarliest, Borrow: borrow, MaxWait: -1})
	if err != nil {
		return nil, err
	}
	if err := c.Assign(stream.TopicPartition{Topic: topic, Partition: int32(partition)}); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return c, nil
}

// A poller is the part of a consumer that reading needs.
type poller interface {
	PollInto(ctx context.Context, dst []stream.Record) (int, error)
}

// take polls until it has n records or more, and hands over each poll's.
func take(ctx context.Context, p poller, dst []stream.Record, n int, each func(rs []stream.Record) error) error {
	for got := 0; got < n; {
		m, err := p.PollInto(ctx, dst)
		if err != nil {
			return err
		}
		if m == 0 {
			return fmt.Errorf("the log ends behind %d of %d records", got, n)
		}
		if err := each(dst[:m]); err != nil {
			return err
		}
		got += m
	}
	return nil
}

// ended says whether there is nothing more to be read.
func ended(ctx context.Context, p poller, dst []stream.Record) error {
	n, err := p.PollInto(ctx, dst)
	if err == nil && n > 0 {
		err = fmt.Errorf("there are more records than were sent: offset %d", dst[0].Offset)
	}
	return err
}

// readBack gives all records of a partition to a checker and looks whether that is all, perLane records a lane. It returns how many they were.
func (s *session) readBack(ctx context.Context, partition int, borrow bool, c *checker, perLane int) (n int, err error) {
	consumer, err := s.consumer(ctx, partition, borrow)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, consumer.Close(ctx)) }()
	n = perLane * len(c.next)
	dst := make([]stream.Record, pollSize)
	err = take(ctx, consumer, dst, n, func(rs []stream.Record) error { return compare(rs, partition, c) })
	if err == nil {
		err = ended(ctx, consumer, dst)
	}
	if err == nil {
		err = c.done(perLane)
	}
	return n, err
}

// compare gives polled records of a partition to its checker.
func compare(rs []stream.Record, partition int, c *checker) error {
	for i := range rs {
		r := &rs[i]
		if r.Topic != topic || int(r.Partition) != partition || len(r.Headers) != 0 {
			return fmt.Errorf("offset %d: a record of %s-%d with %d headers, in %s-%d", r.Offset, r.Topic, r.Partition, len(r.Headers), topic, partition)
		}
		if err := c.add(r.Key, r.Value, r.Offset); err != nil {
			return err
		}
	}
	return nil
}
