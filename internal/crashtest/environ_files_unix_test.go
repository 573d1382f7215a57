//go:build unix

package crashtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/runnelmq/runnel/stream"
)

// firstSegment is the file that holds offset 0.
func firstSegment(dir string, tp stream.TopicPartition) string {
	return filepath.Join(dir, "topics", tp.String(), "00000000000000000000.log")
}

// B1, A8: somebody shortens a live segment file under readers of owned records and a writer. No signal and no wrong byte
// reaches anybody; errors are typed; the other partition goes on; the next Open says what is damaged, and works.
func TestTruncatedSegment(t *testing.T) {
	for _, reopened := range []bool{false, true} {
		for _, half := range []bool{false, true} {
			t.Run(fmt.Sprintf("reopened=%t,half=%t", reopened, half), func(t *testing.T) {
				if args := childArgs(); args != nil {
					truncateUnderReaders(t, args[0], reopened, half)
					return
				}
				alive(t, t.TempDir())
			})
		}
	}
}

func truncateUnderReaders(t *testing.T, dir string, reopened, half bool) {
	ctx := t.Context()
	victim, other := part("t", 0), part("t", 1)
	eng := openAt(t, dir, stream.Options{MinFree: -1})
	createTopic(t, eng, "t", stream.TopicConfig{Partitions: 2})
	book := newLedger()
	for _, tp := range []stream.TopicPartition{victim, other} {
		book.sender(t, eng, "fill", stream.AcksWritten).sendAll(t, tp, 1500)
		book.sender(t, eng, "synced", stream.AcksSynced).sendAll(t, tp, 1)
	}
	if reopened { // everything lies below the recovery point then
		if err := eng.Close(); err != nil {
			t.Fatal(err)
		}
		eng = openAt(t, dir, stream.Options{MinFree: -1})
	}
	size := func() int64 {
		got, err := readFrom(atOnce(t), eng, victim, 0)
		if err != nil {
			t.Fatal(err)
		}
		var n int64
		for _, r := range got {
			n += int64(len(r.Value))
		}
		return n
	}()

	// The file cannot be read, its bytes are wrong, or the partition was taken offline.
	damage := []error{stream.ErrStorage, stream.ErrCorrupt, stream.ErrPartitionFailed}
	stop := make(chan struct{})
	var errs atomic.Int64
	var readers, ready sync.WaitGroup
	ready.Add(8)
	for range 8 {
		readers.Go(func() {
			c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{MaxWait: -1})
			if err == nil {
				err = c.Assign(victim)
			}
			if err != nil {
				t.Error(err)
			}
			for pass := 0; err == nil; pass++ {
				// The last pass begins when the writers have ended.
				last := isClosed(stop)
				if err := readPass(ctx, c, victim); err != nil {
					errs.Add(1)
					if !oneOf(err, damage...) {
						t.Errorf("B1: a reader got %v", err)
					}
					if pass > 0 {
						<-stop // a fault costs much, and the writers need the processors
					}
				}
				if pass == 0 {
					ready.Done()
				}
				if last {
					return
				}
			}
			ready.Done()
		})
	}
	ready.Wait()
	before := errs.Load()
	to := int64(0)
	if half {
		to = size/2 + 100
	}
	if err := os.Truncate(firstSegment(dir, victim), to); err != nil {
		t.Fatal(err)
	}
	// The writers do not know each other's partition.
	writers := []*sender{
		book.sender(t, eng, "writer, written", stream.AcksWritten),
		book.sender(t, eng, "writer, synced", stream.AcksSynced),
	}
	for i := range 40 {
		s := writers[i%2]
		if _, err := s.send(ctx, victim); err != nil && !oneOf(err, damage...) {
			t.Errorf("B1: an append to the shortened file: %v", err)
			break
		}
		if _, err := s.send(ctx, other); err != nil {
			t.Errorf("B1: the other partition: %v", err)
			break
		}
	}
	close(stop)
	readers.Wait()
	t.Logf("readers got %d errors", errs.Load()-before)
	if before != 0 || reopened && errs.Load() < 8 {
		t.Errorf("A8: 8 readers got %d errors before and %d after", before, errs.Load())
	}
	book.verify(t, eng, false, other)
	if err := eng.Close(); !isTyped(err) {
		t.Errorf("close: %v", err)
	}

	eng = openAt(t, dir, stream.Options{MinFree: -1})
	book.verify(t, eng, false, other)
	got, err := readFrom(ctx, eng, victim, 0)
	for _, r := range got {
		if _, err := parseKillID(r.Value); err != nil {
			t.Errorf("A4: wrong bytes at offset %d after opening: %v", r.Offset, err)
		}
	}
	var facts *stream.CorruptError
	if reopened && !(errors.Is(err, stream.ErrCorrupt) && errors.As(err, &facts) && facts.TopicPartition == victim) {
		t.Errorf("A8: the shortened partition, after %d records: %v", len(got), err)
	}
	if reopened {
		wantState(t, eng, stream.PartitionDamaged, victim)
	}
	wantState(t, eng, stream.PartitionOK, other)
	book.sender(t, eng, "after", stream.AcksSynced).sendAll(t, other, 10)
	if err := eng.Close(); !isTyped(err) {
		t.Errorf("close: %v", err)
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// readPass reads a partition from its start to its end and looks at every byte.
func readPass(ctx context.Context, c stream.Consumer, tp stream.TopicPartition) error {
	if err := c.SeekToStart(tp); err != nil {
		return err
	}
	for {
		rs, err := c.Poll(ctx, 100)
		if err != nil || len(rs) == 0 {
			return err
		}
		for _, r := range rs {
			if _, err := parseKillID(r.Value); err != nil {
				return fmt.Errorf("wrong bytes at offset %d: %w", r.Offset, err)
			}
		}
	}
}

// F1: the directory is removed under a running engine. Everything ends, with an error where there has to be one, that of the
// metadata store's next write-ahead log included; the place can be used again.
func TestRemovedDirectory(t *testing.T) {
	args := childArgs()
	if args == nil {
		alive(t, filepath.Join(t.TempDir(), "data"))
		return
	}
	dir := args[0]
	eng := openAt(t, dir, stream.Options{MinFree: -1})
	createTopic(t, eng, "t", stream.TopicConfig{Partitions: 3, SegmentBytes: 64 << 10})
	book := newLedger()
	s := book.sender(t, eng, "fill", stream.AcksSynced)
	s.sendAll(t, part("t", 0), 300)
	s.sendAll(t, part("t", 1), 1)
	c, err := eng.NewConsumer(atOnce(t), stream.ConsumerConfig{Group: "g", ManualCommit: true, MaxWait: -1})
	if err == nil {
		err = c.Assign(part("t", 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	for {
		os.RemoveAll(dir)
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			break
		}
	}

	ctx := atOnce(t)
	count := map[string]int{}
	try := func(what string, f func() error) {
		err := f()
		if !isTyped(err) && !errors.Is(err, os.ErrNotExist) || ctx.Err() != nil {
			t.Errorf("%s without a directory: %v", what, err)
		}
		switch {
		case err == nil:
			count[what+" succeeded"]++
		default:
			count[what+" failed"]++
		}
	}
	note := strings.Repeat("x", 4000)
	for i := range 500 {
		for p := range int32(3) {
			try("append", func() error { _, err := s.send(ctx, part("t", p)); return err })
		}
		try("commit", func() error {
			return c.CommitOffsets(ctx, stream.Offsets{part("t", 0): {Offset: 1, LeaderEpoch: -1, Metadata: note}})
		})
		if i%50 != 0 {
			continue
		}
		name := "u" + strconv.Itoa(i)
		try("create", func() error { return eng.Admin().CreateTopic(ctx, name, stream.TopicConfig{}) })
		try("delete", func() error { return eng.Admin().DeleteTopic(ctx, name) })
		try("read", func() error { _, err := readFrom(ctx, eng, part("t", 0), 0); return err })
		try("name", func() error {
			p, err := eng.NewProducer(ctx, stream.ProducerConfig{Name: name})
			if err == nil {
				err = p.Close(ctx)
			}
			return err
		})
	}
	t.Log(count)
	if count["append failed"] == 0 || count["commit failed"] == 0 {
		t.Errorf("nothing failed: %v", count)
	}
	if err := eng.Close(); !isTyped(err) {
		t.Errorf("close: %v", err)
	}

	eng = openAt(t, dir, stream.Options{MinFree: -1})
	createTopic(t, eng, "t", stream.TopicConfig{})
	again := newLedger()
	again.sender(t, eng, "again", stream.AcksSynced).sendAll(t, part("t", 0), 10)
	again.verify(t, eng, false, part("t", 0))
	if err := eng.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
