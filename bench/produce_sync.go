package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/runnelmq/runnel/stream"
)

// P4 and P5: every lane is a caller that waits for each of its records; all share one producer and one partition.

type syncWork struct {
	e   *env
	w   *workload
	gen *generator
}

// produceSync is P4. A call is so short that reading the clock would be a good part of it: the clock is read for single calls in a second part.
func produceSync(_ context.Context, e *env, w *workload) (*job, error) {
	p := &syncWork{e: e, w: w, gen: newGenerator(w.valueSize)}
	return &job{
		sides: []side{{runnelLabel, p.runnel}, {"encode + clock + CRC32C + store + publish of a batch of one record", p.limitWritten}},
		close: noClose,
	}, nil
}

// produceSynced is P5.
func produceSynced(_ context.Context, e *env, w *workload) (*job, error) {
	p := &syncWork{e: e, w: w, gen: newGenerator(w.valueSize)}
	return &job{sides: []side{{runnelLabel, p.runnel}, {"group commit: one write of what waits + " + syncName, p.limitSynced}}, close: noClose}, nil
}

// run has the callers send the records of the clock and those besides. Where single calls are measured apart, they are the ones besides.
func (p *syncWork) run(c *callers) (sample, error) {
	n, extra := p.w.perLane(p.e), p.w.extra(p.e)
	taken, err := c.run(n, extra == 0)
	if err != nil || extra == 0 {
		return taken, err
	}
	single, err := c.run(extra, true)
	taken.p50, taken.p99 = single.p50, single.p99
	return taken, err
}

// perLane is how many records a lane has in all.
func (p *syncWork) perLane() int { return p.w.perLane(p.e) + p.w.extra(p.e) }

func (p *syncWork) runnel(ctx context.Context) (_ sample, err error) {
	s, err := p.e.start(ctx, 1)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	producer, err := s.client.NewProducer(ctx, stream.ProducerConfig{Acks: p.w.acks})
	if err != nil {
		return sample{}, err
	}
	calls := make([]call, p.w.lanes)
	for lane := range calls {
		r := &stream.Record{Topic: topic}
		calls[lane] = func(key, value []byte) (int64, error) {
			r.Key, r.Value = key, value
			receipt, err := producer.ProduceSync(ctx, r)
			return receipt.Offset, err
		}
	}
	c := newCallers(p.gen, calls, p.perLane())
	taken, err := p.run(c)
	if err = errors.Join(err, producer.Close(ctx)); err != nil {
		return sample{}, err
	}
	taken.read, err = s.readBack(ctx, 0, false, c.checker(), p.perLane())
	return taken, err
}

// limitWritten stores into a mapped file.
func (p *syncWork) limitWritten(context.Context) (_ sample, err error) {
	dir, remove, err := p.e.scratch()
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	s, err := newSpace(filepath.Join(dir, "limit"), limitLogSize(p.perLane(), keySize+p.gen.size, 1))
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	l := newLimitLog(s)
	var a appender = l
	c := newCallers(p.gen, []call{a.AppendOne}, p.perLane())
	taken, err := p.run(c)
	if err != nil {
		return sample{}, err
	}
	taken.how = s.how
	taken.read, err = p.check(c, l.published())
	return taken, err
}

// limitSynced writes to a file that has been reserved as the log reserves its own.
func (p *syncWork) limitSynced(context.Context) (_ sample, err error) {
	dir, remove, err := p.e.scratch()
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	f, how, err := openReserved(filepath.Join(dir, "limit"), limitLogSize(p.perLane()*p.w.lanes, keySize+p.gen.size, 1))
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	l := &commitLog{f: f}
	calls := make([]call, p.w.lanes)
	for lane := range calls {
		calls[lane] = l.AppendOne
	}
	c := newCallers(p.gen, calls, p.perLane())
	taken, err := p.run(c)
	if err != nil {
		return sample{}, err
	}
	written, err := os.ReadFile(f.Name())
	if err != nil {
		return sample{}, err
	}
	taken.how = how
	taken.read, err = p.check(c, written)
	return taken, err
}

// check compares a limit's log with what the callers have sent and been told.
func (p *syncWork) check(c *callers, log []byte) (int, error) {
	check := c.checker()
	if err := checkLog(log, check); err != nil {
		return 0, err
	}
	return p.perLane() * p.w.lanes, check.done(p.perLane())
}
