package vfs

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

const (
	maxMapSize = int64(^uint(0) >> 1)
)

// mayMap: a mapped file on Windows can be neither truncated nor renamed nor removed, so nothing is mapped.
func mayMap(*os.File) (read, write bool) { return false, false }

// openFile differs from os.OpenFile in that an open file may be renamed and removed, as everywhere else.
func openFile(name string, flag int) (*os.File, error) {
	path, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	access, mode := uint32(windows.GENERIC_READ), uint32(windows.OPEN_EXISTING)
	if flag&os.O_RDWR != 0 {
		access |= windows.GENERIC_WRITE
	}
	switch {
	case flag&os.O_EXCL != 0:
		mode = windows.CREATE_NEW
	case flag&os.O_CREATE != 0:
		mode = windows.OPEN_ALWAYS
	}
	share := uint32(windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE)
	h, err := windows.CreateFile(path, access, share, nil, mode, windows.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return os.NewFile(uintptr(h), name), nil
}

// allocate: NTFS gives a file that is not sparse its clusters when the size is set.
func allocate(f *os.File, _, to int64) error {
	st, err := f.Stat()
	if err != nil || to <= st.Size() {
		return err
	}
	return f.Truncate(to)
}

// maxOpen: Windows has no limit short of memory, and this many are more than enough.
func maxOpen() int { return 1 << 14 }

func isNoSpace(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) ||
		errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED) || errors.Is(err, syscall.ENOSPC)
}

func isTooManyOpen(err error) bool {
	return errors.Is(err, windows.ERROR_TOO_MANY_OPEN_FILES) || errors.Is(err, syscall.EMFILE)
}

// syncDir: NTFS journals its names, and a directory cannot be flushed.
func syncDir(name string) error {
	_, err := os.Stat(name)
	return err
}
