package vfs

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
)

// mapAfter is how many bytes must be written to a re-opened file before it gets a mapping for its writer: most
// partitions that are opened are written to rarely or never.
const mapAfter = 256 << 10

// diskFile is an open file. Fields above the line belong to the writer: WriteAt, Reserve and Truncate come from one
// goroutine at a time, so they need no lock, and the copy in WriteAt is all that an append costs.
type diskFile struct {
	low, high int64 // what may be stored through the writer's mapping: mapped, and its blocks allocated
	fs        *disk
	osf       *os.File
	name      string
	limit     int64
	reserved  int64 // bytes whose blocks are allocated
	written   int64 // by pwrite, for mapAfter
	next      int64 // a write that ends beyond it asks for more pages ahead
	window    int64 // how far ahead pages are populated
	windowMax int64
	syncMark  int64 // where the writer was when it last saw a sync
	starved   bool  // the window has been cut short by the end of the reserved space
	write     bool
	mapWrites bool // the writer may get a mapping, and has not been given one yet
	noReserve bool // the file system cannot fallocate

	// ----

	size      atomic.Int64
	cross     atomic.Int64 // a write that ends beyond it calls crossed: next, or 0 after a sync
	writer    atomic.Pointer[mapping]
	reader    atomic.Pointer[mapping]
	noReadMap atomic.Bool
	ahead     aheadState

	// mu is held while a mapping is made or released, and by the fault-ahead helper while it works on one.
	mu struct {
		sync.Mutex
		closed bool
		kept   int64 // what lies before it has been taken out of the writer's mapping, see letGo
	}
}

func (d *disk) newFile(osf *os.File, name string, limit int64, write bool) *diskFile {
	f := &diskFile{fs: d, osf: osf, name: name, limit: limit, write: write}
	mayRead, mayWrite := mayMap(osf)
	f.noReadMap.Store(!mayRead || limit == 0)
	f.mapWrites = mayWrite && write && limit > 0
	f.window, f.windowMax = minWindow, maxWindow
	return f
}

func (f *diskFile) Name() string { return f.name }

func (f *diskFile) ReadAt(p []byte, off int64) (int, error) { return f.osf.ReadAt(p, off) }

// WriteAt is the hot path of every append.
func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	end := off + int64(len(p))
	if off < f.low || off >= f.high || end > f.high {
		return f.pwrite(p, off)
	}
	if end > f.cross.Load() {
		f.crossed(end)
	}
	return f.store(p, off)
}

func (f *diskFile) store(p []byte, off int64) (n int, err error) {
	defer Catch(Arm(), f, &err)
	return copy(f.writer.Load().data[off:], p), nil
}

// pwrite goes to the same page cache as a store does, so that the two may be mixed.
func (f *diskFile) pwrite(p []byte, off int64) (int, error) {
	n, err := f.osf.WriteAt(p, off)
	if end := off + int64(n); n > 0 && end > f.size.Load() {
		f.size.Store(end)
	}
	if err != nil {
		return n, spaceError(err)
	}
	if f.written += int64(n); f.mapWrites && f.written >= mapAfter {
		f.mapLate(off + int64(n))
	}
	return n, nil
}

// mapLate gives a re-opened file that is being written to a mapping for its writer, for the bytes from off on. The file
// may have holes there (copied by a tool that makes them), and a store must never need a block.
func (f *diskFile) mapLate(off int64) {
	if size := f.size.Load(); off < size {
		if allocate(f.osf, off, size) != nil {
			f.mapWrites = false
			return
		}
	}
	f.reserved = f.size.Load()
	f.mapWriter(off)
}

func (f *diskFile) Size() int64 {
	if !f.write { // somebody else may be writing it
		return f.grown()
	}
	return f.size.Load()
}

// grown asks the file system for the size of a file that another opener may be writing.
func (f *diskFile) grown() int64 {
	if st, err := f.osf.Stat(); err == nil {
		f.size.Store(st.Size())
	}
	return f.size.Load()
}

func (f *diskFile) Reserve(size int64) error {
	if !f.write {
		return errReadOnly("reserve", f.name)
	}
	if size <= f.reserved {
		return nil
	}
	old := f.size.Load()
	if f.noReserve {
		if size <= old {
			return nil
		}
		return f.Truncate(size)
	}
	err := allocate(f.osf, f.reserved, size)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		f.noReserve = true
		f.dropWriter()
		return f.Reserve(size)
	case err != nil:
		err = spaceError(pathError("reserve", f.name, err))
		// What fits has been allocated, and the size may have grown with it.
		if size > old {
			if terr := f.osf.Truncate(old); terr != nil {
				err = errors.Join(err, terr)
			}
		}
		return err
	}
	f.reserved = size
	if size > old {
		f.size.Store(size)
	}
	f.setHigh()
	return nil
}

func (f *diskFile) Truncate(size int64) error {
	if !f.write {
		return errReadOnly("truncate", f.name)
	}
	// The helper must not populate pages that are about to go.
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead.clamp(size)
	f.mu.kept = min(f.mu.kept, size)
	if err := f.osf.Truncate(size); err != nil {
		return spaceError(err)
	}
	f.size.Store(size)
	f.reserved = min(f.reserved, size)
	f.setHigh()
	f.setNext(min(f.next, size+aheadAfter))
	return nil
}

// setHigh follows a change of the mapping or of the reserved space.
func (f *diskFile) setHigh() {
	f.high = 0
	if w := f.writer.Load(); w != nil {
		f.high = min(int64(len(w.data)), f.reserved)
	}
	if f.starved {
		f.starved = false
		f.setNext(0)
	}
}

func (f *diskFile) setNext(next int64) {
	f.next = next
	f.cross.Store(next)
}

func (f *diskFile) Sync() error {
	if !f.write {
		return errReadOnly("sync", f.name)
	}
	f.letGo()
	if err := datasync(f.osf); err != nil {
		return spaceError(pathError("sync", f.name, err))
	}
	f.syncedAhead()
	return nil
}

func (f *diskFile) DropCache(off int64) error {
	return dropCache(f.osf, off, f.writer.Load(), f.reader.Load())
}

func (f *diskFile) Close() error {
	f.mu.Lock()
	if f.mu.closed {
		f.mu.Unlock()
		return pathError("close", f.name, fs.ErrClosed)
	}
	f.mu.closed = true
	f.low, f.high = 0, 0
	f.noReadMap.Store(true)
	err := errors.Join(f.fs.unmap(f.writer.Swap(nil)), f.fs.unmap(f.reader.Swap(nil)))
	f.mu.Unlock()
	return errors.Join(err, f.osf.Close())
}
