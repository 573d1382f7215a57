package crashtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
	rlog "github.com/runnelmq/runnel/log"
)

var cleanFaults = flag.Int("cleanfaults", 1, "seeds of the logs of whose retention, trimming and compaction every operation fails; CI: 4")

// A10 to A12, F2 to F4: every operation of disk and checkpoints that compaction, trimming or retention asks for fails, once and for ever, with an I/O error and for want of
// space. Nothing that was acknowledged is lost, the error says what it is, and when the log is opened again, everything is as it was or as it should be.
func TestCleaningSurvivesFailingOperations(t *testing.T) {
	start := startSeed(t)
	begin := time.Now()
	runs := 0
	for seed := start; seed < start+uint64(*cleanFaults); seed++ {
		p, err := prepareCleaning(seed)
		if err != nil {
			t.Fatalf("seed %d, nothing fails: %v", seed, err)
		}
		for _, what := range []string{"compact", "trim", "retain", "open"} {
			dry := p.run(what, 0, faultOnce, 0)
			if err := dry.contained(); err != nil {
				t.Fatalf("seed %d, %s, nothing fails: %v", seed, what, err)
			}
			for at := 1; at <= dry.ops; at++ {
				for mode := range faultModes {
					for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
						if mode == faultFull && errno == syscall.EIO {
							continue
						}
						x := p.run(what, at, mode, errno)
						if err := x.contained(); err != nil {
							t.Fatalf("seed %d, %s, %v: %s: %v", seed, what, &x.fault, x.step, err)
						}
						runs++
					}
				}
			}
		}
	}
	t.Logf("%d logs, %d runs in %.1f s", *cleanFaults, runs, time.Since(begin).Seconds())
}

// A cleanPlan is a log that has something to compact, to trim and to retain.
type cleanPlan struct {
	seed  uint64
	shape shape
	disk  *vfs.Sim
	marks marks
	want  logWant
	half  *vfs.Sim // as disk, with a compaction that was stopped in the middle
}

func prepareCleaning(seed uint64) (*cleanPlan, error) {
	r := random(seed, 20)
	p := &cleanPlan{seed: seed, disk: vfs.NewSim(seed)}
	p.shape = shape{SegmentBytes: int64(between(r, 1, 3)) << 10, IndexInterval: 512}
	if err := errors.Join(p.disk.Mkdir(root), p.disk.SyncDir(".")); err != nil {
		return nil, err
	}
	st := &store{}
	l, err := rlog.Open(p.shape.options(p.disk, st, marks{}))
	if err != nil {
		return nil, err
	}
	w := &p.want
	more := func(n int) {
		for i := 0; i < n && err == nil; i++ {
			err = appendTo(l, w, w.next(r, 100, 600), 0)
		}
	}
	more(20)
	if err == nil {
		w.begin(activeBase(p.disk, partitionDir(0)), earliest, 0)
		var done rlog.Compacted
		if done, err = l.Compact(context.Background(), rlog.Compaction{Now: earliest, MapBytes: 1 << 20}); err == nil {
			err = w.ended(done)
		}
	}
	more(12)
	err = errors.Join(err, l.WaitDurable(context.Background(), w.Written))
	w.claim(w.Written)
	w.Passes = w.Passes[:len(w.Passes):len(w.Passes)]
	l.Abandon()
	p.marks = st.now()
	if err != nil {
		return nil, err
	}
	return p, p.stopHalfway(r)
}

// stopHalfway compacts a copy of the log, and ends its process somewhere behind the first rename.
func (p *cleanPlan) stopHalfway(r *rand.Rand) error {
	disk := p.disk.Crash()
	m := p.marks
	m.Epoch++
	l, err := rlog.Open(p.shape.options(disk, &store{Durable: m}, m))
	if err != nil {
		return err
	}
	defer l.Abandon()
	skip := r.IntN(4)
	disk.OnOp(func(op vfs.Op) {
		if op.Kind == vfs.OpRename || skip < 0 {
			skip--
		}
		if p.half == nil && skip < 0 && chance(r, 0.4) {
			p.half = disk.Crash()
		}
	})
	_, err = l.Compact(context.Background(), rlog.Compaction{Now: earliest + 1000, DeleteRetention: time.Hour, MapBytes: 1 << 20})
	disk.OnOp(nil)
	if p.half == nil {
		p.half = disk.Crash()
	}
	return err
}

// A cleanFaultRun does one thing to such a log while an operation fails.
type cleanFaultRun struct {
	*cleanPlan
	what  string
	fault fault
	r     *rand.Rand
	disk  *vfs.Sim
	st    *store
	want  logWant
	log   *rlog.Log
	step  string
	ops   int
}

func (p *cleanPlan) run(what string, at int, mode faultMode, errno syscall.Errno) *cleanFaultRun {
	x := &cleanFaultRun{cleanPlan: p, what: what, r: random(p.seed, uint64(21+at)), disk: p.disk.Crash(), want: p.want.image()}
	x.fault = fault{At: at, Mode: mode, Err: errno, Free: int64(at * 97 % 3000)}
	if what == "open" {
		x.disk = p.half.Crash()
		x.want.begin(activeBase(p.disk, partitionDir(0)), earliest+1000, time.Hour)
	}
	return x
}

// contained runs it and reports one that does not end, or panics.
func (x *cleanFaultRun) contained() error {
	done := make(chan error, 1)
	go func() { done <- contain(x.play) }()
	select {
	case err := <-done:
		return err
	case <-time.After(30 * time.Second):
		return errors.New("it hangs")
	}
}

func (x *cleanFaultRun) play() error {
	x.st = &store{Durable: x.marks}
	x.st.failing = func(op string) error {
		if err := x.fault.rule(vfs.Op{Name: op}); err != nil {
			return fmt.Errorf("%w: %w", kafka.ErrMetaFailed, err)
		}
		return nil
	}
	defer func() {
		if x.log != nil {
			x.log.Abandon()
		}
	}()
	x.step = x.what
	var err error
	if x.what == "open" {
		x.fault.install(x.disk)
		err = x.open()
	} else {
		if err := x.open(); err != nil {
			return err
		}
		x.fault.install(x.disk)
		err = x.clean()
	}
	x.ops = x.fault.count()
	if err != nil {
		if err := x.told(err); err != nil {
			return err
		}
	}
	keep := []float64{0, 1, -1}[x.r.IntN(3)]
	cut := left{x.disk.Cut(vfs.Cut{Seed: x.r.Uint64(), Keep: keep}), x.st.image(x.r, keep).now(), x.want.image()}
	cut.want.Written = cut.want.Synced
	x.fault.heal()
	if err := x.live(); err != nil {
		return err
	}
	x.step = "open again"
	if err := x.reopened(left{x.disk, x.st.now(), x.want.image()}); err != nil {
		return err
	}
	x.step = "open after a loss of power"
	return x.reopened(cut)
}

// left is what a stop leaves.
type left struct {
	disk  *vfs.Sim
	marks marks
	want  logWant
}

func (x *cleanFaultRun) open() error {
	m := x.st.now()
	m.Dirty = true
	m.Epoch++
	l, err := rlog.Open(x.shape.options(x.disk, x.st, m))
	if err != nil {
		return fmt.Errorf("open (%+v): %w", m, err)
	}
	x.log = l
	return nil
}

// clean does what the run is about.
func (x *cleanFaultRun) clean() error {
	ctx, w := context.Background(), &x.want
	switch x.what {
	case "compact":
		w.begin(activeBase(x.disk, partitionDir(0)), earliest+1000, time.Second)
		done, err := x.log.Compact(ctx, rlog.Compaction{Now: earliest + 1000, DeleteRetention: time.Second, MapBytes: 1 << 20})
		if err != nil {
			return err
		}
		for _, d := range done.Damaged {
			// What cannot be read now is no damage.
			if !x.fault.hit() || !x.fault.caused(d) || errors.Is(d, kafka.ErrCorrupt) {
				return fmt.Errorf("F3: damage: %w", d)
			}
		}
		if len(done.Damaged) == 0 {
			return w.ended(done)
		}
		return nil
	case "trim":
		at := w.Written - 1 - x.r.Int64N(w.Written/2)
		if err := x.log.TrimTo(ctx, at); err != nil {
			return err
		}
		w.Start = max(w.Start, at)
	case "retain":
		gone, err := x.log.Retain(rlog.Retention{Now: earliest + 8*24*3_600_000, Age: -1, Bytes: 2000})
		if err != nil {
			return err
		}
		w.Start = gone.LogStart
	}
	return nil
}

// told checks an error: the disk has failed, and it says so; that the disk is full it says by its name.
func (x *cleanFaultRun) told(err error) error {
	if !x.fault.hit() || !x.fault.caused(err) || errors.Is(err, kafka.ErrCorrupt) {
		return fmt.Errorf("F2/F4: unexpected error: %w", err)
	}
	failed := x.log != nil && x.log.Err() != nil
	if failed && !errors.Is(err, kafka.ErrPartitionFailed) {
		return fmt.Errorf("F4: the log failed, and the error is: %w", err)
	}
	if x.what != "open" && !failed && errors.Is(err, vfs.ErrNoSpace) && !errors.Is(err, kafka.ErrDiskFull) && !errors.Is(err, kafka.ErrMetaFailed) {
		return fmt.Errorf("F2: the disk is full, and the error is: %w", err)
	}
	return nil
}

// live reads the log as it is, and tries once more what failed.
func (x *cleanFaultRun) live() error {
	if x.log == nil {
		return nil
	}
	x.step = "read as it is"
	lower := x.want.Written
	if x.fault.syncLost() {
		lower, x.want.Written = x.want.Synced, x.want.Synced
	}
	if _, err := x.want.verify(x.log, lower, x.want.end()); err != nil && !(x.log.Err() != nil && errors.Is(err, kafka.ErrPartitionFailed)) {
		return err
	}
	if x.log.Err() == nil {
		x.step = "once more"
		if err := x.clean(); err != nil {
			return err
		}
		// What could not be removed goes with the next run.
		_, err := x.log.Retain(rlog.Retention{Now: earliest, Age: -1, Bytes: -1})
		if err = errors.Join(err, checkFiles(x.disk, partitionDir(0), x.want.Start)); err != nil {
			return err
		}
	}
	x.step = "close"
	_, err := x.log.Close()
	failed := x.log.Err()
	x.log = nil
	if err != nil && failed == nil {
		return err
	}
	return nil
}

// reopened opens what was left.
func (x *cleanFaultRun) reopened(is left) error {
	m, w := is.marks, is.want
	m.Dirty = true
	m.Epoch += 2
	is.disk.SetFree(-1)
	l, err := rlog.Open(x.shape.options(is.disk, &store{Durable: m}, m))
	if err != nil {
		return fmt.Errorf("A1/A2: open (%+v): %w", m, err)
	}
	defer l.Abandon()
	if l.StartOffset() != m.LogStart {
		return fmt.Errorf("A11: the log starts at %d, kept was %d", l.StartOffset(), m.LogStart)
	}
	n, err := w.verify(l, w.Written, w.end())
	if err != nil {
		return err
	}
	w = w.cut(n)
	if err := errors.Join(checkFiles(is.disk, partitionDir(0), w.Start), w.checkProducers(l, producerIDs)); err != nil {
		return err
	}
	return x.expire(&w, l, is.disk, m.Epoch)
}

// expire goes on until every tombstone's time is over: no older value comes back. (A12)
func (x *cleanFaultRun) expire(w *logWant, l *rlog.Log, disk *vfs.Sim, epoch int32) error {
	for i := range int64(3) {
		before := activeBase(disk, partitionDir(0))
		for activeBase(disk, partitionDir(0)) == before {
			if err := appendTo(l, w, w.next(x.r, 600), epoch); err != nil {
				return err
			}
		}
		now := earliest + (i+2)*10_000_000
		active := activeBase(disk, partitionDir(0))
		w.begin(active, now, time.Second)
		done, err := l.Compact(context.Background(), rlog.Compaction{Now: now, DeleteRetention: time.Second, MapBytes: 1 << 20})
		if err == nil {
			err = w.ended(done)
		}
		if err == nil {
			_, err = w.verify(l, w.Written, w.Written)
		}
		if err != nil {
			return fmt.Errorf("pass %d: %w", i, err)
		}
	}
	return nil
}
