package rlog

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// hookFS calls back before writes and syncs of segment files.
type hookFS struct {
	vfs.FS
	write func()
	sync  func() error
}

func (h *hookFS) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil || !strings.HasSuffix(f.Name(), suffixLog) {
		return f, err
	}
	return &hookFile{f, h}, nil
}

func (h *hookFS) Create(name string, limit int64) (vfs.File, error) {
	return h.wrap(h.FS.Create(name, limit))
}

func (h *hookFS) Open(name string, limit int64) (vfs.File, error) {
	return h.wrap(h.FS.Open(name, limit))
}

type hookFile struct {
	vfs.File
	h *hookFS
}

func (f *hookFile) WriteAt(p []byte, off int64) (int, error) {
	if f.h.write != nil {
		f.h.write()
	}
	return f.File.WriteAt(p, off)
}

func (f *hookFile) Sync() error {
	if f.h.sync != nil {
		if err := f.h.sync(); err != nil {
			return err
		}
	}
	return f.File.Sync()
}

func hooked(t *testing.T) (*env, *hookFS) {
	mem := vfs.NewMemory()
	t.Cleanup(func() { mem.Close() })
	if err := mem.Mkdir("/d"); err != nil {
		t.Fatal(err)
	}
	h := &hookFS{FS: mem}
	return newEnv(t, h, "/d"), h
}

func one(v string) batch.Batch {
	return makeBatch([]record{{value: []byte(v), ts: 1}}, batch.NoProducer())
}

// failSyncs makes the syncs of segments fail until the returned func is called.
func failSyncs(h *hookFS) (heal func()) {
	h.sync = func() error { return syscall.EIO }
	return func() { h.sync = nil }
}

// reopenFailed opens the log again as the broker does after a failure.
func (e *env) reopenFailed(old *Log) (*Log, error) {
	old.Settle()
	e.epoch++
	e.opts = func(o *Options) {
		o.Believe = old.Believed()
		o.RecoveryPoint = max(o.RecoveryPoint, old.DurableEnd())
	}
	defer func() { e.opts = nil }()
	return Open(e.options())
}

// A6: an append that is under way when a sync fails has ended before the log is opened again, so that it cannot write behind the end of the next one, and come
// up in the one after that.
func TestAppendUnderWayWhenASyncFails(t *testing.T) {
	e, h := hooked(t)
	l := e.open()
	mustAppend(t, l, one("0"))
	wait(t, l)
	mustAppend(t, l, one("1"))
	at, on, appended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	h.write = func() {
		h.write = nil
		close(at)
		<-on
	}
	go func() {
		defer close(appended)
		_, _ = l.Append(one("x"))
	}()
	<-at
	heal := failSyncs(h)
	if err := l.WaitDurable(context.Background(), 2); !errors.Is(err, kafka.ErrPartitionFailed) {
		t.Fatal(err)
	}
	heal()
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		l.Settle()
	}()
	for range 1000 {
		runtime.Gosched()
	}
	select {
	case <-settled:
		t.Fatal("the log is settled, and an append is under way")
	default:
	}
	close(on)
	<-settled
	<-appended
	second, err := e.reopenFailed(l)
	if err != nil {
		t.Fatal(err)
	}
	l.Abandon()
	if end := second.EndOffset(); end != 1 {
		t.Fatalf("end %d", end)
	}
	mustAppend(t, second, one("a"))
	wait(t, second)
	second.Abandon()
	e.epoch++
	third := e.open()
	if end := third.EndOffset(); end != 2 {
		t.Fatalf("a record that no life had shown has come up: end %d", end)
	}
	third.Abandon()
}

// A8: what this process knows to be durable and the checkpoints do not is below the recovery point of a log that failed: damage there is reported.
func TestDamageBelowTheDurableEndOfAFailedLog(t *testing.T) {
	e, h := hooked(t)
	l := e.open()
	for range 5 {
		mustAppend(t, l, one("value"))
	}
	wait(t, l)
	f := (*l.segments.Load().active.file.Load()).(*hookFile).File
	if _, err := f.WriteAt([]byte{0xff, 0xff}, 2*int64(len(one("value")))+70); err != nil { // in the third
		t.Fatal(err)
	}
	mustAppend(t, l, one("value"))
	heal := failSyncs(h)
	if err := l.WaitDurable(context.Background(), 6); err == nil {
		t.Fatal("synced")
	}
	heal()
	second, err := e.reopenFailed(l)
	l.Abandon()
	if err != nil {
		t.Fatal(err)
	}
	defer second.Abandon()
	if end := second.EndOffset(); end != 5 {
		t.Fatalf("end %d", end)
	}
	c := second.NewCursor(0)
	defer c.Close()
	for range 2 {
		if _, err := c.Next(5); err != nil {
			t.Fatal(err)
		}
	}
	var damage *kafka.CorruptError
	if _, err := c.Next(5); !errors.As(err, &damage) || damage.From != 2 || damage.To != 3 {
		t.Fatal(err)
	}
}

// A2: a sync that fails behind one that was good takes nothing from what that one has covered, though nobody has heard of it yet.
func TestBelievedIncludesEverySync(t *testing.T) {
	e, h := hooked(t)
	l := e.open()
	mustAppend(t, l, one(strings.Repeat("x", 60<<10)))
	syncs := 0
	h.sync = func() error {
		if syncs++; syncs > 1 {
			return syscall.EIO
		}
		return nil
	}
	mustAppend(t, l, one(strings.Repeat("y", 60<<10))) // seals the first segment
	if err := l.WaitDurable(context.Background(), 2); err == nil {
		t.Fatal("synced")
	}
	l.Settle()
	if end := l.Believed(); end == nil || *end != 1 {
		t.Fatalf("believed up to %v", end)
	}
	l.Abandon()
}

// E3: an offset behind the log's end is not durable.
func TestWaitDurableBeyondTheEnd(t *testing.T) {
	l := memEnv(t).open()
	defer l.Abandon()
	mustAppend(t, l, one("0"))
	if err := l.WaitDurable(context.Background(), 100); !errors.Is(err, kafka.ErrOffsetOutOfRange) {
		t.Fatal(err)
	}
}

// moody is a store that fails while it is down.
type moody struct {
	*checkpoints
	down *bool
}

func (m *moody) SetRecoveryPoint(offset int64, sync bool) error {
	if *m.down {
		return kafka.ErrMetaFailed
	}
	return m.checkpoints.SetRecoveryPoint(offset, sync)
}

// F4: a segment does not roll while the metadata store is down, and is sealed once however often that is tried; it rolls when the store works.
func TestRollWithoutCheckpoints(t *testing.T) {
	e, h := hooked(t)
	down := true
	e.opts = func(o *Options) { o.Checkpoints = &moody{e.cp, &down} }
	l := e.open()
	syncs := 0
	h.sync = func() error {
		syncs++
		return nil
	}
	big := one(strings.Repeat("x", 40<<10))
	mustAppend(t, l, big)
	for range 5 {
		if _, err := l.Append(big); !errors.Is(err, kafka.ErrMetaFailed) {
			t.Fatal(err)
		}
	}
	if syncs != 1 {
		t.Fatalf("%d syncs", syncs)
	}
	mustAppend(t, l, one("small"))
	down = false
	mustAppend(t, l, big)
	if n := l.segments.Load().len(); n != 2 || l.DurableEnd() != 2 {
		t.Fatalf("%d segments, durable end %d", n, l.DurableEnd())
	}
	e.close(l)
}

// A2: the next life does not believe what a failed sync has left, also if something else failed first.
func TestBelievedIfSomethingElseFailedFirst(t *testing.T) {
	e, h := hooked(t)
	l := e.open()
	mustAppend(t, l, one("0"))
	wait(t, l)
	mustAppend(t, l, one("1"))
	h.sync = func() error {
		_ = l.fail(errors.New("a store"))
		return syscall.EIO
	}
	if err := l.WaitDurable(context.Background(), 2); err == nil {
		t.Fatal("synced")
	}
	l.Settle()
	if end := l.Believed(); end == nil || *end != 1 {
		t.Fatalf("believed up to %v", end)
	}
	l.Abandon()
}
