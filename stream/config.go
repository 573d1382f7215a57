package stream

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"time"

	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// Options configures an engine. The zero value is good.
type Options struct {
	// FS is the file system; nil: this machine's. Usable only inside this module.
	FS vfs.FS
	// Logger gets state transitions, never a line per record; nil: silent. Its handler must not call the engine.
	Logger *slog.Logger
	// Events are called when something happened that an operator should know.
	Events Events
	// ReadOnly opens a directory that is there without writing a byte, also on a file system that cannot be written to, and without keeping anybody from opening it. Whatever would
	// change something is ErrReadOnly, NewProducer and commits among it; consumers of a group commit nothing by themselves. Records that another engine appends meanwhile are seen
	// by polls, some time later. If another engine has the directory open already, topics have their default settings and only the partitions that have records, and what the
	// metadata holds, committed offsets first of all, is ErrLocked. What another engine has written and not yet synced counts as Durable here.
	ReadOnly bool
	// AutoCreate makes topics that are produced to, subscribed to or assigned and missing, with this configuration
	// (auto.create.topics.enable); nil: they are ErrUnknownTopic, but a subscription waits for them to be made.
	AutoCreate *TopicConfig
	// SyncInterval is the time from the first unsynced append to the background sync that covers it; 0: 1 s (flush.ms).
	SyncInterval time.Duration
	// SyncBytes is how many unsynced bytes of a partition start the background sync earlier; 0: 64 MiB.
	SyncBytes int64
	// MinFree is how many bytes of the file system appends leave free; below it they are ErrDiskFull. 0: the lesser of
	// 64 MiB and 5 % of the file system; negative: none.
	MinFree int64
	// CleanInterval is the time between two looks at what retention and compaction have to do, besides those when a segment is full; 0: 30 s
	// (log.retention.check.interval.ms, log.cleaner.backoff.ms).
	CleanInterval time.Duration
	// CleanRate bounds the bytes a second that compaction reads and writes, so that it leaves the disk to others; 0: 32 MiB; negative: no bound
	// (log.cleaner.io.max.bytes.per.second).
	CleanRate int64
	// OffsetRetention is how long committed offsets are kept after a group has lost its last member, or after the commit if it had none or no member subscribes to the topic; looked at every ten minutes. 0: for
	// ever (offsets.retention.minutes).
	OffsetRetention time.Duration
	// CleanMemory bounds the memory in bytes in which compaction remembers keys, 24 bytes each, beside a quarter of it for offsets; where it has no room it makes several passes. 0: 16 MiB
	// (log.cleaner.dedupe.buffer.size).
	CleanMemory int64
	// CloseTimeout is how long Close waits for producers to flush; 0: 30 s.
	CloseTimeout time.Duration
	// WallClock feeds timestamps and retention; nil: time.Now. For tests that step the clock: timers follow package time.
	WallClock func() time.Time
}

// Events tells the program what happened to its data. Nil funcs are skipped; they must return soon and not call back.
type Events struct {
	// TailCut: after a stop that was not in order, recovery found the log's end at offset end; the n bytes behind it
	// (reserved space included) were not whole batches, and have been put into the file quarantine.
	TailCut func(tp TopicPartition, end, n int64, quarantine string)
	// IndexRebuilt: an index was missing or wrong and has been made anew from the log.
	IndexRebuilt func(tp TopicPartition, baseOffset int64, reason error)
	// PartitionState: a partition's state has changed; err is why, nil with PartitionOK. See Admin.Health.
	PartitionState func(tp TopicPartition, s PartitionState, err error)
	// MetaFailed: a storage error has stopped the metadata store. Until MetaRecovered whatever needs it is ErrMetaFailed: commits, changes of topics, first appends, new
	// segments, new producers. Other appends and reads go on. The engine opens the store again by itself when the disk works.
	MetaFailed    func(err error)
	MetaRecovered func()
	// StrayDirectory: a partition directory that belongs to no topic has been renamed.
	StrayDirectory func(from, to string)
	// OffsetClamped: an offset lay behind the log's end and has been taken as the end: one that was committed, in a directory put together from copies of different age, or
	// a consumer's position, after a partition that failed was opened again without its last records.
	OffsetClamped func(group string, tp TopicPartition, from, to int64)
	// Corrupt: damage has been found, by a reader or in the background; once for each place. See Engine.SkipCorrupt.
	Corrupt func(err *CorruptError)
	// Quarantined: a file that cannot be used has been moved to the quarantine directory.
	Quarantined func(tp TopicPartition, file, to string, reason error)
	// Expired: retention has removed the oldest segments of a partition; logStart is its log start offset now.
	Expired func(tp TopicPartition, segments int, bytes, logStart int64)
	// Compacted: the records from one offset up to another have been compacted with what was there before; the segments that have been replaced had before bytes, and have after.
	Compacted func(tp TopicPartition, from, to, before, after int64)
	// ClockJumped: the wall clock is so much ahead of the time that has passed, or no engine was open for more than a week, which nobody can tell from that. Until the engine has run like
	// that for a day, what only the jump makes too old goes slowly: a tenth of a partition's segments in five minutes.
	ClockJumped func(by time.Duration)
}

// Validate reports all faults at once; they match ErrInvalidConfig.
func (o *Options) Validate() error {
	var errs []error
	if o.ReadOnly && o.AutoCreate != nil {
		errs = append(errs, fmt.Errorf("%w: ReadOnly and AutoCreate are both set", kafka.ErrInvalidConfig))
	}
	errs = append(errs, notNegative("SyncInterval", o.SyncInterval), notNegative("SyncBytes", o.SyncBytes), notNegative("CloseTimeout", o.CloseTimeout),
		notNegative("CleanInterval", o.CleanInterval), notNegative("CleanMemory", o.CleanMemory), notNegative("OffsetRetention", o.OffsetRetention))
	if o.AutoCreate != nil {
		errs = append(errs, o.AutoCreate.Validate())
	}
	return errors.Join(errs...)
}

func notNegative[T int | int64 | time.Duration](name string, v T) error {
	if v < 0 {
		return fmt.Errorf("%w: %s is negative", kafka.ErrInvalidConfig, name)
	}
	return nil
}

// Cleanup says what is done with old records (cleanup.policy).
type Cleanup int8

const (
	// CleanupDelete removes records by age and size; off unless a retention is set.
	CleanupDelete Cleanup = iota
	// CleanupCompact keeps the last value of every key. Every record needs a key: others are ErrInvalidRecord.
	CleanupCompact
	// CleanupCompactDelete does both.
	CleanupCompactDelete
)

// TopicConfig configures a topic. The zero value is good.
type TopicConfig struct {
	// Partitions is the number of partitions; 0: 1 (num.partitions).
	Partitions int
	// SegmentBytes is the size at which a segment file is full; 0: 1 GiB; at least 1 KiB, at most 2 GiB - 1 (segment.bytes).
	SegmentBytes int64
	// RetentionBytes is the size in bytes of a partition above which its oldest segments go, whole ones only, so that it never falls below; 0: none (retention.bytes).
	RetentionBytes int64
	// Retention is the age above which old segments go, counted from a segment's greatest timestamp; 0: none (retention.ms). At least 1 ms.
	Retention time.Duration
	// DeleteRetention is how long compaction keeps tombstones, from the pass that first meets them; 0: 24 h (delete.retention.ms). "0" in Config: not at all.
	DeleteRetention time.Duration
	// Cleanup says what is done with old records.
	Cleanup Cleanup
	// Config has the rest, by Kafka's names: segment.ms, segment.index.bytes, index.interval.bytes, max.message.bytes, message.timestamp.type, min.compaction.lag.ms,
	// max.compaction.lag.ms, min.cleanable.dirty.ratio, and those of the fields above. A field and its name here exclude each other.
	Config map[string]string
}

// Validate reports all faults at once; they match ErrInvalidConfig or ErrInvalidPartitions.
func (c *TopicConfig) Validate() error {
	var errs []error
	if c.Partitions < 0 || c.Partitions > broker.MaxPartitions {
		errs = append(errs, fmt.Errorf("%w: %d", kafka.ErrInvalidPartitions, c.Partitions))
	}
	if c.Cleanup < CleanupDelete || c.Cleanup > CleanupCompactDelete {
		errs = append(errs, fmt.Errorf("%w: Cleanup is %d", kafka.ErrInvalidConfig, c.Cleanup))
	}
	errs = append(errs, notNegative("SegmentBytes", c.SegmentBytes), notNegative("RetentionBytes", c.RetentionBytes),
		notNegative("Retention", c.Retention), notNegative("DeleteRetention", c.DeleteRetention))
	for name := range c.fields() {
		if _, both := c.Config[name]; both {
			errs = append(errs, fmt.Errorf("%w: %s is set in Config and by its field", kafka.ErrInvalidConfig, name))
		}
	}
	_, err := broker.ParseConfig(c.settings())
	return errors.Join(append(errs, err)...)
}

// settings returns what differs from the defaults, by Kafka's names.
func (c *TopicConfig) settings() map[string]string {
	m := c.fields()
	maps.Copy(m, c.Config)
	return m
}

// fields are the settings that have a field of their own.
func (c *TopicConfig) fields() map[string]string {
	m := map[string]string{}
	number := func(name string, n int64) {
		if n != 0 {
			m[name] = strconv.FormatInt(n, 10)
		}
	}
	// Less than a millisecond is not nothing.
	millis := func(d time.Duration) int64 {
		ms := int64(d / time.Millisecond)
		if d%time.Millisecond > 0 {
			ms++
		}
		return ms
	}
	number("segment.bytes", c.SegmentBytes)
	number("retention.bytes", c.RetentionBytes)
	number("retention.ms", millis(c.Retention))
	number("delete.retention.ms", millis(c.DeleteRetention))
	switch c.Cleanup {
	case CleanupCompact:
		m["cleanup.policy"] = "compact"
	case CleanupCompactDelete:
		m["cleanup.policy"] = "compact,delete"
	}
	return m
}

// Reset says where to begin in a partition without a committed offset, and where to go on when the position is not in the log
// (auto.offset.reset).
type Reset int8

const (
	// ResetLatest begins at the log end.
	ResetLatest Reset = iota
	// ResetEarliest begins at the log start.
	ResetEarliest
	// ResetNone returns ErrNoOffset, or ErrOffsetOutOfRange.
	ResetNone
)

// Isolation says which records a consumer sees (isolation.level).
type Isolation = kafka.Isolation

const (
	// ReadUncommitted shows every published record.
	ReadUncommitted = kafka.ReadUncommitted
	// ReadCommitted shows no record of a transaction that is open or aborted. In this version there are no transactions.
	ReadCommitted = kafka.ReadCommitted
)

// Visibility says when a consumer sees a record.
type Visibility int8

const (
	// Published shows a record as soon as it is written.
	Published Visibility = iota
	// Durable shows a record when a power cut cannot take it any more.
	Durable
)

// RebalanceListener hears of partitions that come and go with the group (ConsumerRebalanceListener). It is called by the goroutine that polls, from within the poll, or by the one that
// calls Subscribe, Assign, Unsubscribe or Close. It may use the consumer, but for polling. A panic in it is contained and logged.
type RebalanceListener interface {
	// Assigned: these partitions have been added to the assignment.
	Assigned(tps []TopicPartition)
	// Revoked: these partitions are about to be given up. They are the consumer's until Revoked returns, so that commits work.
	Revoked(tps []TopicPartition)
	// Lost: these partitions are not the consumer's any more: it has not polled for too long, another instance has fenced it, or their topic is gone. What is not committed cannot be committed any more.
	Lost(tps []TopicPartition)
}

// ConsumerConfig configures a consumer. The zero value is good: no group, nothing assigned.
type ConsumerConfig struct {
	// Group is the consumer group, which keeps the offsets; "": none, nothing is committed (group.id).
	Group string
	// InstanceID makes the member static: a consumer with the same InstanceID that comes within SessionTimeout after this one has closed, also in the next life of the engine, gets its
	// partitions, and nobody else notices. While this one is open, the other fences it: ErrFenced (group.instance.id, KIP-345).
	InstanceID string
	// Topics are subscribed to at once.
	Topics []string
	// Reset says where to begin without a committed offset.
	Reset Reset
	// Isolation says which records are seen.
	Isolation Isolation
	// Visibility says when a record is seen.
	Visibility Visibility
	// Borrow hands out bytes of the log itself, the slice of Poll included: valid until the next poll or Close, of the consumer or of the engine, or until the partition is given
	// up or its position is set. A poll takes at most one batch of each partition then.
	Borrow bool
	// ManualCommit turns automatic commits off (enable.auto.commit=false).
	ManualCommit bool
	// CommitInterval is the time between automatic commits, looked at by polls; 0: 5 s (auto.commit.interval.ms).
	CommitInterval time.Duration
	// MaxPollInterval is the time from one poll to the next after which a member is out of its group: the next poll is a PollTimeoutError, and the one after it joins again. A record that Records has
	// yielded counts as a poll, of which the group may hear an eighth of the interval later. It is also how long a rebalance waits for the member. A static member keeps its place for SessionTimeout then. 0: 5 minutes (max.poll.interval.ms).
	MaxPollInterval time.Duration
	// SessionTimeout is how long a static member that has closed keeps its place; 0: 45 s (session.timeout.ms). Members need no heartbeats.
	SessionTimeout time.Duration
	// MaxWait is how long a poll waits for a record; 0: 500 ms (fetch.max.wait.ms); negative: not at all, which is for Poll and PollInto: loops wait as if it were 0.
	MaxWait time.Duration
	// MinBytes is how many bytes of the log a poll waits for, as long as MaxWait allows; 0: one record (fetch.min.bytes).
	MinBytes int
	// MaxBytes bounds the bytes of keys and values that a poll returns, but for its first record; 0: 50 MiB (fetch.max.bytes).
	MaxBytes int
	// Assignors are the ways to share partitions that the consumer knows, in the order of preference; none: CooperativeStickyAssignor (partition.assignment.strategy). A group uses one that
	// all members know. Unless all are cooperative, the consumer gives up everything before each rebalance. To bring a group from one to the other, close and open its members one by
	// one with both, and then with the other alone.
	Assignors []Assignor
	// Listener hears of partitions that come and go; nil: nobody does. With it, the consumer joins its group at the first poll, else when it subscribes, if it need not wait for others.
	Listener RebalanceListener
	// Interceptors see records and commits on their way, in this order (interceptor.classes).
	Interceptors []ConsumerInterceptor
}

// Validate reports all faults at once; they match ErrInvalidConfig.
func (c *ConsumerConfig) Validate() error {
	var errs []error
	if c.InstanceID != "" && c.Group == "" {
		errs = append(errs, fmt.Errorf("%w: InstanceID without a Group", kafka.ErrInvalidConfig))
	}
	names := map[string]bool{}
	for i, a := range c.Assignors {
		if a == nil || a.Name() == "" || names[a.Name()] {
			errs = append(errs, fmt.Errorf("%w: Assignors[%d] has no name of its own", kafka.ErrInvalidConfig, i))
			continue
		}
		names[a.Name()] = true
	}
	if c.Reset < ResetLatest || c.Reset > ResetNone {
		errs = append(errs, fmt.Errorf("%w: Reset is %d", kafka.ErrInvalidConfig, c.Reset))
	}
	if c.Isolation != ReadUncommitted && c.Isolation != ReadCommitted {
		errs = append(errs, fmt.Errorf("%w: Isolation is %d", kafka.ErrInvalidConfig, c.Isolation))
	}
	if c.Visibility != Published && c.Visibility != Durable {
		errs = append(errs, fmt.Errorf("%w: Visibility is %d", kafka.ErrInvalidConfig, c.Visibility))
	}
	errs = append(errs,
		notNegative("CommitInterval", c.CommitInterval), notNegative("MaxPollInterval", c.MaxPollInterval),
		notNegative("SessionTimeout", c.SessionTimeout), notNegative("MinBytes", c.MinBytes), notNegative("MaxBytes", c.MaxBytes))
	return errors.Join(errs...)
}

// ProcessConfig configures Client.Process.
type ProcessConfig struct {
	Producer   ProducerConfig
	Consumer   ConsumerConfig
	MaxRecords int
}
