package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/runnelmq/runnel/stream"
)

// P7 and P8: partitions are filled once; each round reads them from the start. A timed pass keeps a tally, and is followed by one that compares every byte.

func consumeOwned(ctx context.Context, e *env, w *workload) (*job, error) {
	return newConsumeJob(ctx, e, w, false)
}

func consumeBorrowed(ctx context.Context, e *env, w *workload) (*job, error) {
	return newConsumeJob(ctx, e, w, true)
}

func newConsumeJob(ctx context.Context, e *env, w *workload, borrow bool) (*job, error) {
	c, err := newConsumeWork(ctx, e, w, borrow)
	if err != nil {
		return nil, err
	}
	return c.job(c.runnel), nil
}

type consumeWork struct {
	e       *env
	w       *workload
	gen     *generator
	borrow  bool
	want    []tally // of each partition
	session *session
	files   []*logFiles // of each partition
}

// newConsumeWork fills as many partitions as the workload has lanes.
func newConsumeWork(ctx context.Context, e *env, w *workload, borrow bool) (_ *consumeWork, err error) {
	c := &consumeWork{w: w, e: e, gen: newGenerator(w.valueSize), borrow: borrow}
	if c.session, err = e.start(ctx, w.lanes); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	for lane := range w.lanes {
		n := w.perLane(e)
		c.want = append(c.want, expected(c.gen, lane, n))
		if err := fill(ctx, c.session.client, c.gen, lane, n); err != nil {
			return nil, err
		}
		files, err := openLog(c.session.dir, lane)
		if err != nil {
			return nil, err
		}
		c.files = append(c.files, files)
	}
	return c, nil
}

// job is the work of Runnel beside the limits.
func (c *consumeWork) job(runnel func(ctx context.Context) (sample, error)) *job {
	label := "decode + copy of the same bytes"
	if c.borrow {
		label = "decode of the same bytes"
	}
	if c.w.members > 1 {
		label += fmt.Sprintf(", %d goroutines", c.w.members)
	}
	return &job{
		sides: []side{
			{runnelLabel, runnel},
			{label, func(context.Context) (sample, error) { return c.limit(false) }},
			{label + ", checksums compared", func(context.Context) (sample, error) { return c.limit(true) }},
		},
		close: c.close,
	}
}

func (c *consumeWork) close() error {
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.close())
	}
	return errors.Join(append(errs, c.session.close())...)
}

// fillSize is how many records fill hands over at a time.
const fillSize = 4096

// fill sends the first n records of a lane to the partition of the same number. They are durable when it returns: the last is waited for until it is synced.
func fill(ctx context.Context, client stream.Client, g *generator, lane, n int) (err error) {
	p, err := client.NewProducer(ctx, stream.ProducerConfig{Acks: stream.AcksWritten, Partitioner: stream.ManualPartitioner()})
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
			g.key(&keys[i], lane, from+i)
			rs[i] = stream.Record{Topic: topic, Partition: int32(lane), Key: keys[i][:], Value: g.value(lane, from+i)}
		}
		if from+len(rs) == n {
			rs[len(rs)-1].Acks = stream.AcksSynced
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
		err = c.same([]tally{got})
	}
	if err != nil {
		return sample{}, err
	}
	taken.read, err = c.session.readBack(ctx, 0, c.borrow, newChecker(c.gen, 0, 1), n)
	return taken, err
}

// same compares the tallies of a timed pass with what they have to be.
func (c *consumeWork) same(got []tally) error {
	for p, want := range c.want {
		if got[p] != want {
			return fmt.Errorf("partition %d: the tally of %d records is %x where that of %d has to be %x", p, got[p].records, got[p].sum, want.records, want.sum)
		}
	}
	return nil
}

// limit decodes every batch, by as many goroutines as the group has members.
func (c *consumeWork) limit(checksums bool) (sample, error) {
	got := make([]tally, len(c.files))
	readers := max(1, c.w.members)
	errs := make([]error, readers)
	clock := startClock()
	lanes(readers, func(reader int) {
		for p := reader; p < len(c.files) && errs[reader] == nil; p += readers {
			got[p], errs[reader] = c.decodeAll(p, checksums)
		}
	})
	taken := clock.stop(c.w.records(c.e))
	if err := errors.Join(errs...); err != nil {
		return sample{}, err
	}
	if err := c.same(got); err != nil {
		return sample{}, err
	}
	for p, files := range c.files {
		check := newChecker(c.gen, p, 1)
		for _, log := range files.logs {
			if err := checkLog(log, check); err != nil {
				return sample{}, err
			}
		}
		if err := check.done(c.w.perLane(c.e)); err != nil {
			return sample{}, err
		}
		taken.read += c.w.perLane(c.e)
	}
	return taken, nil
}

// decodeAll decodes every batch of a partition into records, after copying it if the records are to be owned.
func (c *consumeWork) decodeAll(partition int, checksums bool) (got tally, err error) {
	rs := make([]stream.Record, pollSize)
	var a arena
	for _, log := range c.files[partition].logs {
		for b := nextBatch(log); b != nil; b = nextBatch(log) {
			log = log[len(b):]
			if checksums {
				if err := checkBatch(b); err != nil {
					return got, err
				}
			}
			if !c.borrow {
				b = a.copy(b)
			}
			rs = decode(b, topic, int32(partition), rs)
			got.addAll(rs)
		}
	}
	return got, nil
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
