package meta

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/runnelmq/runnel/internal/kafka"
)

// TopicID identifies one life of a topic: a topic deleted and made again has another.
type TopicID [16]byte

// String returns the id as Kafka writes it: 22 characters of URL-safe base64.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// ParseTopicID reads what String wrote.
func ParseTopicID(s string) (id TopicID, err error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("%w: topic id %q", kafka.ErrCorrupt, s)
	}
	return TopicID(b), nil
}

// MarshalText writes the id in hexadecimal.
func (id TopicID) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(id[:])), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *TopicID) UnmarshalText(b []byte) error {
	if hex.DecodedLen(len(b)) != len(id) {
		return fmt.Errorf("topic id of %d characters", len(b))
	}
	_, err := hex.Decode(id[:], b)
	return err
}

// TopicState is where a topic is between creation and deletion.
type TopicState string

const (
	// Live topics take records.
	Live TopicState = "live"
	// Deleting topics are gone for everybody; their files and keys are being removed.
	Deleting TopicState = "deleting"
)

// Topic is what the store knows of a topic.
type Topic struct {
	Name       string            `json:"name"`
	ID         TopicID           `json:"id"`
	Partitions int               `json:"partitions"`
	Config     map[string]string `json:"config,omitempty"` // Kafka's names
	State      TopicState        `json:"state"`
}

// topicKey compares names without case, so that a directory can be copied to any file system.
func topicKey(name string) []byte { return append([]byte{spaceTopic}, strings.ToLower(name)...) }

// PutTopic writes a topic, durably.
func (s *Store) PutTopic(t Topic) error {
	v, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("topic %s: %w", t.Name, err)
	}
	return s.set(topicKey(t.Name), v, true)
}

// Topics returns all topics, in the order of their lower-case names.
func (s *Store) Topics() ([]Topic, error) {
	var ts []Topic
	err := s.scan([]byte{spaceTopic}, func(suffix, v []byte) error {
		var t Topic
		if err := json.Unmarshal(v, &t); err != nil {
			return fmt.Errorf("%w: metadata of topic %s: %w", kafka.ErrCorrupt, suffix, err)
		}
		ts = append(ts, t)
		return nil
	})
	return ts, err
}

// DropTopic removes a topic and every key of its partitions, durably and together.
func (s *Store) DropTopic(t Topic) error {
	b := s.NewBatch()
	for _, space := range []byte{spacePartition, spaceDirty} {
		b.deletePrefix(append([]byte{space}, t.ID[:]...))
	}
	b.delete(topicKey(t.Name))
	return b.Commit(true)
}
