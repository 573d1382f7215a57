package main

import (
	"errors"
	"os"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"
)

// newSpace makes the file and maps it. The first window is populated before the clock runs, as it would be in the middle of a log.
func newSpace(name string, size int) (_ *space, err error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	s := &space{how: "mapped file, blocks reserved"}
	reserved, err := reserve(f, size)
	if err != nil {
		return nil, err
	}
	if !reserved {
		s.how = "mapped file, sparse"
		if err := f.Truncate(int64(size)); err != nil {
			return nil, err
		}
	}
	m, err := mmap.MapRegion(f, size, mmap.RDWR, 0, 0)
	if err != nil {
		return nil, err
	}
	s.bytes, s.unmap = m, m.Unmap
	first := min(size, aheadWindow)
	if populate(s.bytes[:first]) != nil {
		s.how += ", faults inline"
		return s, nil
	}
	s.how += ", pages ahead"
	s.kick, s.ended = make(chan struct{}, 1), make(chan struct{})
	go s.help(populate, first)
	return s, nil
}

func populate(b []byte) error { return unix.Madvise(b, unix.MADV_POPULATE_WRITE) }

// reserve allocates blocks for size bytes; false: the file system cannot.
func reserve(f *os.File, size int) (bool, error) {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, int64(size))
		if err == unix.EINTR {
			continue
		}
		if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
			return false, nil
		}
		return err == nil, os.NewSyscallError("fallocate", err)
	}
}

const syncName = "fdatasync"

func datasync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// fileSystem names the file system of a directory.
func fileSystem(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return ""
	}
	switch int64(st.Type) {
	case unix.EXT4_SUPER_MAGIC:
		return "ext2/3/4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlay"
	}
	return ""
}

// mapFile returns the bytes of a file, and what lets go of them.
func mapFile(name string) ([]byte, func() error, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	m, err := mmap.Map(f, mmap.RDONLY, 0)
	if err != nil {
		return nil, nil, err
	}
	return m, m.Unmap, nil
}
