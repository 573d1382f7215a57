package meta

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// work writes keys so long that the store's log is changed and its tables are flushed now and then, and keeps what was acknowledged.
type work struct {
	s     *Store
	acked map[string]int64
	maybe map[string]int64 // the outcome is unknown
	next  int64
}

func newWork(s *Store) *work {
	return &work{s: s, acked: map[string]int64{}, maybe: map[string]int64{}}
}

// step writes one key and returns its error.
func (w *work) step() error {
	w.next++
	n := Name{ProducerID: w.next, Epoch: int16(w.next % 7)}
	name := fmt.Sprintf("%03d%s", w.next%17, strings.Repeat("n", 2<<10))
	err := w.s.SetName(name, n)
	switch {
	case err == nil:
		w.acked[name] = w.next
		delete(w.maybe, name)
	case errors.Is(err, kafka.ErrOutcomeUnknown):
		w.maybe[name] = w.next
	}
	return err
}

// verify holds the store against what was acknowledged.
func (w *work) verify() error {
	for name, want := range w.acked {
		n, ok, err := w.s.Name(name)
		if err != nil {
			return err
		}
		if !ok || n.ProducerID != want && n.ProducerID != w.maybe[name] {
			return fmt.Errorf("name %.3s: %+v %v, acknowledged is %d, possible %d", name, n, ok, want, w.maybe[name])
		}
		w.acked[name] = n.ProducerID
		delete(w.maybe, name)
	}
	return nil
}

// A storage error at any operation of the store, once or for ever: no panic, no hang, a typed error, nothing acknowledged lost, and the same store goes on
// when the disk works again. (RELIABILITY fact 7, F4.)
func TestFailureAtEveryOperation(t *testing.T) {
	defer func(size uint64) { memTableSize = size }(memTableSize)
	memTableSize = 64 << 10 // pebble's least is about that
	const steps = 120
	sim := vfs.NewSim(11)
	count := 0
	sim.OnOp(func(vfs.Op) { count++ })
	s := open(t, sim)
	w := newWork(s)
	for range steps {
		check(t, w.step())
	}
	check(t, s.Close())
	t.Logf("%d operations", count)
	stride := 1
	if testing.Short() {
		stride = 5
	}
	for _, reason := range []error{syscall.EIO, syscall.ENOSPC} {
		for _, forever := range []bool{false, true} {
			for at := 1; at <= count; at += stride {
				if err := failAt(at, forever, reason, steps); err != nil {
					t.Errorf("operation %d, for ever %v, %v: %v", at, forever, reason, err)
				}
			}
		}
	}
}

func failAt(at int, forever bool, reason error, steps int) (err error) {
	sim := vfs.NewSim(11)
	trouble := 0
	o := Options{FS: sim, Dir: dir, Create: true, Trouble: func() { trouble++ }}
	n := 0
	var hit vfs.Op
	sim.Inject(func(op vfs.Op) error {
		switch op.Kind {
		case vfs.OpRead, vfs.OpWindow:
			return nil
		}
		n++
		if n == at || forever && n > at {
			if n == at {
				hit = op
			}
			return reason
		}
		return nil
	})
	defer func() {
		if err != nil {
			err = fmt.Errorf("%v: %w", hit, err)
		}
	}()
	s, err := Open(o)
	if err != nil {
		if !errors.Is(err, kafka.ErrMetaFailed) && !errors.Is(err, reason) {
			return err
		}
		sim.Inject(nil)
		if s, err = Open(o); err != nil {
			return fmt.Errorf("open after healing: %w", err)
		}
		return s.Close()
	}
	w := newWork(s)
	var failed error
	for range steps {
		if err := w.step(); err != nil {
			if !errors.Is(err, kafka.ErrMetaFailed) {
				return err
			}
			failed = err
			// The disk works again.
			if forever && w.next%3 == 0 {
				sim.Inject(nil)
			}
			_ = s.Heal()
		}
	}
	if failed != nil && trouble == 0 {
		return errors.New("nobody was told")
	}
	sim.Inject(nil)
	if err := s.Heal(); err != nil {
		return fmt.Errorf("heal: %w", err)
	}
	if err := w.verify(); err != nil {
		return fmt.Errorf("healed: %w", err)
	}
	if err := w.step(); err != nil {
		return fmt.Errorf("healed: %w", err)
	}
	_ = s.Close()
	if s, err = Open(Options{FS: sim, Dir: dir}); err != nil {
		return fmt.Errorf("reopen: %w", err)
	}
	w.s = s
	if err := w.verify(); err != nil {
		return fmt.Errorf("reopened: %w", err)
	}
	return s.Close()
}

// F2: two operations that meet a full disk at the same moment both get of what was held back.
func TestTwoMeetAFullDisk(t *testing.T) {
	sim := vfs.NewSim(13)
	sim.SetFree(1 << 20)
	b := ballast{fs: sim, name: "/BALLAST"}
	check(t, b.fill())
	g := &guard{FS: sim.Pebble(), full: func() { b.release() }, failed: func(error) {}}
	var met, done sync.WaitGroup
	met.Add(2)
	for range 2 {
		done.Go(func() {
			tries := 0
			_ = g.change(func() error {
				if tries++; tries > 1 {
					return nil
				}
				met.Done()
				met.Wait()
				return syscall.ENOSPC
			})
		})
	}
	done.Wait()
	check(t, g.err())
}

// F2: space that the last process held back serves the next one when the disk is full as it opens.
func TestBallastOfTheLastProcess(t *testing.T) {
	sim := vfs.NewSim(14)
	sim.SetFree(64 << 20)
	s := open(t, sim)
	check(t, s.SetName("n", Name{1, 1}))
	check(t, s.Close())
	sim.SetFree(0)
	s = open(t, sim)
	check(t, s.SetName("n", Name{1, 2}))
	check(t, s.Close())
}
