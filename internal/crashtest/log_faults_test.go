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

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
	rlog "github.com/runnelmq/runnel/log"
)

var logFaults = flag.Int("logfaults", 8, "seeds of the histories of a log of which every operation fails")

// F2 to F4, A1 to A5, C1: every operation of a log's history fails, once and for ever, with an I/O error and for want of space. An append that
// fails has no effect unless it says that nobody knows, what was acknowledged is there afterwards, and a sync that failed is not believed.
func TestLogSurvivesFailingOperations(t *testing.T) {
	start := startSeed(t)
	begin := time.Now()
	runs := 0
	for seed := start; seed < start+uint64(*logFaults); seed++ {
		dry := &logFaultRun{seed: seed}
		if err := dry.run(); err != nil {
			t.Fatalf("seed %d, nothing fails: %v", seed, err)
		}
		ops := dry.fault.count()
		for at := 1; at <= ops; at++ {
			for mode := range faultModes {
				for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
					if mode == faultFull && errno == syscall.EIO {
						continue
					}
					x := &logFaultRun{seed: seed, fault: fault{At: at, Mode: mode, Err: errno, Free: int64(at * 97 % 3000)}}
					if err := x.watched(); err != nil {
						t.Fatalf("seed %d, %v: %s: %v", seed, &x.fault, x.step, err)
					}
					runs++
				}
			}
		}
	}
	t.Logf("%d histories, %d runs in %.1f s", *logFaults, runs, time.Since(begin).Seconds())
}

// A logFaultRun is a short history of one log that goes on whatever fails.
type logFaultRun struct {
	seed  uint64
	fault fault
	r     *rand.Rand
	shape shape
	disk  *vfs.Sim
	st    *store
	log   *rlog.Log
	epoch int32
	want  logWant
	step  string
	seen  bool // an image of the moment of the first failure has been taken
	late  []*recoveryImage
}

// watched runs the history and reports one that does not end.
func (x *logFaultRun) watched() error {
	done := make(chan error, 1)
	go func() { done <- x.run() }()
	select {
	case err := <-done:
		return err
	case <-time.After(30 * time.Second):
		return errors.New("it hangs")
	}
}

func (x *logFaultRun) run() error { return contain(x.play) }

func (x *logFaultRun) play() error {
	x.r = random(x.seed, 10)
	x.shape = shape{SegmentBytes: int64(between(x.r, 2, 6)) << 10, IndexInterval: 512}
	x.disk = vfs.NewSim(x.seed)
	x.disk.SetWriteBack([]float64{0, 0.2}[x.r.IntN(2)])
	if err := errors.Join(x.disk.Mkdir(root), x.disk.SyncDir(".")); err != nil {
		return err
	}
	x.st = &store{claimed: x.want.claim}
	x.st.failing = func(op string) error {
		if err := x.fault.rule(vfs.Op{Name: op}); err != nil {
			return fmt.Errorf("%w: %w", kafka.ErrMetaFailed, err)
		}
		return nil
	}
	x.use(x.disk)
	defer func() {
		if x.log != nil {
			x.log.Abandon()
		}
	}()
	for range 24 {
		if err := x.act(); err != nil {
			return err
		}
		if x.log != nil {
			x.want.claim(x.log.DurableEnd())
		}
		if x.fault.hit() && chance(x.r, 0.1) {
			if err := x.image(); err != nil {
				return err
			}
		}
	}
	return x.healed()
}

// use makes a disk the one that fails.
func (x *logFaultRun) use(disk *vfs.Sim) {
	x.disk = disk
	x.fault.install(disk)
	disk.OnOp(func(op vfs.Op) {
		if x.fault.hit() && !x.seen {
			x.seen = true
			x.late = append(x.late, x.take(fmt.Sprintf("%s, after %v", x.step, op)))
		}
	})
}

// take makes an image of a loss of power now.
func (x *logFaultRun) take(place string) *recoveryImage {
	keep := []float64{0, 1, -1}[x.r.IntN(3)]
	return &recoveryImage{
		disk:  x.disk.Cut(vfs.Cut{Seed: x.r.Uint64(), Keep: keep}),
		logs:  []recoveryLog{{x.st.image(x.r, keep).now(), x.want.image()}},
		place: fmt.Sprintf("%s, power cut keeping %g", place, keep),
	}
}

// image loses the power now and checks what is left.
func (x *logFaultRun) image() error {
	for _, im := range append(x.late, x.take(x.step)) {
		m, w := im.logs[0].Marks, im.logs[0].Want
		m.Epoch++
		im.disk.SetFree(-1)
		l, err := rlog.Open(x.shape.options(im.disk, &store{Durable: m}, m))
		if err != nil {
			return fmt.Errorf("%s: A2: open (%+v): %w", im.place, m, err)
		}
		n, err := w.verify(l, w.Synced, w.end())
		if err == nil {
			w = w.cut(n)
			err = w.checkProducers(l, producerIDs)
		}
		l.Abandon()
		if err != nil {
			return fmt.Errorf("%s: %w", im.place, err)
		}
	}
	x.late = nil
	return nil
}

func (x *logFaultRun) act() error {
	r := x.r
	if x.log == nil {
		return x.open()
	}
	if x.log.Err() != nil && chance(r, 0.5) {
		x.abandon()
		return x.open()
	}
	switch n := r.IntN(100); {
	case n < 55:
		return x.append()
	case n < 70:
		return x.wait()
	case n < 75:
		return x.flush()
	case n < 85:
		return x.read()
	case n < 89:
		return x.find()
	case n < 94:
		return x.close()
	case n < 97:
		x.step = "kill"
		x.abandon()
		return nil
	default:
		x.step = "power cut"
		im := x.take(x.step)
		x.abandon()
		x.st.Durable, x.st.Pending = im.logs[0].Marks, nil
		x.want.Written = x.want.Synced
		x.use(im.disk)
		return nil
	}
}

// told checks the error of an operation: it must be one that a program can decide on, and the disk must have failed.
func (x *logFaultRun) told(err error, kinds ...error) error {
	for _, k := range kinds {
		if errors.Is(err, k) && (x.fault.hit() && x.fault.caused(err) || x.log != nil && x.log.Err() != nil) {
			return nil
		}
	}
	return fmt.Errorf("F2/F4: unexpected error: %w", err)
}

var storageErrors = []error{kafka.ErrPartitionFailed, kafka.ErrDiskFull, kafka.ErrMetaFailed}

// open opens the log. The disk may fail to be read; then it is tried again later.
func (x *logFaultRun) open() error {
	x.step = "open"
	m := x.st.now()
	if m.Dirty {
		m.Epoch++
	}
	x.epoch = m.Epoch
	o := x.shape.options(x.disk, x.st, m)
	o.MinFree = int64(x.seed % 2)
	lost := x.fault.syncLost()
	if lost {
		x.want.Written = x.want.Synced // what the page cache still shows the disk does not have
	}
	l, err := rlog.Open(o)
	if err != nil {
		if !x.fault.active() || !x.unreadable(err) {
			return fmt.Errorf("A1/A2: open (%+v): %w", m, err)
		}
		return nil
	}
	x.log = l
	n, err := x.want.verify(l, x.want.Written, x.want.end())
	if err != nil && !x.unreadable(err) {
		return err
	}
	if err == nil {
		x.want = x.want.cut(n)
		x.want.claim(l.DurableEnd())
		return nil
	}
	// It cannot be read now: only its end says how much of it there is.
	if end := l.EndOffset(); end < x.want.Written || end > x.want.end() {
		return fmt.Errorf("A1/A3: the log ends at %d, acknowledged is %d, sent is %d", end, x.want.Written, x.want.end())
	}
	for len(x.want.Sent) > 0 && x.want.end() > l.EndOffset() {
		x.want = x.want.cut(len(x.want.Sent) - 1)
	}
	x.want.Written = x.want.end()
	x.want.claim(l.DurableEnd())
	return nil
}

// unreadable reports whether an error of a read is that of the disk, or of a log that shows no more than what is durable, and no
// wrong alarm about the data.
func (x *logFaultRun) unreadable(err error) bool {
	if x.log != nil && x.log.Err() != nil && errors.Is(err, kafka.ErrPartitionFailed) {
		return true
	}
	return x.fault.hit() && x.fault.caused(err) && !errors.Is(err, kafka.ErrCorrupt)
}

func (x *logFaultRun) abandon() {
	x.log.Abandon()
	x.log = nil
}

func (x *logFaultRun) append() error {
	x.step = "append"
	w := &x.want
	b := w.next(x.r, 100, 600, 2000)
	n, end := len(w.Sent), w.Written
	err := appendTo(x.log, w, b, x.epoch)
	if err == nil {
		return nil
	}
	if end != x.log.EndOffset() {
		return fmt.Errorf("A1: an append that failed has moved the log end from %d to %d: %w", end, x.log.EndOffset(), err)
	}
	unknown := errors.Is(err, kafka.ErrOutcomeUnknown)
	if !unknown || errors.Is(err, kafka.ErrMetaFailed) {
		w.Sent = w.Sent[:n:n]
	} else if x.log.Err() == nil {
		return fmt.Errorf("F4: after an unknown outcome the log goes on: %w", err)
	}
	if x.fault.Mode == faultFull && !errors.Is(err, kafka.ErrDiskFull) {
		return fmt.Errorf("F2: the disk is full: %w", err)
	}
	return x.told(err, storageErrors...)
}

func (x *logFaultRun) wait() error {
	x.step = "wait"
	upto := x.want.Written
	err := x.log.WaitDurable(context.Background(), upto)
	if err != nil {
		return x.told(err, storageErrors...)
	}
	x.want.claim(upto)
	return nil
}

func (x *logFaultRun) flush() error {
	x.step = "flush"
	upto := x.want.Written
	if err := x.log.Flush(context.Background()); err != nil {
		return x.told(err, storageErrors...)
	}
	x.want.claim(upto)
	return nil
}

// read reads one batch in the middle.
func (x *logFaultRun) read() error {
	x.step = "read"
	if x.want.Written == 0 {
		return nil
	}
	if err := x.want.probe(x.log, x.r.Int64N(x.want.Written)); err != nil && !x.unreadable(err) {
		return fmt.Errorf("F3: %w", err)
	}
	return nil
}

// find looks for a time.
func (x *logFaultRun) find() error {
	x.step = "find"
	at := 1_700_000_000_000 + x.r.Int64N(1000)
	got, ok, err := x.log.OffsetForTime(at, x.want.Written)
	if err != nil {
		if !x.unreadable(err) {
			return fmt.Errorf("F3: %w", err)
		}
		return nil
	}
	want := firstAt(x.want.Sent, at)
	if want >= x.want.Written {
		want = -1 // of an append whose outcome is unknown
	}
	if ok != (want >= 0) || ok && got.Offset != want {
		return fmt.Errorf("A13: the first record at %d is %d (%t), want %d", at, got.Offset, ok, want)
	}
	return nil
}

// firstAt is the offset of the first record at or after a time, -1 if there is none.
func firstAt(bs []batch.Batch, at int64) int64 {
	for _, b := range bs {
		it := b.Iter()
		for r := (batch.Record{}); it.Next(&r); {
			if r.Timestamp >= at {
				return r.Offset
			}
		}
	}
	return -1
}

func (x *logFaultRun) close() error {
	x.step = "close"
	end, err := x.log.Close()
	x.want.claim(x.log.DurableEnd())
	if err != nil {
		err = x.told(err, storageErrors...)
		x.log = nil
		return err
	}
	x.log = nil
	if end != x.want.Written {
		return fmt.Errorf("A2: closed at %d of %d", end, x.want.Written)
	}
	x.want.claim(end)
	if err := x.st.closed(end, chance(x.r, 0.5)); err != nil && !x.fault.hit() {
		return err
	}
	return nil
}

// healed ends the fault: the log is read as it is, opened again after the end of the process and of the power, and appended to.
func (x *logFaultRun) healed() error {
	x.fault.heal()
	if x.log != nil {
		x.step = "healed"
		if _, err := x.want.verify(x.log, x.want.Written, x.want.end()); err != nil && !x.unreadable(err) {
			return err
		}
		if d := x.log.DurableEnd(); d > 0 {
			if err := x.want.probe(x.log, d-1); err != nil {
				return fmt.Errorf("F4: what is durable is read: %w", err)
			}
		}
		// What failed for want of space alone goes on by itself.
		if x.fault.Mode == faultFull {
			if err := errors.Join(x.append(), x.wait()); err != nil || x.log.Err() != nil {
				return fmt.Errorf("F2: there is space again: %w", errors.Join(err, x.log.Err()))
			}
		}
		if err := x.image(); err != nil {
			return err
		}
		x.abandon()
	}
	if err := x.open(); err != nil {
		return err
	}
	x.step = "healed and open"
	if err := x.want.checkProducers(x.log, producerIDs); err != nil {
		return err
	}
	if err := errors.Join(x.append(), x.wait(), x.image()); err != nil {
		return err
	}
	if x.want.Synced != x.want.Written {
		return fmt.Errorf("A2: healed, and durable up to %d of %d", x.want.Synced, x.want.Written)
	}
	_, err := x.want.verify(x.log, x.want.Written, x.want.Written)
	return err
}
