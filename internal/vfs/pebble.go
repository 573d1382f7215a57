package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"
)

// pebbleFS is Memory or Sim as pebble sees it: the same files, and on a Sim every change is one of its operations.
type pebbleFS struct{ fs pebbleGround }

// pebbleGround is what pebble needs of a file system beyond FS.
type pebbleGround interface {
	FS
	// link gives a file a second name. Pebble's checkpoints do that.
	link(oldname, newname string) error
}

var _ pebblevfs.FS = pebbleFS{}

// Create replaces an existing file by a new one, in two operations, as pebble's own does.
func (p pebbleFS) Create(name string, _ pebblevfs.DiskWriteCategory) (pebblevfs.File, error) {
	if _, err := p.fs.Stat(name); err == nil {
		if err := p.fs.Remove(name); err != nil {
			return nil, err
		}
	}
	f, err := p.fs.Create(name, 0)
	if err != nil {
		return nil, err
	}
	return &pebbleFile{File: f, write: true}, nil
}

func (p pebbleFS) Link(oldname, newname string) error { return p.fs.link(oldname, newname) }

// Open also opens directories: pebble's own does.
func (p pebbleFS) Open(name string, opts ...pebblevfs.OpenOption) (pebblevfs.File, error) {
	f, err := p.fs.OpenRead(name)
	if errors.Is(err, syscall.EISDIR) {
		return &pebbleDir{fs: p.fs, name: name}, nil
	}
	return opened(f, false, err, opts)
}

func (p pebbleFS) OpenReadWrite(
	name string, c pebblevfs.DiskWriteCategory, opts ...pebblevfs.OpenOption,
) (pebblevfs.File, error) {
	if _, err := p.fs.Stat(name); err != nil {
		return p.Create(name, c)
	}
	f, err := p.fs.Open(name, 0)
	return opened(f, true, err, opts)
}

func opened(f File, write bool, err error, opts []pebblevfs.OpenOption) (pebblevfs.File, error) {
	if err != nil {
		return nil, err
	}
	pf := &pebbleFile{File: f, write: write}
	for _, o := range opts {
		o.Apply(pf)
	}
	return pf, nil
}

func (p pebbleFS) OpenDir(name string) (pebblevfs.File, error) { return p.Open(name) }
func (p pebbleFS) Remove(name string) error                    { return p.fs.Remove(name) }
func (p pebbleFS) Rename(oldname, newname string) error        { return p.fs.Rename(oldname, newname) }

func (p pebbleFS) RemoveAll(name string) error {
	st, err := p.fs.Stat(name)
	if err != nil {
		return nil // nothing there is what is wanted
	}
	if st.Dir {
		infos, err := p.fs.List(name)
		if err != nil {
			return err
		}
		for _, i := range infos {
			if err := p.RemoveAll(path.Join(name, i.Name)); err != nil {
				return err
			}
		}
	}
	return p.fs.Remove(name)
}

func (p pebbleFS) ReuseForWrite(oldname, newname string, c pebblevfs.DiskWriteCategory) (pebblevfs.File, error) {
	if err := p.fs.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return p.OpenReadWrite(newname, c)
}

func (p pebbleFS) MkdirAll(dir string, perm os.FileMode) error {
	if st, err := p.fs.Stat(dir); err == nil {
		if !st.Dir {
			return pathError("mkdir", dir, fs.ErrExist)
		}
		return nil
	}
	if err := p.MkdirAll(path.Dir(path.Clean("/"+dir)), perm); err != nil {
		return err
	}
	return p.fs.Mkdir(dir)
}

func (p pebbleFS) Lock(name string) (io.Closer, error) { return p.fs.Lock(name) }

func (p pebbleFS) List(dir string) ([]string, error) {
	infos, err := p.fs.List(dir)
	names := make([]string, len(infos))
	for i := range infos {
		names[i] = infos[i].Name
	}
	return names, err
}

func (p pebbleFS) Stat(name string) (pebblevfs.FileInfo, error) {
	i, err := p.fs.Stat(name)
	if err != nil {
		return nil, err
	}
	return pebbleInfo{i}, nil
}

func (p pebbleFS) PathBase(name string) string    { return path.Base(name) }
func (p pebbleFS) PathJoin(elem ...string) string { return path.Join(elem...) }
func (p pebbleFS) PathDir(name string) string     { return path.Dir(name) }
func (p pebbleFS) Unwrap() pebblevfs.FS           { return nil }

func (p pebbleFS) GetDiskUsage(dir string) (pebblevfs.DiskUsage, error) {
	free, total, err := p.fs.Free(dir)
	return pebblevfs.DiskUsage{
		AvailBytes: uint64(free), TotalBytes: uint64(total), UsedBytes: uint64(total - free),
	}, err
}

// pebbleFile is an open file. Pebble reads and writes one sequentially from one goroutine.
type pebbleFile struct {
	File
	write bool
	pos   int64 // of Read and Write, which share it as in a file of the system
}

func (f *pebbleFile) Read(p []byte) (int, error) {
	n, err := f.ReadAt(p, f.pos)
	f.pos += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

func (f *pebbleFile) Write(p []byte) (int, error) {
	n, err := f.WriteAt(p, f.pos)
	f.pos += int64(n)
	return n, err
}

// Preallocate would keep the size, and space is counted by size here.
func (f *pebbleFile) Preallocate(int64, int64) error { return nil }

// Stat has no time.
func (f *pebbleFile) Stat() (pebblevfs.FileInfo, error) {
	return pebbleInfo{Info{Name: path.Base(f.Name()), Size: f.Size()}}, nil
}

func (f *pebbleFile) Sync() error {
	if !f.write {
		return nil
	}
	return f.File.Sync()
}

// SyncTo may write and promises nothing. Sim.SetWriteBack does that.
func (f *pebbleFile) SyncTo(int64) (bool, error)  { return false, nil }
func (f *pebbleFile) SyncData() error             { return f.Sync() }
func (f *pebbleFile) Prefetch(int64, int64) error { return nil }
func (f *pebbleFile) Fd() uintptr                 { return pebblevfs.InvalidFd }

// pebbleDir is an open directory, which can be synced.
type pebbleDir struct {
	fs   FS
	name string
}

func (d *pebbleDir) refuse(op string) (int, error) { return 0, pathError(op, d.name, syscall.EISDIR) }

func (d *pebbleDir) Read([]byte) (int, error)           { return d.refuse("read") }
func (d *pebbleDir) ReadAt([]byte, int64) (int, error)  { return d.refuse("read") }
func (d *pebbleDir) Write([]byte) (int, error)          { return d.refuse("write") }
func (d *pebbleDir) WriteAt([]byte, int64) (int, error) { return d.refuse("write") }
func (d *pebbleDir) Preallocate(int64, int64) error     { return nil }
func (d *pebbleDir) Prefetch(int64, int64) error        { return nil }
func (d *pebbleDir) Sync() error                        { return d.fs.SyncDir(d.name) }
func (d *pebbleDir) SyncTo(int64) (bool, error)         { return false, nil }
func (d *pebbleDir) SyncData() error                    { return d.Sync() }
func (d *pebbleDir) Fd() uintptr                        { return pebblevfs.InvalidFd }
func (d *pebbleDir) Close() error                       { return nil }

func (d *pebbleDir) Stat() (pebblevfs.FileInfo, error) {
	return pebbleInfo{Info{Name: path.Base(d.name), Dir: true}}, nil
}

// pebbleInfo is an Info in the clothes of os.
type pebbleInfo struct{ i Info }

func (i pebbleInfo) Name() string                 { return i.i.Name }
func (i pebbleInfo) Size() int64                  { return i.i.Size }
func (i pebbleInfo) ModTime() time.Time           { return i.i.ModTime }
func (i pebbleInfo) IsDir() bool                  { return i.i.Dir }
func (i pebbleInfo) Sys() any                     { return nil }
func (i pebbleInfo) DeviceID() pebblevfs.DeviceID { return pebblevfs.DeviceID{} }

func (i pebbleInfo) Mode() fs.FileMode {
	if i.i.Dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
