package vfs

import (
	"sync/atomic"
	"syscall"
)

// openFiles counts the open files of a ground that has no kernel to do it.
type openFiles struct{ limit, open atomic.Int64 }

// SetMaxOpen limits the files that may be open at a time: opening more fails with EMFILE. 0 lifts the limit. Locks and
// open directories do not count.
func (o *openFiles) SetMaxOpen(n int) { o.limit.Store(int64(n)) }

// MaxOpen is what SetMaxOpen has set.
func (o *openFiles) MaxOpen() int { return int(o.limit.Load()) }

// mayOpen is asked under the lock of the ground, before a file is opened or made.
func (o *openFiles) mayOpen(op, name string) error {
	if n := o.limit.Load(); n > 0 && o.open.Load() >= n {
		return pathError(op, name, syscall.EMFILE)
	}
	return nil
}
