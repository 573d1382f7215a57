package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
)

// noSpaceError gives an error that says "full" in its own ground's words the identity ErrNoSpace.
type noSpaceError struct{ err error }

func (e *noSpaceError) Error() string   { return e.err.Error() }
func (e *noSpaceError) Unwrap() []error { return []error{e.err, ErrNoSpace} }

// errNoSpace is the error of the grounds that have no kernel to ask. It matches ENOSPC too: pebble looks for that.
func errNoSpace(op, name string) error {
	return &noSpaceError{&fs.PathError{Op: op, Path: name, Err: syscall.ENOSPC}}
}

// IsNoSpace reports whether err means that the disk, the quota or the file size limit is exhausted, whoever returned it: an error of pebble's view of a file
// system is as the kernel gave it.
func IsNoSpace(err error) bool { return errors.Is(err, ErrNoSpace) || isNoSpace(err) }

// IsTooManyOpen reports whether err means that the process, or the machine, has as many files open as it may.
func IsTooManyOpen(err error) bool { return isTooManyOpen(err) }

// Unlimited is the size that Free says where nothing limits: enough for every rule, and small enough to calculate with.
const Unlimited = 1 << 50

// errReadOnly is what a file opened by OpenRead says to its would-be writer.
func errReadOnly(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("opened for reading: %w", fs.ErrPermission)}
}

func errBeyond(name string, off int64, n int, size int64) error {
	return fmt.Errorf("%s: %d bytes at %d reach beyond the size %d: %w", name, n, off, size, io.ErrUnexpectedEOF)
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// readWindow is Window by copying: n bytes of r at off in *buf, which is replaced if it is too small.
func readWindow(r io.ReaderAt, name string, off int64, n int, buf *[]byte) ([]byte, error) {
	if cap(*buf) < n {
		*buf = make([]byte, n)
	}
	p := (*buf)[:n]
	if got, err := r.ReadAt(p, off); got < n {
		if err == io.EOF {
			return nil, errBeyond(name, off, n, off+int64(got))
		}
		return nil, err
	}
	return p, nil
}
