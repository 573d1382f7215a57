package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// Verify finds nothing in a directory that is whole: with moved log starts, compacted topics, several lives, named producers; also beside producers, retention and compaction; and
// whether the engine was closed or killed.
func TestVerifyOfAHealthyDirectory(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		ctx := t.Context()
		options := func(o *stream.Options) { o.CleanInterval = time.Millisecond }
		eng := g.open(options)
		verify := func() {
			t.Helper()
			check(t, eng.Verify(context.Background(), func(e *stream.CorruptError) { t.Error(e) }))
		}
		verify()
		small(t, eng, "plain", 2)
		small(t, eng, "empty", 2)
		check(t, eng.Admin().CreateTopic(ctx, "old", stream.TopicConfig{SegmentBytes: 1 << 10, RetentionBytes: 4000}))
		check(t, eng.Admin().CreateTopic(ctx, "keys", stream.TopicConfig{SegmentBytes: 1 << 10, Cleanup: stream.CleanupCompact, Config: map[string]string{"min.cleanable.dirty.ratio": "0"}}))
		write := func(n int) {
			p := must(eng.NewProducer(context.Background(), stream.ProducerConfig{Name: "n", Acks: stream.AcksWritten}))(t)
			for i := range n {
				for _, topic := range []string{"plain", "old", "keys"} {
					if _, err := p.ProduceSync(context.Background(), &stream.Record{Topic: topic, Key: fmt.Append(nil, i%9), Value: bytes.Repeat([]byte("v"), i%300)}); err != nil {
						t.Error(err)
						return
					}
				}
			}
			report(t, p.Close(context.Background()))
		}
		write(50)
		verify()
		check(t, trim(eng, tp("plain", 0), 13))
		verify()
		eng = g.reopen(options)
		verify()
		done := make(chan struct{})
		go func() {
			defer close(done)
			n := 400
			if g.disk {
				n = 60
			}
			write(n)
		}()
		for running := true; running; {
			select {
			case <-done:
				running = false
			default:
			}
			verify()
		}
		if g.sim != nil {
			next := g.sim.Crash()
			check(t, eng.Close())
			g.fs, g.sim, g.eng = next, next, nil
			eng = g.open(options)
			verify()
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		wantErr(t, eng.Verify(gone, func(*stream.CorruptError) {}), context.Canceled)
		check(t, eng.Close())
		wantErr(t, eng.Verify(ctx, func(*stream.CorruptError) {}), stream.ErrClosed)
	})
}

// F7: Verify reports every damage that was done, each once, with file, position and offsets, and nothing else: records, indexes, time indexes, producer snapshots; also what was
// given up. Damage that it finds is the partition's state.
func TestVerifyReportsAllDamage(t *testing.T) {
	w := newWreck(t)
	eng := w.open()
	for _, topic := range []string{"a", "b", "c", "whole"} {
		small(t, eng, topic, 2)
		for i := range int32(2) {
			w.write(tp(topic, i), 0, 100)
		}
	}
	a, b, c := tp("a", 0), tp("b", 1), tp("c", 0)
	w.close()
	var want []string
	harm := func(p stream.TopicPartition, offset int64) {
		at := w.batch(p, offset)
		w.flip(at.file, at.pos+at.size-1)
		want = append(want, facts(&stream.CorruptError{TopicPartition: p, From: at.base, To: at.next, File: at.file, Pos: at.pos}))
	}
	harm(a, 17)
	harm(a, 18)
	harm(a, 64)
	harm(b, 5)
	harm(c, 0)
	harm(c, 99)
	want[0] = strings.Replace(want[0], "[17,18)", "[17,19)", 1) // what adjoins may be one
	both := want[1]
	want = slices.Delete(want, 1, 2)
	gone := w.files(b, ".log")[3]
	var lost [2]int64
	for _, p := range w.batches(b) {
		if p.file == gone {
			if p.pos == 0 {
				lost[0] = p.base
			}
			lost[1] = p.next
		}
	}
	check(t, os.Remove(gone))
	eng = w.open()
	found := w.verify()
	// Two batches side by side are one damage or two; the file that is gone is told by its name.
	for i, f := range found {
		if f == strings.Replace(want[0], "[17,19)", "[17,18)", 1) {
			found[i] = want[0]
		}
	}
	found = slices.DeleteFunc(found, func(f string) bool { return f == both })
	missing := fmt.Sprintf("%v [%d,%d)", b, lost[0], lost[1])
	n := len(found)
	found = slices.DeleteFunc(found, func(f string) bool { return strings.HasPrefix(f, missing) })
	eq(t, "reports of the missing file", n-len(found), 1)
	slices.Sort(found)
	slices.Sort(want)
	eq(t, "reports", strings.Join(found, "\n"), strings.Join(want, "\n"))
	for _, h := range must(eng.Admin().Health(t.Context()))(t) {
		is := h.TopicPartition == a || h.TopicPartition == b || h.TopicPartition == c
		eq(t, fmt.Sprint("damaged ", h.TopicPartition), h.State == stream.PartitionDamaged, is)
	}
	// Asked again, and with one given up, it says the same.
	check(t, eng.SkipCorrupt(t.Context(), a, 64, 65))
	if again := w.verify(); len(again) != n {
		t.Errorf("%d reports, and now %d", n, len(again))
	}
}

// F7, A14: of files that only help, Verify says the file, and no offsets; readers do not notice.
func TestVerifyReportsDamagedHints(t *testing.T) {
	for _, suffix := range []string{".index", ".timeindex", ".snapshot"} {
		for _, how := range []string{"flipped", "cut"} {
			t.Run(suffix+" "+how, func(t *testing.T) {
				w := newWreck(t)
				eng := w.open()
				check(t, eng.Admin().CreateTopic(t.Context(), "a", stream.TopicConfig{SegmentBytes: 4 << 10, Config: map[string]string{"index.interval.bytes": "256"}}))
				a := tp("a", 0)
				w.write(a, 0, 200)
				w.close()
				files := w.files(a, suffix)
				if len(files) < 2 {
					t.Fatalf("files %v", files)
				}
				file := files[len(files)-2]
				w.change(file, func(b []byte) []byte {
					if how == "cut" {
						return b[:len(b)-3]
					}
					b[len(b)/2] ^= 0x55
					return b
				})
				eng = w.open()
				found := w.verify()
				if len(found) == 0 || !strings.Contains(strings.Join(found, "\n"), filepath.ToSlash(file)) {
					// The engine may have made it anew when it was opened: then it is whole.
					b := must(os.ReadFile(file))(t)
					t.Errorf("nobody tells; the file has %d bytes; reports %v", len(b), found)
				}
				for _, f := range found {
					var from, to int64
					if _, err := fmt.Sscanf(f[strings.Index(f, "["):], "[%d,%d)", &from, &to); err != nil || from != to {
						t.Errorf("report %s", f)
					}
				}
				eq(t, "records", w.read(a).values, numbers(0, 200))
				h := must(eng.Admin().Health(t.Context(), a))(t)
				eq(t, "state", h[0].State, stream.PartitionOK)
			})
		}
	}
}

// flipBit changes a byte of a file, if it is there: the metadata store may have compacted it away.
func flipBit(t *testing.T, name string, at func(size int64) int64) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	check(t, err)
	defer f.Close()
	var b [1]byte
	pos := at(must(f.Stat())(t).Size())
	must(f.ReadAt(b[:], pos))(t)
	b[0] ^= 0x10
	must(f.WriteAt(b[:], pos))(t)
}

// F7: damage of the metadata is reported too, without a partition and offsets: by Open, or, of what is damaged under a running engine, by Verify.
func TestVerifyReportsDamagedMetadata(t *testing.T) {
	for _, running := range []bool{false, true} {
		told := 0
		for try := range 6 {
			w := newWreck(t)
			eng := w.open()
			small(t, eng, "a", 2)
			w.write(tp("a", 0), 0, 100)
			w.close()
			w.open()
			w.write(tp("a", 1), 0, 100)
			w.close()
			damage := func() {
				tables := must(filepath.Glob(filepath.Join(w.dir, "meta", "*.sst")))(t)
				if len(tables) == 0 {
					t.Fatal("no tables")
				}
				for _, f := range tables {
					flipBit(t, f, func(size int64) int64 { return 10 + int64(try)*size/20 })
				}
			}
			if !running {
				damage()
			}
			eng, err := stream.Open(w.dir, &stream.Options{MinFree: -1})
			if err != nil {
				wantErr(t, err, stream.ErrCorrupt)
				told++
				continue
			}
			if running {
				damage()
			}
			found := 0
			err = eng.Verify(t.Context(), func(e *stream.CorruptError) {
				if e.From == -1 && e.To == -1 && e.Topic == "" && strings.Contains(e.File, "meta") {
					found++
				}
			})
			if err != nil && !errors.Is(err, stream.ErrCorrupt) && !errors.Is(err, stream.ErrMetaFailed) {
				t.Errorf("verify: %v", err)
			}
			if found > 0 {
				told++
			}
			_ = eng.Close()
		}
		if told < 4 {
			t.Errorf("%d of 6 damaged stores were told of (damaged under the engine: %t)", told, running)
		}
	}
}

// F1, F7: a directory that somebody removes under a running engine is an error to its users, not their end: producers, consumers, the cleaner and Verify return, and so does Close;
// the next engine begins anew or says what is missing.
func TestDirectoryRemovedUnderTheEngine(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files that are open cannot be removed")
	}
	for _, what := range []string{"all", "topics", "partition", "segments"} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			data := filepath.Join(dir, "data")
			eng := must(stream.Open(data, &stream.Options{MinFree: -1, CleanInterval: time.Millisecond}))(t)
			ctx := t.Context()
			check(t, eng.Admin().CreateTopic(ctx, "a", stream.TopicConfig{SegmentBytes: 1 << 10, RetentionBytes: 20_000}))
			check(t, eng.Admin().CreateTopic(ctx, "k", stream.TopicConfig{SegmentBytes: 1 << 10, Cleanup: stream.CleanupCompact, Config: map[string]string{"min.cleanable.dirty.ratio": "0"}}))
			p := newProducer(t, eng, stream.ProducerConfig{Acks: stream.AcksWritten})
			write := func(n int) (failed int) {
				for i := range n {
					for _, topic := range []string{"a", "k"} {
						if _, err := p.ProduceSync(ctx, &stream.Record{Topic: topic, Key: fmt.Append(nil, i%4), Value: []byte("some value of a record")}); err != nil {
							failed++
						}
					}
				}
				return failed
			}
			eq(t, "failures", write(100), 0)
			switch what {
			case "all":
				_ = os.RemoveAll(data) // the cleaner may make a file meanwhile
			case "topics":
				_ = os.RemoveAll(filepath.Join(data, "topics"))
			case "partition":
				_ = os.RemoveAll(filepath.Join(data, "topics", "a-0"))
			case "segments":
				for _, f := range must(filepath.Glob(filepath.Join(data, "topics", "*", "*")))(t) {
					_ = os.Remove(f)
				}
			}
			var wg sync.WaitGroup
			for i := range 3 {
				wg.Go(func() {
					c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Reset: stream.ResetEarliest, Borrow: i == 0, MaxWait: -1})
					if err != nil {
						return
					}
					_ = c.Assign(tp("a", 0), tp("k", 0))
					for range 50 {
						rs, _ := c.Poll(ctx, 10)
						for _, r := range rs {
							if string(r.Value) != "some value of a record" {
								t.Errorf("value %q", r.Value)
							}
						}
					}
					_ = c.Close(ctx)
				})
			}
			failed := write(200)
			wg.Wait()
			if failed == 0 && what != "segments" {
				t.Error("nobody tells")
			}
			_ = eng.Verify(ctx, func(*stream.CorruptError) {})
			_, _ = eng.Admin().StartOffsets(ctx, tp("a", 0))
			_ = trim(eng, tp("a", 0), -1)
			_ = eng.Admin().AlterTopic(ctx, "a", map[string]string{"retention.bytes": "1"})
			_ = eng.Admin().DeleteTopic(ctx, "k")
			_ = eng.Close()
			again, err := stream.Open(data, &stream.Options{MinFree: -1})
			if err != nil {
				if !errors.Is(err, stream.ErrCorrupt) {
					t.Errorf("open: %v", err)
				}
				return
			}
			_, _ = again.Admin().EndOffsets(ctx, tp("a", 0))
			check(t, again.Close())
		})
	}
}
