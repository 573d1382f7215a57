//go:build invariants && !windows

package vfs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// release replaces the mapping by inaccessible memory and keeps the range, so that a late touch faults where it happens
// instead of reading what was mapped there next. The file itself is let go; neighbouring ranges merge in the kernel.
func release(m *mapping) error {
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(m.data)), uintptr(len(m.data)), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED)
	return err
}
