package rlog

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strings"

	"github.com/runnelmq/runnel/index"
	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// Appended says where a batch went.
type Appended struct {
	Base, Last  int64 // offsets of its first and last record
	LeaderEpoch int32 // of the log now; that of a duplicate is not known
	Time        int64 // that the records have been given, in ms; 0: they keep their own
	Duplicate   bool  // it was there already; nothing was written
}

// Append gives b the next offsets and the log's leader epoch (in place: the bytes are the caller's again afterwards), copies it into
// the active segment and publishes it. b is a valid batch; batches of strangers are checked by the caller.
//
// An error had no effect, except one that also matches kafka.ErrOutcomeUnknown. kafka.ErrOutOfOrderSequence and
// kafka.ErrFenced are the producer's; kafka.ErrDiskFull passes by itself when there is space.
func (l *Log) Append(b batch.Batch) (Appended, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return Appended{}, kafka.ErrClosed
	}
	if l.o.ReadOnly {
		return Appended{}, fmt.Errorf("%s: %w", l.o.TopicPartition, kafka.ErrReadOnly)
	}
	if err := l.Err(); err != nil {
		return Appended{}, err
	}
	p := l.producer(b.ProducerID())
	dup, err := p.check(b)
	if err != nil {
		return Appended{}, err
	}
	if dup != nil {
		return Appended{Base: dup.base(), Last: dup.lastOffset, LeaderEpoch: l.o.Epoch, Duplicate: true}, nil
	}
	at := l.appendTime(b)
	s, err := l.prepare(b)
	if err != nil {
		return Appended{}, err
	}
	base := l.end.Load()
	b.SetOffset(base, l.o.Epoch)
	pos, f := s.written.Load(), *s.file.Load()
	if _, err := f.WriteAt(b, pos); err != nil {
		if errors.Is(err, vfs.ErrNoSpace) {
			// Without a reservation (file systems that have none) the store itself finds the disk full.
			if terr := f.Truncate(pos); terr == nil {
				s.reserved = pos
				return Appended{}, l.diskFull(err)
			}
		}
		return Appended{}, kafka.OutcomeUnknown(l.fail(err))
	}
	s.note(b, pos, l.settings.Load().IndexInterval)
	l.mu.recent = l.mu.producers.noteOf(p, b)
	s.written.Store(pos + int64(len(b)))
	l.o.Counts.appended(b.Count(), len(b))
	last := b.LastOffset()
	l.end.Store(last + 1)
	return Appended{Base: base, Last: last, LeaderEpoch: l.o.Epoch, Time: at}, nil
}

// appendTime gives the records of b the time, if the settings say so. It does not go back with the clock.
func (l *Log) appendTime(b batch.Batch) int64 {
	if !l.settings.Load().AppendTime {
		return 0
	}
	now := l.o.Now()
	if s := l.segments.Load().active; l.mu.appended == 0 && s != nil && credible(s.maxTime.Timestamp, now) {
		l.mu.appended = s.maxTime.Timestamp // of another life, as far as it may be believed
	}
	l.mu.appended = max(l.mu.appended, now)
	b.SetAppendTime(l.mu.appended)
	return l.mu.appended
}

// producer returns what is known of a producer, nil if that is nothing.
func (l *Log) producer(id int64) *producer {
	if p := l.mu.recent; p != nil && p.id == id {
		return p
	}
	return l.mu.producers[id]
}

func (l *Log) diskFull(err error) error {
	return fmt.Errorf("%s: %w: %w", l.o.TopicPartition, kafka.ErrDiskFull, err)
}

// note enters a batch at pos into the indexes: an entry when more than interval bytes lie behind the last one, as
// Kafka does (checked before this batch is counted, so the first batch of a segment never gets one).
func (s *segment) note(b batch.Batch, pos, interval int64) {
	t := b.MaxTimestamp()
	if s.firstTime < 0 {
		s.firstTime = t
	}
	if t > s.maxTime.Timestamp {
		s.maxTime = index.TimeEntry{Timestamp: t, Offset: b.LastOffset()}
	}
	if s.unindexed > interval {
		x := s.indexes.Load()
		x.offsets.Append(b.LastOffset(), int32(pos))
		x.times.Append(s.maxTime.Timestamp, s.maxTime.Offset)
		s.unindexed = 0
	}
	s.unindexed += int64(len(b))
}

// prepare returns the active segment with room for b.
func (l *Log) prepare(b batch.Batch) (*segment, error) {
	if !l.mu.marked {
		if err := l.begin(); err != nil {
			return nil, err
		}
	}
	s := l.segments.Load().active
	size := int64(len(b))
	if s == nil || l.full(s, b) {
		next, err := l.roll(s, size)
		if err != nil {
			return nil, err
		}
		s = next
	}
	if _, err := s.open(); err != nil {
		return nil, l.storage(err)
	}
	return s, l.reserve(s, s.written.Load()+size)
}

// full reports whether b belongs into a new segment.
func (l *Log) full(s *segment, b batch.Batch) bool {
	size, set := s.written.Load(), l.settings.Load()
	if size == 0 {
		return false
	}
	if size+int64(len(b)) > set.SegmentBytes {
		return true
	}
	if l.end.Load()+int64(b.LastOffsetDelta())-s.base > math.MaxInt32 {
		return true
	}
	if b.MaxTimestamp()-s.firstTime > set.SegmentAge.Milliseconds() {
		return true
	}
	x := s.indexes.Load()
	return x.offsets.Full(set.IndexBytes) || x.times.Full(set.IndexBytes)
}

// begin makes the log ready for the first append since it was opened.
func (l *Log) begin() error {
	if err := l.o.Checkpoints.MarkDirty(l.o.Epoch, l.end.Load()); err != nil {
		return err
	}
	if err := l.makeDir(); err != nil {
		return l.storage(err)
	}
	l.mu.marked = true
	return nil
}

// storage turns an error of preparing an append, which had no effect on the log, into what the caller is told.
func (l *Log) storage(err error) error {
	if errors.Is(err, vfs.ErrNoSpace) {
		return l.diskFull(err)
	}
	if vfs.IsTooManyOpen(err) {
		return fmt.Errorf("%s: %w", l.o.TopicPartition, kafka.Storage(err)) // it passes
	}
	return l.fail(err)
}

// makeDir makes the partition's directory with partition.metadata in it, durably. A directory that a crash left without that file
// has no acknowledged record in it and is completed.
func (l *Log) makeDir() error {
	fsys, dir := l.o.FS, l.o.Dir
	if err := fsys.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	name, text := path.Join(dir, fileMetadata), metadataText(l.o.TopicID)
	have, err := readFile(fsys, name)
	if err != nil {
		return err
	}
	if string(have) != text {
		if err := writeFile(fsys, name, []byte(text), true); err != nil {
			return err
		}
	}
	if err := fsys.SyncDir(dir); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(dir))
}

const (
	metadataPrefix = "version: 0\ntopic_id: "
	metadataID     = 22 // characters: 16 bytes in base64
)

func metadataText(id string) string { return metadataPrefix + id + "\n" }

// parseMetadata returns the id in the text of partition.metadata, if it is whole.
func parseMetadata(text string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(text, metadataPrefix)
	if !ok || len(rest) < metadataID {
		return "", false
	}
	id = rest[:metadataID]
	raw, err := base64.RawURLEncoding.DecodeString(id)
	return id, err == nil && len(raw) == 16 // decoding skips line feeds
}

// Reservation grows by doubling between these bounds: an idle partition costs little, a busy one few system calls.
const (
	reserveMin = 64 << 10
	reserveMax = 64 << 20
)

// reserve makes sure that the segment's file has blocks for size bytes.
func (l *Log) reserve(s *segment, size int64) error {
	if size <= s.reserved {
		return nil
	}
	step := min(max(s.reserved, reserveMin), reserveMax)
	want := min(s.reserved+step, max(l.settings.Load().SegmentBytes, size))
	want = max(want, size)
	if err := l.reserveTo(s, want); err != nil {
		// The step may have been too much where the batch alone still fits.
		if want == size || !errors.Is(err, kafka.ErrDiskFull) {
			return err
		}
		return l.reserveTo(s, size)
	}
	return nil
}

func (l *Log) reserveTo(s *segment, size int64) error {
	if l.o.MinFree > 0 {
		free, _, err := l.o.FS.Free(l.o.Dir)
		if err != nil {
			return l.storage(err)
		}
		if free-(size-s.reserved) < l.o.MinFree {
			return l.diskFull(fmt.Errorf("%d bytes free, %d are kept", free, l.o.MinFree))
		}
	}
	if err := (*s.file.Load()).Reserve(size); err != nil {
		return l.storage(err)
	}
	s.reserved = size
	return nil
}
