package stream

import (
	"fmt"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
)

// Errors to decide on, with errors.Is. The facts are in the message, and for some in a struct for errors.As.
var (
	// ErrClosed: the engine, producer or consumer is closed.
	ErrClosed error = kafka.ErrClosed
	// ErrLocked: another engine, in this or another process, has the directory open.
	ErrLocked error = kafka.ErrLocked
	// ErrReadOnly: the engine was opened with Options.ReadOnly.
	ErrReadOnly error = kafka.ErrReadOnly
	// ErrUnknownTopic: no such topic or partition (UNKNOWN_TOPIC_OR_PARTITION).
	ErrUnknownTopic error = kafka.ErrUnknownTopic
	// ErrTopicExists: a topic of that name is there; names are compared without case.
	ErrTopicExists error = kafka.ErrTopicExists
	// ErrInvalidTopic: the name is not one that Kafka and every file system can hold.
	ErrInvalidTopic error = kafka.ErrInvalidTopic
	// ErrInvalidPartitions: a number of partitions that cannot be, or that would lower it.
	ErrInvalidPartitions error = kafka.ErrInvalidPartitions
	// ErrInvalidConfig: a setting has a value that it cannot have.
	ErrInvalidConfig error = kafka.ErrInvalidConfig
	// ErrInvalidRecord: a record that cannot be stored, such as one with a negative timestamp.
	ErrInvalidRecord error = kafka.ErrInvalidRecord
	// ErrInvalidGroup: the group's name is empty.
	ErrInvalidGroup error = kafka.ErrInvalidGroup
	// ErrOffsetOutOfRange: the log does not hold the offset, and the reset policy is ResetNone.
	ErrOffsetOutOfRange error = kafka.ErrOffsetOutOfRange
	// ErrNoOffset: the group has committed nothing, and the reset policy is ResetNone.
	ErrNoOffset error = kafka.ErrNoOffset
	// ErrNotAssigned: the partition is not this consumer's.
	ErrNotAssigned error = kafka.ErrNotAssigned
	// ErrNoSubscription: a poll of a consumer that was given neither topics nor partitions.
	ErrNoSubscription error = kafka.ErrNoSubscription
	// ErrFenced: a newer instance with the same name has taken over.
	ErrFenced error = kafka.ErrFenced
	// ErrOutOfOrderSequence: an idempotent producer's batch does not follow its last one.
	ErrOutOfOrderSequence error = kafka.ErrOutOfOrderSequence
	// ErrRebalance: the group is rebalancing.
	ErrRebalance error = kafka.ErrRebalance
	// ErrUnknownMember: the group does not know the member.
	ErrUnknownMember error = kafka.ErrUnknownMember
	// ErrIllegalGeneration: the group has had a rebalance that the member has not taken part in.
	ErrIllegalGeneration error = kafka.ErrIllegalGeneration
	// ErrInconsistentProtocol: the member knows no assignor that all other members know.
	ErrInconsistentProtocol error = kafka.ErrInconsistentProtocol
	// ErrGroupNotEmpty: the group has members.
	ErrGroupNotEmpty error = kafka.ErrGroupNotEmpty
	// ErrUnknownGroup: the group has neither members nor offsets, nor ever had members.
	ErrUnknownGroup error = kafka.ErrUnknownGroup
	// ErrGroupSubscribed: a member of the group subscribes to the topic.
	ErrGroupSubscribed error = kafka.ErrGroupSubscribed
	// ErrMetadataTooLarge: the metadata of an offset has more than 4096 bytes (offset.metadata.max.bytes).
	ErrMetadataTooLarge error = kafka.ErrMetadataTooLarge
	// ErrDiskFull: the append would leave less than Options.MinFree. Reads and commits go on; appends succeed again by themselves.
	ErrDiskFull error = kafka.ErrDiskFull
	// ErrPartitionFailed: a storage error has taken the partition offline. The engine opens it again by itself when the disk works; see Admin.Health.
	ErrPartitionFailed error = kafka.ErrPartitionFailed
	// ErrMetaFailed: a storage error has stopped the metadata store. The engine opens it again by itself when the disk works; see Events.MetaFailed.
	ErrMetaFailed error = kafka.ErrMetaFailed
	// ErrStorage: the disk could not be read or written; the message says where. What else can be read, can.
	ErrStorage error = kafka.ErrStorage
	// ErrCorrupt: bytes on the disk are not what was written; see CorruptError.
	ErrCorrupt error = kafka.ErrCorrupt
	// ErrTimeout: a configured time has passed.
	ErrTimeout error = kafka.ErrTimeout
	// ErrOutcomeUnknown: the record may or may not be kept.
	ErrOutcomeUnknown error = kafka.ErrOutcomeUnknown
	// ErrRecordTooLarge: the record does not fit into ProducerConfig.MaxMessageBytes or the topic's max.message.bytes.
	ErrRecordTooLarge error = kafka.ErrRecordTooLarge
	// ErrBufferFull: the producer's buffer is full.
	ErrBufferFull error = kafka.ErrBufferFull
	// ErrNoTxn: a transactional producer produces inside a transaction only.
	ErrNoTxn error = kafka.ErrNoTxn
	// ErrTxnDone: the transaction has ended.
	ErrTxnDone error = kafka.ErrTxnDone
	// ErrUnsupported: this version, or this kind of client, does not do that.
	ErrUnsupported error = kafka.ErrUnsupported
)

// CorruptError says which offsets of a partition cannot be read, and where their bytes lie. It matches ErrCorrupt.
type CorruptError = kafka.CorruptError

// PartitionError is what Poll returns when one partition cannot be read. The position has not moved; the partition is paused until Seek,
// Resume or, if it is damaged, Engine.SkipCorrupt, and the others go on. Unwrap gives the reason.
type PartitionError struct {
	TopicPartition
	Offset int64 // the consumer's position
	Err    error
}

func (e *PartitionError) Error() string {
	return fmt.Sprintf("%s at offset %d: %v", e.TopicPartition, e.Offset, e.Err)
}

// Unwrap returns the reason.
func (e *PartitionError) Unwrap() error { return e.Err }

// PollTimeoutError says which member is out of its group, since it has not polled for longer than ConsumerConfig.MaxPollInterval, and what it had in hand. Poll returns it once; the next one
// joins again. It matches ErrTimeout.
type PollTimeoutError struct {
	Member         string
	TopicPartition       // of the record that was handed over last
	Offset         int64 // its offset, -1 if there was none
	Elapsed, Limit time.Duration
}

func (e *PollTimeoutError) Error() string {
	return fmt.Sprintf("member %s has not polled for %v (limit %v), last at %s offset %d", e.Member, e.Elapsed, e.Limit, e.TopicPartition, e.Offset)
}

// Unwrap makes the error match ErrTimeout.
func (e *PollTimeoutError) Unwrap() error { return kafka.ErrTimeout }

// IsRetriable reports whether the same call may succeed later without any other change. An error whose outcome is
// unknown is not retriable: the record may already be kept.
func IsRetriable(err error) bool { return kafka.IsRetriable(err) }

// IsFatal reports whether the producer, consumer or engine that returned err is finished and has to be made anew.
func IsFatal(err error) bool { return kafka.IsFatal(err) }

// NeedsAbort reports whether err leaves the open transaction fit for nothing but Abort.
func NeedsAbort(err error) bool { return kafka.NeedsAbort(err) }

// unsupported is the error of a verb that a later version delivers.
func unsupported(what string) error {
	return fmt.Errorf("%s: %w in this version", what, kafka.ErrUnsupported)
}
