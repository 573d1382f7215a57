package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/runnelmq/runnel/stream"
)

// F2: while something fills and frees the disk at random, appends are refused before there is damage, reads, commits, new and
// deleted topics go on, appends succeed again by themselves, and nothing that was acknowledged is lost. Without a reserve
// (MinFree negative) the disk is full to its last block: then also the metadata store may fail, and comes back by itself.
func TestFullDisk(t *testing.T) {
	ext4 := FileSystems()[0]
	for _, fs := range []FileSystem{Tmpfs(32 << 20), ext4} {
		for _, reserve := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s,reserve=%t", fs.Type, reserve), func(t *testing.T) {
				if args := childArgs(); args != nil {
					seed, err := strconv.ParseUint(args[1], 10, 64)
					if err != nil {
						t.Fatal(err)
					}
					fillAtRandom(t, args[0], random(seed, 21), reserve)
					return
				}
				first := startSeed(t)
				m := NewMount(t, fastDir(), fs)
				for round := range *environ {
					dir := filepath.Join(m.Dir, strconv.Itoa(round))
					alive(t, dir, strconv.FormatUint(first+uint64(round), 10))
					if err := os.RemoveAll(dir); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

const fullDiskPartitions = 3

// A fullDisk is an engine on a disk that somebody else fills.
type fullDisk struct {
	t       *testing.T
	dir     string
	reserve bool
	eng     *stream.Engine
	book    *ledger
	tps     []stream.TopicPartition
	senders []*sender
	group   stream.Consumer
	commits map[stream.TopicPartition]int64 // acknowledged
	topics  int
	full    atomic.Int64 // appends that were refused
	failed  atomic.Int64 // calls that the metadata store refused
}

func fillAtRandom(t *testing.T, dir string, r *rand.Rand, reserve bool) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d := &fullDisk{t: t, dir: filepath.Join(dir, "data"), reserve: reserve, book: newLedger(), commits: map[stream.TopicPartition]int64{}}
	d.open()
	createTopic(t, d.eng, "t", stream.TopicConfig{Partitions: fullDiskPartitions, SegmentBytes: 128 << 10})
	for p := range int32(fullDiskPartitions) {
		d.tps = append(d.tps, part("t", p))
	}
	d.start("first")
	filler := newFiller(t, filepath.Join(dir, "filler"), reserve)
	for range 40 {
		filler.move(r)
		d.step(r, filler)
	}
	filler.leave(1 << 40)
	t.Logf("%d appends met a full disk, %d calls a failed metadata store", d.full.Load(), d.failed.Load())
	if d.full.Load() == 0 {
		t.Error("F2: the disk was never full")
	}

	d.goOn()
	wantState(t, d.eng, stream.PartitionOK, d.tps...)
	d.book.verify(t, d.eng, false, d.tps...)
	if err := d.eng.Close(); err != nil {
		t.Errorf("F2: close: %v", err)
	}
	d.open()
	d.book.verify(t, d.eng, false, d.tps...)
	d.start("second")
	d.checkCommits()
	d.goOn()
	if err := d.eng.Close(); err != nil {
		t.Errorf("F2: close: %v", err)
	}
}

func (d *fullDisk) open() {
	o := stream.Options{}
	if !d.reserve {
		o.MinFree = -1
	}
	d.eng = openAt(d.t, d.dir, o)
}

// start makes what uses the engine.
func (d *fullDisk) start(life string) {
	d.senders = nil
	for i, acks := range []stream.Acks{stream.AcksSynced, stream.AcksWritten, stream.AcksSynced, stream.AcksWritten} {
		d.senders = append(d.senders, d.book.sender(d.t, d.eng, life+strconv.Itoa(i), acks))
	}
	c, err := d.eng.NewConsumer(d.t.Context(), stream.ConsumerConfig{Group: "g", ManualCommit: true})
	if err == nil {
		err = c.Assign(d.tps...)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.group = c
}

// allowed counts an error of a full disk and reports every other one.
func (d *fullDisk) allowed(what string, err error) {
	switch {
	case err == nil:
	case errors.Is(err, stream.ErrDiskFull) && what == "append":
		d.full.Add(1)
	case errors.Is(err, stream.ErrMetaFailed) && !d.reserve, errors.Is(err, stream.ErrDiskFull) && !d.reserve:
		d.failed.Add(1)
	default:
		d.t.Errorf("F2: %s: %v", what, err)
	}
}

// step lets everything work at once, with the disk as it is and while that changes.
func (d *fullDisk) step(r *rand.Rand, filler *filler) {
	ctx := atOnce(d.t)
	var wg sync.WaitGroup
	beside := func(work func(r *rand.Rand)) {
		own := random(r.Uint64(), 22)
		wg.Go(func() { work(own) })
	}
	for _, s := range d.senders {
		beside(func(r *rand.Rand) {
			for range 20 {
				_, err := s.send(ctx, d.tps[r.IntN(len(d.tps))])
				d.allowed("append", err)
			}
		})
	}
	beside(func(r *rand.Rand) { d.commitSome(ctx, r) })
	beside(func(r *rand.Rand) { d.churn(ctx, r) })
	beside(func(r *rand.Rand) { d.readSome(ctx, r) })
	if chance(r, 0.5) {
		beside(func(r *rand.Rand) {
			for range 3 {
				filler.move(r)
			}
		})
	}
	wg.Wait()
}

// commitSome commits the ends of partitions, with much text, so that the store has to flush.
func (d *fullDisk) commitSome(ctx context.Context, r *rand.Rand) {
	for range 30 {
		tp := d.tps[r.IntN(len(d.tps))]
		ends, err := d.eng.Admin().EndOffsets(ctx, tp)
		if err != nil {
			d.t.Errorf("F2: end offset: %v", err)
			continue
		}
		to := ends[tp].Offset
		err = d.group.CommitOffsets(ctx, stream.Offsets{tp: {Offset: to, LeaderEpoch: -1, Metadata: strings.Repeat("x", r.IntN(4096))}})
		d.allowed("commit", err)
		if err == nil {
			d.commits[tp] = to
		}
	}
}

// churn makes a topic, writes to it and deletes it.
func (d *fullDisk) churn(ctx context.Context, r *rand.Rand) {
	d.topics++
	name := "u" + strconv.Itoa(d.topics)
	err := d.eng.Admin().CreateTopic(ctx, name, stream.TopicConfig{})
	d.allowed("create topic", err)
	if err != nil {
		return
	}
	for range between(r, 0, 3) {
		rec := &stream.Record{Topic: name, Value: fill(r, r.IntN(1000)), Acks: stream.AcksWritten}
		_, err := d.senders[0].p.ProduceSync(ctx, rec)
		d.allowed("append", err)
	}
	d.allowed("delete topic", d.eng.Admin().DeleteTopic(ctx, name))
}

// readSome reads a partition from anywhere.
func (d *fullDisk) readSome(ctx context.Context, r *rand.Rand) {
	tp := d.tps[r.IntN(len(d.tps))]
	ends, err := d.eng.Admin().EndOffsets(ctx, tp)
	if err != nil {
		d.t.Errorf("F2: end offset: %v", err)
		return
	}
	got, err := readFrom(ctx, d.eng, tp, r.Int64N(ends[tp].Offset+1))
	if err != nil {
		d.t.Errorf("F2: a read on a full disk: %v", err)
	}
	for i := range got {
		if _, err := parseKillID(got[i].Value); err != nil {
			d.t.Errorf("A4: offset %d: %v", got[i].Offset, err)
		}
	}
}

// goOn checks that everything works again: with a reserve at the first call, without one as soon as the store has come back.
func (d *fullDisk) goOn() {
	ctx := atOnce(d.t)
	works := func(what string, try func() error) {
		if !d.reserve {
			eventually(d.t, what+" on a disk with space", try)
		} else if err := try(); err != nil {
			d.t.Errorf("F2: %s on a disk with space: %v", what, err)
		}
	}
	for _, s := range d.senders {
		for _, tp := range d.tps {
			works("append", func() error { _, err := s.send(ctx, tp); return err })
		}
	}
	for _, tp := range d.tps {
		works("commit", func() error {
			to := d.commits[tp] + 1
			err := d.group.CommitOffsets(ctx, stream.Offsets{tp: {Offset: to, LeaderEpoch: -1}})
			if err == nil {
				d.commits[tp] = to
			}
			return err
		})
	}
	works("create topic", func() error { return d.eng.Admin().CreateTopic(ctx, "last", stream.TopicConfig{}) })
	works("delete topic", func() error { return d.eng.Admin().DeleteTopic(ctx, "last") })
}

// checkCommits compares what the group has committed. (E3)
func (d *fullDisk) checkCommits() {
	d.t.Helper()
	got, err := d.group.Committed(atOnce(d.t), d.tps...)
	if err != nil {
		d.t.Fatalf("E3: committed: %v", err)
	}
	for _, tp := range d.tps {
		if is, want := got[tp].Offset, d.commits[tp]; want > 0 && is != want {
			d.t.Errorf("E3: committed of %v is %d, acknowledged was %d", tp, is, want)
		}
	}
}

// A filler is a file of somebody else's that grows and shrinks.
type filler struct {
	t       *testing.T
	f       *os.File
	size    int64
	reserve bool // leave what the engine keeps for itself
	total   int64
}

func newFiller(t *testing.T, name string, reserve bool) *filler {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	x := &filler{t: t, f: f, reserve: reserve}
	_, x.total = x.free()
	return x
}

func (x *filler) free() (free, total int64) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(x.f.Fd()), &st); err != nil {
		x.t.Fatal(err)
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize)
}

// move leaves a random part of the disk free: often nothing, or what is kept from appends.
func (x *filler) move(r *rand.Rand) {
	least := int64(0)
	if x.reserve {
		least = x.total / 20 * 3 / 4
	}
	switch {
	case chance(r, 0.5):
		x.leave(least)
	case chance(r, 0.5):
		x.leave(least + r.Int64N(1<<20))
	default:
		x.leave(least + r.Int64N(x.total/2))
	}
}

// leave makes so much space free as there is, or takes all but so much. What cannot be had is not taken.
func (x *filler) leave(want int64) {
	free, _ := x.free()
	size := max(x.size+free-want, 0)
	if size < x.size || want == 0 {
		if size < x.size {
			x.truncate(size)
			return
		}
		size = x.size + free + x.total/10 // what is kept for root, too
	}
	for step := size - x.size; step >= 1024; {
		if unix.Fallocate(int(x.f.Fd()), 0, x.size, step) == nil {
			x.size += step
			step = min(step, size-x.size)
			continue
		}
		x.truncate(x.size) // it may have taken a part
		step /= 2
	}
}

func (x *filler) truncate(size int64) {
	if err := x.f.Truncate(size); err != nil {
		x.t.Error(err)
	}
	x.size = size
}
