package rlog

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testTP = kafka.TopicPartition{Topic: "t", Partition: 0}

// checkpoints is what the broker keeps in package meta: here in memory.
type checkpoints struct {
	dirty         bool
	recoveryPoint int64
	epochs        map[int32]int64
	logStart      int64
	cleaned       int64
}

func (c *checkpoints) MarkDirty(epoch int32, start int64) error {
	c.dirty = true
	if c.epochs == nil {
		c.epochs = map[int32]int64{}
	}
	if _, ok := c.epochs[epoch]; !ok {
		c.epochs[epoch] = start
	}
	return nil
}

func (c *checkpoints) SetRecoveryPoint(offset int64, _ bool) error {
	c.recoveryPoint = offset
	return nil
}

func (c *checkpoints) SetLogStart(offset int64) error {
	c.logStart = offset
	return nil
}

func (c *checkpoints) SetCleaned(offset int64) error {
	c.cleaned = offset
	return nil
}

// env is a place for one log that is opened and closed again and again.
type env struct {
	t     testing.TB
	fs    vfs.FS
	dir   string
	cp    *checkpoints
	epoch int32
	opts  func(*Options)
	cuts  []string // TailCut events
	built int      // IndexRebuilt events
}

func newEnv(t testing.TB, fsys vfs.FS, root string) *env {
	e := &env{t: t, fs: fsys, dir: root, cp: &checkpoints{}}
	if err := fsys.Mkdir(path.Join(root, "topics")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{root, path.Dir(root)} {
		if err := fsys.SyncDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

func memEnv(t testing.TB) *env {
	fsys := vfs.NewMemory()
	t.Cleanup(func() { fsys.Close() })
	if err := fsys.Mkdir("/d"); err != nil {
		t.Fatal(err)
	}
	return newEnv(t, fsys, "/d")
}

func diskEnv(t testing.TB) *env {
	fsys := vfs.NewDisk()
	t.Cleanup(func() { fsys.Close() })
	return newEnv(t, fsys, t.TempDir())
}

func (e *env) options() Options {
	o := Options{
		FS: e.fs, Dir: path.Join(e.dir, "topics", "t-0"), Quarantine: path.Join(e.dir, "quarantine"),
		TopicPartition: testTP, TopicID: "AAAAAAAAAAAAAAAAAAAAAA", Checkpoints: e.cp,
		Dirty: e.cp.dirty, RecoveryPoint: e.cp.recoveryPoint, Epoch: e.epoch,
		Settings: Settings{SegmentBytes: 64 << 10}, LogStart: e.cp.logStart, Cleaned: e.cp.cleaned,
		Events: Events{
			TailCut: func(_ kafka.TopicPartition, end int64, file string, pos, n int64, q string) {
				e.cuts = append(e.cuts, fmt.Sprintf("end %d pos %d bytes %d", end, pos, n))
			},
			IndexRebuilt: func(kafka.TopicPartition, int64, error) { e.built++ },
		},
	}
	if e.opts != nil {
		e.opts(&o)
	}
	return o
}

func (e *env) open() *Log {
	e.t.Helper()
	l, err := Open(e.options())
	if err != nil {
		e.t.Fatal(err)
	}
	return l
}

// close closes in order, as the broker does.
func (e *env) close(l *Log) {
	e.t.Helper()
	end, err := l.Close()
	if err != nil {
		e.t.Fatal(err)
	}
	e.cp.dirty, e.cp.recoveryPoint = false, end
}

// record is what a test wrote, at its offset.
type record struct {
	key, value []byte
	ts         int64
}

func (r record) equal(o record) bool {
	return bytes.Equal(r.key, o.key) && bytes.Equal(r.value, o.value) && r.ts == o.ts
}

func makeBatch(recs []record, s batch.Stamp) batch.Batch {
	var b batch.Builder
	b.Reset(nil)
	for _, r := range recs {
		b.Append(r.ts, r.key, r.value, nil)
	}
	return b.Seal(s)
}

func plain(recs ...record) batch.Batch { return makeBatch(recs, batch.NoProducer()) }

func val(i, size int) record {
	v := bytes.Repeat([]byte(strconv.Itoa(i)), size/len(strconv.Itoa(i))+1)[:size]
	return record{key: []byte(strconv.Itoa(i)), value: v, ts: int64(1000 + i)}
}

func mustAppend(t testing.TB, l *Log, b batch.Batch) Appended {
	t.Helper()
	a, err := l.Append(b)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// readAll reads every record from an offset to the log's end.
func readAll(l *Log, from int64) (recs []record, err error) {
	c := l.NewCursor(from)
	defer c.Close()
	for {
		b, err := c.Next(l.EndOffset())
		if b == nil || err != nil {
			return recs, err
		}
		if recs, err = copyRecords(c, b, from, recs); err != nil {
			return recs, err
		}
	}
}

func copyRecords(c *Cursor, b batch.Batch, from int64, recs []record) (_ []record, err error) {
	defer vfs.Catch(vfs.Arm(), c.File(), &err)
	it := b.Iter()
	var r batch.Record
	for it.Next(&r) {
		if r.Offset >= from {
			recs = append(recs, record{bytes.Clone(r.Key), bytes.Clone(r.Value), r.Timestamp})
		}
	}
	return recs, it.Err()
}

func wantRecords(t testing.TB, l *Log, want []record) {
	t.Helper()
	got, err := readAll(l, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range want {
		if !got[i].equal(want[i]) {
			t.Fatalf("offset %d: %q %q %d, want %q %q %d", i, got[i].key, got[i].value, got[i].ts, want[i].key, want[i].value, want[i].ts)
		}
	}
}

func wait(t testing.TB, l *Log) {
	t.Helper()
	if err := l.WaitDurable(context.Background(), l.EndOffset()); err != nil {
		t.Fatal(err)
	}
}

// seed is RUNNEL_SEED, or drawn; it is printed when the test fails.
func seed(t testing.TB) (uint64, *rand.Rand) {
	s := rand.Uint64()
	if v, err := strconv.ParseUint(os.Getenv("RUNNEL_SEED"), 10, 64); err == nil {
		s = v
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("RUNNEL_SEED=%d", s)
		}
	})
	return s, rand.New(rand.NewPCG(s, 0))
}
