package stream_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// A slowDisk is a simulated disk whose syncs of files can take time, in a bubble too: nothing of the simulation is locked meanwhile.
type slowDisk struct {
	*vfs.Sim
	wait atomic.Pointer[func(name string)]
}

func (d *slowDisk) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return slowFile{f, d}, nil
}

func (d *slowDisk) Create(name string, limit int64) (vfs.File, error) {
	return d.wrap(d.Sim.Create(name, limit))
}
func (d *slowDisk) Open(name string, limit int64) (vfs.File, error) {
	return d.wrap(d.Sim.Open(name, limit))
}

// onSync has fn called before each sync of a log file, and takes as long as it does; nil ends it.
func (d *slowDisk) onSync(fn func(name string)) {
	if fn == nil {
		d.wait.Store(nil)
		return
	}
	d.wait.Store(&fn)
}

type slowFile struct {
	vfs.File
	d *slowDisk
}

func (f slowFile) Sync() error {
	if w := f.d.wait.Load(); w != nil && strings.HasSuffix(f.Name(), ".log") {
		(*w)(f.Name())
	}
	return f.File.Sync()
}

// hang makes syncs of log files wait until the returned function is called, which the test has to defer too.
func (d *slowDisk) hang() (release func()) {
	free := make(chan struct{})
	var once atomic.Bool
	release = func() {
		if once.CompareAndSwap(false, true) {
			d.onSync(nil)
			close(free)
		}
	}
	d.onSync(func(string) { <-free })
	return release
}

// onSlowDisk runs fn in virtual time with an engine on a slowDisk, without background syncs, and with a topic "a" that has some partitions.
func onSlowDisk(t *testing.T, partitions int, fn func(t *testing.T, d *slowDisk, eng *stream.Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		d := &slowDisk{Sim: vfs.NewSim(1)}
		eng := must(stream.Open("/data", &stream.Options{FS: d, MinFree: -1, SyncInterval: forever}))(t)
		defer func() {
			d.onSync(nil)
			d.Inject(nil)
			report(t, eng.Close())
		}()
		create(t, eng, "a", partitions)
		fn(t, d, eng)
	})
}

// An answer is what a promise said, and when.
type answer struct {
	n   int // of the record
	rec stream.Receipt
	err error
	at  time.Duration // since the test began
}

// answers keeps what promises said, in their order. Its methods are called by promises and by the test in turn; a bubble that waits is quiet.
type answers struct {
	t     *testing.T
	begin time.Time
	list  chan answer
}

func newAnswers(t *testing.T) *answers {
	return &answers{t: t, begin: time.Now(), list: make(chan answer, 10000)}
}

// promise returns the promise of record n.
func (a *answers) promise(n int) func(stream.Receipt, error) {
	return func(rec stream.Receipt, err error) { a.list <- answer{n, rec, err, time.Since(a.begin)} }
}

// next returns the answer that comes next, waiting for it.
func (a *answers) next() answer { return <-a.list }

// some returns n answers.
func (a *answers) some(n int) (got []answer) {
	for range n {
		got = append(got, <-a.list)
	}
	return got
}

// none fails the test if there is an answer.
func (a *answers) none(when string) {
	a.t.Helper()
	select {
	case got := <-a.list:
		a.t.Fatalf("%s: record %d is answered after %v: %v, %v", when, got.n, got.at, got.rec, got.err)
	default:
	}
}
