package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"
)

// disk is this machine's file system.
type disk struct {
	ahead faultAhead

	maps    atomic.Int64 // mappings that exist
	maxMaps int64        // and how many may
}

// NewDisk returns this machine's file system. Inside a testing/synctest bubble make it inside the bubble: its
// helper goroutine belongs there.
func NewDisk() FS { return newDisk() }

func newDisk() *disk {
	d := &disk{maxMaps: mapBudget()}
	d.ahead.init()
	return d
}

func (d *disk) Create(name string, limit int64) (File, error) {
	osf, err := openFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, spaceError(err)
	}
	f := d.newFile(osf, name, limit, true)
	if f.mapWrites {
		f.mapWriter(0)
	}
	return f, nil
}

func (d *disk) Open(name string, limit int64) (File, error) { return d.open(name, limit, true) }

func (d *disk) OpenRead(name string) (File, error) { return d.open(name, 0, false) }

func (d *disk) open(name string, limit int64, write bool) (File, error) {
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR
	}
	osf, err := openFile(name, flag)
	if err != nil {
		return nil, err
	}
	st, err := osf.Stat()
	if err == nil && st.IsDir() {
		err = pathError("open", name, syscall.EISDIR)
	}
	if err != nil {
		osf.Close()
		return nil, err
	}
	if limit > 0 || !write {
		limit = max(limit, st.Size())
	}
	f := d.newFile(osf, name, limit, write)
	f.size.Store(st.Size())
	f.reserved = st.Size()
	return f, nil
}

func (d *disk) Mkdir(name string) error  { return spaceError(os.Mkdir(name, 0o755)) }
func (d *disk) Remove(name string) error { return os.Remove(name) }

func (d *disk) Rename(oldname, newname string) error {
	return spaceError(os.Rename(oldname, newname))
}

func (d *disk) SetModTime(name string, t time.Time) error { return spaceError(os.Chtimes(name, t, t)) }

func (d *disk) Stat(name string) (Info, error) {
	st, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return infoOf(st), nil
}

func (d *disk) List(dir string) ([]Info, error) {
	es, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	infos := make([]Info, 0, len(es))
	for _, e := range es {
		st, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since the directory was read
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, infoOf(st))
	}
	return infos, nil
}

// infoOf gives a directory no size and no time: what stat says there is an affair of the file system.
func infoOf(st fs.FileInfo) Info {
	if st.IsDir() {
		return Info{Name: st.Name(), Dir: true}
	}
	return Info{Name: st.Name(), Size: st.Size(), ModTime: st.ModTime()}
}

func (d *disk) SyncDir(dir string) error { return syncDir(dir) }

// maxOpenCap stands for a limit that is infinite, or too large to mean anything.
const maxOpenCap = 1 << 20

func (d *disk) MaxOpen() int { return maxOpen() }

// Free asks pebble, which knows the call of every platform that it runs on.
func (d *disk) Free(dir string) (free, total int64, err error) {
	u, err := pebblevfs.Default.GetDiskUsage(filepath.FromSlash(dir))
	if err != nil {
		return 0, 0, pathError("statfs", dir, err)
	}
	if u.TotalBytes == 0 {
		return Unlimited, Unlimited, nil // it does not count
	}
	return int64(u.AvailBytes), int64(u.TotalBytes), nil
}

func (d *disk) Pebble() pebblevfs.FS { return pebblevfs.Default }

func (d *disk) Close() error {
	d.ahead.stop()
	return nil
}

// spaceError gives errors of a full disk their identity.
func spaceError(err error) error {
	if err != nil && isNoSpace(err) {
		return &noSpaceError{err}
	}
	return err
}
