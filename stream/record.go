package stream

import (
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
)

// TopicPartition names one partition of one topic.
type TopicPartition = kafka.TopicPartition

// Header is a header of a record; a nil Value is Kafka's null.
type Header = kafka.Header

// Acks says how durable a record is when its producer hears that it is written (acks).
type Acks = kafka.Acks

const (
	// AcksDefault takes the producer's level, which is AcksSynced unless configured.
	AcksDefault = kafka.AcksDefault
	// AcksNone promises nothing: the receipt has offset -1 (acks=0).
	AcksNone = kafka.AcksNone
	// AcksWritten survives a crash or kill -9 of the process (acks=1).
	AcksWritten = kafka.AcksWritten
	// AcksSynced survives a power cut (acks=all).
	AcksSynced = kafka.AcksSynced
)

// Record is what is produced and consumed.
type Record struct {
	Topic      string
	Partition  int32  // producing: read only with ManualPartitioner
	Key, Value []byte // nil and empty are different; a nil Value is a tombstone
	Headers    []Header
	Timestamp  time.Time // kept in milliseconds; zero: the batch's clock
	Acks       Acks      // producing only; AcksDefault: the producer's
	// Sequence is the source's own number of the record, for named producers: a record that does not lie above the last one
	// of its producer's name in its partition is not appended. 0: none. Producing only.
	Sequence    int64
	Offset      int64 // delivery only
	LeaderEpoch int32 // delivery only: the engine's incarnation that wrote the record
}

// Receipt says where a record went.
type Receipt struct {
	Topic                  string
	Partition, LeaderEpoch int32
	Offset                 int64 // -1 for AcksNone and for duplicates
	Timestamp              time.Time
	Acks                   Acks // what was waited for
	// Duplicate: a record of a named producer with this Sequence, or a later one, is in the partition already; nothing was written.
	Duplicate bool
}

// Result is a record's Receipt, or why there is none.
type Result struct {
	Receipt Receipt
	Err     error
}

// OffsetMetadata is a position: Offset is that of the next record to be read.
type OffsetMetadata struct {
	Offset      int64
	LeaderEpoch int32  // of the record before; -1 if not known
	Metadata    string // free text kept with a commit, at most 4096 bytes
}

// Offsets are positions in partitions.
type Offsets map[TopicPartition]OffsetMetadata

// GroupMetadata says who a consumer is in its group.
type GroupMetadata struct {
	Group, MemberID, InstanceID string
	Generation                  int32
}

// Lag is how far a position is behind the log's end.
type Lag struct {
	Records int64
	Time    time.Duration
}
