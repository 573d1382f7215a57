package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/runnelmq/runnel/stream"
)

// P7 and P8: a partition is filled once; each round reads it from the start. A timed pass keeps a tally, and is followed by one that compares every byte.

func consumeOwned(ctx context.Context, e *env, w *workload) (*job, error) {
	return newConsumeJob(ctx, e, w, false)
}

func consumeBorrowed(ctx context.Context, e *env, w *workload) (*job, error) {
	return newConsumeJob(ctx, e, w, true)
}

func newConsumeJob(ctx context.Context, e *env, w *workload, borrow bool) (_ *job, err error) {
	c := &consumeWork{w: w, e: e, gen: newGenerator(w.valueSize), borrow: borrow}
	n := w.records(e)
	c.want = expected(c.gen, 0, n)
	if c.session, err = e.start(ctx, 1); err != nil {
		return nil, err
	}
	if err := fill(ctx, c.session.client, c.gen, n); err != nil {
		return nil, errors.Join(err, c.session.close())
	}
	if c.files, err = openLog(c.session.dir, 0); err != nil {
		return nil, errors.Join(err, c.session.close())
	}
	label := "decode + copy of the same bytes"
	if borrow {
		label = "decode of the same bytes"
	}
	return &job{
		sides: []side{
			{"Runnel", c.runnel},
			{label, func(context.Context) (sample, error) { return c.limit(false) }},
			{label + ", checksums compared", func(context.Context) (sample, error) { return c.limit(true) }},
		},
		close: func() error { return errors.Join(c.files.close(), c.session.close()) },
	}, nil
}

type consumeWork struct {
	e       *env
	w       *workload
	gen     *generator
	borrow  bool
	want    tally
	session *session
	files   *logFiles
}

// fillSize is how many records fill hands over at a time.
const fillSize = 4096

// fill sends the first n records of lane 0.
func fill(ctx context.Context, client stream.Client, g *generator, n int) (err error) {
	p, err := client.NewProducer(ctx, stream.ProducerConfig{Acks: stream.AcksWritten})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	keys := make([][keySize]byte, fillSize)
	rs := make([]stream.Record, fillSize)
	var results []stream.Result
	for from := 0; from < n; from += fillSize {
		rs = rs[:min(fillSize, n-from)]
		for i := range rs {
			g.key(&keys[i], 0, from+i)
			rs[i] = stream.Record{Topic: topic, Key: keys[i][:], Value: g.value(0, from+i)}
		}
		if results, err = p.ProduceAll(ctx, rs, results); err != nil {
			return err
		}
		for i, r := range results {
			if r.Receipt.Offset != int64(from+i) {
				return fmt.Errorf("a receipt for offset %d where that for %d has to come", r.Receipt.Offset, from+i)
			}
		}
	}
	return nil
}

func (c *consumeWork) runnel(ctx context.Context) (_ sample, err error) {
	consumer, err := c.session.consumer(ctx, 0, c.borrow)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, consumer.Close(ctx)) }()
	n := c.w.records(c.e)
	dst := make([]stream.Record, pollSize)
	var got tally
	clock := startClock()
	err = take(ctx, consumer, dst, n, func(rs []stream.Record) error {
		got.addAll(rs)
		return nil
	})
	taken := clock.stop(n)
	if err == nil {
		err = ended(ctx, consumer, dst)
	}
	if err == nil {
		err = c.same(got)
	}
	if err != nil {
		return sample{}, err
	}
	taken.read, err = c.session.readBack(ctx, 0, c.borrow, newChecker(c.gen, 0, 1), n)
	return taken, err
}

// same compares the tally of a timed pass with what it has to be.
func (c *consumeWork) same(got tally) error {
	if got != c.want {
		return fmt.Errorf("the tally of %d records is %x where that of %d has to be %x", got.records, got.sum, c.want.records, c.want.sum)
	}
	return nil
}

// limit decodes every batch into records, after copying it if the records are to be owned.
func (c *consumeWork) limit(checksums bool) (sample, error) {
	n := c.w.records(c.e)
	rs := make([]stream.Record, pollSize)
	var got tally
	var a arena
	var err error
	clock := startClock()
	for _, log := range c.files.logs {
		for b := nextBatch(log); b != nil && err == nil; b = nextBatch(log) {
			log = log[len(b):]
			if checksums {
				err = checkBatch(b)
			}
			if !c.borrow {
				b = a.copy(b)
			}
			rs = decode(b, topic, 0, rs)
			got.addAll(rs)
		}
	}
	taken := clock.stop(n)
	if err == nil {
		err = c.same(got)
	}
	if err != nil {
		return sample{}, err
	}
	check := newChecker(c.gen, 0, 1)
	for _, log := range c.files.logs {
		if err := checkLog(log, check); err != nil {
			return sample{}, err
		}
	}
	taken.read = n
	return taken, check.done(n)
}

// An arena is memory that copies are cut from.
type arena struct{ free []byte }

const arenaSize = 64 << 10

func (a *arena) copy(b []byte) []byte {
	if len(b) > len(a.free) {
		a.free = make([]byte, max(arenaSize, len(b)))
	}
	c := a.free[:len(b):len(b)]
	a.free = a.free[copy(c, b):]
	return c
}
