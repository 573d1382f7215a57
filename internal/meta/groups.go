package meta

import (
	"encoding/json"
	"fmt"

	"github.com/runnelmq/runnel/internal/kafka"
)

// Group is what is kept of a consumer group besides its offsets.
type Group struct {
	Type       string        `json:"type"`     // protocol type: "consumer" or whatever the members say; "" while nobody has joined
	Protocol   string        `json:"protocol"` // the assignor
	Generation int32         `json:"generation"`
	Leader     string        `json:"leader,omitempty"`
	EmptySince int64         `json:"emptySince,omitempty"` // ms, 0 while it has members
	Members    []GroupMember `json:"members,omitempty"`
}

// GroupMember is a member of a group that is stable.
type GroupMember struct {
	ID               string `json:"id"`
	InstanceID       string `json:"instance,omitempty"`
	ClientID         string `json:"client,omitempty"`
	Host             string `json:"host,omitempty"`
	Native           bool   `json:"native,omitempty"` // it lived in the process that wrote this
	RebalanceTimeout int64  `json:"rebalanceMs"`
	SessionTimeout   int64  `json:"sessionMs"`
	Metadata         []byte `json:"metadata,omitempty"` // of the protocol
	Assignment       []byte `json:"assignment,omitempty"`
}

func groupKey(name string) []byte { return append([]byte{spaceGroup}, name...) }

// Group returns a group, if it was ever written.
func (s *Store) Group(name string) (g Group, ok bool, err error) {
	ok, err = s.get(groupKey(name), func(v []byte) error { return decodeGroup(v, &g) })
	return g, ok, err
}

// Groups returns all groups that were written, by name.
func (s *Store) Groups() (map[string]Group, error) {
	all := map[string]Group{}
	err := s.scan([]byte{spaceGroup}, func(name, v []byte) error {
		var g Group
		if err := decodeGroup(v, &g); err != nil {
			return err
		}
		all[string(name)] = g
		return nil
	})
	return all, err
}

func decodeGroup(v []byte, g *Group) error {
	if err := json.Unmarshal(v, g); err != nil {
		return fmt.Errorf("%w: metadata of a group: %w", kafka.ErrCorrupt, err)
	}
	return nil
}

// SetGroup adds a group to the batch.
func (b *Batch) SetGroup(name string, g Group) error {
	v, err := json.Marshal(g)
	if err != nil {
		return err
	}
	b.set(groupKey(name), v)
	return nil
}

// DeleteGroup adds the removal of a group, its offsets apart, to the batch.
func (b *Batch) DeleteGroup(name string) { b.delete(groupKey(name)) }

// DeleteOffset adds the removal of a group's committed offset in p to the batch.
func (b *Batch) DeleteOffset(p PartitionID, group string) { b.delete(p.key(kindOffset, group)) }

// Offsets calls fn with every committed offset, of all groups. It goes through the keys of all partitions.
func (s *Store) Offsets(fn func(p PartitionID, group string, o Offset) error) error {
	return s.scan([]byte{spacePartition}, func(k, v []byte) error {
		p, kind, suffix, ok := splitPartitionKey(k)
		if !ok || kind != kindOffset {
			return nil
		}
		o, err := decodeOffset(v)
		if err != nil {
			return err
		}
		return fn(p, string(suffix), o)
	})
}
