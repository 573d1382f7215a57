package vfs

import (
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"
)

// memory is a file system on the heap. It lives as long as somebody refers to it: closing and re-opening an engine on
// the same one finds its data.
type memory struct {
	openFiles
	mu struct {
		sync.Mutex
		root   *memDir
		locked map[string]bool
	}
}

// A memNode is a *memDir or a *memData.
type memNode any

type memDir struct{ entries map[string]memNode }

// NewMemory returns an empty file system on the heap.
func NewMemory() FS {
	m := new(memory)
	m.mu.root = newMemDir()
	m.mu.locked = make(map[string]bool)
	return m
}

func newMemDir() *memDir { return &memDir{entries: make(map[string]memNode)} }

// parent returns the directory that name is in and its last element, "" for the root itself. Call it with m.mu held.
func (m *memory) parent(op, name string) (*memDir, string, error) {
	elems := split(name)
	if len(elems) == 0 {
		return m.mu.root, "", nil
	}
	dir := m.mu.root
	for _, e := range elems[:len(elems)-1] {
		switch n := dir.entries[e].(type) {
		case *memDir:
			dir = n
		case nil:
			return nil, "", pathError(op, name, fs.ErrNotExist)
		default:
			return nil, "", pathError(op, name, syscall.ENOTDIR)
		}
	}
	return dir, elems[len(elems)-1], nil
}

// find returns what name leads to. Call it with m.mu held.
func (m *memory) find(op, name string) (memNode, string, error) {
	dir, base, err := m.parent(op, name)
	switch {
	case err != nil:
		return nil, "", err
	case base == "":
		return dir, "/", nil
	}
	n := dir.entries[base]
	if n == nil {
		return nil, "", pathError(op, name, fs.ErrNotExist)
	}
	return n, base, nil
}

// add puts n where name is free. Call it with m.mu held.
func (m *memory) add(op, name string, n memNode) error {
	dir, base, err := m.parent(op, name)
	if err != nil {
		return err
	}
	if base == "" || dir.entries[base] != nil {
		return pathError(op, name, fs.ErrExist)
	}
	dir.entries[base] = n
	return nil
}

func (m *memory) Create(name string, _ int64) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.mayOpen("create", name); err != nil {
		return nil, err
	}
	d := newMemData()
	if err := m.add("create", name, d); err != nil {
		return nil, err
	}
	return m.handle(d, name, true), nil
}

func (m *memory) Open(name string, _ int64) (File, error) { return m.open(name, true) }
func (m *memory) OpenRead(name string) (File, error)      { return m.open(name, false) }

func (m *memory) open(name string, write bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, _, err := m.find("open", name)
	if err != nil {
		return nil, err
	}
	d, ok := n.(*memData)
	if !ok {
		return nil, pathError("open", name, syscall.EISDIR)
	}
	if err := m.mayOpen("open", name); err != nil {
		return nil, err
	}
	return m.handle(d, name, write), nil
}

func (m *memory) handle(d *memData, name string, write bool) *memFile {
	m.openFiles.open.Add(1)
	return &memFile{fs: m, data: d, name: name, write: write}
}

func (m *memory) Mkdir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.add("mkdir", name, newMemDir())
}

func (m *memory) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, base, err := m.find("remove", name)
	if err != nil {
		return err
	}
	if d, ok := n.(*memDir); ok && (len(d.entries) > 0 || d == m.mu.root) {
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	dir, _, _ := m.parent("remove", name)
	delete(dir.entries, base)
	return nil
}

func (m *memory) Rename(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, oldbase, err := m.find("rename", oldname)
	if err != nil {
		return err
	}
	to, newbase, err := m.parent("rename", newname)
	if err != nil {
		return err
	}
	there := to.entries[newbase]
	if there == n && n != nil {
		return nil
	}
	if err := mayReplace(oldname, newname, isMemDir(n), there != nil, isMemDir(there)); err != nil {
		return err
	}
	from, _, _ := m.parent("rename", oldname)
	delete(from.entries, oldbase)
	to.entries[newbase] = n
	return nil
}

func isMemDir(n memNode) bool {
	_, ok := n.(*memDir)
	return ok
}

func (m *memory) link(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, _, err := m.find("link", oldname)
	switch {
	case err != nil:
		return err
	case isMemDir(n):
		return pathError("link", oldname, fs.ErrPermission)
	}
	return m.add("link", newname, n)
}

// mayReplace has the rules of a rename: a file may replace a file, nothing may replace a directory or move into itself.
func mayReplace(oldname, newname string, dir, there, thereDir bool) error {
	from, to := split(oldname), split(newname)
	switch {
	case len(from) == 0 || len(to) == 0:
		return pathError("rename", oldname, fs.ErrInvalid)
	case there && (dir || thereDir):
		return pathError("rename", newname, fs.ErrExist)
	case dir && len(to) > len(from) && slices.Equal(from, to[:len(from)]):
		return pathError("rename", newname, fs.ErrInvalid)
	}
	return nil
}

func (m *memory) SetModTime(name string, t time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, _, err := m.find("chtimes", name)
	if d, ok := n.(*memData); ok && !t.IsZero() {
		d.changed.Store(t.UnixNano())
	}
	return err
}

func (m *memory) Stat(name string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, base, err := m.find("stat", name)
	if err != nil {
		return Info{}, err
	}
	return memInfo(base, n), nil
}

func memInfo(name string, n memNode) Info {
	if d, ok := n.(*memData); ok {
		return Info{Name: name, Size: d.size.Load(), ModTime: time.Unix(0, d.changed.Load())}
	}
	return Info{Name: name, Dir: true}
}

func (m *memory) List(dir string) ([]Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, _, err := m.find("list", dir)
	if err != nil {
		return nil, err
	}
	d, ok := n.(*memDir)
	if !ok {
		return nil, pathError("list", dir, syscall.ENOTDIR)
	}
	infos := make([]Info, 0, len(d.entries))
	for _, name := range slices.Sorted(maps.Keys(d.entries)) {
		infos = append(infos, memInfo(name, d.entries[name]))
	}
	return infos, nil
}

func (m *memory) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, _, err := m.find("syncdir", dir)
	if err == nil && !isMemDir(n) {
		err = pathError("syncdir", dir, syscall.ENOTDIR)
	}
	return err
}

func (m *memory) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := cleanName(name)
	if m.mu.locked[key] {
		return nil, &LockedError{Name: name, PID: os.Getpid()}
	}
	n, _, err := m.find("lock", name)
	switch {
	case err == nil && isMemDir(n):
		return nil, pathError("lock", name, syscall.EISDIR)
	case err != nil:
		if err := m.add("lock", name, newMemData()); err != nil {
			return nil, err
		}
	}
	m.mu.locked[key] = true
	return &memLock{fs: m, key: key}, nil
}

func (m *memory) Locked(name string) (held bool, pid int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.locked[cleanName(name)] {
		return true, os.Getpid(), nil
	}
	if n, _, err := m.find("lock", name); err == nil && isMemDir(n) {
		return false, 0, pathError("lock", name, syscall.EISDIR)
	}
	return false, 0, nil
}

// memLock is held until the first Close.
type memLock struct {
	fs   *memory
	key  string
	once sync.Once
}

func (l *memLock) Close() error {
	l.once.Do(func() {
		l.fs.mu.Lock()
		defer l.fs.mu.Unlock()
		delete(l.fs.mu.locked, l.key)
	})
	return nil
}

func (m *memory) Free(string) (free, total int64, err error) { return Unlimited, Unlimited, nil }

func (m *memory) Pebble() pebblevfs.FS { return pebbleFS{m} }

func (m *memory) Close() error { return nil }
