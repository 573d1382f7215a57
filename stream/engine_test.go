package stream_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// lockChild names the directory that this binary is to open, and hold until its standard input ends, instead of running tests.
const lockChild = "RUNNEL_STREAM_LOCK_CHILD"

func holdEngine(dir string) {
	eng, err := stream.Open(dir, nil)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := eng.Close(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// F6: a second opener gets ErrLocked with the holder's pid at once, and the directory is free when the first has closed.
func TestSecondOpenerGetsErrLocked(t *testing.T) {
	locked := func(t *testing.T, err error, pid int) {
		t.Helper()
		wantErr(t, err, stream.ErrLocked)
		if !strings.Contains(err.Error(), strconv.Itoa(pid)) {
			t.Fatalf("%q does not name process %d", err, pid)
		}
		var facts *vfs.LockedError
		if !errors.As(err, &facts) || facts.PID != pid {
			t.Fatalf("facts: %+v", facts)
		}
	}
	t.Run("in this process", func(t *testing.T) {
		onGrounds(t, func(t *testing.T, g *ground) {
			g.open()
			o := stream.Options{FS: g.fs}
			_, err := stream.Open(g.dir, &o)
			locked(t, err, os.Getpid())
			g.reopen()
		})
	})
	t.Run("in another", func(t *testing.T) {
		dir := t.TempDir()
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), lockChild+"="+dir)
		in := must(child.StdinPipe())(t)
		out := bufio.NewReader(must(child.StdoutPipe())(t))
		check(t, child.Start())
		eq(t, "child", must(out.ReadString('\n'))(t), "open\n")
		_, err := stream.Open(dir, nil)
		locked(t, err, child.Process.Pid)
		check(t, in.Close())
		check(t, child.Wait())
		check(t, must(stream.Open(dir, nil))(t).Close())
	})
	goleak.VerifyNone(t)
}

// Everything that was acknowledged is found again, by the same name, at the same offset, whatever opens and closes lie between.
func TestReopenFindsEverything(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		g.open()
		create(t, g.eng, "a", 2)
		check(t, g.eng.Admin().CreateTopic(t.Context(), "small", stream.TopicConfig{SegmentBytes: 1024}))
		parts := []stream.TopicPartition{tp("a", 0), tp("a", 1), tp("small", 0)}
		for round := range 4 {
			eng := g.reopen()
			for i, p := range parts {
				eq(t, "end", endOf(t, eng, p), int64(round*100))
				eq(t, "records", values(readAll(t, eng, p)), numbers(0, round*100))
				fill(t, eng, p, round*100, round*100+100)
				c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g" + strconv.Itoa(i)})
				want := int64(-1)
				if round > 0 {
					want = int64(round * 10)
				}
				eq(t, "committed", committed(t, c, p), want)
				check(t, c.CommitOffsets(t.Context(), stream.Offsets{p: {Offset: int64(round+1) * 10}}))
			}
		}
	})
}

// A clean stop is not a new incarnation: nobody has to doubt an offset.
func TestLeaderEpochStaysOverACleanCloseAndRisesAfterACrash(t *testing.T) {
	onSim(t, func(t *testing.T, g *ground) {
		var epochs []int32
		send := func(eng *stream.Engine) {
			create := eng.Admin().CreateTopic(t.Context(), "a", stream.TopicConfig{})
			if create != nil {
				wantErr(t, create, stream.ErrTopicExists)
			}
			rec := must(newProducer(t, eng, stream.ProducerConfig{}).ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
			epochs = append(epochs, rec.LeaderEpoch)
		}
		send(g.open())
		send(g.reopen())
		crashed := g.sim.Crash()
		o := stream.Options{FS: crashed, MinFree: -1}
		for range 2 { // the crash, and a clean stop after it
			eng := must(stream.Open(g.dir, &o))(t)
			send(eng)
			var read []int32
			for _, r := range readAll(t, eng, tp("a", 0)) {
				read = append(read, r.LeaderEpoch)
			}
			eq(t, "epochs of records", read, epochs)
			check(t, eng.Close())
		}
		eq(t, "epochs", epochs, []int32{0, 0, 1, 1})
	})
}

func TestOpenMakesTheDirectoryAndItsParents(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b", "c")
	eng := must(stream.Open(dir, nil))(t)
	create(t, eng, "a", 1)
	check(t, eng.Close())
	t.Chdir(filepath.Dir(dir))
	eng = must(stream.Open("c", &stream.Options{}))(t) // relative paths too
	eq(t, "topics", len(must(eng.Admin().Topics(t.Context()))(t)), 1)
	check(t, eng.Close())
	goleak.VerifyNone(t)
}

func TestOpenThatFailsLeavesNothingRunning(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(file, nil, 0o600))
	for name, open := range map[string]func() (*stream.Engine, error){
		"the directory is a file": func() (*stream.Engine, error) { return stream.Open(file, nil) },
		"a parent is a file":      func() (*stream.Engine, error) { return stream.Open(filepath.Join(file, "x"), nil) },
		"options with a fault":    func() (*stream.Engine, error) { return stream.OpenMemory(&stream.Options{SyncBytes: -1}) },
		"several faults": func() (*stream.Engine, error) {
			return stream.OpenMemory(&stream.Options{SyncInterval: -1, CloseTimeout: -1})
		},
		"an AutoCreate that cannot be": func() (*stream.Engine, error) {
			return stream.OpenMemory(&stream.Options{AutoCreate: &stream.TopicConfig{Partitions: -1}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			if eng, err := open(); err == nil || eng != nil {
				t.Fatalf("%v, %v", eng, err)
			}
			goleak.VerifyNone(t)
		})
	}
	_, err := stream.OpenMemory(&stream.Options{SyncInterval: -1, CloseTimeout: -1})
	for _, name := range []string{"SyncInterval", "CloseTimeout"} {
		if wantErr(t, err, stream.ErrInvalidConfig); !strings.Contains(err.Error(), name) {
			t.Fatalf("%q does not name %s", err, name)
		}
	}
	_, err = stream.OpenMemory(&stream.Options{ReadOnly: true, AutoCreate: &stream.TopicConfig{}})
	wantErr(t, err, stream.ErrInvalidConfig)
}

func TestMemoryEnginesAreStrangersToEachOther(t *testing.T) {
	a, b := must(stream.OpenMemory(nil))(t), must(stream.OpenMemory(nil))(t)
	create(t, a, "a", 1)
	eq(t, "topics", len(must(b.Admin().Topics(t.Context()))(t)), 0)
	check(t, a.Close())
	check(t, b.Close())
}

// Engine Close gives producers CloseTimeout; what could not be finished fails with ErrClosed, its outcome unknown, and Close says so.
func TestEngineCloseFailsWhatCannotBeFinished(t *testing.T) {
	onSim(t, func(t *testing.T, g *ground) {
		eng := g.open(func(o *stream.Options) { o.CloseTimeout = time.Nanosecond })
		g.eng = nil
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{})
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
		syncing, release := make(chan struct{}, 9), make(chan struct{})
		g.sim.Inject(func(op vfs.Op) error {
			if op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, ".log") && strings.Contains(op.Name, "/a-0/") {
				syncing <- struct{}{}
				<-release
			}
			return nil
		})
		failed := make(chan error, 1)
		p.Produce(t.Context(), &stream.Record{Topic: "a"}, func(_ stream.Receipt, err error) { failed <- err })
		<-syncing
		closed := make(chan error)
		go func() { closed <- eng.Close() }()
		wantErr(t, <-failed, stream.ErrClosed, stream.ErrOutcomeUnknown)
		close(release)
		wantErr(t, <-closed, stream.ErrClosed)
		g.sim.Inject(nil)
		eng = g.open()
		eq(t, "records", len(readAll(t, eng, tp("a", 0))), 2)
	})
}
