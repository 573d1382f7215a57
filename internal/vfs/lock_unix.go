//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package vfs

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Lock uses flock, which belongs to the open file and so also conflicts within one process.
func (d *disk) Lock(name string) (io.Closer, error) {
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, spaceError(err)
		}
		ok, err := lockFile(f, name)
		if ok {
			return f, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
}

// lockFile says false and no error if the name has come to lead to another file, which is to be tried instead:
// somebody removed the file between its opening and its locking, and a lock on it would exclude nobody.
func lockFile(f *os.File, name string) (bool, error) {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if err == unix.EWOULDBLOCK {
			return false, &LockedError{Name: name, PID: readPID(f)}
		}
		if err != unix.EINTR {
			return false, pathError("lock", name, err)
		}
	}
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(name)
	if os.IsNotExist(err) || err == nil && !os.SameFile(mine, there) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	writePID(f)
	return true, nil
}
