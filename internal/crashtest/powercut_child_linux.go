package crashtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// cutNames are the named producers.
var cutNames = []string{"source-a", "source-b"}

// A cutChild is the process that loses its disk: it opens a directory, produces and consumes with everything at once, now
// and then closes in order and opens again, and writes a line about each acknowledgement after it has got it:
//
//	ready END...                                 the engine is open, and the partitions end there
//	record PARTITION OFFSET HASH EPOCH LEVEL     a record is at this offset; level "synced" or "written"
//	commit PARTITION OFFSET                      a group's offset has been committed
//	done closing                                 the engine is about to be closed in order
//	done closed                                  it has been
//	done ...                                     see churn and clean
//	error TEXT                                   something was not as promised, or the disk is gone
//
// When it has been told that its disk is gone, nothing may be acknowledged as synced any more.
type cutChild struct {
	dir   string
	round int
	eng   *stream.Engine
	// numbers are what each worker has sent to each partition in this round.
	numbers map[string]*[cutPartitions]int64
	cleaned [3]int64 // what was sent to each of cutCleaned
	out     struct {
		sync.Mutex
		w io.Writer
	}
}

// cutLie begins the complaint about what was acknowledged as synced without a disk.
const cutLie = "F4: "

// RunCutChild is the child's whole life: until something fails, and if that was because its disk is gone, then until it is
// killed. dead is closed when the disk is gone for certain.
func RunCutChild(dir string, seed uint64, round int, dead <-chan struct{}, out io.Writer) {
	r := random(seed, uint64(round))
	c := &cutChild{dir: dir, round: round, numbers: map[string]*[cutPartitions]int64{}}
	for _, worker := range []string{"written", "synced", "all", "async"} {
		c.numbers[worker] = new([cutPartitions]int64)
	}
	c.out.w = out
	err := c.phase(r)
	for err == nil {
		err = c.phase(r)
	}
	c.complain(err)
	if c.eng == nil {
		return
	}
	<-dead
	// Again and again, since the engine tries by itself to come back.
	for err = nil; err == nil; time.Sleep(10 * time.Millisecond) {
		err = c.afterlife(context.Background())
	}
	c.complain(err)
}

func (c *cutChild) complain(err error) {
	if err != nil {
		c.line("error %v", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// afterlife tries what needs a disk when there is none, and returns an error if it works. (F4)
func (c *cutChild) afterlife(ctx context.Context) error {
	p, err := c.eng.NewProducer(ctx, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
	if err != nil {
		return nil
	}
	defer p.Close(ctx)
	for i := range int32(cutPartitions) {
		if rc, err := p.ProduceSync(ctx, cutRecord(killID{"dead", c.round, 1, i}, stream.AcksSynced)); err == nil {
			return fmt.Errorf(cutLie+"without a disk a record got the receipt %+v", rc)
		}
	}
	co, err := c.eng.NewConsumer(ctx, stream.ConsumerConfig{Group: "dead", ManualCommit: true, MaxWait: -1})
	if err != nil {
		return nil
	}
	defer co.Close(ctx)
	tp := cutTP(0)
	if err := co.Assign(tp); err != nil {
		return nil
	}
	if err := co.CommitOffsets(ctx, stream.Offsets{tp: {Offset: 0, LeaderEpoch: -1}}); err == nil {
		return errors.New(cutLie + "without a disk an offset was committed")
	}
	return nil
}

func (c *cutChild) line(format string, args ...any) {
	c.out.Lock()
	defer c.out.Unlock()
	fmt.Fprintf(c.out.w, format+"\n", args...)
}

// openCut opens the engine as it is always opened here.
func openCut(dir string, r *rand.Rand, events stream.Events) (*stream.Engine, error) {
	return stream.Open(dir, &stream.Options{
		MinFree:      -1,
		SyncInterval: []time.Duration{0, 2 * time.Millisecond}[r.IntN(2)],
		SyncBytes:    []int64{0, 16 << 10}[r.IntN(2)],
		Events:       events,
		// The cleaner is always at work.
		CleanInterval: time.Millisecond,
		CleanRate:     -1,
	})
}

// phase opens the engine if it is not open, and does some of everything. Afterwards it may close.
func (c *cutChild) phase(r *rand.Rand) error {
	ctx := context.Background()
	if c.eng == nil {
		eng, err := openCut(c.dir, r, stream.Events{
			OffsetClamped: func(_ string, tp stream.TopicPartition, from, to int64) {
				c.line("error E3: the offset of %v was clamped from %d to %d", tp, from, to)
			},
			Corrupt:   func(err *stream.CorruptError) { c.line("error A2: %v", err) },
			Expired:   func(stream.TopicPartition, int, int64, int64) { c.line("done clean passed retention") },
			Compacted: func(stream.TopicPartition, int64, int64, int64, int64) { c.line("done clean passed compaction") },
		})
		if err != nil {
			return fmt.Errorf("A2: open: %w", err)
		}
		c.eng = eng
		for _, t := range cutTopics {
			err := eng.Admin().CreateTopic(ctx, t.name, stream.TopicConfig{Partitions: int(t.partitions), SegmentBytes: t.segmentBytes})
			if err != nil && !errors.Is(err, stream.ErrTopicExists) {
				return fmt.Errorf("A10: create topic: %w", err)
			}
		}
		if err := c.openClean(ctx); err != nil {
			return err
		}
		ends, err := eng.Admin().EndOffsets(ctx, cutTPs()...)
		if err != nil {
			return fmt.Errorf("A2: end: %w", err)
		}
		line := "ready"
		for _, tp := range cutTPs() {
			line += fmt.Sprintf(" %d", ends[tp].Offset)
		}
		c.line("%s", line)
		infos, err := eng.Admin().Topics(ctx)
		if err != nil {
			return fmt.Errorf("A10: topics: %w", err)
		}
		line = "done topics"
		for name, n := range passingTopics(infos) {
			line += fmt.Sprintf(" %s=%d", name, n)
		}
		c.line("%s", line)
	}
	count := between(r, 5, 100)
	workers := []func(context.Context, *rand.Rand, int) error{
		func(ctx context.Context, r *rand.Rand, n int) error {
			return c.single(ctx, r, n, "written", stream.AcksWritten)
		},
		func(ctx context.Context, r *rand.Rand, n int) error {
			return c.single(ctx, r, n, "synced", stream.AcksSynced)
		},
		c.all,
		c.async,
		func(ctx context.Context, r *rand.Rand, n int) error {
			return c.named(ctx, r, n, cutNames[0], stream.AcksWritten)
		},
		func(ctx context.Context, r *rand.Rand, n int) error {
			return c.named(ctx, r, n, cutNames[1], stream.AcksSynced)
		},
		c.consume,
		c.churn,
		c.clean,
	}
	errs := make([]error, len(workers))
	var wg sync.WaitGroup
	for i, work := range workers {
		r := random(r.Uint64(), uint64(i))
		wg.Go(func() { errs[i] = work(ctx, r, count) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if chance(r, 0.5) {
		c.line("done closing")
		if err := c.eng.Close(); err != nil {
			return fmt.Errorf("F1: close: %w", err)
		}
		c.eng = nil
		c.line("done closed")
	}
	return nil
}

// record is the next record of a worker, to a partition that is drawn.
func (c *cutChild) record(r *rand.Rand, worker string, acks stream.Acks) *stream.Record {
	i := int32(r.IntN(cutPartitions))
	c.numbers[worker][i]++
	return cutRecord(killID{worker, c.round, c.numbers[worker][i], i}, acks)
}

func cutRecord(id killID, acks stream.Acks) *stream.Record {
	tp := cutTP(id.partition)
	return &stream.Record{Topic: tp.Topic, Partition: tp.Partition, Key: []byte(id.worker), Value: id.value(), Acks: acks}
}

// mostlyWritten is the level of a record among many: one synced record makes the others durable too.
func mostlyWritten(r *rand.Rand) stream.Acks {
	if chance(r, 0.05) {
		return stream.AcksSynced
	}
	return stream.AcksWritten
}

func (c *cutChild) acked(r *stream.Record, rc stream.Receipt) error {
	if rc.Topic != r.Topic || rc.Partition != r.Partition || rc.Duplicate || rc.Offset < 0 {
		return fmt.Errorf("A5/C1: a record for %s %d got the receipt %+v", r.Topic, r.Partition, rc)
	}
	level := "written"
	if r.Acks == stream.AcksSynced {
		level = "synced"
	}
	c.line("record %d %d %x %d %s", cutIndex(rc.Topic, rc.Partition), rc.Offset, hashRecord(r.Key, r.Value), rc.LeaderEpoch, level)
	return nil
}

// produce runs work with a producer and closes it.
func (c *cutChild) produce(ctx context.Context, name string, work func(p stream.Producer) error) error {
	p, err := c.eng.NewProducer(ctx, stream.ProducerConfig{Name: name, Partitioner: stream.ManualPartitioner()})
	if err != nil {
		return fmt.Errorf("C1: producer %q: %w", name, err)
	}
	return errors.Join(work(p), p.Close(ctx))
}

// single sends one record after the other.
func (c *cutChild) single(ctx context.Context, r *rand.Rand, count int, worker string, acks stream.Acks) error {
	return c.produce(ctx, "", func(p stream.Producer) error {
		for range count {
			rec := c.record(r, worker, acks)
			rc, err := p.ProduceSync(ctx, rec)
			if err != nil {
				return fmt.Errorf("A2: %s: %w", worker, err)
			}
			if err := c.acked(rec, rc); err != nil {
				return err
			}
		}
		return nil
	})
}

// all sends slices.
func (c *cutChild) all(ctx context.Context, r *rand.Rand, count int) error {
	return c.produce(ctx, "", func(p stream.Producer) error {
		var out []stream.Result
		for sent := 0; sent < count; {
			var rs []stream.Record
			for range between(r, 1, 20) {
				rs = append(rs, *c.record(r, "all", mostlyWritten(r)))
			}
			var err error
			if out, err = p.ProduceAll(ctx, rs, out); err != nil {
				return fmt.Errorf("A2: produce all: %w", err)
			}
			for i := range rs {
				if err := c.acked(&rs[i], out[i].Receipt); err != nil {
					return err
				}
			}
			sent += len(rs)
		}
		return nil
	})
}

// async sends without waiting; the promises tell.
func (c *cutChild) async(ctx context.Context, r *rand.Rand, count int) error {
	return c.produce(ctx, "", func(p stream.Producer) error {
		var mu sync.Mutex
		var bad error
		for i := range count {
			rec := c.record(r, "async", mostlyWritten(r))
			p.Produce(ctx, rec, func(rc stream.Receipt, err error) {
				if err == nil {
					err = c.acked(rec, rc)
				}
				mu.Lock()
				defer mu.Unlock()
				bad = errors.Join(bad, err)
			})
			if i%killAsync == killAsync-1 || i == count-1 {
				err := p.Flush(ctx)
				mu.Lock()
				err = errors.Join(err, bad)
				mu.Unlock()
				if err != nil {
					return fmt.Errorf("A2: async: %w", err)
				}
			}
		}
		return nil
	})
}

// named goes on where the log ends, after it has sent again what is the last there. (C1)
func (c *cutChild) named(ctx context.Context, r *rand.Rand, count int, name string, acks stream.Acks) error {
	return c.produce(ctx, name, func(p stream.Producer) error {
		send := func(i int32, sequence int64) (*stream.Record, stream.Receipt, error) {
			rec := cutRecord(killID{name, 0, sequence, i}, acks)
			rec.Sequence = sequence
			rc, err := p.ProduceSync(ctx, rec)
			if err != nil {
				err = fmt.Errorf("C1: %s: sequence %d of partition %d: %w", name, sequence, i, err)
			}
			return rec, rc, err
		}
		var last [cutPartitions]int64
		for i := range int32(cutPartitions) {
			var err error
			if last[i], err = p.LastSequence(ctx, cutTP(i)); err != nil {
				return fmt.Errorf("C1: last sequence: %w", err)
			}
			if last[i] == 0 {
				continue
			}
			if _, rc, err := send(i, last[i]); err != nil || !rc.Duplicate {
				return fmt.Errorf("C1: sequence %d of %s, sent again, got the receipt %+v, error %v", last[i], name, rc, err)
			}
		}
		for range count {
			i := int32(r.IntN(cutPartitions))
			last[i]++
			rec, rc, err := send(i, last[i])
			if err == nil {
				err = c.acked(rec, rc)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// consume reads and commits. (E3)
func (c *cutChild) consume(ctx context.Context, r *rand.Rand, count int) error {
	co, err := c.eng.NewConsumer(ctx, stream.ConsumerConfig{
		Group: killGroup, Topics: []string{cutTopics[0].name, cutTopics[1].name}, ManualCommit: true, Reset: stream.ResetEarliest, MaxWait: -1,
	})
	if err != nil {
		return fmt.Errorf("E3: consumer: %w", err)
	}
	for range count / 5 {
		rs, err := co.Poll(ctx, between(r, 1, 100))
		if err != nil {
			return fmt.Errorf("A2: poll: %w", err)
		}
		to := map[int32]int64{}
		for _, rec := range rs {
			if _, err := parseKillID(rec.Value); err != nil {
				return err
			}
			to[cutIndex(rec.Topic, rec.Partition)] = rec.Offset + 1
		}
		if err := co.Commit(ctx); err != nil {
			return fmt.Errorf("E3: commit: %w", err)
		}
		for i, offset := range to {
			c.line("commit %d %d", i, offset)
		}
	}
	return co.Close(ctx)
}
