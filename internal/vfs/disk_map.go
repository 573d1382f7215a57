package vfs

import (
	"unsafe"

	"github.com/edsrzf/mmap-go"
)

// mapsPerProcess bounds the mappings of one disk, whatever the kernel would allow.
const mapsPerProcess = 4096

// mapping is one mapped range of a file, from offset 0.
type mapping struct{ data mmap.MMap }

func (m *mapping) offset(addr uintptr) (int64, bool) {
	if m == nil {
		return 0, false
	}
	base := uintptr(unsafe.Pointer(unsafe.SliceData(m.data)))
	if addr < base || addr-base >= uintptr(len(m.data)) {
		return 0, false
	}
	return int64(addr - base), true
}

// mapFile maps size bytes of f, which may end before, or returns nil: nothing depends on a mapping.
func (d *disk) mapFile(f *diskFile, size int64, prot int) *mapping {
	if size <= 0 || size > maxMapSize {
		return nil
	}
	if d.maps.Add(1) > d.maxMaps {
		d.maps.Add(-1)
		return nil
	}
	data, err := mmap.MapRegion(f.osf, int(size), prot, 0, 0)
	if err != nil {
		d.maps.Add(-1)
		return nil
	}
	return &mapping{data}
}

func (d *disk) unmap(m *mapping) error {
	if m == nil {
		return nil
	}
	d.maps.Add(-1)
	return release(m)
}

// mapWriter makes the writer's mapping and lets stores begin at low.
func (f *diskFile) mapWriter(low int64) {
	f.mapWrites = false
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.fs.mapFile(f, f.limit, mmap.RDWR)
	if m == nil {
		return
	}
	f.writer.Store(m)
	f.low = low
	f.setHigh()
	f.setNext(low + aheadAfter)
	f.syncMark = low
}

// dropWriter takes the writer's mapping away, once it has turned out that space cannot be reserved.
func (f *diskFile) dropWriter() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mapWrites = false
	_ = f.fs.unmap(f.writer.Swap(nil))
	f.setHigh()
}

func (f *diskFile) Window(off int64, n int, buf *[]byte) ([]byte, error) {
	end := off + int64(n)
	if size := f.size.Load(); off < 0 || n < 0 || end < off || end > size && (f.write || end > f.grown()) {
		return nil, errBeyond(f.name, off, n, f.size.Load())
	}
	m := f.reader.Load()
	if m == nil && !f.noReadMap.Load() {
		m = f.mapReader()
	}
	if m != nil && end <= int64(len(m.data)) {
		return m.data[off:end:end], nil
	}
	return readWindow(f.osf, f.name, off, n, buf)
}

// mapReader makes the read-only mapping, once. It spans what the file may grow to, so that it never has to move.
func (f *diskFile) mapReader() *mapping {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.reader.Load(); m != nil || f.noReadMap.Load() {
		return m
	}
	m := f.fs.mapFile(f, max(f.limit, f.size.Load()), mmap.RDONLY)
	if m == nil {
		f.noReadMap.Store(true)
		return nil
	}
	f.reader.Store(m)
	return m
}

func (f *diskFile) Fault(addr uintptr) (off int64, ok bool) {
	if off, ok = f.writer.Load().offset(addr); ok {
		return off, true
	}
	return f.reader.Load().offset(addr)
}
