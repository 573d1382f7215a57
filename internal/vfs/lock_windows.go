package vfs

import (
	"io"
	"os"

	"golang.org/x/sys/windows"
)

// lockedByte lies far behind the process id, which others must be able to read while the lock is held.
const lockedByte = 1 << 30

func (d *disk) Lock(name string) (io.Closer, error) {
	f, err := openFile(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, spaceError(err)
	}
	const how = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err = windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, &windows.Overlapped{Offset: lockedByte})
	switch err {
	case nil:
		writePID(f)
		return f, nil
	case windows.ERROR_LOCK_VIOLATION, windows.ERROR_IO_PENDING:
		err = &LockedError{Name: name, PID: readPID(f)}
	default:
		err = pathError("lock", name, err)
	}
	f.Close()
	return nil, err
}
