package main

import (
	"errors"
	"os"
	"sync/atomic"
)

// How far ahead of the writer pages are populated, and how often it tells where it is.
const (
	aheadWindow = 64 << 20
	aheadStep   = 1 << 20
)

// A space is room for a limit's log: a mapped file whose blocks are reserved and whose pages a helper goroutine populates ahead of the writer,
// or what comes closest on this system; how says which.
type space struct {
	bytes []byte
	how   string

	next  int           // where the writer tells the helper
	at    atomic.Int64  // where the writer was last
	kick  chan struct{} // nil: no helper
	ended chan struct{} // closed when the helper has ended
	unmap func() error
}

// reached tells the helper how far the writer has come.
func (s *space) reached(at int) {
	if at >= s.next {
		s.tell(at)
	}
}

func (s *space) tell(at int) {
	s.next = at + aheadStep
	s.at.Store(int64(at))
	if s.kick == nil {
		return
	}
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// help is the helper: it populates up to aheadWindow ahead of the writer until kick is closed, or a page cannot be had.
func (s *space) help(populate func([]byte) error, done int) {
	defer close(s.ended)
	for range s.kick {
		for {
			at := int(s.at.Load())
			done = max(done, at&^(aheadStep-1)) // a writer who has overtaken it has had the faults before
			to := min(done+aheadStep, len(s.bytes))
			if done >= to || done >= at+aheadWindow {
				break
			}
			if populate(s.bytes[done:to]) != nil {
				return // the writer takes the faults, or the one signal that tells
			}
			done = to
		}
	}
}

// close ends the helper and gives the room back; the file stays.
func (s *space) close() error {
	if s.kick != nil {
		close(s.kick)
		<-s.ended
	}
	return s.unmap()
}

// openReserved makes a file with blocks for size bytes reserved, as the log does for its segments, and says how far that went.
func openReserved(name string, size int) (f *os.File, how string, err error) {
	if f, err = os.Create(name); err != nil {
		return nil, "", err
	}
	how = "growing file"
	reserved, err := reserve(f, size)
	if reserved {
		how = "blocks reserved"
		err = f.Sync()
	}
	if err != nil {
		return nil, "", errors.Join(err, f.Close())
	}
	return f, how, nil
}
