package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// lockTries bounds how long somebody may be in the way who is not another Lock: longer than any call of Locked takes,
// and a fraction of a second if it is a program that keeps a shared lock.
const lockTries = 10_000

func (d *disk) Lock(name string) (io.Closer, error) {
	for range lockTries {
		f, err := openFile(name, os.O_RDWR|os.O_CREATE)
		if err != nil {
			return nil, spaceError(err)
		}
		ok, err := lockFile(f, name)
		if ok {
			return diskLock{f}, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
		runtime.Gosched()
	}
	return nil, &LockedError{Name: name}
}

// lockFile says false and no error if the file is to be opened and tried once more. Either the name has come to lead to
// another file: somebody removed this one between its opening and its locking, and a lock on it would exclude nobody.
// Or the lock was refused and nobody has it: it was a call of Locked that was in the way.
func lockFile(f *os.File, name string) (bool, error) {
	ok, err := flock(f, true)
	if err != nil {
		return false, err
	}
	if !ok {
		if asked, err := flock(f, false); asked || err != nil {
			return false, err
		}
		return false, &LockedError{Name: name, PID: readPID(f)}
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

// diskLock is a lock that is held.
type diskLock struct{ f *os.File }

// Close gives the lock back before the file: a process that is being started at this moment has the file too, until it
// runs its program.
func (l diskLock) Close() error {
	err := funlock(l.f)
	return errors.Join(err, l.f.Close())
}

// Locked asks for a shared lock, which is refused while somebody has the exclusive one.
func (d *disk) Locked(name string) (held bool, pid int, err error) {
	f, err := openFile(name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return false, 0, nil
	}
	if err != nil {
		return false, 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err == nil && st.IsDir() {
		err = pathError("lock", name, syscall.EISDIR)
	}
	if err != nil {
		return false, 0, err
	}
	free, err := flock(f, false)
	switch {
	case err != nil:
		return false, 0, err
	case free:
		return false, 0, funlock(f)
	}
	return true, readPID(f), nil
}

// writePID leaves word of who holds the lock. On a full disk or a failing one the lock holds without it.
func writePID(f *os.File) {
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
}

// readPID returns 0 if the holder has not got round to saying who it is.
func readPID(f *os.File) int {
	var b [32]byte
	n, _ := f.ReadAt(b[:], 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return 0
	}
	return pid
}
