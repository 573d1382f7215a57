package rlog

import (
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/runnelmq/runnel/internal/vfs"
)

// A log that is read only writes nothing: it takes what recovery would clear away for not there, and what compaction had begun to swap for done. Somebody else may append to it, roll, delete
// and compact meanwhile: Refresh looks. Where the log's metadata is not known, it begins with its first segment and ends with the last whole batch.

// UnknownStart is Options.LogStart of a log that is read only, if nobody knows it.
const UnknownStart = -1

// Refresh takes what somebody else has done to the log since it was opened, or last refreshed. Records that are gone are kafka.ErrOffsetOutOfRange from now on. For a log that is read only.
func (l *Log) Refresh() error {
	l.shape.Lock()
	defer l.shape.Unlock()
	if l.closing.Load() {
		return l.closedErr()
	}
	c, err := l.list()
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
	r := newRow()
	for i, base := range c.bases {
		s, err := l.readOnlySegment(old, base, slices.Contains(c.swapped, base))
		if err != nil {
			return err
		}
		last := i+1 == len(c.bases)
		switch {
		case s.sealedSize.Load() >= 0 && !last:
			s.next = c.bases[i+1]
		case last:
			if err := l.follow(s); err != nil {
				return err
			}
		default:
			if s.indexes.Load() != nil { // it was the last one
				if err := l.follow(s); err != nil {
					return err
				}
				s.closeTimes()
			} else {
				info, err := l.o.FS.Stat(s.name(suffixLog))
				if err != nil {
					return err
				}
				s.written.Store(info.Size)
			}
			s.seal(c.bases[i+1])
		}
		r = r.with(s)
	}
	end := r.active.at
	if end < l.o.RecoveryPoint {
		return l.lost(r.active, end, r.active.written.Load())
	}
	l.start.Store(max(l.start.Load(), l.o.LogStart, 0))
	if l.o.LogStart == UnknownStart || l.start.Load() < c.bases[0] && old.active != nil {
		l.start.Store(max(l.start.Load(), c.bases[0]))
	}
	l.segments.Store(r)
	storeMax(&l.end, end)
	storeMax(&l.durable, end)
	old.tree.Ascend(func(s *segment) bool {
		if !r.has(s) {
			if s.sealedSize.Load() < 0 {
				s.seal(s.at) // its readers go on behind what is known of it
			}
			s.retire()
		}
		return true
	})
	return nil
}

// readOnlySegment is the segment of the row with this base if its file is still the same, or a new one.
func (l *Log) readOnlySegment(old *row, base int64, swapped bool) (*segment, error) {
	s, ok := old.tree.Get(&segment{base: base})
	if ok && s.swapped == swapped {
		info, err := l.o.FS.Stat(s.name(suffixLog))
		if err != nil {
			return nil, err
		}
		if size := s.sealedSize.Load(); size < 0 || size == info.Size {
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
