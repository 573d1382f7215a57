package stream_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(lockChild); dir != "" {
		holdEngine(dir)
	}
	goleak.VerifyTestMain(m)
}

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0 takes a new one")

func newRand(t testing.TB) *rand.Rand {
	s := *seedFlag
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("seed %d (repeat with -args -seed=%d)", s, s)
	return rand.New(rand.NewPCG(s, 0))
}

// ground is a place for one engine that is opened and closed again and again.
type ground struct {
	t    *testing.T
	fs   vfs.FS   // for looking; on a real disk the engine has its own
	sim  *vfs.Sim // fs, if it is the simulation
	disk bool
	dir  string
	eng  *stream.Engine
}

// onGrounds runs fn on the heap, on a simulated disk and on a real one.
func onGrounds(t *testing.T, fn func(t *testing.T, g *ground)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { (&ground{t: t, fs: vfs.NewMemory(), dir: "/data"}).stand(fn) })
	t.Run("simulation", func(t *testing.T) { onSim(t, fn) })
	t.Run("disk", func(t *testing.T) { (&ground{t: t, fs: vfs.NewDisk(), disk: true, dir: t.TempDir()}).stand(fn) })
}

// onSim runs fn on a simulated disk, for tests that make it fail or wait.
func onSim(t *testing.T, fn func(t *testing.T, g *ground)) {
	t.Helper()
	sim := vfs.NewSim(1)
	(&ground{t: t, fs: sim, sim: sim, dir: "/data"}).stand(fn)
}

func (g *ground) stand(fn func(t *testing.T, g *ground)) {
	g.t.Helper()
	g.t.Cleanup(func() {
		g.close()
		check(g.t, g.fs.Close())
	})
	fn(g.t, g)
}

// open opens the engine, with options that are changed by change.
func (g *ground) open(change ...func(*stream.Options)) *stream.Engine {
	g.t.Helper()
	o := stream.Options{FS: g.fs, MinFree: -1}
	if g.disk {
		o.FS = nil
	}
	for _, f := range change {
		f(&o)
	}
	g.eng = must(stream.Open(g.dir, &o))(g.t)
	return g.eng
}

// close closes the engine, if it is open, and looks for goroutines that it left.
func (g *ground) close() {
	g.t.Helper()
	if g.eng == nil {
		return
	}
	check(g.t, g.eng.Close())
	g.eng = nil
	goleak.VerifyNone(g.t)
}

func (g *ground) reopen(change ...func(*stream.Options)) *stream.Engine {
	g.t.Helper()
	g.close()
	return g.open(change...)
}

// segments returns the base offsets of a partition's segments.
func (g *ground) segments(tp stream.TopicPartition) (bases []int64) {
	g.t.Helper()
	for _, i := range must(g.fs.List(path.Join(g.dir, "topics", tp.String())))(g.t) {
		if base, ok := strings.CutSuffix(i.Name, ".log"); ok {
			bases = append(bases, must(strconv.ParseInt(base, 10, 64))(g.t))
		}
	}
	slices.Sort(bases)
	return bases
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// report is check for goroutines other than the test's own.
func report(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// must returns a function that returns v, or fails the test: must(f())(t).
func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// eq fails the test if got is not want.
func eq[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Fatalf("%s: got %s, want %s", what, g, w)
	}
}

func tp(topic string, partition int32) stream.TopicPartition {
	return stream.TopicPartition{Topic: topic, Partition: partition}
}

func create(t testing.TB, eng *stream.Engine, topic string, partitions int) {
	t.Helper()
	check(t, eng.Admin().CreateTopic(t.Context(), topic, stream.TopicConfig{Partitions: partitions}))
}

func newProducer(t testing.TB, eng *stream.Engine, c stream.ProducerConfig) stream.Producer {
	t.Helper()
	return must(eng.NewProducer(t.Context(), c))(t)
}

// newConsumer returns a consumer that does not wait for records unless c says how long.
func newConsumer(t testing.TB, eng *stream.Engine, c stream.ConsumerConfig) stream.Consumer {
	t.Helper()
	if c.MaxWait == 0 {
		c.MaxWait = -1
	}
	return must(eng.NewConsumer(t.Context(), c))(t)
}

// fill appends records with the values from, from+1, … to-1 to a partition.
func fill(t testing.TB, eng *stream.Engine, to stream.TopicPartition, first, end int) {
	t.Helper()
	p := newProducer(t, eng, stream.ProducerConfig{Partitioner: stream.ManualPartitioner(), Acks: stream.AcksWritten})
	var rs []stream.Record
	for i := first; i < end; i++ {
		rs = append(rs, stream.Record{Topic: to.Topic, Partition: to.Partition, Value: []byte(strconv.Itoa(i))})
	}
	must(p.ProduceAll(t.Context(), rs, nil))(t)
	check(t, p.Close(t.Context()))
}

// poll returns the values of one Poll.
func poll(t testing.TB, c stream.Consumer, max int) []string {
	t.Helper()
	return values(must(c.Poll(t.Context(), max))(t))
}

func values(rs []stream.Record) []string {
	vs := []string{}
	for _, r := range rs {
		vs = append(vs, string(r.Value))
	}
	return vs
}

// readAll returns the records of a partition, from the first.
func readAll(t testing.TB, eng *stream.Engine, tps ...stream.TopicPartition) (all []stream.Record) {
	t.Helper()
	c := newConsumer(t, eng, stream.ConsumerConfig{Reset: stream.ResetEarliest})
	check(t, c.Assign(tps...))
	for {
		rs := must(c.Poll(t.Context(), 0))(t)
		if len(rs) == 0 {
			check(t, c.Close(t.Context()))
			return all
		}
		all = append(all, rs...)
	}
}

// endOf returns the log end offset of a partition.
func endOf(t testing.TB, eng *stream.Engine, p stream.TopicPartition) int64 {
	t.Helper()
	return must(eng.Admin().EndOffsets(t.Context(), p))(t)[p].Offset
}

// committed returns the offset that c's group has committed, -1 if none.
func committed(t testing.TB, c stream.Consumer, p stream.TopicPartition) int64 {
	t.Helper()
	o, ok := must(c.Committed(context.Background(), p))(t)[p]
	if !ok {
		return -1
	}
	return o.Offset
}

// numbers returns the decimal forms of first, first+1, … end-1.
func numbers(first, end int) []string {
	vs := []string{}
	for i := first; i < end; i++ {
		vs = append(vs, strconv.Itoa(i))
	}
	return vs
}

const forever = 24 * time.Hour // longer than any test: a wait that has to be ended by something else

// containsAll fails the test unless the error's text has all of these.
func containsAll(t testing.TB, err error, texts ...string) {
	t.Helper()
	for _, s := range texts {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %s", err, s)
		}
	}
}
