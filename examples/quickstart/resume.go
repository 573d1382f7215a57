package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/runnelmq/runnel/stream"
)

// mark is the last line that a partition has.
type mark struct {
	number int64  // of the line; 0: the partition is empty
	sum    uint64 // of the input up to it
}

// sumHeader is the header that carries a record's checksum: of all lines up to its own.
const sumHeader = "quickstart.sum"

// stored finds the last line of each partition.
func stored(ctx context.Context, eng *stream.Engine, p stream.Producer, topic string) (done [partitions]mark, err error) {
	// A consumer without a group has no committed offsets: it reads where it is told to.
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{})
	if err != nil {
		return done, err
	}
	defer c.Close(ctx)
	for i := range done {
		tp := stream.TopicPartition{Topic: topic, Partition: int32(i)}
		if done[i].number, err = p.LastSequence(ctx, tp); err != nil {
			return done, err
		}
		if done[i].number > 0 {
			if done[i].sum, err = lastSum(ctx, eng, c, tp); err != nil {
				return done, err
			}
		}
	}
	return done, nil
}

// lastSum returns the checksum that the last record of a partition carries.
func lastSum(ctx context.Context, eng *stream.Engine, c stream.Consumer, tp stream.TopicPartition) (uint64, error) {
	ends, err := eng.Admin().EndOffsets(ctx, tp)
	if err != nil {
		return 0, err
	}
	if err := c.Assign(tp); err != nil {
		return 0, err
	}
	if err := c.Seek(tp, ends[tp].Offset-1); err != nil {
		return 0, err
	}
	rs, err := c.Poll(ctx, 1)
	if err != nil {
		return 0, err
	}
	for _, r := range rs {
		for _, h := range r.Headers {
			if h.Key == sumHeader && len(h.Value) == 8 {
				return binary.BigEndian.Uint64(h.Value), nil
			}
		}
	}
	return 0, fmt.Errorf("the last record of %v was not written by this program", tp)
}

var errChanged = errors.New("the input is not the one that this directory has lines of; give the same files in the same order " +
	"(only lines at the end may be new), or another directory")

// check reads the files as far as lines of them are stored and compares checksums, before anything is produced.
func check(ctx context.Context, files []string, done [partitions]mark) error {
	var last int64
	sums := map[int64]uint64{}
	for _, m := range done {
		last = max(last, m.number)
		sums[m.number] = m.sum
	}
	in := newInput(files, nil)
	defer in.close()
	for in.number < last {
		if _, err := in.next(); err == io.EOF {
			return fmt.Errorf("%w: it has %d lines, but line %d is stored", errChanged, in.number, last)
		} else if err != nil {
			return err
		}
		if sum, ok := sums[in.number]; ok && sum != in.sum {
			return fmt.Errorf("%w: there is a difference at or before %s:%d", errChanged, in.name, in.line)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
