package rlog

import (
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/runnelmq/runnel/index"
	"github.com/runnelmq/runnel/internal/sabotage"
	"github.com/runnelmq/runnel/internal/vfs"
)

// segment is one file of batches with its indexes. A sealed segment's file is opened and its indexes are loaded when somebody first needs
// them.
type segment struct {
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

	// refs counts the log's own reference and one for every reader; the last release closes the file.
	refs atomic.Int64
	mu   struct {
		sync.Mutex      // opening and loading
		retired    bool // no longer in the row: its names belong to others
	}
	file atomic.Pointer[vfs.File]

	// Only the writer touches these.
	reserved  int64 // bytes reserved in the file
	sealedAt  int64 // size at which it was last sealed, -1: never
	unindexed int64 // bytes since the last index entry
	firstTime int64 // max timestamp of the first batch, for the segment's age
	maxTime   index.TimeEntry
	damaged   bool                         // compaction has found it so; guarded by Log.cleaning
	seen      int64                        // when Retain first saw it active, in ms; 0: never
	saved     struct{ offsets, times int } // entries in the index files
}

type indexes struct {
	offsets *index.Offsets
	times   *index.Times
	// holes: they were made anew from a log that does not hold all offsets of the segment, so they do not know its greatest timestamp.
	holes bool
}

func newSegment(dir string, base int64) *segment {
	s := &segment{dir: dir, base: base}
	s.refs.Store(1)
	s.sealedSize.Store(-1)
	s.sealedAt = -1
	s.maxTime = index.TimeEntry{Timestamp: -1, Offset: base}
	s.firstTime = -1
	return s
}

func (s *segment) name(suffix string) string { return fileName(s.dir, s.base, suffix) }

// acquire takes a reference, unless the segment is gone.
func (s *segment) acquire() bool {
	for {
		n := s.refs.Load()
		if n == 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
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

// retire lets go of a segment that has been taken out of the row. Its readers keep it.
func (s *segment) retire() {
	s.mu.Lock()
	s.mu.retired = true
	s.mu.Unlock()
	if f := s.file.Load(); f != nil && sabotage.On(sabotage.Unmap) {
		_ = (*f).Close()
	}
	s.release()
}

func (s *segment) release() {
	if s.refs.Add(-1) == 0 {
		if f := s.file.Load(); f != nil {
			// Nothing unsynced is in a file that is released: Close and roll sync before, Abandon gives it up.
			_ = (*f).Close()
		}
	}
}

// open returns the segment's file, opening it for reading if it is a sealed one that nobody has touched yet. The caller holds a reference.
func (s *segment) open(fsys vfs.FS) (vfs.File, error) {
	if f := s.file.Load(); f != nil {
		return *f, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.file.Load(); f != nil {
		return *f, nil
	}
	f, err := fsys.OpenRead(s.name(suffixLog))
	if err != nil {
		return nil, err
	}
	s.setFile(f)
	return f, nil
}

func (s *segment) setFile(f vfs.File) { s.file.Store(&f) }

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
