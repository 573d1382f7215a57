package rlog

import (
	"errors"
	"io/fs"
	"math"
	"sync"
	"sync/atomic"

	"github.com/runnelmq/runnel/index"
	"github.com/runnelmq/runnel/internal/sabotage"
	"github.com/runnelmq/runnel/internal/vfs"
)

// segment is one file of batches with its indexes. A sealed segment's file is opened and its indexes are loaded when somebody first needs
// them.
type segment struct {
	l    *Log
	dir  string
	base int64

	// sealedSize is the number of bytes of a sealed segment, -1 while it is active. It is set before the log end moves into the next
	// segment: a reader that loads the log end first and then sees -1 knows that everything below that end lies in this file.
	sealedSize atomic.Int64
	// next is the base offset of the segment behind a sealed one; set before sealedSize. The row may say otherwise of a segment that is not in it any more.
	next int64
	// written is the position behind the last published batch; stored before the log end.
	written atomic.Int64
	indexes atomic.Pointer[indexes]
	checked checked

	// refs counts the log's own reference and one for every reader; the last release closes the file. It is closing while the file is closed though the log has its reference:
	// see closeCold.
	refs atomic.Int64
	used atomic.Bool // since Files last came by
	mu   struct {
		sync.Mutex      // opening and loading
		disowned   bool // its names belong to others, or to nobody
		dropped    bool // the log has given up its reference: those that there are, are of readers
	}
	file atomic.Pointer[vfs.File]

	// Only the writer touches these.
	reserved  int64 // bytes reserved in the file
	sealedAt  int64 // size at which it was last sealed, -1: never
	unindexed int64 // bytes since the last index entry
	firstTime int64 // max timestamp of the first batch, for the segment's age
	maxTime   index.TimeEntry
	swapped   bool                         // its file is still called .swap: of a log that is read only
	at        int64                        // offset that is due at written, as far as the last segment of a log that is read only has been read
	damaged   bool                         // compaction has found it so; guarded by Log.cleaning
	reported  bool                         // compaction has said that it cannot read it; guarded by Log.cleaning
	seen      int64                        // when Retain first saw it active, in ms; 0: never
	saved     struct{ offsets, times int } // entries in the index files
}

type indexes struct {
	offsets *index.Offsets
	times   *index.Times
	// holes: they were made anew from a log that does not hold all offsets of the segment, so they do not know its greatest timestamp.
	holes bool
}

func (l *Log) newSegment(base int64) *segment {
	s := &segment{l: l, dir: l.o.Dir, base: base}
	s.refs.Store(1)
	s.sealedSize.Store(-1)
	s.sealedAt = -1
	s.maxTime = index.TimeEntry{Timestamp: -1, Offset: base}
	s.firstTime = -1
	return s
}

func newIndexes(base int64) *indexes {
	return &indexes{offsets: index.NewOffsets(base), times: index.NewTimes(base)}
}

func (s *segment) name(suffix string) string {
	if s.swapped && suffix == suffixLog {
		suffix = suffixSwap
	}
	return fileName(s.dir, s.base, suffix)
}

// closing is what refs is while closeCold works.
const closing = math.MinInt64 / 2

// acquire takes a reference, unless the segment is gone.
func (s *segment) acquire() bool {
	for {
		n := s.refs.Load()
		if n == 0 {
			return false
		}
		if n < 0 {
			s.awaitClosed()
			continue
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// awaitClosed returns when closeCold, which has begun, has ended.
func (s *segment) awaitClosed() {
	s.mu.Lock()
	defer s.mu.Unlock()
}

// seal makes a segment one that is followed by another, whose base offset is next.
func (s *segment) seal(next int64) {
	s.next = next
	s.sealedSize.Store(s.written.Load())
}

// end is the offset behind the segment's last, end being the log's.
func (s *segment) end(end int64) int64 {
	if s.sealedSize.Load() >= 0 {
		return s.next
	}
	return end
}

// disown says that the segment's files are about to be removed or replaced: nothing is written by their names any more.
func (s *segment) disown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.disowned = true
}

// retire lets go of a segment that has been taken out of the row. Its readers keep it.
func (s *segment) retire() {
	s.disown()
	if f := s.file.Load(); f != nil && sabotage.On(sabotage.Unmap) {
		_ = (*f).Close()
	}
	s.drop()
}

// drop gives up the log's own reference.
func (s *segment) drop() {
	s.mu.Lock() // not while closeCold works
	defer s.mu.Unlock()
	s.mu.dropped = true
	s.release()
}

func (s *segment) release() {
	if s.refs.Add(-1) == 0 {
		if f := s.file.Load(); f != nil {
			// Nothing unsynced is in a file that is released: Close and roll sync before, Abandon gives it up.
			_ = (*f).Close()
			s.l.o.Files.closed(s)
		}
	}
}

// closeCold closes the file if only the log has a reference, and forgets the indexes that can be read again. What is in the file is durable, and nobody is writing.
func (s *segment) closeCold() bool {
	if !s.mu.TryLock() { // somebody opens it, or reads its indexes: perhaps he who needs another file for that
		return false
	}
	defer s.mu.Unlock()
	f := s.file.Load()
	if f == nil || s.mu.dropped || !s.refs.CompareAndSwap(1, closing) {
		return false
	}
	s.file.Store(nil)
	if s.sealedSize.Load() >= 0 {
		s.indexes.Store(nil)
	}
	_ = (*f).Close()
	s.refs.Store(1)
	s.l.o.Files.closed(s)
	return true
}

// open returns the segment's file, opening it if it is not: a sealed one for reading, the active one for writing too. The caller holds a reference, or is the writer.
func (s *segment) open() (vfs.File, error) {
	if f := s.file.Load(); f != nil {
		if !s.used.Load() {
			s.used.Store(true)
		}
		return *f, nil
	}
	f, err := s.openFile()
	if err == nil {
		s.l.o.Files.opened(s, s.l)
	}
	return f, err
}

func (s *segment) openFile() (f vfs.File, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.file.Load(); f != nil {
		return *f, nil
	}
	if s.mu.disowned {
		if err := s.l.Err(); err != nil {
			return nil, err // a swap has failed half way
		}
		return nil, errMoved
	}
	fsys, name := s.l.o.FS, s.name(suffixLog)
	if s.sealedSize.Load() >= 0 || s.l.o.ReadOnly {
		f, err = fsys.OpenRead(name)
	} else {
		var info vfs.Info
		if info, err = fsys.Stat(name); err == nil {
			f, err = fsys.Open(name, max(s.l.settings.Load().SegmentBytes, info.Size))
		}
	}
	if err != nil {
		return nil, err
	}
	s.setFile(f)
	return f, nil
}

func (s *segment) setFile(f vfs.File) {
	s.used.Store(true)
	s.file.Store(&f)
}

// readFile reads a small file whole; nil and no error if it is missing.
func readFile(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.OpenRead(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b := make([]byte, f.Size())
	if len(b) > 0 {
		if n, rerr := f.ReadAt(b, 0); n < len(b) {
			err = rerr
		}
	}
	return b, errors.Join(err, f.Close())
}

// createEmpty makes a file, or empties the one that is there.
func createEmpty(fsys vfs.FS, name string) (vfs.File, error) {
	f, err := fsys.Create(name, 0)
	if !errors.Is(err, fs.ErrExist) {
		return f, err
	}
	if f, err = fsys.Open(name, 0); err != nil {
		return nil, err
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// writeFile replaces what name holds by b; with sync, durably. Its directory is not synced.
func writeFile(fsys vfs.FS, name string, b []byte, sync bool) (err error) {
	f, err := createEmpty(fsys, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err = f.WriteAt(b, 0); err != nil {
		return err
	}
	if sync {
		return f.Sync()
	}
	return nil
}

// removeFile removes a file that may be missing.
func removeFile(fsys vfs.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
