package rlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// A4: readers that spin on the log's end while batches are appended, segments rolled and waited for see whole batches in order, and nothing
// behind the end.
func TestReadersFollowTheEnd(t *testing.T) {
	onAll(t, func(t *testing.T, e *env) {
		e.opts = func(o *Options) { o.SegmentBytes = 32 << 10; o.IndexInterval = 500 }
		l := e.open()
		n := 6000
		if testing.Short() {
			n = 1500
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				if err := follow(l, n); err != nil {
					t.Error(err)
				}
			}()
		}
		// Others look records up at random, or wait for the disk.
		var stop atomic.Bool
		for k := range 2 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := k; !stop.Load(); i += 7 {
					end := l.EndOffset()
					if end == 0 {
						continue
					}
					at := int64(i) % end
					recs, err := readOne(l, at)
					if err != nil || !recs[0].equal(val(int(at), int(at)%200)) {
						t.Errorf("offset %d: %v", at, err)
						return
					}
					if k == 0 {
						if err := l.WaitDurable(context.Background(), end); err != nil || l.DurableEnd() < end {
							t.Errorf("wait for %d: durable end %d, %v", end, l.DurableEnd(), err)
							return
						}
					}
				}
			}()
		}
		for i := range n {
			mustAppend(t, l, plain(val(i, i%200)))
		}
		stop.Store(true)
		wg.Wait()
		e.close(l)
	})
}

func follow(l *Log, n int) error {
	c := l.NewCursor(0)
	defer c.Close()
	next := int64(0)
	for next < int64(n) {
		b, err := c.Next(l.EndOffset())
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		recs, err := copyRecords(c, b, next, nil)
		if err != nil {
			return err
		}
		for _, r := range recs {
			if !r.equal(val(int(next), int(next)%200)) {
				return fmt.Errorf("offset %d: another record", next)
			}
			next++
		}
		if end := l.EndOffset(); next > end {
			return fmt.Errorf("read up to %d, the log ends at %d", next, end)
		}
	}
	return nil
}

func readOne(l *Log, at int64) (recs []record, err error) {
	c := l.NewCursor(at)
	defer c.Close()
	b, err := c.Next(at + 1)
	if err != nil {
		return nil, err
	}
	return copyRecords(c, b, at, nil)
}

// simEnv is a log on a simulated disk.
func simEnv(t testing.TB) (*env, *vfs.Sim) {
	s := vfs.NewSim(1)
	if err := s.Mkdir("/d"); err != nil {
		t.Fatal(err)
	}
	return newEnv(t, s, "/d"), s
}

// Everybody who comes while a sync runs is covered by the next one: two syncs, however many they are.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMemory()
		defer fsys.Close()
		if err := fsys.Mkdir("/d"); err != nil {
			t.Fatal(err)
		}
		e := newEnv(t, fsys, "/d")
		slots := make(chan struct{}, 1)
		e.opts = func(o *Options) { o.Syncs = slots }
		l := e.open()
		defer l.Abandon()
		syncs := 0
		l.o.Advanced = func() { syncs++ }
		slots <- struct{}{} // the disk is busy
		var wg sync.WaitGroup
		for i := range 20 {
			a := mustAppend(t, l, plain(val(i, 10)))
			wg.Add(1)
			go func() {
				defer wg.Done()
				ctx, cancel := context.WithCancel(t.Context()) // so that nobody leads himself
				defer cancel()
				if err := l.WaitDurable(ctx, a.Last+1); err != nil {
					t.Error(err)
				}
			}()
			if i == 0 {
				synctest.Wait() // the first round has begun: it covers the first record only
			}
		}
		synctest.Wait()
		if syncs != 0 || l.DurableEnd() != 0 {
			t.Fatalf("%d syncs, durable end %d, and the disk is busy", syncs, l.DurableEnd())
		}
		<-slots
		wg.Wait()
		if syncs != 2 || l.DurableEnd() != 20 {
			t.Fatalf("%d syncs for two rounds, durable end %d", syncs, l.DurableEnd())
		}
	})
}

// F4: a sync that fails finishes the log: no acknowledgement, no second try, no roll behind it, and the durable end stays.
func TestFailedSync(t *testing.T) {
	for _, forever := range []bool{false, true} {
		t.Run(fmt.Sprint("forever=", forever), func(t *testing.T) {
			e, sim := simEnv(t)
			var failed int
			e.opts = func(o *Options) {
				o.Events.Failed = func(kafka.TopicPartition, error) { failed++ }
			}
			l := e.open()
			mustAppend(t, l, plain(val(0, 10)))
			wait(t, l)
			mustAppend(t, l, plain(val(1, 9000)))
			disk := errors.New("input/output error")
			done := false
			sim.Inject(func(op vfs.Op) error {
				if op.Kind == vfs.OpSync && (forever || !done) {
					done = true
					return disk
				}
				return nil
			})
			err := l.WaitDurable(context.Background(), 2)
			if !errors.Is(err, kafka.ErrPartitionFailed) || !errors.Is(err, disk) {
				t.Fatal(err)
			}
			if l.DurableEnd() != 1 {
				t.Fatalf("durable end %d", l.DurableEnd())
			}
			for range 2 {
				if _, err := l.Append(plain(val(2, 10))); !errors.Is(err, kafka.ErrPartitionFailed) || errors.Is(err, kafka.ErrOutcomeUnknown) {
					t.Fatalf("append: %v", err)
				}
				if err := l.WaitDurable(context.Background(), 2); !errors.Is(err, kafka.ErrPartitionFailed) {
					t.Fatalf("wait again: %v", err)
				}
			}
			if _, err := l.Close(); !errors.Is(err, kafka.ErrPartitionFailed) {
				t.Fatalf("close: %v", err)
			}
			if failed != 1 {
				t.Fatalf("%d events", failed)
			}
			// The page cache shows what the disk does not have: recovery must not build on it.
			sim.Inject(nil)
			e.epoch++
			l = e.open()
			wantRecords(t, l, []record{val(0, 10)})
			mustAppend(t, l, plain(val(2, 10)))
			wait(t, l)
			l.Abandon()
			e.fs = sim.Cut(vfs.Cut{Keep: 0})
			e.epoch++
			l = e.open()
			defer l.Abandon()
			wantRecords(t, l, []record{val(0, 10), val(2, 10)})
		})
	}
}

// F2: an append that finds the disk full has no effect, and the first one after space has come back succeeds by itself.
func TestDiskFull(t *testing.T) {
	e, sim := simEnv(t)
	e.opts = func(o *Options) { o.SegmentBytes = 1 << 20 }
	l := e.open()
	defer l.Abandon()
	var want []record
	sim.SetFree(150 << 10)
	full := 0
	for i := 0; full < 3; i++ {
		r := val(i, 1000)
		_, err := l.Append(plain(r))
		switch {
		case err == nil:
			want = append(want, r)
		case errors.Is(err, kafka.ErrDiskFull) && kafka.IsRetriable(err) && !errors.Is(err, kafka.ErrOutcomeUnknown):
			full++
			wantRecords(t, l, want)
		default:
			t.Fatal(err)
		}
		if i > 1000 {
			t.Fatal("the disk is never full")
		}
	}
	if len(want) < 100 {
		t.Fatalf("full after %d KiB of 150", len(want))
	}
	wait(t, l)
	sim.SetFree(1 << 20)
	mustAppend(t, l, plain(val(7, 1000)))
	wantRecords(t, l, append(want, val(7, 1000)))
}

// F9: a batch larger than a segment gets one of its own.
func TestBatchLargerThanASegment(t *testing.T) {
	onAll(t, func(t *testing.T, e *env) {
		l := e.open()
		var want []record
		for i, size := range []int{10, 200 << 10, 10, 1 << 20, 3 << 20, 0} {
			mustAppend(t, l, plain(val(i, size)))
			want = append(want, val(i, size))
		}
		wantRecords(t, l, want)
		l.Abandon()
		e.epoch++
		l = e.open()
		wantRecords(t, l, want)
		e.close(l)
		l = e.open()
		wantRecords(t, l, want)
		e.close(l)
	})
}

// F4: sealing a segment does not sync beside a leader. The kernel tells one of two such syncs of an error; the other would make durable what is not.
func TestSealWaitsForTheSyncThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMemory()
		defer mem.Close()
		if err := mem.Mkdir("/d"); err != nil {
			t.Fatal(err)
		}
		fsys := &onceBadFS{FS: mem, begun: make(chan struct{}), fail: make(chan struct{})}
		e := newEnv(t, fsys, "/d")
		e.opts = func(o *Options) { o.SegmentBytes = 1 << 10 }
		l := e.open()
		defer l.Abandon()
		mustAppend(t, l, plain(val(0, 700)))
		led := make(chan error)
		go func() { led <- l.WaitDurable(context.Background(), 1) }()
		<-fsys.begun
		rolled := make(chan error)
		go func() {
			_, err := l.Append(plain(val(1, 700))) // seals the first segment
			rolled <- err
		}()
		synctest.Wait()
		close(fsys.fail)
		if err := <-led; !errors.Is(err, kafka.ErrPartitionFailed) {
			t.Fatalf("the leader: %v", err)
		}
		if err := <-rolled; !errors.Is(err, kafka.ErrPartitionFailed) {
			t.Fatalf("the append that rolls: %v", err)
		}
		if l.DurableEnd() != 0 || e.cp.recoveryPoint != 0 {
			t.Fatalf("durable end %d, recovery point %d", l.DurableEnd(), e.cp.recoveryPoint)
		}
	})
}

// onceBadFS fails the first sync of a segment, when it is told to.
type onceBadFS struct {
	vfs.FS
	begun, fail chan struct{}
	calls       atomic.Int32
}

type onceBadFile struct {
	vfs.File
	fs *onceBadFS
}

func (f *onceBadFS) Create(name string, limit int64) (vfs.File, error) {
	x, err := f.FS.Create(name, limit)
	if err != nil || limit == 0 {
		return x, err
	}
	return &onceBadFile{x, f}, nil
}

func (f *onceBadFile) Sync() error {
	if f.fs.calls.Add(1) > 1 {
		return f.File.Sync()
	}
	close(f.fs.begun)
	<-f.fs.fail
	return errors.New("input/output error")
}
