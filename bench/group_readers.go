package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// patience is how long nothing may happen before a run is given up.
const patience = 10 * time.Second

// idleWait is how long a member of a group waits in a poll: so long nothing must come behind the last records.
const idleWait = 20 * time.Millisecond

// A part is a partition that a group reads, from its first record up to end. Its records come to take in one order, whoever of the members has them.
type part struct {
	end  int64
	take func(partition int, rs []stream.Record) error

	mu   sync.Mutex // held while take runs; members hand a partition over to each other
	done bool
}

// groupReaders are the members of a new group, a goroutine each, that read partitions to their ends.
type groupReaders struct {
	client stream.Client
	config stream.ConsumerConfig
	parts  []*part

	records int           // of all partitions
	left    atomic.Int32  // partitions whose ends have not come
	moved   atomic.Int64  // when records last came, since clock.begin
	clock   clock         // runs from the joining
	taken   sample        // until the last record; set by who has got it
	failed  chan struct{} // closed when a member has failed
	once    sync.Once
}

func newGroupReaders(client stream.Client, group string, borrow bool, parts []*part) *groupReaders {
	g := &groupReaders{
		client: client, parts: parts, failed: make(chan struct{}),
		config: stream.ConsumerConfig{Group: group, Topics: []string{topic}, Reset: stream.ResetEarliest, Borrow: borrow, MaxWait: idleWait},
	}
	g.left.Store(int32(len(parts)))
	for _, p := range parts {
		g.records += int(p.end)
	}
	return g
}

// read returns when the members have read everything, have found no more, and have left. What the group has committed is all of it then.
func (g *groupReaders) read(ctx context.Context, members int) (sample, error) {
	errs := make([]error, members)
	g.clock = startClock()
	lanes(members, func(i int) {
		if errs[i] = g.member(ctx); errs[i] != nil {
			g.once.Do(func() { close(g.failed) })
		}
	})
	if err := errors.Join(errs...); err != nil {
		return sample{}, err
	}
	return g.taken, g.committed(ctx)
}

// member joins, reads, and leaves when all partitions are at their ends.
func (g *groupReaders) member(ctx context.Context) (err error) {
	consumer, err := g.client.NewConsumer(ctx, g.config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, consumer.Close(ctx)) }()
	dst := make([]stream.Record, pollSize)
	for {
		n, err := consumer.PollInto(ctx, dst)
		if err == nil {
			err = g.take(dst[:n])
		}
		if err != nil || n == 0 && g.left.Load() == 0 {
			return err
		}
		select {
		case <-g.failed:
			return nil
		default:
		}
		if n == 0 && time.Since(g.clock.begin)-time.Duration(g.moved.Load()) > patience {
			return fmt.Errorf("nothing has come for %v, and %d of %d partitions are not at their ends", patience, g.left.Load(), len(g.parts))
		}
	}
}

// take gives the records of a poll to their partitions.
func (g *groupReaders) take(rs []stream.Record) error {
	for len(rs) > 0 {
		p, n := rs[0].Partition, 1
		for n < len(rs) && rs[n].Partition == p {
			n++
		}
		if int(p) >= len(g.parts) {
			return fmt.Errorf("a record of partition %d, of which there are %d", p, len(g.parts))
		}
		if err := g.takeOf(int(p), rs[:n]); err != nil {
			return err
		}
		rs = rs[n:]
	}
	return nil
}

func (g *groupReaders) takeOf(partition int, rs []stream.Record) error {
	p := g.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return fmt.Errorf("partition %d: there are more records than were sent, or some come again: offset %d", partition, rs[0].Offset)
	}
	if err := p.take(partition, rs); err != nil {
		return fmt.Errorf("partition %d: %w", partition, err)
	}
	g.moved.Store(int64(time.Since(g.clock.begin)))
	if rs[len(rs)-1].Offset+1 < p.end {
		return nil
	}
	p.done = true
	if g.left.Add(-1) == 0 {
		g.taken = g.clock.stop(g.records)
	}
	return nil
}

// committed says whether the group stands at the end of every partition, as after automatic commits it has to.
func (g *groupReaders) committed(ctx context.Context) error {
	infos, err := g.client.Admin().Groups(ctx, g.config.Group)
	if err != nil {
		return err
	}
	for i, p := range g.parts {
		at, ok := infos[0].Offsets[stream.TopicPartition{Topic: topic, Partition: int32(i)}]
		if !ok || at.Offset != p.end {
			return fmt.Errorf("partition %d: the group has committed offset %d (%v) where %d records were read", i, at.Offset, ok, p.end)
		}
	}
	return nil
}

// takeAll adds the records of a partition.
func (t *tally) takeAll(_ int, rs []stream.Record) error {
	sum := *t // and not in place: the members' tallies lie beside each other
	sum.addAll(rs)
	*t = sum
	return nil
}

// takeAll compares the records of a partition.
func (c *checker) takeAll(partition int, rs []stream.Record) error { return compare(rs, partition, c) }
