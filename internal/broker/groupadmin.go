package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/runnelmq/runnel/group"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/meta"
)

// GroupOffset is a committed offset and the partition that it is of.
type GroupOffset struct {
	Partition *Partition
	meta.Offset
}

// Groups returns the names of all groups that have members, a past or offsets, in order.
func (b *Broker) Groups() ([]string, error) {
	if err := b.enterToRead(); err != nil {
		return nil, err
	}
	defer b.leave()
	names, err := b.groups.Names()
	if err != nil {
		return nil, err
	}
	err = b.meta.Offsets(func(_ meta.PartitionID, g string, _ meta.Offset) error {
		names = append(names, g)
		return nil
	})
	slices.Sort(names)
	return slices.Compact(names), err
}

// enterToRead is enter for calls that read what meta holds of groups.
func (b *Broker) enterToRead() error {
	if err := b.enter(); err != nil {
		return err
	}
	if b.foreign {
		b.leave()
		return fmt.Errorf("groups: %w", kafka.ErrLocked)
	}
	return nil
}

// DescribeGroup describes a group and its offsets, by partition. One that has neither members nor a past nor offsets is kafka.ErrUnknownGroup.
func (b *Broker) DescribeGroup(name string) (group.Description, []GroupOffset, error) {
	if err := b.enterToRead(); err != nil {
		return group.Description{}, nil, err
	}
	defer b.leave()
	d, err := b.groups.Describe(name)
	if err != nil {
		return d, nil, err
	}
	offsets, err := b.groupOffsets(name)
	if err != nil {
		return d, nil, err
	}
	if d.State == group.Dead && len(offsets) == 0 {
		return d, nil, fmt.Errorf("%w: %s", kafka.ErrUnknownGroup, name)
	}
	if d.State == group.Dead {
		d.State = group.Empty // offsets that were committed without a member
	}
	return d, offsets, nil
}

// groupOffsets returns a group's offsets in partitions that are there.
func (b *Broker) groupOffsets(name string) ([]GroupOffset, error) {
	topics := b.topicsByID()
	var out []GroupOffset
	err := b.meta.Offsets(func(id meta.PartitionID, g string, o meta.Offset) error {
		if g != name {
			return nil
		}
		if t := topics[id.Topic]; t != nil {
			if ps := t.Partitions(); int(id.Partition) < len(ps) {
				out = append(out, GroupOffset{ps[id.Partition], o})
			}
		}
		return nil
	})
	slices.SortFunc(out, func(x, y GroupOffset) int { return comparePartitions(x.Partition, y.Partition) })
	return out, err
}

func comparePartitions(a, b *Partition) int {
	if a.tp.Topic != b.tp.Topic {
		if a.tp.Topic < b.tp.Topic {
			return -1
		}
		return 1
	}
	return int(a.tp.Partition - b.tp.Partition)
}

func (b *Broker) topicsByID() map[meta.TopicID]*Topic {
	m := map[meta.TopicID]*Topic{}
	for _, t := range b.list() {
		m[t.info.ID] = t
	}
	return m
}

// DeleteGroup removes a group without members and all its offsets, durably. Errors: kafka.ErrUnknownGroup, ErrGroupNotEmpty.
func (b *Broker) DeleteGroup(name string) error {
	if err := b.enterToChange(); err != nil {
		return err
	}
	defer b.leave()
	return b.groups.Delete(name, func() error {
		_, known, err := b.meta.Group(name)
		if err != nil {
			return err
		}
		batch := b.meta.NewBatch()
		err = b.meta.Offsets(func(id meta.PartitionID, g string, _ meta.Offset) error {
			if g == name {
				known = true
				batch.DeleteOffset(id, g)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if !known {
			return fmt.Errorf("%w: %s", kafka.ErrUnknownGroup, name)
		}
		batch.DeleteGroup(name)
		return batch.Commit(true)
	})
}

// SetOffsets is CommitOffsets for a group without members. With members it is kafka.ErrGroupNotEmpty.
func (b *Broker) SetOffsets(ctx context.Context, name string, cs []Commit) error {
	return notEmpty(name, b.CommitOffsets(ctx, group.Identity{Group: name, Generation: -1}, cs))
}

func notEmpty(name string, err error) error {
	if errors.Is(err, kafka.ErrUnknownMember) {
		return fmt.Errorf("%w: %s: %w", kafka.ErrGroupNotEmpty, name, err) // Kafka says the latter
	}
	return err
}

// DeleteOffsets removes committed offsets, durably. Of a topic that a member subscribes to it is kafka.ErrGroupSubscribed.
func (b *Broker) DeleteOffsets(name string, ps []*Partition) error {
	d, _, err := b.DescribeGroup(name)
	if err != nil {
		return err
	}
	if err := b.enterToChange(); err != nil {
		return err
	}
	defer b.leave()
	subscribed := subscribedTopics(d)
	batch := b.meta.NewBatch()
	for _, p := range ps {
		if subscribed[p.tp.Topic] {
			return fmt.Errorf("%w: %s", kafka.ErrGroupSubscribed, p.tp)
		}
		batch.DeleteOffset(p.id, name)
	}
	return batch.Commit(true)
}

// subscribedTopics is what the members of a group of consumers subscribe to.
func subscribedTopics(d group.Description) map[string]bool {
	topics := map[string]bool{}
	for _, m := range d.Members {
		if s, err := group.ParseSubscription(m.Metadata); err == nil {
			for _, t := range s.Topics {
				topics[t] = true
			}
		}
	}
	return topics
}
