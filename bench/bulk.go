package main

import (
	"context"
	"errors"
	"path/filepath"
)

// P6: the limit of a round works on the bytes that Runnel has written in it.

func produceBulk(_ context.Context, e *env, w *workload) (*job, error) {
	b := &bulkWork{asyncWork: asyncWork{e: e, w: w, gen: newGenerator(w.valueSize)}}
	return &job{
		sides: []side{{runnelLabel, b.runnel}, {"write of the same bytes in order, 1 MiB at a time, and one " + syncName, b.limit}},
		close: b.drop,
	}, nil
}

type bulkWork struct {
	asyncWork
	last *session // its engine is closed, its files are there
}

// drop removes what the last round has left.
func (b *bulkWork) drop() error {
	if b.last == nil {
		return nil
	}
	s := b.last
	b.last = nil
	return s.remove()
}

func (b *bulkWork) runnel(ctx context.Context) (_ sample, err error) {
	s, err := b.e.start(ctx, 1)
	if err != nil {
		return sample{}, err
	}
	b.last = s
	taken, err := b.produce(ctx, s)
	return taken, errors.Join(err, s.client.Close())
}

// bulkWrite is the size of one write.
const bulkWrite = 1 << 20

func (b *bulkWork) limit(context.Context) (_ sample, err error) {
	defer func() { err = errors.Join(err, b.drop()) }()
	source, err := openLog(b.last.dir, 0)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, source.close()) }()
	size := 0
	for _, log := range source.logs {
		size += len(log)
	}
	f, how, err := openReserved(filepath.Join(b.last.dir, "limit"), size)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	n := b.w.records(b.e)
	c := startClock()
	for _, log := range source.logs {
		for len(log) > 0 {
			m, err := f.Write(log[:min(len(log), bulkWrite)])
			if err != nil {
				return sample{}, err
			}
			log = log[m:]
		}
	}
	if err := datasync(f); err != nil {
		return sample{}, err
	}
	taken := c.stop(n)
	taken.how = how
	written, unmap, err := mapFile(f.Name())
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, unmap()) }()
	check := newChecker(b.gen, 0, 1)
	if err := checkLog(written, check); err != nil {
		return sample{}, err
	}
	taken.read = n
	return taken, check.done(n)
}
