package crashtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// check reads everything, while nobody writes, and compares it with what was acknowledged.
func (s *soaker) check(ctx context.Context) {
	for _, tp := range s.book.partitions() {
		got, end, err := s.readWhole(ctx, tp)
		if err != nil {
			s.t.Fatalf("A1: %v: %v", tp, err)
		}
		if err := s.book.whole(tp, got, end); err != nil {
			s.t.Fatal(err)
		}
	}
}

// readWhole reads what is in a partition, and enters where its log starts then.
func (s *soaker) readWhole(ctx context.Context, tp stream.TopicPartition) (got []stream.Record, end int64, err error) {
	c, err := s.eng.NewConsumer(ctx, stream.ConsumerConfig{Reset: stream.ResetEarliest, MaxWait: -1})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	if err := errors.Join(c.Assign(tp), c.Seek(tp, 0)); err != nil {
		return nil, 0, err
	}
	next := map[stream.TopicPartition]int64{}
	for {
		rs, err := c.Poll(ctx, 0)
		if err != nil {
			return nil, 0, err
		}
		if len(rs) == 0 {
			break
		}
		if !s.reads(ctx, rs, next, 0) {
			return nil, 0, errors.New("see above")
		}
		got = append(got, rs...)
	}
	starts, err := s.eng.Admin().StartOffsets(ctx, tp)
	if err != nil {
		return nil, 0, err
	}
	ends, err := s.eng.Admin().EndOffsets(ctx, tp)
	if err != nil {
		return nil, 0, err
	}
	start, end := starts[tp].Offset, ends[tp].Offset
	// Retention may have overtaken the reader.
	got = slices.DeleteFunc(got, func(r stream.Record) bool { return r.Offset < start })
	if len(got) > 0 && s.book.kind(tp).dense() && next[tp] != end && start < end {
		return nil, 0, fmt.Errorf("A3: the last record is at offset %d, the log ends at %d", next[tp]-1, end)
	}
	return got, end, s.book.started(tp, start, time.Now())
}

// settle waits until policies have been carried out, now that nobody writes.
func (s *soaker) settle(ctx context.Context) {
	if err := s.eng.Admin().AlterTopic(ctx, soakTopics[soakBoth], map[string]string{"cleanup.policy": "compact,delete"}); err != nil {
		s.t.Fatalf("alter topic: %v", err)
	}
	for _, tp := range s.book.partitions() {
		most := int64(0)
		switch s.book.kind(tp) {
		case soakBytes:
			most = soakRetained + 2*soakPart
		case soakTrimmed:
			continue
		case soakCompacted:
			most = 24 * soakPart
		}
		s.shrinks(ctx, tp, most)
	}
}

// shrinks waits until a partition has no more than so many bytes of keys and values. While it goes on being compacted, it does not hang.
func (s *soaker) shrinks(ctx context.Context, tp stream.TopicPartition, most int64) {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	passes, since := int64(-1), time.Now()
	for {
		if n, ok := s.passes.Load(tp); ok && n.(*atomic.Int64).Load() != passes {
			passes, since = n.(*atomic.Int64).Load(), time.Now()
		}
		got, end, err := s.readWhole(ctx, tp)
		if err != nil {
			s.t.Fatalf("A1: %v: %v", tp, err)
		}
		size := int64(0)
		for i := range got {
			size += int64(len(got[i].Key) + len(got[i].Value))
		}
		if size <= most {
			return
		}
		if <-again.C; time.Since(since) > hang {
			s.t.Fatalf("A11/A12: %v: after %v there are %d records of %d bytes, where policy leaves %d; the log ends at %d", tp, hang, len(got), size, most, end)
		}
	}
}

// soakColumns are what is looked at, at rest: the engine is open, nobody uses it, and garbage has been collected. The last one is with the engine closed.
var soakColumns = []string{"heap KiB", "anon KiB", "rss KiB", "files", "mappings", "goroutines", "disk KiB", "closed heap KiB"}

type soakRow [8]int64

// soakFigures are what the process uses, over the lives of the engine.
type soakFigures struct {
	begin, shown     time.Time
	now              soakRow
	first, last, max soakRow
	rows             int
}

func heapNow() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) >> 10
}

// open looks at a process whose engine is open and at rest.
func (f *soakFigures) open(s *soaker) {
	f.now = soakRow{heapNow(), procStatus(s.t, "RssAnon"), procStatus(s.t, "VmRSS"), int64(len(openFiles(s.t, ""))), int64(len(mappings(s.t, ""))),
		int64(runtime.NumGoroutine()), diskUse(s.t, s.dir)}
}

// closed looks at it when the engine is closed, checks that nothing of the directory is in use, and shows a row every minute, in the short form each.
func (f *soakFigures) closed(s *soaker) {
	if left := openFiles(s.t, s.dir); len(left) > 0 {
		s.t.Errorf("B1: the engine is closed, and these files are open: %v", left)
	}
	if left := mappings(s.t, s.dir); len(left) > 0 {
		s.t.Errorf("B1: the engine is closed, and these files are mapped: %v", left)
	}
	f.now[len(f.now)-1] = heapNow()
	if f.rows == 0 {
		f.first, f.max, f.begin = f.now, f.now, time.Now()
	}
	f.rows++
	for i, v := range f.now {
		f.max[i] = max(f.max[i], v)
	}
	f.last = f.now
	if *soak == 0 || time.Since(f.shown) >= time.Minute {
		f.shown = time.Now()
		s.t.Logf("%6.0f s, life %d, %d sent: %v", time.Since(f.begin).Seconds(), s.counts.lives.Load(), s.counts.sent.Load(), f.now)
	}
}

func (f *soakFigures) report(t *testing.T) {
	for i, name := range soakColumns {
		t.Logf("%-16s first %7d, last %7d, max %7d", name, f.first[i], f.last[i], f.max[i])
	}
}

func (r soakRow) String() string {
	var parts []string
	for i, v := range r {
		parts = append(parts, fmt.Sprintf("%s %d", soakColumns[i], v))
	}
	return strings.Join(parts, ", ")
}

// procStatus is a line of /proc/self/status, in KiB.
func procStatus(t *testing.T, key string) int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), key+":")
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// openFiles are the files that this process has open at or below dir; "": all.
func openFiles(t *testing.T, dir string) (names []string) {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		name, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name()))
		if err == nil && strings.HasPrefix(name, dir) {
			names = append(names, name)
		}
	}
	return names
}

// mappings are the lines of /proc/self/maps with files at or below dir; "": all.
func mappings(t *testing.T, dir string) (lines []string) {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, dir) {
			lines = append(lines, line)
		}
	}
	return lines
}

// diskUse is what the files below dir take, in KiB.
func diskUse(t *testing.T, dir string) (kib int64) {
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the cleaner is at work
		}
		if err != nil {
			return err
		}
		if info, err := d.Info(); err == nil {
			kib += info.Sys().(*syscall.Stat_t).Blocks / 2
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return kib
}
