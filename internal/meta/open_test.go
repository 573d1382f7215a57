package meta

import (
	"errors"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// F4: a store with compactions to do, whose Open fails at any reading of the disk: an error, no panic on one of pebble's goroutines, no goroutine left.
func TestFailingReadsWhileOpening(t *testing.T) {
	defer func(size uint64) { memTableSize = size }(memTableSize)
	memTableSize = 64 << 10
	sim := vfs.NewSim(12)
	for range 6 { // each life leaves a table
		s := open(t, sim)
		w := newWork(s)
		for range 20 {
			check(t, w.step())
		}
		check(t, s.Close())
	}
	disk := sim.Crash()
	failed := 0
	for at := 1; ; at++ {
		sim := disk.Crash()
		n := 0
		sim.Inject(func(op vfs.Op) error {
			if op.Kind != vfs.OpRead || !strings.HasPrefix(op.Name, "meta/") {
				return nil
			}
			if n++; n == at {
				return syscall.EIO
			}
			return nil
		})
		s, err := Open(Options{FS: sim, Dir: dir})
		if err == nil {
			if n < at {
				check(t, s.Close())
				break
			}
			_ = s.Close()
			continue
		}
		failed++
		if !errors.Is(err, kafka.ErrMetaFailed) && !errors.Is(err, kafka.ErrCorrupt) {
			t.Fatal(err)
		}
	}
	if failed == 0 {
		t.Fatal("no reading failed")
	}
	t.Logf("%d of the readings fail Open", failed)
}

// A store that is opened and closed again and again, or ends without a close, is compacted: what it consists of does not grow.
func TestManyLives(t *testing.T) {
	for _, orderly := range []bool{true, false} {
		sim := vfs.NewSim(15)
		most := 0
		for life := range 150 {
			s := open(t, sim)
			check(t, s.SetName("n", Name{int64(life), 1}))
			tables := func() int { return int(s.life.db.Metrics().Levels[0].TablesCount) }
			for i := 0; i < 100_000 && tables() > 20; i++ { // the life is long enough for a compaction
				runtime.Gosched()
			}
			most = max(most, tables())
			next := sim
			if !orderly {
				next = sim.Crash()
			}
			check(t, s.Close())
			sim = next
		}
		if most > 40 {
			t.Errorf("closed in order %v: %d tables of level 0", orderly, most)
		}
	}
}
