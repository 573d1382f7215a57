package stream_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

var scalePartitions = flag.Int("partitions", 2000, "partitions that are open at once in TestManyPartitions; F10: 20000")

// scaleEmpty is how many partitions get no record.
const scaleEmpty = 25

// F10: many partitions, written and read round robin and opened again, in a topic that keeps everything and in topics that the cleaner has to look at. At no moment are more files
// open or mapped than the budgets of the engine say, a partition costs no goroutine and no more than 4 KiB of the heap, and one without records has no directory.
func TestManyPartitions(t *testing.T) {
	if _, err := os.Stat("/proc/self/maps"); err != nil {
		t.Skip(err)
	}
	for _, tc := range []struct {
		name   string
		topics map[string]stream.TopicConfig
	}{
		{"kept", map[string]stream.TopicConfig{"kept": {}}},
		{"cleaned", map[string]stream.TopicConfig{
			"aged":      {Retention: forever, RetentionBytes: 1 << 20},
			"compacted": {Cleanup: stream.CleanupCompact, Config: map[string]string{"min.cleanable.dirty.ratio": "0.01"}},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { manyPartitions(t, tc.topics) })
	}
}

func manyPartitions(t *testing.T, topics map[string]stream.TopicConfig) {
	dir := scaleDir(t)
	m := newScaleMeter(t, dir)
	o := &stream.Options{MinFree: -1, CleanInterval: 20 * time.Millisecond}
	eng := must(stream.Open(dir, o))(t)
	m.engine()
	var used, all []stream.TopicPartition
	for name, c := range topics {
		n := *scalePartitions / len(topics)
		c.Partitions = n + scaleEmpty
		check(t, eng.Admin().CreateTopic(t.Context(), name, c))
		for i := range int32(n + scaleEmpty) {
			if all = append(all, tp(name, i)); int(i) < n {
				used = append(used, tp(name, i))
			}
		}
	}
	m.step("made", 0)

	const rounds = 3
	p := newProducer(t, eng, stream.ProducerConfig{Acks: stream.AcksWritten, Partitioner: stream.ManualPartitioner()})
	for round := range rounds {
		for i, to := range used {
			r := stream.Record{Topic: to.Topic, Partition: to.Partition, Key: []byte("key"), Value: scaleValue(to, round)}
			must(p.ProduceSync(t.Context(), &r))(t)
			if i%256 == 0 {
				m.budgets("written")
			}
		}
		m.step(fmt.Sprintf("round %d", round+1), len(used))
	}
	check(t, p.Close(t.Context()))
	scaleRead(t, m, eng, all, used, rounds)
	m.step("read", len(used))
	check(t, eng.Close())
	m.step("closed", 0)

	eng = must(stream.Open(dir, o))(t)
	m.step("opened", 0)
	scaleRead(t, m, eng, all, used, rounds)
	m.step("read", len(used))
	check(t, eng.Close())
	m.step("closed", 0)
	if dirs := must(os.ReadDir(filepath.Join(dir, "topics")))(t); len(dirs) != len(used) {
		t.Errorf("F10: %d directories, %d partitions have records", len(dirs), len(used))
	}
}

// scaleDir is a directory in memory, if there is room: a disk's syncs would be all that is measured.
func scaleDir(t *testing.T) string {
	parent := ""
	if free, _, err := vfs.NewDisk().Free("/dev/shm"); err == nil && free > int64(*scalePartitions)*(128<<10) {
		parent = "/dev/shm"
	}
	dir := must(os.MkdirTemp(parent, "runnel-scale-"))(t)
	t.Cleanup(func() { report(t, os.RemoveAll(dir)) })
	return dir
}

func scaleValue(of stream.TopicPartition, round int) []byte {
	return fmt.Appendf(nil, "%v, record %d", of, round)
}

// scaleRead reads everything with one consumer of all partitions, and compares.
func scaleRead(t *testing.T, m *scaleMeter, eng *stream.Engine, all, used []stream.TopicPartition, rounds int) {
	t.Helper()
	c := newConsumer(t, eng, stream.ConsumerConfig{Reset: stream.ResetEarliest, Visibility: stream.Published})
	check(t, c.Assign(all...))
	next := make(map[stream.TopicPartition]int, len(used))
	for polls := 0; ; polls++ {
		rs := must(c.Poll(t.Context(), 0))(t)
		if len(rs) == 0 {
			break
		}
		for _, r := range rs {
			of := tp(r.Topic, r.Partition)
			if n := next[of]; r.Offset != int64(n) || !bytes.Equal(r.Value, scaleValue(of, n)) {
				t.Fatalf("F10: record %d of %v is %q at offset %d", n, of, r.Value, r.Offset)
			}
			next[of]++
		}
		if polls%4 == 0 {
			m.budgets("read")
		}
	}
	for _, of := range used {
		if next[of] != rounds {
			t.Fatalf("F10: %d records of %v, want %d", next[of], of, rounds)
		}
	}
	if len(next) != len(used) {
		t.Errorf("F10: %d partitions have records, want %d", len(next), len(used))
	}
	check(t, c.Close(t.Context()))
}

// scaleMeta is what the tables of the metadata store may grow by in memory, however many partitions there are.
const scaleMeta = 2 << 20

// A scaleMeter looks at what the process holds.
type scaleMeter struct {
	t                 *testing.T
	dir               string
	files, mappings   int // the budgets, with the 64 that may be beside them
	heap              uint64
	goroutines        int
	begin             time.Time
	mostFiles, mostIn int // since the last step
}

func newScaleMeter(t *testing.T, dir string) *scaleMeter {
	maps := 4096
	if text, err := os.ReadFile("/proc/sys/vm/max_map_count"); err == nil {
		maps = min(maps, must(strconv.Atoi(strings.TrimSpace(string(text))))(t)/4)
	}
	ground := vfs.NewDisk()
	defer ground.Close()
	m := &scaleMeter{t: t, dir: dir, files: min(1024, ground.MaxOpen()/4) + 64, mappings: maps + 64}
	t.Logf("budgets: %d files, %d mappings", m.files, m.mappings)
	return m
}

// engine takes what an engine without partitions needs as the measure for partitions.
func (m *scaleMeter) engine() {
	m.heap, m.goroutines, m.begin = heapInUse(), runtime.NumGoroutine(), time.Now()
}

// budgets fails the test if too much is open.
func (m *scaleMeter) budgets(when string) {
	m.t.Helper()
	files := len(must(os.ReadDir("/proc/self/fd"))(m.t))
	mappings := bytes.Count(must(os.ReadFile("/proc/self/maps"))(m.t), []byte(m.dir))
	if files > m.files || mappings > m.mappings {
		m.t.Fatalf("F10: while they are %s, %d files are open, the budget is %d; and %d mappings, the budget is %d", when, files, m.files, mappings, m.mappings)
	}
	m.mostFiles, m.mostIn = max(m.mostFiles, files), max(m.mostIn, mappings)
}

// step reports what has happened since the last one, and fails the test if so many open partitions cost too much.
func (m *scaleMeter) step(what string, open int) {
	m.t.Helper()
	took := time.Since(m.begin)
	m.budgets(what)
	heap, goroutines := heapInUse(), runtime.NumGoroutine()
	each := ""
	if open > 0 {
		limit := m.heap + uint64(open)*(4<<10) + scaleMeta
		for tries := 0; heap > limit && tries < 100; tries++ {
			heap = min(heap, heapInUse()) // the background sync may have been at work: what it makes is no partition's
		}
		if heap > limit {
			m.t.Errorf("F10: %d partitions take %d bytes of the heap", open, heap-m.heap)
		}
		each = fmt.Sprintf(" (%d B a partition)", (int64(heap)-int64(m.heap))/int64(open))
	}
	m.t.Logf("%-8s %8v, files %4d, mappings %4d, heap %6d KiB%s, RSS %7d KiB, goroutines %d",
		what, took.Round(time.Millisecond), m.mostFiles, m.mostIn, heap>>10, each, residentKiB(m.t), goroutines)
	if goroutines > m.goroutines+64 {
		m.t.Errorf("F10: %d goroutines, %d without partitions", goroutines, m.goroutines)
	}
	m.mostFiles, m.mostIn, m.begin = 0, 0, time.Now()
}

func heapInUse() uint64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first has only taken out of pools
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

func residentKiB(t *testing.T) (kib int) {
	t.Helper()
	_, text, _ := strings.Cut(string(must(os.ReadFile("/proc/self/status"))(t)), "VmRSS:")
	_, err := fmt.Sscan(text, &kib)
	check(t, err)
	return kib
}
