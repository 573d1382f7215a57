package vfs

import (
	"io"
	"io/fs"
	"math/bits"
	"sync/atomic"
	"syscall"
	"time"
)

// The bytes of a file are chunks of at most 64 KiB. The first 64 KiB are cut finer (4, 4, 8, 16 and 32 KiB), so that a
// small file is small. A chunk is allocated by the first write to it: reserved space costs nothing.
const (
	minChunkBits = 12
	maxChunkBits = 16
	smallChunks  = maxChunkBits - minChunkBits + 1
)

// chunkOf says which chunk holds off, where the chunk begins and how long it is.
func chunkOf(off int64) (i int, start, size int64) {
	if off>>maxChunkBits > 0 {
		return smallChunks - 1 + int(off>>maxChunkBits), off &^ (1<<maxChunkBits - 1), 1 << maxChunkBits
	}
	i = bits.Len64(uint64(off) >> minChunkBits)
	if i == 0 {
		return 0, 0, 1 << minChunkBits
	}
	start = 1 << (minChunkBits + i - 1)
	return i, start, start
}

// memData is the content of a file. The one writer publishes a longer table, or one with other chunks, by a store to
// table, and a new chunk by a store to its slot. A chunk in the table is never taken for other bytes of the file:
// Truncate puts a copy in its place, so the windows that readers hold keep what they show. The bytes themselves are
// not synchronised here; readers stay below an end that the engine publishes atomically after the write.
type memData struct {
	size    atomic.Int64
	changed atomic.Int64 // when bytes or size last were, in nanoseconds
	table   atomic.Pointer[[]atomic.Pointer[[]byte]]
}

func newMemData() *memData {
	d := new(memData)
	d.touch()
	d.table.Store(new([]atomic.Pointer[[]byte]))
	return d
}

func (d *memData) touch() { d.changed.Store(time.Now().UnixNano()) }

// chunk returns chunk i, or nil if nothing has been written to it.
func (d *memData) chunk(i int) []byte {
	if t := *d.table.Load(); i < len(t) {
		if c := t[i].Load(); c != nil {
			return *c
		}
	}
	return nil
}

// own returns chunk i for writing.
func (d *memData) own(i int, size int64) []byte {
	if c := d.chunk(i); c != nil {
		return c
	}
	t := *d.table.Load()
	if i >= len(t) {
		t = copyTable(t, max(2*len(t), i+1))
		d.table.Store(&t)
	}
	c := make([]byte, size)
	t[i].Store(&c)
	return c
}

func copyTable(t []atomic.Pointer[[]byte], n int) []atomic.Pointer[[]byte] {
	c := make([]atomic.Pointer[[]byte], n)
	for i := range min(n, len(t)) {
		c[i].Store(t[i].Load())
	}
	return c
}

func (d *memData) writeAt(p []byte, off int64) {
	if len(p) > 0 {
		d.touch()
	}
	for at := off; len(p) > 0; {
		i, start, size := chunkOf(at)
		n := copy(d.own(i, size)[at-start:], p)
		p = p[n:]
		at += int64(n)
		if at > d.size.Load() {
			d.size.Store(at)
		}
	}
}

// readAt fills p, which lies within the file.
func (d *memData) readAt(p []byte, off int64) {
	for len(p) > 0 {
		i, start, size := chunkOf(off)
		n := min(int64(len(p)), start+size-off)
		if c := d.chunk(i); c != nil {
			copy(p[:n], c[off-start:])
		} else {
			clear(p[:n])
		}
		p = p[n:]
		off += n
	}
}

func (d *memData) truncate(size int64) {
	d.touch()
	if size < d.size.Load() {
		i, start, length := chunkOf(size)
		keep := i
		if size > start {
			keep++
		}
		old := *d.table.Load()
		t := copyTable(old, min(keep, len(old)))
		if i < len(t) {
			if c := t[i].Load(); c != nil {
				fresh := make([]byte, length)
				copy(fresh, (*c)[:size-start])
				t[i].Store(&fresh)
			}
		}
		d.size.Store(size)
		d.table.Store(&t)
		return
	}
	d.size.Store(size)
}

// memFile is an open file.
type memFile struct {
	fs     *memory
	data   *memData
	name   string
	write  bool
	closed atomic.Bool
}

func (f *memFile) check(op string, write bool) error {
	if f.closed.Load() {
		return pathError(op, f.name, fs.ErrClosed)
	}
	if write && !f.write {
		return errReadOnly(op, f.name)
	}
	return nil
}

func (f *memFile) Name() string { return f.name }
func (f *memFile) Size() int64  { return f.data.size.Load() }

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.check("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("read", f.name, syscall.EINVAL)
	}
	n := min(int64(len(p)), max(0, f.data.size.Load()-off))
	f.data.readAt(p[:n], off)
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.check("write", true); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("write", f.name, syscall.EINVAL)
	}
	f.data.writeAt(p, off)
	return len(p), nil
}

func (f *memFile) Window(off int64, n int, buf *[]byte) ([]byte, error) {
	if err := f.check("read", false); err != nil {
		return nil, err
	}
	if size := f.data.size.Load(); off < 0 || n < 0 || off > size || int64(n) > size-off {
		return nil, errBeyond(f.name, off, n, size)
	}
	i, start, size := chunkOf(off)
	if from, to := off-start, off-start+int64(n); to <= size {
		if c := f.data.chunk(i); c != nil {
			return c[from:to:to], nil
		}
	}
	return readWindow(f, f.name, off, n, buf)
}

// Fault: memory on the heap does not fault.
func (f *memFile) Fault(uintptr) (int64, bool) { return 0, false }

func (f *memFile) Reserve(size int64) error {
	if err := f.check("reserve", true); err != nil {
		return err
	}
	if size > f.data.size.Load() {
		f.data.truncate(size)
	}
	return nil
}

func (f *memFile) Truncate(size int64) error {
	if err := f.check("truncate", true); err != nil {
		return err
	}
	if size < 0 {
		return pathError("truncate", f.name, syscall.EINVAL)
	}
	f.data.truncate(size)
	return nil
}

func (f *memFile) Sync() error           { return f.check("sync", true) }
func (f *memFile) DropCache(int64) error { return f.check("dropcache", false) }

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return pathError("close", f.name, fs.ErrClosed)
	}
	f.fs.openFiles.open.Add(-1)
	return nil
}
