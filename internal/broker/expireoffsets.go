package broker

import (
	"errors"
	"time"

	"github.com/runnelmq/runnel/group"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/meta"
)

// offsetsLook is the time between two looks for offsets that are too old (offsets.retention.check.interval.ms).
const offsetsLook = 10 * time.Minute

// expireOffsets removes committed offsets that are older than OffsetRetention: of a group without members, counted from when it lost its last one, or from the commit if it never had any; of a group that has members, those in
// topics that none of them subscribes to, counted from the commit. A group without members and offsets is gone itself. It reports whether there will be something to do later.
func (c *cleaner) expireOffsets() bool {
	if c.b.o.OffsetRetention <= 0 {
		return false
	}
	if now := time.Now(); c.offsets.IsZero() || now.Sub(c.offsets) >= offsetsLook {
		c.offsets = now
		if err := c.b.expireOffsets(c.b.clock.millis() - c.b.o.OffsetRetention.Milliseconds()); err != nil && !errors.Is(err, kafka.ErrClosed) {
			c.b.o.Logger.Warn("offsets that are too old", "error", err)
		}
	}
	return true
}

// expireOffsets removes what is older than before, in ms.
func (b *Broker) expireOffsets(before int64) error {
	if err := b.enterToChange(); err != nil {
		return err
	}
	defer b.leave()
	old := map[string][]oldOffset{}
	kept := map[string]int{}
	topics := b.topicsByID()
	err := b.meta.Offsets(func(id meta.PartitionID, g string, o meta.Offset) error {
		kept[g]++
		if o.Time < before {
			old[g] = append(old[g], oldOffset{id, topics[id.Topic]})
		}
		return nil
	})
	if err != nil {
		return err
	}
	groups, err := b.meta.Groups()
	if err != nil {
		return err
	}
	for name := range groups {
		if kept[name] == 0 {
			old[name] = nil // it has a past and nothing else
		}
	}
	for name, offsets := range old {
		if err := b.expireGroup(name, offsets, kept[name], before); err != nil {
			return err
		}
	}
	return nil
}

// oldOffset is an offset that was committed too long ago.
type oldOffset struct {
	id    meta.PartitionID
	topic *Topic // nil: it is gone
}

// expireGroup removes old offsets of a group, which has so many in all, unless it still needs them.
func (b *Broker) expireGroup(name string, old []oldOffset, all int, before int64) error {
	d, err := b.groups.Describe(name)
	if err != nil {
		return err
	}
	batch := b.meta.NewBatch()
	if len(d.Members) > 0 {
		if d.ProtocolType != group.ConsumerProtocol || d.State != group.Stable {
			return nil
		}
		subscribed := subscribedTopics(d)
		for _, o := range old {
			if o.topic == nil || !subscribed[o.topic.Name()] {
				batch.DeleteOffset(o.id, name)
			}
		}
		return batch.Commit(true)
	}
	if d.EmptySince >= before {
		return nil
	}
	for _, o := range old {
		batch.DeleteOffset(o.id, name)
	}
	if len(old) == all {
		batch.DeleteGroup(name)
	}
	err = b.groups.Delete(name, func() error { return batch.Commit(true) })
	if errors.Is(err, kafka.ErrGroupNotEmpty) { // it has got a member just now
		return nil
	}
	return err
}
