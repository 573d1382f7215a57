package meta

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"

	"github.com/runnelmq/runnel/internal/vfs"
)

// ballastMax is the greatest size of the ballast; on a small file system it is a sixteenth of that.
const ballastMax = 8 << 20

// ballast is a file that holds space back, to be given to the store when the disk is full: between the moment that appends stop and the moment that there is space again, offsets
// are committed and topics deleted.
type ballast struct {
	fs   vfs.FS
	name string
	mu   struct {
		sync.Mutex
		held bool
	}
}

// fill takes the space, if it is not held; an error means that it could not be had. A file system without an end needs no ballast.
func (b *ballast) fill() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.held {
		return nil
	}
	free, total, err := b.fs.Free(path.Dir(b.name))
	if err != nil {
		return err
	}
	if total >= vfs.Unlimited {
		return nil
	}
	size := min(ballastMax, total/16)
	have := int64(0)
	if info, err := b.fs.Stat(b.name); err == nil {
		have = info.Size // the last process has left it
	}
	if have < size && free+have < 2*size {
		// To try would take from the store, for a moment, what is left.
		return fmt.Errorf("%w: %d bytes are free, %d are to be held back", vfs.ErrNoSpace, free, size)
	}
	f, err := b.fs.Create(b.name, 0)
	if errors.Is(err, fs.ErrExist) {
		f, err = b.fs.Open(b.name, 0)
	}
	if err != nil {
		return err
	}
	err = f.Reserve(size)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, b.fs.Remove(b.name))
	}
	b.mu.held = true
	return nil
}

// release gives the space back and reports whether there was any.
func (b *ballast) release() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.mu.held {
		return false
	}
	b.mu.held = false
	return b.fs.Remove(b.name) == nil
}
