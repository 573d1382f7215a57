//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const (
	is64       = ^uint(0)>>63 == 1
	maxMapSize = int64(^uint(0) >> 1)
)

func openFile(name string, flag int) (*os.File, error) { return os.OpenFile(name, flag, 0o644) }

// maxOpen is the soft limit, which Go has raised to the hard one when the process began.
func maxOpen() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0
	}
	return openLimit(r)
}

func openLimit(r unix.Rlimit) int { return int(min(uint64(r.Cur), maxOpenCap)) }

func isNoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG)
}

func isTooManyOpen(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

func syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
