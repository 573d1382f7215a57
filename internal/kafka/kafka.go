// Package kafka holds Kafka's words: the names, kinds and errors that every floor of Runnel shares.
// It imports nothing of this module; package stream re-exports what users see.
package kafka

import (
	"fmt"
	"strings"
)

// TopicPartition names one partition of one topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String returns "topic-partition", the name of the partition's directory.
func (tp TopicPartition) String() string { return fmt.Sprintf("%s-%d", tp.Topic, tp.Partition) }

// Header is one header of a record. A nil Value is Kafka's null.
type Header struct {
	Key   string
	Value []byte
}

// Acks says how durable a record is when its producer is told that it is written.
type Acks int8

const (
	// AcksDefault takes the producer's level; for a producer it is AcksSynced.
	AcksDefault Acks = iota
	// AcksNone promises nothing (acks=0).
	AcksNone
	// AcksWritten survives a crash or kill -9 of the process, not a power cut (acks=1).
	AcksWritten
	// AcksSynced survives a power cut: an fdatasync has covered the record (acks=all).
	AcksSynced
)

func (a Acks) String() string {
	switch a {
	case AcksDefault:
		return "default"
	case AcksNone:
		return "none"
	case AcksWritten:
		return "written"
	case AcksSynced:
		return "synced"
	}
	return fmt.Sprintf("Acks(%d)", int8(a))
}

// Isolation says which records a reader sees (isolation.level).
type Isolation int8

const (
	// ReadUncommitted shows every published record.
	ReadUncommitted Isolation = iota
	// ReadCommitted stops at the last stable offset and skips aborted records.
	ReadCommitted
)

// Offset sentinels, as in Kafka's ListOffsets.
const (
	NoOffset    int64 = -1
	NoTimestamp int64 = -1
	NoProducer  int64 = -1
	NoEpoch     int16 = -1
	NoSequence  int32 = -1
)

// MaxTopicName is the greatest length of a topic's name in bytes.
const MaxTopicName = 249

// windowsDevices are file names that Windows keeps for itself, whatever their extension.
var windowsDevices = map[string]bool{
	"con": true, "prn": true, "aux": true, "nul": true,
	"com0": true, "com1": true, "com2": true, "com3": true, "com4": true, "com5": true, "com6": true, "com7": true, "com8": true, "com9": true,
	"lpt0": true, "lpt1": true, "lpt2": true, "lpt3": true, "lpt4": true, "lpt5": true, "lpt6": true, "lpt7": true, "lpt8": true, "lpt9": true,
}

// CheckTopicName returns an error that matches ErrInvalidTopic unless name is one that Kafka takes
// (1 to 249 letters, digits, '.', '_' and '-', not "." nor "..") and that every file system can hold.
func CheckTopicName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name is empty", ErrInvalidTopic)
	case name == "." || name == "..":
		return fmt.Errorf("%w: %q", ErrInvalidTopic, name)
	case len(name) > MaxTopicName:
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrInvalidTopic, len(name), MaxTopicName)
	}
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			continue
		}
		return fmt.Errorf("%w: %q has a character other than letters, digits, '.', '_' and '-'", ErrInvalidTopic, name)
	}
	stem, _, _ := strings.Cut(strings.ToLower(name), ".")
	if windowsDevices[stem] {
		return fmt.Errorf("%w: %q is the name of a device on Windows", ErrInvalidTopic, name)
	}
	return nil
}
