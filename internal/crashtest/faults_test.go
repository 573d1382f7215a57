package crashtest

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"syscall"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// A faultMode says which operations fail, from one of them on.
type faultMode uint8

const (
	faultOnce  faultMode = iota // that one
	faultEver                   // it and all that follow
	faultKind                   // it and those of its kind that follow
	faultTorn                   // that one, a write, after some of its bytes
	faultFull                   // none, but there is no space left
	faultModes                  // how many modes there are
)

func (m faultMode) String() string {
	return [...]string{"once", "for ever", "its kind for ever", "torn", "full disk"}[m]
}

// A fault makes operations of a disk fail. It may be asked by several goroutines.
type fault struct {
	At   int // the first one, counted from 1; 0: none
	Mode faultMode
	Err  syscall.Errno
	Free int64  // of faultFull: space that is left
	Path string // only operations on names with this in them count; "": all

	disk *vfs.Sim
	mu   struct {
		sync.Mutex
		n        int
		kind     vfs.OpKind
		healed   bool
		first    string // operation that failed
		lostSync bool   // a sync of a segment has failed
	}
}

func (f *fault) String() string {
	return fmt.Sprintf("operation %d, %s: %s, %v", f.At, f.mu.first, f.Mode, f.Err)
}

// install makes the operations of disk fail.
func (f *fault) install(disk *vfs.Sim) {
	f.disk = disk
	disk.Inject(f.rule)
}

// heal ends it.
func (f *fault) heal() {
	f.mu.Lock()
	f.mu.healed = true
	f.mu.Unlock()
	f.disk.Inject(nil)
	f.disk.SetFree(-1)
}

// active reports whether operations may fail now.
func (f *fault) active() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.first != "" && !f.mu.healed
}

// hit reports whether something has failed, or was asked to.
func (f *fault) hit() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.first != ""
}

// syncLost reports whether a sync of a segment has failed since the last call.
func (f *fault) syncLost() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	lost := f.mu.lostSync
	f.mu.lostSync = false
	return lost
}

// matches reports whether operations on a name count.
func (f *fault) matches(name string) bool { return strings.Contains(name, f.Path) }

// rule is called before every operation.
func (f *fault) rule(op vfs.Op) error {
	if !f.matches(op.Name) {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.n++
	if f.At == 0 || f.mu.healed || f.mu.n < f.At {
		return nil
	}
	if f.mu.n == f.At {
		f.mu.first, f.mu.kind = op.String(), op.Kind
	}
	fails := f.mu.n == f.At
	switch f.Mode {
	case faultEver:
		fails = true
	case faultKind:
		fails = op.Kind == f.mu.kind
	case faultFull:
		if fails {
			f.disk.SetFree(f.Free)
		}
		return nil
	}
	if !fails {
		return nil
	}
	err := f.cause(op)
	if f.Mode == faultTorn && op.Kind == vfs.OpWrite && op.Len > 0 {
		return vfs.Torn{N: op.N % op.Len, Err: err}
	}
	if op.Kind == vfs.OpSync && isSegment(op.Name) {
		f.mu.lostSync = true
	}
	return err
}

// cause is the error as a file system would return it.
func (f *fault) cause(op vfs.Op) error {
	err := error(&fs.PathError{Op: op.Kind.String(), Path: op.Name, Err: f.Err})
	if f.Err == syscall.ENOSPC {
		err = fmt.Errorf("%w: %w", err, vfs.ErrNoSpace)
	}
	return err
}

// caused reports whether an error comes from the fault.
func (f *fault) caused(err error) bool {
	if f.Mode == faultFull {
		return errors.Is(err, vfs.ErrNoSpace) || errors.Is(err, kafka.ErrDiskFull)
	}
	return errors.Is(err, f.Err)
}

// count is the number of operations so far.
func (f *fault) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.n
}

func isSegment(name string) bool {
	return strings.HasSuffix(name, ".log") && !strings.Contains(name, "/meta/")
}
