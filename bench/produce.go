package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/runnelmq/runnel/stream"
)

// P1 to P3: every lane is a producer with a partition for itself.

func produceAsync(_ context.Context, e *env, w *workload) (*job, error) {
	p := &asyncWork{e: e, w: w, gen: newGenerator(w.valueSize)}
	return &job{
		sides: []side{{runnelLabel, p.runnel}, {"encode + CRC32C of 16 KiB batches, behind a call, a lock and a callback a record", p.limit}},
		close: noClose,
	}, nil
}

type asyncWork struct {
	e   *env
	w   *workload
	gen *generator
}

// promises counts the receipts of one producer. They come one at a time, and the producer's Flush comes behind them.
type promises struct {
	next int64 // the offset that comes next
	err  error // the first that was wrong
}

func (p *promises) keep(offset int64, err error) {
	if err == nil && offset != p.next {
		err = fmt.Errorf("a receipt for offset %d where that for %d has to come", offset, p.next)
	}
	if err != nil && p.err == nil {
		p.err = err
	}
	p.next++
}

func (p *promises) promise(r stream.Receipt, err error) { p.keep(r.Offset, err) }

// kept says whether n promises have been kept.
func (p *promises) kept(n int) error {
	if p.err == nil && p.next != int64(n) {
		return fmt.Errorf("%d receipts for %d records", p.next, n)
	}
	return p.err
}

func (p *asyncWork) runnel(ctx context.Context) (_ sample, err error) {
	s, err := p.e.start(ctx, p.w.lanes)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return p.produce(ctx, s)
}

// produce runs the clock for all producers, and reads everything back.
func (p *asyncWork) produce(ctx context.Context, s *session) (sample, error) {
	n := p.w.perLane(p.e)
	producers := make([]stream.Producer, p.w.lanes)
	for lane := range producers {
		var err error
		producers[lane], err = s.client.NewProducer(ctx, stream.ProducerConfig{Acks: p.w.acks, Partitioner: stream.ManualPartitioner()})
		if err != nil {
			return sample{}, err
		}
	}
	errs := make([]error, p.w.lanes)
	c := startClock()
	lanes(p.w.lanes, func(lane int) { errs[lane] = sendAsync(ctx, producers[lane], p.gen, lane, n) })
	taken := c.stop(n * p.w.lanes)
	for _, producer := range producers {
		errs = append(errs, producer.Close(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return sample{}, err
	}
	for lane := range p.w.lanes {
		read, err := s.readBack(ctx, lane, false, newChecker(p.gen, lane, 1), n)
		if err != nil {
			return sample{}, err
		}
		taken.read += read
	}
	return taken, nil
}

// lanes runs work for every lane at once, and waits.
func lanes(n int, work func(lane int)) {
	var wg sync.WaitGroup
	for lane := range n {
		wg.Go(func() { work(lane) })
	}
	wg.Wait()
}

// sendAsync sends the first n records of a lane to the partition of the same number, and returns when their promises have been kept.
func sendAsync(ctx context.Context, p stream.Producer, g *generator, lane, n int) error {
	var kept promises
	promise := kept.promise
	var key [keySize]byte
	r := stream.Record{Topic: topic, Partition: int32(lane), Key: key[:]}
	for i := range n {
		g.key(&key, lane, i)
		r.Value = g.value(lane, i)
		p.Produce(ctx, &r, promise)
	}
	if err := p.Flush(ctx); err != nil {
		return err
	}
	return kept.kept(n)
}

// limit does the same with a limitLog for each producer.
func (p *asyncWork) limit(context.Context) (_ sample, err error) {
	dir, remove, err := p.e.scratch()
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	n := p.w.perLane(p.e)
	logs := make([]*limitLog, p.w.lanes)
	for lane := range logs {
		size := keySize + p.gen.size
		s, err := newSpace(filepath.Join(dir, fmt.Sprint(lane)), limitLogSize(n, size, batchTarget/recordBound(size)))
		if err != nil {
			return sample{}, err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		logs[lane] = newLimitLog(s)
	}
	errs := make([]error, p.w.lanes)
	c := startClock()
	lanes(p.w.lanes, func(lane int) { errs[lane] = appendAsync(logs[lane], p.gen, lane, n) })
	taken := c.stop(n * p.w.lanes)
	taken.how = logs[0].s.how
	if err := errors.Join(errs...); err != nil {
		return sample{}, err
	}
	for lane, l := range logs {
		check := newChecker(p.gen, lane, 1)
		if err := checkLog(l.published(), check); err != nil {
			return sample{}, err
		}
		if err := check.done(n); err != nil {
			return sample{}, err
		}
		taken.read += n
	}
	return taken, nil
}

// appendAsync is sendAsync for the limit.
func appendAsync(a appender, g *generator, lane, n int) error {
	var kept promises
	promise := kept.keep
	var key [keySize]byte
	for i := range n {
		g.key(&key, lane, i)
		if err := a.Append(key[:], g.value(lane, i), promise); err != nil {
			return err
		}
	}
	a.Flush()
	return kept.kept(n)
}
