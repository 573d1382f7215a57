package rlog

import (
	"errors"
	"io/fs"
	"time"

	"github.com/runnelmq/runnel/index"
	"github.com/runnelmq/runnel/internal/sabotage"
	"github.com/runnelmq/runnel/internal/vfs"
)

// roll seals the active segment, if there is one, and makes the next, with room for a batch of size bytes.
func (l *Log) roll(old *segment, size int64) (*segment, error) {
	end := l.end.Load()
	if old != nil {
		if err := l.seal(old); err != nil {
			return nil, err
		}
		if err := l.checkpoint(end, true); err != nil {
			return nil, err
		}
	}
	s := l.newSegment(end)
	f, err := l.o.FS.Create(s.name(suffixLog), max(l.settings.Load().SegmentBytes, size))
	if err != nil {
		return nil, l.storage(err)
	}
	s.setFile(f)
	l.o.Files.opened(s, l)
	s.indexes.Store(newIndexes(end))
	if !sabotage.On(sabotage.NoDirSync) {
		if err := l.o.FS.SyncDir(l.o.Dir); err != nil {
			s.release()
			return nil, l.fail(err)
		}
	}
	l.mu.snapshot = 0
	if old != nil {
		old.seal(end)
	}
	l.segments.Store(l.segments.Load().with(s))
	if old != nil && l.o.Events.Rolled != nil {
		l.o.Events.Rolled()
	}
	return s, nil
}

// seal trims a segment to its end, writes its indexes and the producer state at that end, and syncs all of them.
func (l *Log) seal(s *segment) error {
	end := s.written.Load()
	if s.sealedAt == end {
		return nil // an earlier roll got this far
	}
	f, err := s.open()
	if err != nil {
		return l.storage(err)
	}
	if s.reserved != end {
		if err := l.trim(s, f, end); err != nil {
			return l.storage(err)
		}
	}
	// The data first: the indexes are hints about it.
	if err := l.syncAlone(f); err != nil {
		return err
	}
	s.closeTimes()
	if err := s.writeIndexes(l.o.FS, true); err != nil {
		return l.storage(err)
	}
	next := l.end.Load()
	if err := l.writeSnapshot(snapshot{next, l.mu.producers.encode(l.owner(next))}, true); err != nil {
		return l.storage(err)
	}
	_ = l.dropSnapshot(s) // it costs space and nothing else
	s.sealedAt = end
	return nil
}

// trim gives back what is reserved behind a segment's end. The file's time of last change stays that of its records, as well as may be: retention may go by it.
func (l *Log) trim(s *segment, f vfs.File, end int64) error {
	info, serr := l.o.FS.Stat(s.name(suffixLog))
	if err := f.Truncate(end); err != nil {
		return err
	}
	s.reserved = end
	if serr == nil {
		_ = l.o.FS.SetModTime(s.name(suffixLog), info.ModTime)
	}
	return nil
}

// closeTimes adds the last entry of a sealed segment's time index: its greatest timestamp.
func (s *segment) closeTimes() {
	if s.maxTime.Timestamp >= 0 {
		s.indexes.Load().times.Append(s.maxTime.Timestamp, s.maxTime.Offset)
	}
}

// syncAlone makes everything published durable, of an active segment whose file leaders may be syncing too, one after the other: of two syncs that run beside each other the
// kernel tells only one of an error, and a sync after one that failed says nothing.
func (l *Log) syncAlone(f vfs.File) error {
	l.flush.running <- struct{}{}
	defer func() { <-l.flush.running }()
	if err := l.Err(); err != nil {
		return err
	}
	if err := l.syncFile(f); err != nil {
		return l.failSync(err)
	}
	l.advance(l.end.Load())
	return nil
}

func (l *Log) syncFile(f vfs.File) error {
	began := time.Now()
	defer func() {
		l.o.Counts.Syncs.Add(1)
		l.o.Counts.SyncNanos.Add(int64(time.Since(began)))
	}()
	if l.o.Syncs != nil {
		l.o.Syncs <- struct{}{}
		defer func() { <-l.o.Syncs }()
	}
	err := f.Sync()
	if err != nil && sabotage.On(sabotage.RetrySync) {
		err = f.Sync()
	}
	return err
}

// writeIndexes brings the index files up to date: entries are added behind those that were saved.
func (s *segment) writeIndexes(fsys vfs.FS, sync bool) error {
	x := s.indexes.Load()
	n, m := x.offsets.Len(), x.times.Len()
	if err := writeTail(fsys, s.name(suffixIndex), x.offsets.AppendTo, s.saved.offsets, index.OffsetEntrySize, sync); err != nil {
		return err
	}
	if err := writeTail(fsys, s.name(suffixTimeIndex), x.times.AppendTo, s.saved.times, index.TimeEntrySize, sync); err != nil {
		return err
	}
	s.saved.offsets, s.saved.times = n, m
	return nil
}

// writeTail makes a file of entries hold what encode gives, of which the first saved are in the file already.
func writeTail(fsys vfs.FS, name string, encode func(dst []byte, from int) []byte, saved, size int, sync bool) (err error) {
	var f vfs.File
	if saved > 0 {
		if f, err = fsys.Open(name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if f == nil {
		return writeFile(fsys, name, encode(nil, 0), sync)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	at := int64(saved * size)
	if err := f.Truncate(at); err != nil {
		return err
	}
	if b := encode(nil, saved); len(b) > 0 {
		if _, err := f.WriteAt(b, at); err != nil {
			return err
		}
	}
	if sync {
		return f.Sync()
	}
	return nil
}
