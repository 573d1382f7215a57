package rlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// A log that is read only writes nothing: it takes what recovery would clear away for not there, and what compaction had begun to swap for done. Somebody else may append to it, roll, delete
// and compact meanwhile: Refresh looks. Where the log's metadata is not known, it begins with its first segment and ends with the last whole batch.

// UnknownStart is Options.LogStart of a log that is read only, if nobody knows it.
const UnknownStart = -1

// refreshTries is how often a directory is looked at that changes meanwhile.
const refreshTries = 10

// Refresh takes what somebody else has done to the log since it was opened, or last refreshed. Records that are gone are kafka.ErrOffsetOutOfRange from now on; if all of the log is
// gone, Refresh is kafka.ErrUnknownTopic. For a log that is read only.
func (l *Log) Refresh() error {
	l.shape.Lock()
	defer l.shape.Unlock()
	if l.closing.Load() {
		return l.closedErr()
	}
	var err error
	for range refreshTries {
		if err = l.lookAgain(); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// overtaken reports whether err may be due to somebody else, who has taken segments away, s or others of the row r, of a log that is read only.
func (l *Log) overtaken(err error, r *row, s *segment) bool {
	var d *kafka.CorruptError
	if !l.o.ReadOnly || !errors.As(err, &d) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, fs.ErrNotExist) || l.Refresh() != nil {
		return false
	}
	now := l.segments.Load()
	return !r.same(now) || s != nil && !now.has(s)
}

func (l *Log) lookAgain() error {
	c, err := l.list()
	if errors.Is(err, ErrStray) || err == nil && len(c.bases) == 0 && l.end.Load() > 0 {
		return fmt.Errorf("%s: %w: it was deleted", l.o.TopicPartition, kafka.ErrUnknownTopic)
	}
	if err != nil {
		return err
	}
	return l.loadReadOnly(c)
}

// loadReadOnly makes the row that c tells of. Segments that are known and the same stay.
func (l *Log) loadReadOnly(c contents) error {
	old := l.segments.Load()
	if len(c.bases) == 0 {
		if l.o.RecoveryPoint > 0 {
			return l.lost(l.newSegment(0), 0, 0)
		}
		return nil
	}
	r, err := l.readOnlyRow(old, c)
	if err == nil && r.active.at < l.o.RecoveryPoint {
		err = l.lost(r.active, r.active.at, r.active.written.Load())
	}
	if err != nil {
		r.each(func(s *segment) {
			if !old.has(s) {
				s.drop()
			}
		})
		return err
	}
	end := r.active.at
	l.start.Store(max(l.start.Load(), l.o.LogStart, 0))
	if l.o.LogStart == UnknownStart || l.start.Load() < c.bases[0] && old.active != nil {
		l.start.Store(max(l.start.Load(), c.bases[0]))
	}
	l.segments.Store(r)
	storeMax(&l.end, end)
	storeMax(&l.durable, end)
	old.each(func(s *segment) {
		if !r.has(s) {
			if s.sealedSize.Load() < 0 {
				s.seal(s.at) // its readers go on behind what is known of it
			}
			s.retire()
		}
	})
	return nil
}

// readOnlyRow makes the row; with an error, as far as it came.
func (l *Log) readOnlyRow(old *row, c contents) (*row, error) {
	r := newRow()
	for i, base := range c.bases {
		next, last := int64(-1), i+1 == len(c.bases)
		if !last {
			next = c.bases[i+1]
		}
		s, err := l.readOnlySegment(old, base, next, slices.Contains(c.swapped, base))
		if err != nil {
			return r, err
		}
		r = r.with(s)
		if s.sealedSize.Load() >= 0 {
			continue
		}
		if last || s.indexes.Load() != nil { // it is the last one, or was it
			if err := l.follow(s); err != nil {
				return r, err
			}
		} else {
			info, err := l.o.FS.Stat(s.name(suffixLog))
			if err != nil {
				return r, err
			}
			s.written.Store(info.Size)
		}
		if !last {
			s.closeTimes()
			s.seal(next)
		}
	}
	return r, nil
}

// readOnlySegment is the segment of the row with this base if its file is still the same, or a new one.
func (l *Log) readOnlySegment(old *row, base, next int64, swapped bool) (*segment, error) {
	s := old.at(base)
	if s != nil && s.swapped == swapped {
		info, err := l.o.FS.Stat(s.name(suffixLog))
		if err != nil {
			return nil, err
		}
		if size := s.sealedSize.Load(); size < 0 || size == info.Size && s.next == next {
			return s, nil
		}
	}
	s = l.newSegment(base)
	s.swapped = swapped
	s.at = base
	return s, nil
}

// follow reads the last segment on from where its reading has ended.
func (l *Log) follow(s *segment) error {
	s.acquire()
	defer s.release()
	f, err := s.open()
	if err != nil {
		return err
	}
	if s.indexes.Load() == nil {
		s.indexes.Store(newIndexes(s.base))
	}
	pos, next, err := l.readOn(s, f, s.written.Load(), s.at, f.Size())
	if err != nil {
		return err
	}
	s.written.Store(pos)
	s.at = next
	return nil
}

// swaps finds files that compaction had made whole, and drops the segments that they stand for from c.
func (l *Log) swaps(c *contents, infos []vfs.Info) error {
	for _, i := range infos {
		base, suffix, ok := parseName(i.Name)
		if !ok || suffix != suffixSwap {
			continue
		}
		end, err := l.wholeUpTo(fileName(l.o.Dir, base, suffix), base)
		if isDamage(err) || err == nil && !followed(infos, base, end) {
			continue // as if it were not there
		}
		if err != nil {
			return err
		}
		c.bases = slices.DeleteFunc(c.bases, func(b int64) bool { return b >= base && b < end })
		c.bases = append(c.bases, base)
		c.swapped = append(c.swapped, base)
	}
	slices.Sort(c.bases)
	return nil
}

// Metadata reads the topic id of a partition's directory; fs.ErrNotExist if it says none.
func Metadata(fsys vfs.FS, dir string) (topicID string, err error) {
	b, err := readFile(fsys, path.Join(dir, fileMetadata))
	if err != nil {
		return "", err
	}
	id, ok := parseMetadata(string(b))
	if !ok {
		return "", fmt.Errorf("%s in %s: %w", fileMetadata, dir, fs.ErrNotExist)
	}
	return id, nil
}
