package vfs

import (
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Create makes a file; limit means nothing here.
func (s *Sim) Create(name string, _ int64) (File, error) {
	var h *simHandle
	err := s.mutate(nameOp(OpCreate, name), func() error {
		if err := s.mayOpen("create", name); err != nil {
			return err
		}
		n, err := s.mu.add("create", name, false)
		if err == nil {
			h = s.open(n, name, true)
		}
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	return h, nil
}

func nameOp(kind OpKind, name string) func() Op {
	return func() Op { return Op{Kind: kind, Name: cleanName(name)} }
}

// open makes a handle. Call it with s.mu held.
func (s *Sim) open(n *simNode, name string, write bool) *simHandle {
	n.opens++
	s.openFiles.open.Add(1)
	return &simHandle{fs: s, node: n, name: name, write: write}
}

// Open opens a file; limit means nothing here.
func (s *Sim) Open(name string, _ int64) (File, error) { return s.openName(name, true) }

// OpenRead opens a file for reading.
func (s *Sim) OpenRead(name string) (File, error) { return s.openName(name, false) }

func (s *Sim) openName(name string, write bool) (File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.mu.find("open", name)
	if err == nil && n.dir {
		err = pathError("open", name, syscall.EISDIR)
	}
	if err == nil {
		err = s.mayOpen("open", name)
	}
	if err != nil {
		return nil, err
	}
	return s.open(n, name, write), nil
}

// Mkdir makes a directory.
func (s *Sim) Mkdir(name string) error {
	return s.mutate(nameOp(OpMkdir, name), func() error {
		_, err := s.mu.add("mkdir", name, true)
		return err
	}, nil)
}

// Remove unlinks a file or an empty directory.
func (s *Sim) Remove(name string) error {
	return s.mutate(nameOp(OpRemove, name), func() error { return s.mu.remove("remove", name) }, nil)
}

// Rename moves a file or a directory.
func (s *Sim) Rename(oldname, newname string) error {
	return s.mutate(func() Op {
		return Op{Kind: OpRename, Name: cleanName(oldname), To: cleanName(newname)}
	}, func() error { return s.mu.rename(oldname, newname) }, nil)
}

func (s *Sim) link(oldname, newname string) error {
	return s.mutate(func() Op {
		return Op{Kind: OpLink, Name: cleanName(oldname), To: cleanName(newname)}
	}, func() error { return s.mu.link(oldname, newname) }, nil)
}

// SyncDir makes the pending operations of a directory durable, and with a rename from or to another directory the
// earlier ones of that. If it is made to fail, they stay pending.
func (s *Sim) SyncDir(dir string) error {
	return s.mutate(nameOp(OpSyncDir, dir), func() error {
		n, err := s.mu.findDir("syncdir", dir)
		if err == nil {
			s.mu.commit(s.mu.needed(len(s.mu.queue), n))
		}
		return err
	}, nil)
}

// SetModTime sets the time of a file. A cut does not bring the old one back.
func (s *Sim) SetModTime(name string, t time.Time) error {
	return s.mutate(nameOp(OpSetModTime, name), func() error {
		n, err := s.mu.find("chtimes", name)
		if err == nil && !n.dir && !t.IsZero() {
			n.changed = t.UnixNano()
		}
		return err
	}, nil)
}

// Stat describes a file or a directory.
func (s *Sim) Stat(name string) (Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.mu.find("stat", name)
	if err != nil {
		return Info{}, err
	}
	base := "/"
	if elems := split(name); len(elems) > 0 {
		base = elems[len(elems)-1]
	}
	return n.info(base), nil
}

// List describes what is in a directory.
func (s *Sim) List(dir string) ([]Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.mu.findDir("list", dir)
	if err != nil {
		return nil, err
	}
	infos := make([]Info, 0, len(n.live))
	for _, name := range slices.Sorted(maps.Keys(n.live)) {
		infos = append(infos, n.live[name].info(name))
	}
	return infos, nil
}

// Lock takes a lock file, and counts as a creation if the file is missing.
func (s *Sim) Lock(name string) (io.Closer, error) {
	key := cleanName(name)
	s.mu.Lock()
	n, err := s.mu.find("lock", name)
	held := s.mu.locked[key]
	if !held && err == nil && !n.dir {
		s.mu.locked[key] = true
	}
	s.mu.Unlock()
	switch {
	case held:
		return nil, &LockedError{Name: name, PID: os.Getpid()}
	case err == nil && n.dir:
		return nil, pathError("lock", name, syscall.EISDIR)
	case err == nil:
		return &simLock{fs: s, key: key}, nil
	}
	err = s.mutate(nameOp(OpCreate, name), func() error {
		if s.mu.locked[key] { // another opener has made and locked it meanwhile
			return &LockedError{Name: name, PID: os.Getpid()}
		}
		_, err := s.mu.add("lock", name, false)
		if err == nil {
			s.mu.locked[key] = true
		}
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	return &simLock{fs: s, key: key}, nil
}

// Locked says whether a lock file is held.
func (s *Sim) Locked(name string) (held bool, pid int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.locked[cleanName(name)] {
		return true, os.Getpid(), nil
	}
	if n, err := s.mu.find("lock", name); err == nil && n.dir {
		return false, 0, pathError("lock", name, syscall.EISDIR)
	}
	return false, 0, nil
}

// simLock is held until the first Close.
type simLock struct {
	fs   *Sim
	key  string
	once sync.Once
}

func (l *simLock) Close() error {
	l.once.Do(func() {
		l.fs.mu.Lock()
		defer l.fs.mu.Unlock()
		delete(l.fs.mu.locked, l.key)
	})
	return nil
}
