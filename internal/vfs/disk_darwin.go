package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

func mayMap(*os.File) (read, write bool) { return is64, false }

// allocate asks for one piece, then for any, and sets the size: F_PREALLOCATE does not.
func allocate(f *os.File, from, to int64) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if to <= st.Size() {
		return nil
	}
	store := unix.Fstore_t{Flags: unix.F_ALLOCATECONTIG, Posmode: unix.F_PEOFPOSMODE, Length: to - st.Size()}
	if unix.FcntlFstore(f.Fd(), unix.F_PREALLOCATE, &store) != nil {
		store.Flags = unix.F_ALLOCATEALL
		if err := unix.FcntlFstore(f.Fd(), unix.F_PREALLOCATE, &store); err == unix.ENOSPC {
			return err // any other error: the file system cannot, and WriteAt will say when it is full
		}
	}
	return f.Truncate(to)
}
