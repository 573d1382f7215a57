package rlog

import (
	"fmt"
	"math"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/runnelmq/runnel/index"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// Defaults and limits, with Kafka's names.
const (
	DefaultSegmentBytes = 1 << 30            // segment.bytes
	MaxSegmentBytes     = math.MaxInt32      // positions are int32
	DefaultIndexBytes   = index.MaxBytes     // segment.index.bytes
	DefaultSegmentAge   = 7 * 24 * time.Hour // segment.ms
	snapshotEvery       = 64 << 20           // bytes of log between producer snapshots inside a segment

	// MaxPlain is the greatest size to which the records of a compressed batch may be decompressed: larger ones cannot be read.
	MaxPlain = 256 << 20
)

// Checkpoints is where a log keeps what must not be lost with its files. Implemented over package meta by the broker.
type Checkpoints interface {
	// MarkDirty durably records that the log is about to be appended to, with this leader epoch from offset start on.
	MarkDirty(epoch int32, start int64) error
	// SetRecoveryPoint records that the log is durable up to offset; with sync, durably.
	SetRecoveryPoint(offset int64, sync bool) error
	// SetLogStart durably records the log start offset.
	SetLogStart(offset int64) error
	// SetCleaned records that the log is compacted up to offset. It need not be durable.
	SetCleaned(offset int64) error
}

// Events reports what a log did that its owner should know. A nil func is skipped. They are called with locks held: they must
// not call back.
type Events struct {
	// TailCut: recovery found the log's end at offset end, in file at pos, and took the n bytes behind it, which were not all zero,
	// out of the way, to the file quarantine.
	TailCut func(tp kafka.TopicPartition, end int64, file string, pos, n int64, quarantine string)
	// Quarantined: recovery has moved this file, which cannot be used, to the quarantine.
	Quarantined func(tp kafka.TopicPartition, file, to string, reason error)
	// IndexRebuilt: an index of the segment with this base offset was missing or wrong and has been made anew.
	IndexRebuilt func(tp kafka.TopicPartition, base int64, reason error)
	// Rolled: a segment has been sealed.
	Rolled func()
	// Failed: a storage error has finished the log.
	Failed func(tp kafka.TopicPartition, err error)
}

// Options describes one partition's log. Zero values of the numbers mean the defaults above.
type Options struct {
	FS             vfs.FS
	Dir            string // the partition's directory; made at the first append
	Quarantine     string // directory for bytes that recovery takes out of the way; made on demand
	TopicPartition kafka.TopicPartition
	TopicID        string // 22 characters, for partition.metadata
	Checkpoints    Checkpoints
	Events         Events

	LogStart      int64   // log start offset
	Cleaned       int64   // compacted up to here
	Dirty         bool    // appended to since it was last closed in order: recover
	RecoveryPoint int64   // durable up to here when it was last known
	Epoch         int32   // leader epoch of new batches
	Skips         []Range // where damage is passed over
	ReadOnly      bool    // nothing is written; see Refresh
	// Believe, if it is set, is the offset at which the log ends at the latest: recovery takes what lies there and behind out of the way, whole or not. It is Believed
	// of the log that was open before in this process, and failed.
	Believe *int64

	Settings
	MinFree int64 // bytes of the file system that appends leave free

	// Now is the wall clock in ms, for Settings.AppendTime.
	Now func() int64
	// Counts is where the log counts; nil: nobody wants to know.
	Counts *Counts
	// Syncs bounds the syncs that run at once; shared by the logs of an engine. nil: no bound.
	Syncs chan struct{}
	// Files bounds the files that are open; shared by the logs of an engine. nil: no bound.
	Files *Files
	// Advanced is called after the durable end has moved. It must not call back into the log.
	Advanced func()
}

// Settings are what may change while the log is open: see Configure.
type Settings struct {
	SegmentBytes  int64         // size at which a segment is full
	SegmentAge    time.Duration // between the first record of a segment and the first of the next
	IndexBytes    int           // size at which an index, and with it its segment, is full
	IndexInterval int64         // bytes of log between index entries (index.interval.bytes); negative: 0, an entry for every batch
	AppendTime    bool          // records get the time at which they are appended (message.timestamp.type)
}

func (s Settings) orDefaults() *Settings {
	if s.SegmentBytes == 0 {
		s.SegmentBytes = DefaultSegmentBytes
	}
	s.SegmentBytes = min(s.SegmentBytes, MaxSegmentBytes)
	if s.SegmentAge == 0 {
		s.SegmentAge = DefaultSegmentAge
	}
	if s.IndexBytes == 0 {
		s.IndexBytes = DefaultIndexBytes
	}
	switch {
	case s.IndexInterval == 0:
		s.IndexInterval = index.Interval
	case s.IndexInterval < 0:
		s.IndexInterval = 0
	}
	return &s
}

// Configure changes the settings; the zero values mean the defaults. Segments that are there stay as they are.
func (l *Log) Configure(s Settings) { l.settings.Store(s.orDefaults()) }

// Log is one partition. All methods are safe for concurrent use.
type Log struct {
	o        Options
	settings atomic.Pointer[Settings]

	// end is the log end offset: the publication that readers trust. durable is the durable end.
	end, durable atomic.Int64
	start        atomic.Int64
	// segments is the immutable row of segments; the last one is the active one. Replaced under mu, before end moves
	// into a new segment.
	segments atomic.Pointer[row]
	opening  *segment // that Open has a reference to; nil behind it
	// cleaning is held by the one compaction; taken before shape.
	cleaning sync.Mutex
	cleaned  atomic.Int64 // compacted up to here
	// shape is held while segments are taken out or swapped; taken before mu.
	shape   sync.Mutex
	skips   atomic.Pointer[[]Range]
	failure atomic.Pointer[failure]
	// syncFailed: also if it was not the first failure.
	syncFailed atomic.Bool
	closing    atomic.Bool // it is being closed, or is: nothing begins any more, and readers write no index files

	// point is the recovery point that Checkpoints have; taken after mu.
	point struct {
		sync.Mutex
		at int64
	}

	// mu is held by the one writer.
	mu struct {
		sync.Mutex
		closed    bool
		marked    bool // dirty mark is set and the directory exists
		producers producers
		opened    int64     // log end offset when the log was opened
		appended  int64     // the last time that was given to records
		recent    *producer // of the last append: most follow one of their own
		snapshot  int64     // position in the active segment at which a producer snapshot was last taken
		extra     int64     // offset of the newest snapshot that is not at a segment's base, -1 if none: replaced by the next
		unswept   bool      // there may be files of segments that were taken out of the row
	}
	flush flush
}

type failure struct{ err error }

// StartOffset is the log start offset: the first that can be read.
func (l *Log) StartOffset() int64 { return l.start.Load() }

// EndOffset is the log end offset, which is also the high watermark: the offset of the next record.
func (l *Log) EndOffset() int64 { return l.end.Load() }

// DurableEnd is the offset up to which a power cut takes nothing.
func (l *Log) DurableEnd() int64 { return l.durable.Load() }

// Err is the storage error that has finished the log, matching kafka.ErrPartitionFailed, or nil.
func (l *Log) Err() error {
	if f := l.failure.Load(); f != nil {
		return f.err
	}
	return nil
}

// fail finishes the log. The first reason stays.
func (l *Log) fail(err error) error {
	err = fmt.Errorf("%s: %w: %w", l.o.TopicPartition, kafka.ErrPartitionFailed, err)
	if l.failure.CompareAndSwap(nil, &failure{err}) && l.o.Events.Failed != nil {
		l.o.Events.Failed(l.o.TopicPartition, err)
	}
	return l.Err()
}

// failSync is fail for a sync of the log itself.
func (l *Log) failSync(err error) error {
	l.syncFailed.Store(true)
	return l.fail(err)
}

// Settle waits for the append, the sync and the change of segments that may be under way in a log that has failed: none begins behind them.
func (l *Log) Settle() {
	l.shape.Lock()
	defer l.shape.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush.running <- struct{}{}
	<-l.flush.running
}

// Believed is the end of what a log that has failed may be opened with in the same process, nil for all of it. After a failed sync it is the durable end, unless the log is Unproven: pages behind it
// that somebody has mapped stay in memory, look clean and are not what the disk has, also after they have been written and synced again.
func (l *Log) Believed() *int64 {
	if l.syncFailed.Load() && !l.Unproven() {
		end := l.durable.Load()
		return &end
	}
	return nil
}

// Unproven reports whether a sync has failed before any has covered what the log was opened with: recovery has found it behind the recovery point, and it may have been durable for long. Only the disk
// knows, and it is asked when nobody has the file mapped any more: see Released.
func (l *Log) Unproven() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.syncFailed.Load() && l.durable.Load() < l.mu.opened
}

// Released reports whether the last reader of the last segment has gone too, after Abandon.
func (l *Log) Released() bool {
	s := l.segments.Load().active
	return s == nil || s.refs.Load() == 0
}

// corrupt describes damage in a segment.
func (l *Log) corrupt(s *segment, from, to, pos int64, reason error) error {
	return &kafka.CorruptError{TopicPartition: l.o.TopicPartition, From: from, To: to, File: s.name(suffixLog), Pos: pos, Reason: reason}
}

// Close flushes, seals the indexes and producer state and closes the files; the log must not be used afterwards. When it returns nil
// the log needs no recovery: everything up to the returned offset is durable, and the caller may record that. Cursors must be closed before.
func (l *Log) Close() (end int64, err error) {
	defer l.flush.stop()
	l.shape.Lock()
	defer l.shape.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return l.EndOffset(), kafka.ErrClosed
	}
	l.mu.closed = true
	l.closing.Store(true)
	r := l.segments.Load()
	// Appended to, or recovered: a stop that was not in order leaves nothing sealed.
	if err = l.Err(); err == nil && r.active != nil && !l.o.ReadOnly && (l.mu.marked || l.o.Dirty) {
		err = l.closeActive(r.active)
	}
	r.each((*segment).drop)
	return l.EndOffset(), err
}

// closeActive makes the active segment what a sealed one is, so that the next Open reads little.
func (l *Log) closeActive(s *segment) error {
	if err := l.seal(s); err != nil {
		return err
	}
	if err := l.o.FS.SyncDir(l.o.Dir); err != nil {
		return l.fail(err)
	}
	return nil
}

// Abandon closes the files without flushing anything, as a crash of the process would. For logs that failed, that are being deleted,
// and for tests.
func (l *Log) Abandon() {
	defer l.flush.stop()
	l.shape.Lock()
	defer l.shape.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return
	}
	l.mu.closed = true
	l.closing.Store(true)
	l.segments.Load().each((*segment).drop)
}

// quarantineName is unique for a recovery that is not repeated: the epoch rises with each.
func (l *Log) quarantineName(offset int64, suffix string) string {
	rest := fmt.Sprintf(".epoch-%d.%0*d%s", l.o.Epoch, digits, offset, suffix)
	return path.Join(l.o.Quarantine, vfs.FitName(l.o.TopicPartition.String(), rest))
}
