package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"
)

// ReadOnly returns a view of fsys that changes nothing: whatever would, Lock and Open included, fails with an error that
// matches fs.ErrPermission. Reading, OpenRead and Locked among it, goes through; so does Close.
func ReadOnly(fsys FS) FS { return readOnly{fsys} }

type readOnly struct{ FS }

func errReadOnlyFS(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("the file system is for reading: %w", fs.ErrPermission)}
}

func (readOnly) Create(name string, _ int64) (File, error) { return nil, errReadOnlyFS("create", name) }
func (readOnly) Open(name string, _ int64) (File, error)   { return nil, errReadOnlyFS("open", name) }
func (readOnly) Mkdir(name string) error                   { return errReadOnlyFS("mkdir", name) }
func (readOnly) Remove(name string) error                  { return errReadOnlyFS("remove", name) }
func (readOnly) Rename(oldname, _ string) error            { return errReadOnlyFS("rename", oldname) }
func (readOnly) SyncDir(dir string) error                  { return errReadOnlyFS("syncdir", dir) }
func (readOnly) SetModTime(name string, _ time.Time) error { return errReadOnlyFS("chtimes", name) }
func (readOnly) Lock(name string) (io.Closer, error)       { return nil, errReadOnlyFS("lock", name) }
func (r readOnly) Usage() Usage                            { return UsageOf(r.FS) }
func (r readOnly) Pebble() pebblevfs.FS                    { return readOnlyPebble{r.FS.Pebble()} }

// readOnlyPebble is the same view as pebble has it. Pebble's errors carry no identity of this package.
type readOnlyPebble struct{ pebblevfs.FS }

func (p readOnlyPebble) Create(name string, _ pebblevfs.DiskWriteCategory) (pebblevfs.File, error) {
	return nil, errReadOnlyFS("create", name)
}

func (p readOnlyPebble) Link(oldname, _ string) error { return errReadOnlyFS("link", oldname) }

func (p readOnlyPebble) OpenReadWrite(
	name string, _ pebblevfs.DiskWriteCategory, _ ...pebblevfs.OpenOption,
) (pebblevfs.File, error) {
	return nil, errReadOnlyFS("open", name)
}

func (p readOnlyPebble) OpenDir(name string) (pebblevfs.File, error) {
	d, err := p.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return readOnlyDir{d, name}, nil
}

func (p readOnlyPebble) Remove(name string) error       { return errReadOnlyFS("remove", name) }
func (p readOnlyPebble) RemoveAll(name string) error    { return errReadOnlyFS("remove", name) }
func (p readOnlyPebble) Rename(oldname, _ string) error { return errReadOnlyFS("rename", oldname) }

func (p readOnlyPebble) ReuseForWrite(
	oldname, _ string, _ pebblevfs.DiskWriteCategory,
) (pebblevfs.File, error) {
	return nil, errReadOnlyFS("rename", oldname)
}

func (p readOnlyPebble) MkdirAll(dir string, _ os.FileMode) error { return errReadOnlyFS("mkdir", dir) }
func (p readOnlyPebble) Lock(name string) (io.Closer, error)      { return nil, errReadOnlyFS("lock", name) }
func (p readOnlyPebble) Unwrap() pebblevfs.FS                     { return p.FS }

// readOnlyDir is a directory that pebble has opened to sync it.
type readOnlyDir struct {
	pebblevfs.File
	name string
}

func (d readOnlyDir) Sync() error     { return errReadOnlyFS("syncdir", d.name) }
func (d readOnlyDir) SyncData() error { return d.Sync() }
