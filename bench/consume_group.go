package main

import (
	"context"
	"fmt"
)

// P7/g and P8/g: as P7 and P8, but each pass is read by a group of its own, whose members join while the clock runs.

func consumeGroupOwned(ctx context.Context, e *env, w *workload) (*job, error) {
	return newGroupJob(ctx, e, w, false)
}

func consumeGroupBorrowed(ctx context.Context, e *env, w *workload) (*job, error) {
	return newGroupJob(ctx, e, w, true)
}

func newGroupJob(ctx context.Context, e *env, w *workload, borrow bool) (*job, error) {
	c, err := newConsumeWork(ctx, e, w, borrow)
	if err != nil {
		return nil, err
	}
	g := &groupWork{consumeWork: c}
	return g.job(g.runnel), nil
}

type groupWork struct {
	*consumeWork
	groups int // that have read
}

// group returns readers that are a group nobody has been in.
func (g *groupWork) group(parts []*part) *groupReaders {
	g.groups++
	return newGroupReaders(g.session.client, fmt.Sprintf("group-%d", g.groups), g.borrow, parts)
}

func (g *groupWork) runnel(ctx context.Context) (sample, error) {
	end := int64(g.w.perLane(g.e))
	got := make([]tally, g.w.lanes)
	tallied := make([]*part, g.w.lanes)
	for p := range tallied {
		tallied[p] = &part{end: end, take: got[p].takeAll}
	}
	taken, err := g.group(tallied).read(ctx, g.w.members)
	if err == nil {
		err = g.same(got)
	}
	if err != nil {
		return sample{}, err
	}
	checks := make([]*checker, g.w.lanes)
	compared := make([]*part, g.w.lanes)
	for p := range compared {
		checks[p] = newChecker(g.gen, p, 1)
		compared[p] = &part{end: end, take: checks[p].takeAll}
	}
	if _, err := g.group(compared).read(ctx, g.w.members); err != nil {
		return sample{}, err
	}
	for _, c := range checks {
		if err := c.done(int(end)); err != nil {
			return sample{}, err
		}
		taken.read += int(end)
	}
	return taken, nil
}
