//go:build dragonfly || freebsd || netbsd || openbsd

package vfs

import (
	"errors"
	"os"
	"runtime"
)

// mayMap leaves out OpenBSD, whose mappings and page cache are two things.
func mayMap(*os.File) (read, write bool) { return is64 && runtime.GOOS != "openbsd", false }

func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }
