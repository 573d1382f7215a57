package rlog

import (
	"sync"
	"sync/atomic"

	"github.com/runnelmq/runnel/internal/vfs"
)

// Files bounds the segment files that the logs of an engine have open together. Those that nobody has used for a while are closed, the unsynced ones after a sync, and opened again when
// somebody needs them. A file that is being read or written is never closed, so there may be more for a moment.
type Files struct {
	most int64
	n    atomic.Int64 // in mu.open
	mu   struct {
		sync.Mutex
		open map[*segment]*Log
	}
}

// NewFiles returns a budget of so many files.
func NewFiles(most int) *Files {
	f := &Files{most: int64(most)}
	f.mu.open = map[*segment]*Log{}
	return f
}

// Open is how many files are open.
func (f *Files) Open() int { return int(f.n.Load()) }

// share is how many files one user may have open at once.
func (f *Files) share() int {
	const most = 32
	if f == nil {
		return most
	}
	return int(min(max(f.most/8, 2), most))
}

// Tight reports whether somebody waits for files to be closed: who can do without one lets go of it.
func (f *Files) Tight() bool { return f.n.Load() >= f.most }

// opened counts the file of s, and closes others if they are too many.
func (f *Files) opened(s *segment, l *Log) {
	if f == nil {
		return
	}
	f.mu.Lock()
	f.mu.open[s] = l
	n := int64(len(f.mu.open))
	f.n.Store(n)
	f.mu.Unlock()
	if n > f.most {
		f.evict(int(n - f.most))
	}
}

func (f *Files) closed(s *segment) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.mu.open, s)
	f.n.Store(int64(len(f.mu.open)))
}

// victim is a segment whose file may be closed, and its log.
type victim struct {
	s *segment
	l *Log
}

// evict closes n files, if so many can be closed.
func (f *Files) evict(n int) {
	for range 2 { // the second time, those too that have been used since the last time
		for _, v := range f.victims(n + n/2 + 1) {
			if n > 0 && v.l.closeCold(v.s) {
				n--
			}
		}
		if n <= 0 {
			return
		}
	}
}

// victims returns up to n segments that have not been used since victims last came by. Maps are walked in random order, which is as good as any among those.
func (f *Files) victims(n int) (vs []victim) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s, l := range f.mu.open {
		if s.used.Swap(false) {
			continue
		}
		if vs = append(vs, victim{s, l}); len(vs) == n {
			break
		}
	}
	return vs
}

// closeCold closes the file of a segment that nobody uses now. It reports whether it has.
func (l *Log) closeCold(s *segment) bool {
	if s.sealedSize.Load() >= 0 {
		return s.closeCold()
	}
	// The writer may be in the middle of something, and may itself be waiting for us.
	if !l.mu.TryLock() {
		return false
	}
	defer l.mu.Unlock()
	f := s.file.Load()
	if f == nil || l.mu.closed || l.segments.Load().active != s || l.Err() != nil {
		return false
	}
	if !l.o.ReadOnly && l.durable.Load() < l.end.Load() && l.syncAlone(*f) != nil {
		return false
	}
	return s.closeCold()
}

// patient is a file system that tries once more, after files have been closed, if the process has too many open.
type patient struct {
	vfs.FS
	files *Files
}

func (p patient) SyncDir(dir string) error {
	_, err := p.again(func() (vfs.File, error) { return nil, p.FS.SyncDir(dir) })
	return err
}

func (p patient) again(open func() (vfs.File, error)) (vfs.File, error) {
	f, err := open()
	if vfs.IsTooManyOpen(err) {
		p.files.evict(p.files.Open()/4 + 1)
		f, err = open()
	}
	return f, err
}

func (p patient) Create(name string, limit int64) (vfs.File, error) {
	return p.again(func() (vfs.File, error) { return p.FS.Create(name, limit) })
}

func (p patient) Open(name string, limit int64) (vfs.File, error) {
	return p.again(func() (vfs.File, error) { return p.FS.Open(name, limit) })
}

func (p patient) OpenRead(name string) (vfs.File, error) {
	return p.again(func() (vfs.File, error) { return p.FS.OpenRead(name) })
}
