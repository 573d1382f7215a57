//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// flock says false and no error if somebody has a lock that excludes the one asked for. It belongs to the open file and
// so also conflicts within one process.
func flock(f *os.File, exclusive bool) (bool, error) {
	how := unix.LOCK_SH | unix.LOCK_NB
	if exclusive {
		how = unix.LOCK_EX | unix.LOCK_NB
	}
	for {
		switch err := unix.Flock(int(f.Fd()), how); err {
		case nil:
			return true, nil
		case unix.EWOULDBLOCK:
			return false, nil
		case unix.EINTR:
		default:
			return false, pathError("lock", f.Name(), err)
		}
	}
}

func funlock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		return pathError("unlock", f.Name(), err)
	}
	return nil
}
