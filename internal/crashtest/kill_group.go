package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/runnelmq/runnel/stream"
)

// killMembers is how many members of the group a child has.
const killMembers = 3

// consume is a member that reads and commits; now and then it leaves, and comes back as another one. (E3, E5)
func (c *killChild) consume(ctx context.Context, r *rand.Rand) (err error) {
	var co stream.Consumer
	for range c.count / 10 {
		if co == nil {
			co, err = c.eng.NewConsumer(ctx, stream.ConsumerConfig{
				Group: killGroup, Topics: []string{killTopic}, ManualCommit: true, Reset: stream.ResetEarliest, MaxWait: -1,
			})
			if err != nil {
				return fmt.Errorf("E5: join: %w", err)
			}
		}
		rs, err := co.Poll(ctx, between(r, 1, 100))
		if err != nil {
			return fmt.Errorf("E5: poll: %w", err)
		}
		if err := c.given(rs); err != nil {
			return err
		}
		if chance(r, 0.2) {
			continue // the next commit covers it
		}
		if err := c.commit(ctx, co); err != nil {
			return err
		}
		if chance(r, 0.05) {
			if err := co.Close(ctx); err != nil {
				return fmt.Errorf("E5: leave: %w", err)
			}
			co = nil
		}
	}
	return nil
}

// given tells what a poll has returned.
func (c *killChild) given(rs []stream.Record) error {
	for len(rs) > 0 {
		n := 1
		for n < len(rs) && rs[n].Partition == rs[0].Partition && rs[n].Offset == rs[n-1].Offset+1 {
			n++
		}
		for _, rec := range rs[:n] {
			if _, err := parseKillID(rec.Value); err != nil {
				return err
			}
		}
		c.line("read %d %d %d", rs[0].Partition, rs[0].Offset, rs[n-1].Offset+1)
		rs = rs[n:]
	}
	return nil
}

// commit commits where a member stands, and tells.
func (c *killChild) commit(ctx context.Context, co stream.Consumer) error {
	o := stream.Offsets{}
	for _, tp := range co.Assignment() {
		at, err := co.Position(tp)
		if err != nil {
			return fmt.Errorf("E5: position: %w", err)
		}
		o[tp] = stream.OffsetMetadata{Offset: at, LeaderEpoch: -1}
	}
	if err := co.CommitOffsets(ctx, o); err != nil {
		return fmt.Errorf("E3: commit: %w", err)
	}
	for tp, at := range o {
		c.line("commit %d %d", tp.Partition, at.Offset)
	}
	return nil
}

// given checks that the group's members are given every record, and again only those that were not known to be committed.
func (p *killPartition) given(from, to int64) error {
	if from > p.delivered {
		return fmt.Errorf("E5: nobody was given the records from %d to %d", p.delivered, from)
	}
	if from < p.commit {
		return errors.New("E5: a record was given again that had been committed")
	}
	p.delivered = max(p.delivered, to)
	return nil
}
