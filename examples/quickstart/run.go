package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/runnelmq/runnel/stream"
)

const (
	partitions = 4
	name       = "quickstart" // of the producer and of the consumer's group
)

// run produces and counts lines. At its end, and when ctx ends, it writes to stdout how many lines have been counted in dir.
func run(ctx context.Context, dir string, files []string, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	eng, err := stream.Open(dir, nil)
	if err != nil {
		return err
	}
	// Close ends the producer and the consumer too, and makes everything durable.
	defer func() { err = errors.Join(err, eng.Close()) }()

	// What survives a power cut? Lines of files may be lost from the topic, because they can be read again: AcksWritten survives kill -9, and
	// LastSequence falls back together with the log. Nobody can give the lines of standard input back: AcksSynced, the
	// default, has them on the disk before more is read.
	topic, acks := "lines", stream.AcksWritten
	if len(files) == 0 {
		topic, acks = "stdin", stream.AcksSynced
		fmt.Fprintln(stderr, "reading standard input, which cannot be read again: its lines are added to those of earlier runs, "+
			"and lines that a killed run had read but not stored are lost")
	}
	err = eng.Admin().CreateTopic(ctx, topic, stream.TopicConfig{Partitions: partitions})
	if err != nil && !errors.Is(err, stream.ErrTopicExists) {
		return err
	}
	p, err := eng.NewProducer(ctx, stream.ProducerConfig{Name: name, Acks: acks})
	if err != nil {
		return err
	}
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{
		Group:        name,
		Topics:       []string{topic},
		Reset:        stream.ResetEarliest, // the group's first run begins with the first line
		ManualCommit: true,
		MaxWait:      50 * time.Millisecond,
	})
	if err != nil {
		return err
	}

	pr, err := newProgress(ctx, eng, c, topic, stderr)
	if err != nil {
		return err
	}
	var done [partitions]mark
	if len(files) > 0 {
		if done, err = stored(ctx, eng, p, topic); err != nil {
			return err
		}
		if err := check(ctx, files, done); err != nil {
			return err
		}
	}

	produced := make(chan error, 1)
	go func() {
		// Ends with the input. When the run ends before, closing the engine makes its next batch fail.
		produced <- produce(ctx, p, topic, newInput(files, stdin), done, pr)
		close(produced)
	}()
	if err := count(ctx, c, produced, pr); err != nil && ctx.Err() == nil {
		return err
	}
	n, err := committed(context.WithoutCancel(ctx), c)
	if err != nil {
		return err
	}
	pr.end(n)
	fmt.Fprintf(stdout, "%d lines counted\n", n)
	return ctx.Err()
}
