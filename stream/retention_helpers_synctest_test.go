package stream_test

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// A removal is what Events.Expired said.
type removal struct {
	tp                        stream.TopicPartition
	segments, bytes, logStart int64
}

// A pass is what Events.Compacted said.
type pass struct {
	tp                      stream.TopicPartition
	from, to, before, after int64
	at                      time.Time
}

// cleanings keeps what Events said of what the engine does with old and with damaged records.
type cleanings struct {
	mu      sync.Mutex
	removed []removal
	passes  []pass
	jumps   []time.Duration
	corrupt []*stream.CorruptError
	aside   []string
	failed  []error
}

func (s *cleanings) events() stream.Events {
	locked := func(f func()) {
		s.mu.Lock()
		defer s.mu.Unlock()
		f()
	}
	return stream.Events{
		Expired: func(tp stream.TopicPartition, segments int, bytes, logStart int64) {
			locked(func() { s.removed = append(s.removed, removal{tp, int64(segments), bytes, logStart}) })
		},
		Compacted: func(tp stream.TopicPartition, from, to, before, after int64) {
			locked(func() { s.passes = append(s.passes, pass{tp, from, to, before, after, time.Now()}) })
		},
		ClockJumped: func(by time.Duration) { locked(func() { s.jumps = append(s.jumps, by) }) },
		Corrupt:     func(err *stream.CorruptError) { locked(func() { s.corrupt = append(s.corrupt, err) }) },
		Quarantined: func(_ stream.TopicPartition, file, _ string, _ error) {
			locked(func() { s.aside = append(s.aside, file) })
		},
		PartitionState: func(tp stream.TopicPartition, st stream.PartitionState, err error) {
			if st == stream.PartitionFailed {
				locked(func() { s.failed = append(s.failed, fmt.Errorf("%v: %w", tp, err)) })
			}
		},
		MetaFailed: func(err error) { locked(func() { s.failed = append(s.failed, err) }) },
	}
}

func (s *cleanings) removals() []removal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]removal{}, s.removed...)
}

func (s *cleanings) compactions() []pass {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]pass{}, s.passes...)
}

func (s *cleanings) damages() []*stream.CorruptError {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*stream.CorruptError{}, s.corrupt...)
}

// A timed is a directory in virtual time, whose engine is opened and closed again and again, with a wall clock that can be set.
type timed struct {
	t    *testing.T
	fs   vfs.FS
	eng  *stream.Engine
	seen *cleanings
	off  atomic.Int64 // by how much the wall clock is ahead
	asks atomic.Int64 // how often it was looked at
}

// inTime runs fn in a bubble of virtual time, with a simulated disk.
func inTime(t *testing.T, fn func(t *testing.T, g *timed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		g := &timed{t: t, fs: vfs.NewSim(1), seen: &cleanings{}}
		defer func() {
			g.close()
			eq(t, "storage errors", errors.Join(g.seen.failed...), nil)
		}()
		g.open()
		fn(t, g)
	})
}

func (g *timed) sim() *vfs.Sim { return g.fs.(*vfs.Sim) }

func (g *timed) wall() time.Time {
	g.asks.Add(1)
	return time.Now().Add(time.Duration(g.off.Load()))
}

func (g *timed) open(change ...func(*stream.Options)) *stream.Engine {
	g.t.Helper()
	o := stream.Options{FS: g.fs, MinFree: -1, Events: g.seen.events(), WallClock: g.wall}
	for _, f := range change {
		f(&o)
	}
	g.eng = must(stream.Open("/data", &o))(g.t)
	return g.eng
}

func (g *timed) close() {
	g.t.Helper()
	if g.eng != nil {
		check(g.t, g.eng.Close())
		g.eng = nil
	}
}

func (g *timed) reopen(change ...func(*stream.Options)) *stream.Engine {
	g.t.Helper()
	g.close()
	return g.open(change...)
}

// crash goes on with what the disk holds if the process ends now, or, with cut, if the power does.
func (g *timed) crash(cut bool, seed uint64, change ...func(*stream.Options)) *stream.Engine {
	g.t.Helper()
	next := g.sim().Crash()
	if cut {
		next = g.sim().Cut(vfs.Cut{Seed: seed, Keep: -1})
	}
	g.close()
	g.fs = next
	return g.open(change...)
}

// wait lets time pass, and then whatever is due end.
func (g *timed) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// topic makes a topic with segments of 1 KiB.
func (g *timed) topic(name string, c stream.TopicConfig) {
	g.t.Helper()
	if c.SegmentBytes == 0 {
		c.SegmentBytes = 1 << 10
	}
	check(g.t, g.eng.Admin().CreateTopic(g.t.Context(), name, c))
}

// write appends n records of some 100 bytes, each a batch of its own, with a time between them.
func (g *timed) write(to stream.TopicPartition, n int, apart time.Duration) {
	g.t.Helper()
	g.writeWith(stream.ProducerConfig{}, to, n, apart, func(int, *stream.Record) {})
}

func (g *timed) writeWith(c stream.ProducerConfig, to stream.TopicPartition, n int, apart time.Duration, change func(i int, r *stream.Record)) {
	g.t.Helper()
	c.Partitioner = stream.ManualPartitioner()
	p := newProducer(g.t, g.eng, c)
	for i := range n {
		r := &stream.Record{Topic: to.Topic, Partition: to.Partition, Value: []byte(strings.Repeat("v", 40))}
		change(i, r)
		must(p.ProduceSync(g.t.Context(), r))(g.t)
		if apart > 0 {
			time.Sleep(apart)
		}
	}
	check(g.t, p.Close(g.t.Context()))
}

func startOf(t testing.TB, eng *stream.Engine, p stream.TopicPartition) int64 {
	t.Helper()
	return must(eng.Admin().StartOffsets(t.Context(), p))(t)[p].Offset
}

// bounds returns the log start and log end offset.
func (g *timed) bounds(p stream.TopicPartition) [2]int64 {
	g.t.Helper()
	return [2]int64{startOf(g.t, g.eng, p), endOf(g.t, g.eng, p)}
}

// logBytes returns the bytes in a partition's segment files, and how many there are.
func logBytes(t testing.TB, fs vfs.FS, dir string, p stream.TopicPartition) (n int64, files int) {
	t.Helper()
	for _, i := range must(fs.List(path.Join(dir, "topics", p.String())))(t) {
		if strings.HasSuffix(i.Name, ".log") {
			n += i.Size
			files++
		}
	}
	return n, files
}

func (g *timed) alter(topic string, set map[string]string, unset ...string) {
	g.t.Helper()
	check(g.t, g.eng.Admin().AlterTopic(g.t.Context(), topic, set, unset...))
}
