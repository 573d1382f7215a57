//go:build invariants && !windows

package vfs

import (
	"errors"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keptRanges is how many released ranges stay inaccessible. Each may be one of the kernel's mappings.
const keptRanges = 256

// kept has the last released ranges of all disks: the limit on mappings is one of the process.
var kept struct {
	sync.Mutex
	ring [keptRanges]*mapping
	next int
}

// release replaces the mapping by inaccessible memory and keeps the range for some time, so that a late touch faults
// where it happens instead of reading what was mapped there next. The file itself is let go.
func release(m *mapping) error {
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(m.data)), uintptr(len(m.data)), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED)
	if err != nil {
		return errors.Join(err, m.data.Unmap())
	}
	kept.Lock()
	defer kept.Unlock()
	oldest := kept.ring[kept.next]
	kept.ring[kept.next] = m
	kept.next = (kept.next + 1) % keptRanges
	if oldest == nil {
		return nil
	}
	return oldest.data.Unmap()
}
