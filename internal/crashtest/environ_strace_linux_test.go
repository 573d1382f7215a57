package crashtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/runnelmq/runnel/stream"
)

// F4: syncs of one partition's file fail, from the first one on: nothing of it is acknowledged as synced, its error says so,
// and the other partition goes on. When syncs work again, everything from before is there.
func TestSyncsOfAPartitionFail(t *testing.T) {
	if args := childArgs(); args != nil {
		dir, name := args[1], args[2]
		switch args[0] {
		case "fill":
			book := newLedger()
			eng := openAt(t, dir, stream.Options{})
			createTopic(t, eng, "t", stream.TopicConfig{Partitions: 2})
			for p := range int32(2) {
				book.sender(t, eng, "fill", stream.AcksSynced).sendAll(t, part("t", p), 20)
			}
			if err := eng.Close(); err != nil {
				t.Fatal(err)
			}
			book.save(t, name)
		case "fail":
			failSyncs(t, dir, name)
		case "after":
			afterFailure(t, dir, name)
		}
		return
	}
	strace := findStrace(t)
	dir, book := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "book")
	alive(t, "fill", dir, book)
	inject := append(strace, "-P", firstSegment(dir, part("t", 0)), "-e", "inject=fdatasync:error=EIO")
	aliveUnder(t, inject, "fail", dir, book)
	alive(t, "after", dir, book)
}

func failSyncs(t *testing.T, dir, name string) {
	book := loadLedger(t, name)
	eng := openAt(t, dir, stream.Options{})
	ctx := atOnce(t)
	synced := book.sender(t, eng, "synced", stream.AcksSynced)
	written := book.sender(t, eng, "written", stream.AcksWritten)
	for range 50 {
		if rc, err := synced.send(ctx, part("t", 0)); !oneOf(err, stream.ErrPartitionFailed) {
			t.Fatalf("F4: a synced append without a sync: %+v, %v", rc, err)
		}
		if _, err := written.send(ctx, part("t", 0)); err != nil && !oneOf(err, stream.ErrPartitionFailed) {
			t.Errorf("F4: an append: %v", err)
		}
		synced.sendAll(t, part("t", 1), 1)
	}
	book.verify(t, eng, true, part("t", 0))
	book.verify(t, eng, false, part("t", 1))
	if err := eng.Close(); err == nil || !isTyped(err) {
		t.Errorf("F4: close: %v", err)
	}
	book.save(t, name)
}

// F4: every sync fails from some moment on, those of the metadata store and of directories too, and while opening and closing:
// errors are typed, the process lives, and what was acknowledged before is there afterwards.
func TestAllSyncsFail(t *testing.T) {
	if args := childArgs(); args != nil {
		if args[0] == "fail" {
			workWithoutSyncs(t, args[1], args[2])
		} else {
			afterFailure(t, args[1], args[2])
		}
		return
	}
	strace := findStrace(t)
	r := random(startSeed(t), 25)
	for range 3 {
		when := strconv.Itoa(between(r, 1, 25)) + "+" // of each thread
		t.Logf("from %s on", when)
		dir, book := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "book")
		inject := append(strace, "-e", "inject=fdatasync,fsync:error=EIO:when="+when)
		aliveUnder(t, inject, "fail", dir, book)
		alive(t, "after", dir, book)
	}
}

func workWithoutSyncs(t *testing.T, dir, name string) {
	book := newLedger()
	defer book.save(t, name)
	eng, err := stream.Open(dir, nil)
	if err != nil {
		t.Logf("open: %v", err)
		return
	}
	ctx := atOnce(t)
	if err := eng.Admin().CreateTopic(ctx, "t", stream.TopicConfig{Partitions: 2, SegmentBytes: 32 << 10}); !isTyped(err) {
		t.Errorf("F4: create topic: %v", err)
	}
	for _, acks := range []stream.Acks{stream.AcksSynced, stream.AcksWritten} {
		p, err := eng.NewProducer(ctx, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
		if err != nil {
			if !isTyped(err) {
				t.Errorf("F4: producer: %v", err)
			}
			continue
		}
		s := &sender{book: book, p: p, name: strconv.Itoa(int(acks)), acks: acks}
		failed := 0
		for i := range 300 {
			if _, err := s.send(ctx, part("t", int32(i%2))); !isTyped(err) {
				t.Errorf("F4: an append: %v", err)
			} else if err != nil {
				failed++
			}
		}
		t.Logf("acks %d: %d of 300 failed", acks, failed)
	}
	if err := eng.Close(); !isTyped(err) {
		t.Errorf("F4: close: %v", err)
	}
}

// findStrace returns a strace that stops the child for syncs only, so that it is not slow.
func findStrace(t *testing.T) []string {
	t.Helper()
	name, err := exec.LookPath("strace")
	if err != nil {
		t.Skip(err)
	}
	line := []string{name, "-f", "--seccomp-bpf", "-qq", "-o", os.DevNull, "-e", "trace=fdatasync,fsync"}
	if out, err := exec.Command(line[0], append(line[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("strace: %v: %s", err, out)
	}
	return line
}
