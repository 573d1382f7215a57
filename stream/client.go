package stream

import (
	"context"
	"iter"
	"regexp"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
)

// Client is what a program needs of a stream: an *Engine in this process, or a cluster. It may gain methods.
type Client interface {
	// NewProducer returns a producer. A Name or a TransactionalID fences its older self here.
	NewProducer(ctx context.Context, c ProducerConfig) (Producer, error)
	// NewConsumer returns a consumer. Consumers with the same Group share the partitions of what they subscribe to.
	NewConsumer(ctx context.Context, c ConsumerConfig) (Consumer, error)
	// Process runs consume, transform, produce exactly once. In this version: ErrUnsupported.
	Process(ctx context.Context, c ProcessConfig, fn func(ctx context.Context, tx Txn, rs []Record) error) error
	// Admin returns the verbs that manage topics and groups.
	Admin() Admin
	// Close closes the client; see Engine.Close.
	Close() error
}

// Sender takes records.
type Sender interface {
	// Produce sends a record and calls promise (which may be nil) once with what became of it. It keeps and changes nothing of r after it returns. It waits only for buffer memory, up to
	// ProducerConfig.MaxBlock and as long as ctx lasts. While the record has not been handed to the log, the end of ctx takes it back.
	//
	// Promises run one at a time per producer, in the order of the offsets of each partition, on an unspecified goroutine. They may
	// Produce, which is ErrBufferFull there where it would wait, but must not call Flush, Close, ProduceSync or ProduceAll. A panic in one is contained and logged.
	Produce(ctx context.Context, r *Record, promise func(Receipt, error))
	// ProduceSync sends a record and waits for what its Acks asks for. When an error matches ErrOutcomeUnknown the record
	// may be kept; after every other error it is not.
	ProduceSync(ctx context.Context, r *Record) (Receipt, error)
	// ProduceAll sends records and waits for all of them. out is overwritten from 0 and grown: one result for each
	// record, in order. The error is the first of the results'.
	ProduceAll(ctx context.Context, rs []Record, out []Result) ([]Result, error)
}

// Producer sends records. It is safe for concurrent use. Producers are idempotent: a batch is in the log once.
type Producer interface {
	Sender
	// Flush returns after the promises of all earlier records have run.
	Flush(ctx context.Context) error
	// LastSequence returns the Sequence of the last record of this producer's name in a partition, 0 if there is none. It survives restarts and
	// crashes. For producers without a name: ErrUnsupported.
	//
	// When a record with a Sequence fails, later ones of its partition fail too, with its error, so that it can be sent again without being taken
	// for a duplicate. Sending again what has failed, in order, or calling LastSequence, lets others through. A record that can never be written (ErrRecordTooLarge,
	// ErrInvalidRecord) holds nothing back.
	LastSequence(ctx context.Context, tp TopicPartition) (int64, error)
	// Begin opens a transaction. In this version: ErrUnsupported.
	Begin(ctx context.Context) (Txn, error)
	// Metrics returns a snapshot of what the producer has done.
	Metrics() ProducerMetrics
	// Close flushes and ends the producer; what ctx leaves no time for fails with ErrClosed. Idempotent.
	Close(ctx context.Context) error
}

// Txn is an open transaction. No version of this package returns one yet.
type Txn interface {
	Sender
	// SendOffsets makes the offsets of a group part of the transaction.
	SendOffsets(ctx context.Context, g GroupMetadata, o Offsets) error
	// Commit ends the transaction; afterwards everything is ErrTxnDone.
	Commit(ctx context.Context) error
	// Abort ends the transaction as if it had never been.
	Abort(ctx context.Context) error
}

// Consumer reads records, in order within each partition.
type Consumer interface {
	// Poll returns up to max records. It blocks until there is one, until ConsumerConfig.MaxWait has passed (none, and no error), or
	// until ctx ends (its error). A failed Poll moved no position. max below 1 means 500 (max.poll.records);
	// above 10000 it is 10000.
	Poll(ctx context.Context, max int) ([]Record, error)
	// PollInto is Poll into dst, whose length is the limit.
	PollInto(ctx context.Context, dst []Record) (int, error)
	// Records yields records until ctx ends, the consumer is closed or it has no subscription; that error is yielded last. Every other error is
	// yielded and the loop goes on. Records that were fetched but not yielded when the loop is left are delivered again by the next call.
	Records(ctx context.Context) iter.Seq2[Record, error]
	// Batches yields slices of up to max records (below 1: 500): what is there, and what comes within wait after that. Everything else is as with Records: a slice counts as unfinished while its loop
	// body runs. With Borrow it does not wait for more.
	Batches(ctx context.Context, max int, wait time.Duration) iter.Seq2[[]Record, error]
	// Commit commits what Poll has returned, or every record yielded by Records so far, the one in the loop body included.
	// It returns when the commit is durable, which waits for the log to be durable up to there.
	Commit(ctx context.Context) error
	// CommitRecords commits the positions behind these records: in each partition the greatest.
	CommitRecords(ctx context.Context, rs ...Record) error
	// CommitOffsets commits these positions, which may lie anywhere in the log.
	CommitOffsets(ctx context.Context, o Offsets) error
	// CommitAsync commits without waiting; nil means what Commit would cover. It never overtakes an earlier commit, and later ones wait for it. done (which may be nil) is called with what became of
	// it, in the order of the calls, on an unspecified goroutine; it must not call Close or commit and wait.
	CommitAsync(o Offsets, done func(Offsets, error))
	// Subscribe reads the partitions of these topics, those too that are added later; in a group, those that the group gives it. It replaces an earlier subscription or assignment.
	Subscribe(topics ...string) error
	// SubscribeRegexp reads all topics whose whole name matches, those too that are made later.
	SubscribeRegexp(re *regexp.Regexp) error
	// Assign reads these partitions. It replaces an earlier subscription or assignment; partitions that stay keep their position.
	Assign(tps ...TopicPartition) error
	// Unsubscribe reads nothing.
	Unsubscribe() error
	// Seek sets the position of an assigned partition. The offset need not exist; the reset policy applies at the next poll.
	Seek(tp TopicPartition, offset int64) error
	// SeekToTime sets positions to the first record at or after t, or to the end; without tps, in all assigned partitions.
	SeekToTime(ctx context.Context, t time.Time, tps ...TopicPartition) error
	// SeekToStart sets positions to the log start; without tps, in all assigned partitions.
	SeekToStart(tps ...TopicPartition) error
	// SeekToEnd sets positions to the log end; without tps, in all assigned partitions.
	SeekToEnd(tps ...TopicPartition) error
	// Position returns the offset of the next record that Poll will return from an assigned partition.
	Position(tp TopicPartition) (int64, error)
	// Committed returns the group's committed offsets; a partition without one is absent. Without tps: of the assigned partitions.
	Committed(ctx context.Context, tps ...TopicPartition) (Offsets, error)
	// Lag returns how far positions are behind: how many records a reader of this consumer's kind has not been given, and how long ago the first of them was written; without tps, in all assigned partitions.
	// Where compaction has left holes it goes through every batch.
	Lag(ctx context.Context, tps ...TopicPartition) (map[TopicPartition]Lag, error)
	// Assignment returns the assigned partitions, by topic and number.
	Assignment() []TopicPartition
	// Group says who this consumer is in its group; generation -1 while it is not a member.
	Group() GroupMetadata
	// Pause keeps polls from returning records of these partitions; positions stay. Unassigned ones are ignored.
	Pause(tps ...TopicPartition)
	// Resume undoes Pause, and the pause of a partition that failed.
	Resume(tps ...TopicPartition)
	// Paused returns the paused partitions, by topic and number.
	Paused() []TopicPartition
	// Close commits what earlier polls returned, unless ManualCommit, and leaves the group. A record of Records whose loop body was left by break,
	// return or a panic is taken as unfinished and not covered; Commit covers it. Idempotent. A poll that is running gets ErrClosed.
	Close(ctx context.Context) error
}

// Admin manages topics, groups and transactions. It is safe for concurrent use.
type Admin interface {
	// CreateTopic makes a topic, durably. Errors: ErrTopicExists, ErrInvalidTopic, ErrInvalidConfig, ErrInvalidPartitions.
	CreateTopic(ctx context.Context, name string, c TopicConfig) error
	// DeleteTopic ends a topic and removes its records and all offsets in it. Readers and writers get ErrUnknownTopic.
	DeleteTopic(ctx context.Context, name string) error
	// Topics describes topics; without names, all of them, by name.
	Topics(ctx context.Context, names ...string) ([]TopicInfo, error)
	// AddPartitions raises the number of partitions to total. Keys may move to other partitions.
	AddPartitions(ctx context.Context, topic string, total int) error
	// AlterTopic changes settings, by Kafka's names, durably and from now on; those in unset get their defaults again. All faults are reported at once, and then nothing changes.
	AlterTopic(ctx context.Context, topic string, set map[string]string, unset ...string) error
	// DeleteRecords makes these offsets the log start offsets of their partitions, durably: what lies before is not read any more, and its space is freed segment by segment. -1
	// is the log end. An offset before the log start changes nothing, one behind the log end is ErrOffsetOutOfRange. What an error leaves undone can be done again.
	DeleteRecords(ctx context.Context, before map[TopicPartition]int64) error
	// StartOffsets returns the log start offsets.
	StartOffsets(ctx context.Context, tps ...TopicPartition) (Offsets, error)
	// EndOffsets returns the log end offsets: those of the next records.
	EndOffsets(ctx context.Context, tps ...TopicPartition) (Offsets, error)
	// OffsetsForTime returns the first records at or after t, in offset order; a partition without one is absent.
	OffsetsForTime(ctx context.Context, t time.Time, tps ...TopicPartition) (Offsets, error)
	// Groups describes consumer groups; without names, all that have members, offsets or a past, by name. Errors: ErrUnknownGroup for a name that is none.
	Groups(ctx context.Context, names ...string) ([]GroupInfo, error)
	// DeleteGroup removes a group without members, and its offsets, durably. Errors: ErrUnknownGroup, ErrGroupNotEmpty.
	DeleteGroup(ctx context.Context, group string) error
	// SetOffsets sets committed offsets of a group without members, durably and together; they may go back. Errors: ErrGroupNotEmpty, ErrOffsetOutOfRange.
	SetOffsets(ctx context.Context, group string, o Offsets) error
	// ResetOffsets sets them to a place in the log and returns them; of the partitions that the group has offsets in, if none is named. What lies outside the log becomes its start or end.
	ResetOffsets(ctx context.Context, group string, to OffsetSpec, tps ...TopicPartition) (Offsets, error)
	// DeleteOffsets removes committed offsets, durably. Errors: ErrUnknownGroup, ErrGroupSubscribed.
	DeleteOffsets(ctx context.Context, group string, tps ...TopicPartition) error
	// Explain says in a sentence for each partition of a group, with the cause and the number, why its records are or are not being delivered now.
	Explain(ctx context.Context, group string) ([]Explanation, error)
	// Transactions describes transactions. In this version: ErrUnsupported, as are the two verbs below.
	Transactions(ctx context.Context) ([]TxnInfo, error)
	Producers(ctx context.Context, tps ...TopicPartition) ([]ProducerInfo, error)
	AbortTransaction(ctx context.Context, tp TopicPartition, producerID int64) error
	// Health says what partitions can do, as far as anybody has noticed; of all partitions if none is named. It opens and reads none.
	Health(ctx context.Context, tps ...TopicPartition) ([]PartitionHealth, error)
}

// PartitionState says what a partition can do.
type PartitionState = kafka.PartitionState

const (
	// PartitionOK takes appends and is read.
	PartitionOK = kafka.PartitionOK
	// PartitionDiskFull refused its last append: ErrDiskFull. Reads, commits and deletions go on, and so do appends, by themselves, when there is space.
	PartitionDiskFull = kafka.PartitionDiskFull
	// PartitionDamaged has records that are lost or damaged: reading those is ErrCorrupt, with a CorruptError that says which. The others are read. Appends go on, unless the
	// end of the log is lost: then they are ErrCorrupt too.
	PartitionDamaged = kafka.PartitionDamaged
	// PartitionFailed was taken offline by a storage error. Appends, and commits of what is not durable, are ErrPartitionFailed, and so is reading on from the durable end. The
	// engine opens the partition again by itself when the disk works, through recovery: what was acknowledged as synced is there, of the rest the end may be missing.
	PartitionFailed = kafka.PartitionFailed
)

// PartitionHealth is the state of a partition.
type PartitionHealth struct {
	TopicPartition
	State PartitionState
	Err   error // why, nil with PartitionOK
}

// TopicInfo describes a topic.
type TopicInfo struct {
	Name       string
	ID         [16]byte // of this life of the topic
	Partitions int
	Config     map[string]string // settings that differ from the defaults, by Kafka's names
}

// GroupInfo describes a consumer group at one moment.
type GroupInfo struct {
	Group      string
	State      string // Empty, PreparingRebalance, CompletingRebalance or Stable
	Assignor   string // "" without a generation
	Generation int32
	Leader     string // member id
	Members    []MemberInfo
	Offsets    Offsets
	// Lag is what lies between the committed offset, or the log start if there is none, and the log end, for partitions that a member has or that have an offset. A partition that cannot be read is absent.
	Lag map[TopicPartition]Lag
}

// MemberInfo describes a member of a group.
type MemberInfo struct {
	MemberID, InstanceID, ClientID, Host string
	Assignment                           []TopicPartition
}

// TxnInfo describes a transaction. A later version fills it.
type TxnInfo struct {
	TransactionalID, State string
	ProducerID             int64
}

// ProducerInfo describes a producer that wrote to a partition. A later version fills it.
type ProducerInfo struct {
	TopicPartition
	ProducerID int64
}

// Explanation says why records of a partition are or are not being delivered.
type Explanation struct {
	TopicPartition
	Member string // who has the partition, "" if nobody
	Text   string
}

func (x Explanation) String() string { return x.TopicPartition.String() + ": " + x.Text }
