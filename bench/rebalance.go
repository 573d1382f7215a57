package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// REBALANCE: members of one group poll a topic without records. One more joins, and leaves; the time of one of both is taken, until every partition has its owner again.

// sharedPartitions is how many partitions the members share.
const sharedPartitions = 100

func rebalanceJoin(ctx context.Context, e *env, w *workload) (*job, error) {
	return newRebalanceJob(ctx, e, w, false)
}

func rebalanceLeave(ctx context.Context, e *env, w *workload) (*job, error) {
	return newRebalanceJob(ctx, e, w, true)
}

func newRebalanceJob(ctx context.Context, e *env, w *workload, leaving bool) (_ *job, err error) {
	r := &rebalanceWork{e: e, w: w, leaving: leaving, owners: newOwners(sharedPartitions)}
	if r.session, err = e.start(ctx, sharedPartitions); err != nil {
		return nil, err
	}
	others := w.members - 1
	_, err = r.await(ctx, others, func() error {
		errs := make([]error, others)
		lanes(others, func(i int) { errs[i] = r.join(ctx) })
		return errors.Join(errs...)
	})
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	return &job{
		sides: []side{{runnelLabel, r.runnel}, {"an append of 4 KiB + " + syncName + ", as each generation has one", r.limit}},
		close: r.close,
	}, nil
}

type rebalanceWork struct {
	e       *env
	w       *workload
	leaving bool // its time is taken, and not that of joining
	session *session
	owners  *owners

	mu      sync.Mutex
	joined  int // how many ever have
	members []*member
}

func (r *rebalanceWork) close() error {
	var errs []error
	for _, m := range r.members {
		errs = append(errs, m.close(context.Background()))
	}
	return errors.Join(append(errs, r.session.close())...)
}

// await takes the time from a change to when so many members share the partitions, and compares what everybody says of it.
func (r *rebalanceWork) await(ctx context.Context, members int, change func() error) (sample, error) {
	settled := r.owners.expect(members)
	c := startClock()
	err := change()
	if err != nil {
		return sample{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case m := <-settled:
		taken := c.stop(1)
		taken.seconds = m.at.Sub(c.begin).Seconds()
		if m.err != nil {
			return sample{}, m.err
		}
		return taken, r.stable(ctx)
	case <-ctx.Done():
		return sample{}, fmt.Errorf("a group of %d members has not settled: %w", members, ctx.Err())
	}
}

func (r *rebalanceWork) runnel(ctx context.Context) (sample, error) {
	n := r.w.records(r.e)
	var all sample
	took := make([]time.Duration, 0, n)
	before := r.generation()
	for range n {
		joining, err := r.await(ctx, r.w.members, func() error { return r.join(ctx) })
		if err != nil {
			return sample{}, err
		}
		leaving, err := r.await(ctx, r.w.members-1, func() error { return r.leave(ctx) })
		if err != nil {
			return sample{}, err
		}
		one := joining
		if r.leaving {
			one = leaving
		}
		all.seconds += one.seconds
		all.allocs += one.allocs / float64(n)
		took = append(took, time.Duration(one.seconds*float64(time.Second)))
		all.read++
	}
	all.percentiles(took)
	all.how = fmt.Sprintf("%.1f generations for joining and leaving", float64(r.generation()-before)/float64(n))
	return all, nil
}

// generation is that of the member that stays longest.
func (r *rebalanceWork) generation() int32 { return r.members[0].consumer.Group().Generation }
