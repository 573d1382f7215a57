package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/runnelmq/runnel/group"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/meta"
	"github.com/runnelmq/runnel/internal/sabotage"
)

// newCoordinator returns the coordinator of the groups that meta keeps.
func (b *Broker) newCoordinator() (*group.Coordinator, error) {
	return group.New(group.Options{Store: b.meta, Wheel: b.wheel, Logger: b.o.Logger, Now: b.clock.millis, Since: b.Changes, InitialDelay: initialDelay})
}

// initialDelay is how long a group whose first member is foreign waits for more (group.initial.rebalance.delay.ms).
const initialDelay = 3 * time.Second

// JoinGroup is group.Coordinator.Join.
func (b *Broker) JoinGroup(r group.JoinRequest, done func(group.Joined)) (memberID string) {
	if err := b.enter(); err != nil {
		done(group.Joined{Err: err, MemberID: r.MemberID, Generation: -1})
		return ""
	}
	defer b.leave()
	return b.groups.Join(r, done)
}

// SyncGroup is group.Coordinator.Sync.
func (b *Broker) SyncGroup(r group.SyncRequest, done func(group.Synced)) {
	if err := b.enter(); err != nil {
		done(group.Synced{Err: err})
		return
	}
	defer b.leave()
	b.groups.Sync(r, done)
}

// Heartbeat is group.Coordinator.Heartbeat.
func (b *Broker) Heartbeat(id group.Identity) error {
	if err := b.enter(); err != nil {
		return err
	}
	defer b.leave()
	return b.groups.Heartbeat(id)
}

// LeaveGroup takes a member out of its group at once; a static one that is detached keeps its place for its session timeout.
func (b *Broker) LeaveGroup(id group.Identity, detach bool) error {
	if err := b.enter(); err != nil {
		return err
	}
	defer b.leave()
	if detach {
		b.groups.Detach(id.Group, id.MemberID)
		return nil
	}
	return b.groups.Leave(id.Group, id.MemberID, id.InstanceID)
}

// Commit is an offset to be committed.
type Commit struct {
	Partition   *Partition
	Offset      int64 // of the next record to be read
	LeaderEpoch int32 // of the record before, -1 if it is not known
	Metadata    string
	Life        *Life // in which the offset was read; nil: the one that the partition is in
}

// MaxMetadata is the greatest length of an offset's metadata in bytes (offset.metadata.max.bytes).
const MaxMetadata = 4096

// CommitOffsets records where a group stands, durably and together: the logs are made durable up to the offsets first, so that a committed
// offset never leads its log. Offsets outside the log are kafka.ErrOffsetOutOfRange. Who is not of the group's generation, or no member of a group that has some, is refused; see group.Coordinator.Fence.
func (b *Broker) CommitOffsets(ctx context.Context, id group.Identity, cs []Commit) error {
	if id.Group == "" {
		return fmt.Errorf("%w: the name is empty", kafka.ErrInvalidGroup)
	}
	if len(cs) == 0 {
		return nil
	}
	for i := range cs {
		if err := cs[i].check(); err != nil {
			return err
		}
	}
	if !sabotage.On(sabotage.CommitAhead) {
		for _, err := range WaitDurable(ctx, cs) {
			if err != nil {
				return err
			}
		}
	}
	if err := b.enterToChange(); err != nil {
		return err
	}
	defer b.leave()
	now := b.clock.millis()
	batch := b.meta.NewBatch()
	for _, c := range cs {
		if c.Partition.t.Deleted() {
			// Written keys of a deleted topic would stay for ever.
			continue
		}
		batch.SetOffset(c.Partition.id, id.Group, meta.Offset{Offset: c.Offset, LeaderEpoch: c.LeaderEpoch, Time: now, Metadata: c.Metadata})
	}
	return b.commitFenced(id, batch)
}

// commitFenced commits a batch if the member may: it is visible before the group's generation can change, and durable in the end. The group is not held while the disk syncs.
func (b *Broker) commitFenced(id group.Identity, batch *meta.Batch) error {
	var wait func() error
	if err := b.groups.Fence(id, func() (err error) {
		wait, err = batch.Begin()
		return err
	}); err != nil {
		return err
	}
	return wait()
}

// WaitDurable waits until the logs are durable up to the offsets, beside each other, and returns an error or nil for each.
func WaitDurable(ctx context.Context, cs []Commit) []error {
	errs := make([]error, len(cs))
	var wait sync.WaitGroup
	for i := 1; i < len(cs); i++ {
		wait.Go(func() { errs[i] = cs[i].waitDurable(ctx) })
	}
	if len(cs) > 0 {
		errs[0] = cs[0].waitDurable(ctx)
	}
	wait.Wait()
	return errs
}

// enter finds the life that the commit is of.
func (c *Commit) enter() error {
	f, err := c.Partition.Life()
	if err != nil {
		return err
	}
	if c.Life == nil {
		c.Life = f
	}
	if c.Life != f {
		return fmt.Errorf("%s: %w, and has been opened again", c.Partition.tp, kafka.ErrPartitionFailed)
	}
	return nil
}

func (c *Commit) waitDurable(ctx context.Context) error {
	if err := c.enter(); err != nil {
		return err
	}
	return c.Life.WaitDurable(ctx, c.Offset)
}

func (c *Commit) check() error {
	bound := c.Life != nil
	if err := c.enter(); err != nil {
		return err
	}
	end := c.Life.EndOffset()
	if c.Offset < 0 || c.Offset > end {
		return fmt.Errorf("%s: %w: offset %d, the log ends at %d", c.Partition.tp, kafka.ErrOffsetOutOfRange, c.Offset, end)
	}
	// Epoch 0 is what those say who do not know it.
	if kept := c.Life.keptOf(c.LeaderEpoch); !bound && c.LeaderEpoch > 0 && c.Offset > kept {
		return fmt.Errorf("%s: %w: offset %d of epoch %d, of which %d is the end", c.Partition.tp, kafka.ErrOffsetOutOfRange, c.Offset, c.LeaderEpoch, kept)
	}
	if len(c.Metadata) > MaxMetadata {
		return fmt.Errorf("%s: %w: metadata of %d bytes, the limit is %d", c.Partition.tp, kafka.ErrMetadataTooLarge, len(c.Metadata), MaxMetadata)
	}
	return nil
}

// CommittedOffset returns the offset that a group has committed in p, if any. One that lies behind the log's end, as in a directory
// that was put together from copies of different age, is brought back to the end and reported.
func (b *Broker) CommittedOffset(group string, p *Partition) (o meta.Offset, ok bool, err error) {
	if err := b.enter(); err != nil {
		return o, false, err
	}
	defer b.leave()
	if b.foreign {
		return o, false, fmt.Errorf("committed offsets: %w", kafka.ErrLocked)
	}
	o, ok, err = b.meta.Offset(p.id, group)
	if !ok || err != nil {
		return o, false, err
	}
	f, err := p.opened()
	if err != nil {
		return o, false, err
	}
	if end := f.EndOffset(); o.Offset > end {
		b.Clamped(group, p.tp, o.Offset, end)
		// Kept, so that it does not lead again when the log has grown past it: the records up to there would be skipped.
		o.Offset = end
		batch := b.meta.NewBatch()
		batch.SetOffset(p.id, group, o)
		if err := batch.Commit(true); err != nil {
			return o, false, err
		}
	}
	return o, true, nil
}

// Clamped reports an offset that lay behind the log's end and has been taken as the end.
func (b *Broker) Clamped(group string, tp kafka.TopicPartition, offset, end int64) {
	b.clamped.Add(1)
	b.o.Logger.Warn("offset is behind the log's end", "group", group, "partition", tp, "offset", offset, "end", end)
	if b.o.Events.OffsetClamped != nil {
		b.o.Events.OffsetClamped(group, tp, offset, end)
	}
}
