package vfs

import (
	"os"

	"golang.org/x/sys/windows"
)

// lockedByte lies far behind the process id, which others must be able to read while the lock is held.
const lockedByte = 1 << 30

// flock says false and no error if somebody has a lock that excludes the one asked for.
func flock(f *os.File, exclusive bool) (bool, error) {
	how := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if exclusive {
		how |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err := windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, &windows.Overlapped{Offset: lockedByte})
	switch err {
	case nil:
		return true, nil
	case windows.ERROR_LOCK_VIOLATION, windows.ERROR_IO_PENDING:
		return false, nil
	}
	return false, pathError("lock", f.Name(), err)
}

func funlock(f *os.File) error {
	err := windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &windows.Overlapped{Offset: lockedByte})
	if err != nil {
		return pathError("unlock", f.Name(), err)
	}
	return nil
}
