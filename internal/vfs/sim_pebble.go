package vfs

import (
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"
)

// simPebble is a Sim as pebble sees it. Every change is an operation of the Sim.
type simPebble struct{ s *Sim }

var _ pebblevfs.FS = simPebble{}

// Create replaces an existing file by a new one, in two operations, as pebble's own does.
func (p simPebble) Create(name string, _ pebblevfs.DiskWriteCategory) (pebblevfs.File, error) {
	if _, err := p.s.Stat(name); err == nil {
		if err := p.s.Remove(name); err != nil {
			return nil, err
		}
	}
	h, err := p.s.create(name)
	if err != nil {
		return nil, err
	}
	return &simPebbleFile{simHandle: h}, nil
}

func (p simPebble) Link(oldname, newname string) error {
	return p.s.mutate(func() Op {
		return Op{Kind: OpLink, Name: cleanName(oldname), To: cleanName(newname)}
	}, func() error { return p.s.mu.link(oldname, newname) }, nil)
}

func (p simPebble) Open(name string, opts ...pebblevfs.OpenOption) (pebblevfs.File, error) {
	return p.open(name, false, opts)
}

func (p simPebble) OpenReadWrite(
	name string, c pebblevfs.DiskWriteCategory, opts ...pebblevfs.OpenOption,
) (pebblevfs.File, error) {
	if _, err := p.s.Stat(name); err != nil {
		return p.Create(name, c)
	}
	return p.open(name, true, opts)
}

// open also opens directories: pebble's own does.
func (p simPebble) open(name string, write bool, opts []pebblevfs.OpenOption) (pebblevfs.File, error) {
	p.s.mu.Lock()
	n, err := p.s.mu.find("open", name)
	if err != nil {
		p.s.mu.Unlock()
		return nil, err
	}
	f := &simPebbleFile{simHandle: p.s.open(n, name, write)}
	p.s.mu.Unlock()
	for _, o := range opts {
		o.Apply(f)
	}
	return f, nil
}

func (p simPebble) OpenDir(name string) (pebblevfs.File, error) { return p.open(name, false, nil) }
func (p simPebble) Remove(name string) error                    { return p.s.Remove(name) }
func (p simPebble) Rename(oldname, newname string) error        { return p.s.Rename(oldname, newname) }

func (p simPebble) RemoveAll(name string) error {
	st, err := p.s.Stat(name)
	if err != nil {
		return nil // nothing there is what is wanted
	}
	if st.Dir {
		infos, err := p.s.List(name)
		if err != nil {
			return err
		}
		for _, i := range infos {
			if err := p.RemoveAll(path.Join(name, i.Name)); err != nil {
				return err
			}
		}
	}
	return p.s.Remove(name)
}

func (p simPebble) ReuseForWrite(oldname, newname string, _ pebblevfs.DiskWriteCategory) (pebblevfs.File, error) {
	if err := p.s.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return p.open(newname, true, nil)
}

func (p simPebble) MkdirAll(dir string, perm os.FileMode) error {
	if st, err := p.s.Stat(dir); err == nil {
		if !st.Dir {
			return pathError("mkdir", dir, fs.ErrExist)
		}
		return nil
	}
	if err := p.MkdirAll(path.Dir(path.Clean("/"+dir)), perm); err != nil {
		return err
	}
	return p.s.Mkdir(dir)
}

func (p simPebble) Lock(name string) (io.Closer, error) { return p.s.Lock(name) }

func (p simPebble) List(dir string) ([]string, error) {
	infos, err := p.s.List(dir)
	names := make([]string, len(infos))
	for i := range infos {
		names[i] = infos[i].Name
	}
	return names, err
}

func (p simPebble) Stat(name string) (pebblevfs.FileInfo, error) {
	i, err := p.s.Stat(name)
	if err != nil {
		return nil, err
	}
	return simInfo{i}, nil
}

func (p simPebble) PathBase(name string) string    { return path.Base(name) }
func (p simPebble) PathJoin(elem ...string) string { return path.Join(elem...) }
func (p simPebble) PathDir(name string) string     { return path.Dir(name) }
func (p simPebble) Unwrap() pebblevfs.FS           { return nil }

func (p simPebble) GetDiskUsage(string) (pebblevfs.DiskUsage, error) {
	free, total, err := p.s.Free("")
	return pebblevfs.DiskUsage{
		AvailBytes: uint64(free), TotalBytes: uint64(total), UsedBytes: uint64(total - free),
	}, err
}

// simPebbleFile is an open file or directory. Pebble reads and writes one sequentially from one goroutine.
type simPebbleFile struct {
	*simHandle
	pos int64 // of Read and Write, which share it as in a file of the system
}

func (f *simPebbleFile) Read(p []byte) (int, error) {
	n, err := f.ReadAt(p, f.pos)
	f.pos += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

func (f *simPebbleFile) Write(p []byte) (int, error) {
	n, err := f.WriteAt(p, f.pos)
	f.pos += int64(n)
	return n, err
}

// Preallocate would keep the size, and space is counted by size here.
func (f *simPebbleFile) Preallocate(int64, int64) error { return nil }

func (f *simPebbleFile) Stat() (pebblevfs.FileInfo, error) {
	return simInfo{Info{Name: path.Base(f.Name()), Size: f.Size(), Dir: f.node.dir}}, nil
}

func (f *simPebbleFile) Sync() error {
	if f.node.dir {
		return f.fs.SyncDir(f.Name())
	}
	if !f.write {
		return nil
	}
	return f.simHandle.Sync()
}

// SyncTo may write and promises nothing. SetWriteBack does that.
func (f *simPebbleFile) SyncTo(int64) (bool, error)  { return false, nil }
func (f *simPebbleFile) SyncData() error             { return f.Sync() }
func (f *simPebbleFile) Prefetch(int64, int64) error { return nil }
func (f *simPebbleFile) Fd() uintptr                 { return pebblevfs.InvalidFd }

// simInfo is an Info in the clothes of os. Nothing here has a time.
type simInfo struct{ i Info }

func (i simInfo) Name() string                 { return i.i.Name }
func (i simInfo) Size() int64                  { return i.i.Size }
func (i simInfo) ModTime() time.Time           { return time.Time{} }
func (i simInfo) IsDir() bool                  { return i.i.Dir }
func (i simInfo) Sys() any                     { return nil }
func (i simInfo) DeviceID() pebblevfs.DeviceID { return pebblevfs.DeviceID{} }

func (i simInfo) Mode() fs.FileMode {
	if i.i.Dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
