package meta

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// guard stands between pebble and the file system, since pebble cannot bear a disk that fails: a write-ahead log that cannot be written, closed or made ends in a panic with a
// mutex unlocked, which no recover stops; a flush that fails is tried again at once, for ever, and a second try can leave a manifest that does not open.
//
// The first operation that fails to change something freezes the guard. Pebble is not told: from then on all that it does succeeds, and nothing of it
// reaches the disk. What lies there is what a crash at that moment would have left, so a store opened on it is sound; and pebble closes in order.
// Store looks at the guard after every commit, and believes none that it froze before.
//
// A full disk is not a failure yet: full may give something back, and then the operation is tried once more. A sync is never tried again.
type guard struct {
	pebblevfs.FS
	full   func()      // gives space back, if there is any to give
	failed func(error) // called once, with the first failure
	frozen atomic.Pointer[error]
}

// err is the first failure, or nil.
func (g *guard) err() error {
	if p := g.frozen.Load(); p != nil {
		return *p
	}
	return nil
}

// freeze keeps the first failure.
func (g *guard) freeze(err error) {
	if g.frozen.CompareAndSwap(nil, &err) {
		g.failed(err)
	}
}

// change runs an operation that changes something and returns what pebble may know of its outcome.
func (g *guard) change(op func() error) error {
	if g.err() != nil {
		return nil
	}
	err := op()
	if err != nil && vfs.IsNoSpace(err) {
		g.full() // another operation may have been the one that got it
		err = op()
	}
	return g.judge(err)
}

// sync is change for an operation that must not be tried again.
func (g *guard) sync(op func() error) error {
	if g.err() != nil {
		return nil
	}
	return g.judge(op())
}

// judge tells answers from failures: that a name is missing, or there already, is an answer.
func (g *guard) judge(err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return err
	}
	g.freeze(err)
	return nil
}

// open opens a file for writing. That its directory is missing is a failure too.
func (g *guard) open(op func() (pebblevfs.File, error)) (pebblevfs.File, error) {
	f := pebblevfs.File(nowhere{})
	if err := g.change(func() error {
		opened, err := op()
		if err == nil {
			f = opened
		}
		return err
	}); err != nil {
		g.freeze(err)
	}
	return &guardFile{f, g}, nil
}

func (g *guard) Create(name string, c pebblevfs.DiskWriteCategory) (pebblevfs.File, error) {
	return g.open(func() (pebblevfs.File, error) { return g.FS.Create(name, c) })
}

func (g *guard) ReuseForWrite(old, name string, c pebblevfs.DiskWriteCategory) (pebblevfs.File, error) {
	return g.open(func() (pebblevfs.File, error) { return g.FS.ReuseForWrite(old, name, c) })
}

func (g *guard) OpenReadWrite(name string, c pebblevfs.DiskWriteCategory, opts ...pebblevfs.OpenOption) (pebblevfs.File, error) {
	return g.open(func() (pebblevfs.File, error) { return g.FS.OpenReadWrite(name, c, opts...) })
}

// OpenDir opens a directory to sync it.
func (g *guard) OpenDir(name string) (pebblevfs.File, error) {
	f, err := g.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &guardFile{f, g}, nil
}

func (g *guard) Link(old, name string) error {
	return g.change(func() error { return g.FS.Link(old, name) })
}

func (g *guard) Rename(old, name string) error {
	return g.change(func() error { return g.FS.Rename(old, name) })
}

func (g *guard) Remove(name string) error {
	return g.change(func() error { return g.FS.Remove(name) })
}

func (g *guard) RemoveAll(name string) error {
	return g.change(func() error { return g.FS.RemoveAll(name) })
}

func (g *guard) MkdirAll(dir string, perm os.FileMode) error {
	return g.change(func() error { return g.FS.MkdirAll(dir, perm) })
}

// Lock tells who holds the lock from what keeps it from being taken.
func (g *guard) Lock(name string) (io.Closer, error) {
	c, err := g.FS.Lock(name)
	var failed *fs.PathError
	if err != nil && !errors.As(err, &failed) {
		err = fmt.Errorf("%w: %w", kafka.ErrLocked, err)
	}
	return c, err
}

func (g *guard) Unwrap() pebblevfs.FS { return g.FS }

// guardFile is a file open for writing, or a directory.
type guardFile struct {
	pebblevfs.File
	g *guard
}

func (f *guardFile) Write(p []byte) (int, error) {
	n := 0
	err := f.g.change(func() error {
		k, err := f.File.Write(p[n:])
		n += k
		return err
	})
	return len(p), err
}

func (f *guardFile) WriteAt(p []byte, off int64) (int, error) {
	n := 0
	err := f.g.change(func() error {
		k, err := f.File.WriteAt(p[n:], off+int64(n))
		n += k
		return err
	})
	return len(p), err
}

// Preallocate is a hint: a file without it is as good.
func (f *guardFile) Preallocate(off, n int64) error {
	if f.g.err() == nil {
		_ = f.File.Preallocate(off, n)
	}
	return nil
}

func (f *guardFile) Sync() error     { return f.g.sync(f.File.Sync) }
func (f *guardFile) SyncData() error { return f.g.sync(f.File.SyncData) }

func (f *guardFile) SyncTo(n int64) (full bool, err error) {
	err = f.g.sync(func() (err error) {
		full, err = f.File.SyncTo(n)
		return err
	})
	return full, err
}

// Close closes the file also when the guard is frozen; its error says nothing that a sync has not said.
func (f *guardFile) Close() error {
	_ = f.File.Close()
	return nil
}

// nowhere is a file that was to be made after the guard froze. Only what a guardFile calls is there.
type nowhere struct{ pebblevfs.File }

func (nowhere) Close() error                      { return nil }
func (nowhere) Fd() uintptr                       { return pebblevfs.InvalidFd }
func (nowhere) Prefetch(int64, int64) error       { return nil }
func (nowhere) Read([]byte) (int, error)          { return 0, os.ErrClosed }
func (nowhere) ReadAt([]byte, int64) (int, error) { return 0, os.ErrClosed }
func (nowhere) Stat() (pebblevfs.FileInfo, error) { return emptyInfo{}, nil }

type emptyInfo struct{ pebblevfs.FileInfo }

func (emptyInfo) Size() int64 { return 0 }
