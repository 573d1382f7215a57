package crashtest

import (
	"bufio"
	"context"
	"flag"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

var soak = flag.Duration("soak", 0, "how long TestSoak goes on, on each file system; 0: a few lives of the engine; NIGHT: 30m")

// A1 to A5, A10 to A12, B1, C1, E3, F2: an engine that lives for long on a small disk, which somebody else fills and frees, with producers, readers, retention, compaction,
// deleted records, topics made and deleted, closed and opened again: nothing is lost that no policy takes, everything that goes wrong has an expected kind, the
// process lives, and a closed engine has no file open and none mapped. What it uses is reported, every minute in the long form.
func TestSoak(t *testing.T) {
	for _, fs := range []FileSystem{Tmpfs(64 << 20), FileSystems()[0]} {
		t.Run(fs.Type, func(t *testing.T) {
			if args := childArgs(); args != nil {
				seed, err := strconv.ParseUint(args[1], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				soakAt(t, args[0], random(seed, 31))
				return
			}
			if end, ok := t.Deadline(); ok && time.Until(end) < *soak+hang {
				t.Fatalf("-soak %v needs a -timeout that is longer", *soak)
			}
			first := startSeed(t)
			m := NewMount(t, fastDir(), fs)
			soakChild(t, m.Dir, first)
		})
	}
}

// soakChild is alive for hours: the child has no time limit, ends with this process, and what it says is passed on at once.
func soakChild(t *testing.T, dir string, seed uint64) {
	t.Helper()
	cmd := childCommand(t, nil, dir, strconv.FormatUint(seed, 10))
	cmd.Args = append(cmd.Args, "-test.timeout=0", "-soak="+soak.String())
	runtime.LockOSThread() // the signal comes when the thread ends that has started the child
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		t.Log(lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the process of the engine: %v", err)
	}
}

const (
	soakLives     = 4 // of the short form
	soakPart      = 64 << 10
	soakKeys      = 300
	soakAge       = 700 * time.Millisecond // retention by time
	soakBothAge   = 2 * soakAge            // and of the topic that is compacted too
	soakRetained  = 1 << 20                // retention by bytes
	soakTombstone = 300 * time.Millisecond
	soakHang      = 15 * time.Minute // a life that is longer hangs
)

// A soakKind is what is promised of a topic.
type soakKind int

const (
	soakBytes     soakKind = iota // goes by size
	soakTime                      // goes by age
	soakTrimmed                   // goes by DeleteRecords
	soakCompacted                 // the last value of each key stays
	soakBoth                      // the same, and goes by age; the policy changes meanwhile
)

// dense says that a topic's offsets have no holes.
func (k soakKind) dense() bool { return k <= soakTrimmed }

// soakTopics are the topics that live as long as the directory, by kind; soakChurn is made and deleted.
var soakTopics = []string{"bytes", "time", "trimmed", "compacted", "both"}

const soakChurn = "churn"

func soakConfig(k soakKind) stream.TopicConfig {
	c := stream.TopicConfig{Partitions: 2, SegmentBytes: soakPart}
	switch k {
	case soakBytes:
		c.RetentionBytes = soakRetained
	case soakTime:
		c.Retention = soakAge
	case soakCompacted:
		c.Cleanup, c.DeleteRetention = stream.CleanupCompact, soakTombstone
		// What is left of the batches of hundreds of producers counts as clean.
		c.Config = map[string]string{"min.cleanable.dirty.ratio": "0.02"}
	case soakBoth:
		c.Cleanup, c.DeleteRetention, c.Retention = stream.CleanupCompactDelete, soakTombstone, soakBothAge
	}
	return c
}

// A soaker is an engine's directory over its lives, and everybody who uses it.
type soaker struct {
	t       *testing.T
	dir     string
	r       *rand.Rand
	eng     *stream.Engine
	book    *soakBook
	filler  *filler
	figures soakFigures

	written, synced, async, all, named *soakSender

	commits    map[stream.TopicPartition]ledgerCommit // of the group
	generation atomic.Int64                           // of the topic that is made and deleted

	made    bool          // the topics are there
	under   bool          // the engine is closed while everybody works, in this life
	closing atomic.Bool   // somebody closes the engine, or has
	ops     atomic.Int64  // of producers, in this life
	tick    chan struct{} // every soakTick of them
	dueAt   int64         // at so many of them due is closed
	due     chan struct{}
	counts  soakCounts
	passes  sync.Map // partition → *atomic.Int64: how often it has been compacted
}

// soakCounts say that what was to be tried has happened.
type soakCounts struct {
	lives, sent, read, full, expired, compacted, trimmed, made, commits, rebuilt atomic.Int64
}

func soakAt(t *testing.T, dir string, r *rand.Rand) {
	s := &soaker{t: t, dir: filepath.Join(dir, "data"), r: r, book: newSoakBook(), commits: map[stream.TopicPartition]ledgerCommit{}, tick: make(chan struct{}, 1)}
	s.filler = newFiller(t, filepath.Join(dir, "filler"), true)
	for _, x := range []struct {
		sender **soakSender
		role   string
	}{{&s.written, "written"}, {&s.synced, "synced"}, {&s.async, "async"}, {&s.all, "all"}, {&s.named, "named"}} {
		*x.sender = &soakSender{role: x.role, last: map[stream.TopicPartition]int64{}, may: map[stream.TopicPartition]int64{}}
	}
	begin := time.Now()
	for last := false; !last && !t.Failed(); {
		n := s.counts.lives.Add(1)
		last = *soak == 0 && n == soakLives || *soak > 0 && time.Since(begin) >= *soak
		s.life(last)
	}
	s.figures.report(t)
	c := &s.counts
	t.Logf("%d lives: %d records sent, %d read, %d appends met a full disk, %d commits, %d times segments expired, %d compactions, %d trims, %d topics made, %d indexes rebuilt",
		c.lives.Load(), c.sent.Load(), c.read.Load(), c.full.Load(), c.commits.Load(), c.expired.Load(), c.compacted.Load(), c.trimmed.Load(), c.made.Load(), c.rebuilt.Load())
	for what, n := range map[string]*atomic.Int64{"full disk": &c.full, "retention": &c.expired, "compaction": &c.compacted, "trim": &c.trimmed, "commit": &c.commits} {
		if n.Load() == 0 {
			t.Errorf("there was no %s", what)
		}
	}
}

// life opens the engine, lets everybody work, compares, and closes it; or it is closed while they work, opened and compared.
func (s *soaker) life(last bool) {
	ctx, cancel := context.WithTimeout(s.t.Context(), soakHang)
	defer cancel()
	s.open(ctx)
	s.checkCommits(ctx)
	if chance(s.r, 0.3) {
		s.check(ctx)
	}
	s.under = !last && chance(s.r, 0.4)
	s.work(ctx)
	s.filler.leave(1 << 40)
	if s.under {
		s.open(ctx)
		s.checkCommits(ctx)
	}
	s.check(ctx)
	if last || chance(s.r, 0.2) {
		s.settle(ctx)
	}
	s.figures.open(s)
	if err := s.eng.Close(); err != nil {
		s.t.Errorf("F2: close: %v", err)
	}
	s.figures.closed(s)
}

func (s *soaker) open(ctx context.Context) {
	pick := func(of ...int64) int64 { return of[s.r.IntN(len(of))] }
	o := stream.Options{
		SyncInterval:  time.Duration(pick(1, 20, 1000)) * time.Millisecond,
		CleanInterval: time.Duration(pick(20, 100)) * time.Millisecond,
		CleanRate:     pick(-1, 0, 4<<20),
		CleanMemory:   pick(0, 2<<10), // fewer keys than there are
		Events:        s.events(),
	}
	s.closing.Store(false)
	s.eng = openAt(s.t, s.dir, o)
	for k, name := range soakTopics {
		if !s.made {
			createTopic(s.t, s.eng, name, soakConfig(soakKind(k)))
		}
	}
	s.made = true
	infos, err := s.eng.Admin().Topics(ctx)
	if err != nil {
		s.t.Fatalf("A10: topics: %v", err)
	}
	infos = slices.DeleteFunc(infos, func(i stream.TopicInfo) bool { return i.Name == soakChurn || slices.Contains(soakTopics, i.Name) })
	if len(infos) > 0 {
		s.t.Errorf("A10: topics that nobody has made: %+v", infos)
	}
}

// events counts what has to happen, and reports what must not.
func (s *soaker) events() stream.Events {
	bad := func(format string, args ...any) { s.t.Errorf("event: "+format, args...) }
	return stream.Events{
		TailCut:      func(tp stream.TopicPartition, end, n int64, q string) { bad("A1: %v: %d bytes cut at %d", tp, n, end) },
		Corrupt:      func(err *stream.CorruptError) { bad("A4: %v", err) },
		MetaFailed:   func(err error) { bad("F2: metadata store: %v", err) },
		IndexRebuilt: func(stream.TopicPartition, int64, error) { s.counts.rebuilt.Add(1) },
		OffsetClamped: func(g string, tp stream.TopicPartition, from, to int64) {
			bad("E3: %s %v: %d is now %d", g, tp, from, to)
		},
		Quarantined: func(tp stream.TopicPartition, file, to string, why error) { bad("A8: %v: %s: %v", tp, file, why) },
		StrayDirectory: func(from, to string) {
			bad("A10: %s is now %s", from, to)
		},
		PartitionState: func(tp stream.TopicPartition, state stream.PartitionState, err error) {
			if state == stream.PartitionFailed || state == stream.PartitionDamaged {
				bad("F2: %v is %v: %v", tp, state, err)
			}
		},
		Expired: func(stream.TopicPartition, int, int64, int64) { s.counts.expired.Add(1) },
		Compacted: func(tp stream.TopicPartition, _, _, _, _ int64) {
			s.counts.compacted.Add(1)
			passes, _ := s.passes.LoadOrStore(tp, new(atomic.Int64))
			passes.(*atomic.Int64).Add(1)
		},
	}
}

// work lets everybody work at once until each producer has done what it had to do; with under, the engine is closed in the middle.
func (s *soaker) work(ctx context.Context) {
	n := between(s.r, 200, 1500)
	if *soak > 0 {
		n *= 1 + s.r.IntN(8)
	}
	s.ops.Store(0)
	s.dueAt, s.due = 1+s.r.Int64N(int64(3*n)), make(chan struct{})
	done := make(chan struct{}) // closed when the producers have finished
	var producers, others sync.WaitGroup
	start := func(wg *sync.WaitGroup, do func(r *rand.Rand)) {
		own := random(s.r.Uint64(), 32)
		wg.Go(func() { do(own) })
	}
	for _, produce := range []func(ctx context.Context, r *rand.Rand, n int){s.sendWritten, s.sendSynced, s.sendAsync, s.sendAll, s.sendNamed} {
		start(&producers, func(r *rand.Rand) { produce(ctx, r, n) })
	}
	for _, do := range []func(ctx context.Context, r *rand.Rand, done <-chan struct{}){s.follow, s.reread, s.reread, s.trim, s.observe, s.churn, s.alter, s.fill} {
		start(&others, func(r *rand.Rand) { do(ctx, r, done) })
	}
	if s.under {
		others.Go(func() {
			select {
			case <-s.due:
			case <-done: // they have given up
			}
			s.closing.Store(true)
			if err := s.eng.Close(); err != nil {
				s.t.Errorf("F2: close under work: %v", err)
			}
		})
	}
	producers.Wait()
	close(done)
	others.Wait()
}

// did counts operations of producers, which are the clock of whoever fills the disk.
func (s *soaker) did(n int) {
	now := s.ops.Add(int64(n))
	before := now - int64(n)
	if before < s.dueAt && now >= s.dueAt {
		close(s.due)
	}
	if now/soakTick != before/soakTick {
		select {
		case s.tick <- struct{}{}:
		default:
		}
	}
}

// soakTick is how many operations make a tick.
const soakTick = 100

// fill is somebody else who fills the disk and frees it.
func (s *soaker) fill(_ context.Context, r *rand.Rand, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-s.tick:
		}
		if chance(r, 0.2) {
			s.filler.move(r)
		}
	}
}

// expected sorts an error: it reports whether the caller goes on, which it does after none and after one of these kinds, and ends it without a word when the
// engine is being closed. Everything else breaks F2.
func (s *soaker) expected(what string, err error, kinds ...error) bool {
	switch {
	case err == nil:
		return true
	case s.closing.Load() && oneOf(err, stream.ErrClosed, stream.ErrOutcomeUnknown):
		return false
	case oneOf(err, kinds...):
		return true
	}
	s.t.Errorf("F2: %s: %v", what, err)
	return false
}

func (s *soaker) partition(r *rand.Rand) stream.TopicPartition {
	return part(soakTopics[r.IntN(len(soakTopics))], int32(r.IntN(2)))
}
