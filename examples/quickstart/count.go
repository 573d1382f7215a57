package main

import (
	"context"

	"github.com/runnelmq/runnel/stream"
)

// count consumes and commits until produced has ended and nothing is left.
func count(ctx context.Context, c stream.Consumer, produced <-chan error, pr *progress) error {
	rs := make([]stream.Record, 10_000)
	for ended := false; ; {
		select {
		case err := <-produced:
			if err != nil {
				return err
			}
			ended = true
		default:
		}
		n, err := c.PollInto(ctx, rs)
		if err != nil {
			return err
		}
		if n == 0 && ended {
			return nil
		}
		if n == 0 {
			continue
		}
		// Here a program would work on rs[:n]. Counting is done by the commit: all of it or nothing, and durable. It waits for the log
		// to be durable up to there.
		if err := c.Commit(ctx); err != nil {
			return err
		}
		pr.counted(n)
	}
}

// committed returns how many lines the group has counted: the sum of its positions.
func committed(ctx context.Context, c stream.Consumer) (n int64, err error) {
	offsets, err := c.Committed(ctx)
	for _, o := range offsets {
		n += o.Offset
	}
	return n, err
}
