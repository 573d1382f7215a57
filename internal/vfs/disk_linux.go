package vfs

import (
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const canPopulate = is64

// mayMap says whether f's file system is one whose mappings are wise. A writer needs one where an allocated block stays
// allocated when it is overwritten, which copy-on-write file systems do not promise. Everything that is not known, and
// all that is reached over a network or a FUSE daemon, is left to pread and pwrite.
func mayMap(f *os.File) (read, write bool) {
	if !is64 {
		return false, false
	}
	var st unix.Statfs_t
	for {
		err := unix.Fstatfs(int(f.Fd()), &st)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return false, false
		}
		break
	}
	switch int64(st.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC:
		return true, true
	case unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC:
		return true, false
	}
	return false, false
}

// mapBudget leaves three quarters of the kernel's limit to the rest of the process.
func mapBudget() int64 {
	b, err := os.ReadFile("/proc/sys/vm/max_map_count")
	if err != nil {
		return mapsPerProcess
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return mapsPerProcess
	}
	return min(n/4, mapsPerProcess)
}

func allocate(f *os.File, from, to int64) error {
	return uninterrupted(func() error { return unix.Fallocate(int(f.Fd()), 0, from, to-from) })
}

func datasync(f *os.File) error {
	return uninterrupted(func() error { return unix.Fdatasync(int(f.Fd())) })
}

// dropCache also takes the pages out of the mappings, because the kernel keeps what is mapped. On a shared mapping of
// a file that loses nothing: the next touch brings the page back, from the disk if it is gone from the cache.
func dropCache(f *os.File, off int64, maps ...*mapping) error {
	for _, m := range maps {
		if m != nil {
			if err := unix.Madvise(m.data, unix.MADV_DONTNEED); err != nil {
				return pathError("madvise", f.Name(), err)
			}
		}
	}
	off &^= int64(os.Getpagesize()) - 1 // the kernel keeps a page that is only partly in the range
	err := uninterrupted(func() error { return unix.Fadvise(int(f.Fd()), off, 0, unix.FADV_DONTNEED) })
	if err != nil {
		return pathError("fadvise", f.Name(), err)
	}
	return nil
}

// populate makes the pages of b present and writable. A page that cannot be had is an error here and no signal.
func populate(b []byte) error { return unix.Madvise(b, unix.MADV_POPULATE_WRITE) }

// unpopulate takes the pages of b out of the mapping; what was stored in them stays in the page cache. Failing costs only time.
func unpopulate(b []byte) { _ = unix.Madvise(b, unix.MADV_DONTNEED) }

// isNoPopulate recognises a kernel before 5.14.
func isNoPopulate(err error) bool { return err == syscall.EINVAL }

func uninterrupted(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
