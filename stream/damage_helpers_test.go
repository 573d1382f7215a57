package stream_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/stream"
)

// A place is where a batch lies.
type place struct {
	file       string
	pos, size  int64
	base, next int64
}

// A wreck is a directory on the disk that is damaged while no engine is open.
type wreck struct {
	t    *testing.T
	dir  string
	eng  *stream.Engine
	seen *cleanings
}

func newWreck(t *testing.T) *wreck {
	w := &wreck{t: t, dir: t.TempDir(), seen: &cleanings{}}
	t.Cleanup(func() { w.close() })
	return w
}

func (w *wreck) open(change ...func(*stream.Options)) *stream.Engine {
	w.t.Helper()
	o := stream.Options{MinFree: -1, Events: w.seen.events()}
	for _, f := range change {
		f(&o)
	}
	w.eng = must(stream.Open(w.dir, &o))(w.t)
	return w.eng
}

func (w *wreck) close() {
	w.t.Helper()
	if w.eng != nil {
		check(w.t, w.eng.Close())
		w.eng = nil
	}
}

func (w *wreck) reopen(change ...func(*stream.Options)) *stream.Engine {
	w.t.Helper()
	w.close()
	return w.open(change...)
}

// write appends the records [first, end), each a batch of its own, whose values are their numbers.
func (w *wreck) write(p stream.TopicPartition, first, end int) {
	w.t.Helper()
	pr := newProducer(w.t, w.eng, stream.ProducerConfig{Partitioner: stream.ManualPartitioner(), Acks: stream.AcksWritten})
	for i := first; i < end; i++ {
		must(pr.ProduceSync(w.t.Context(), &stream.Record{Topic: p.Topic, Partition: p.Partition, Key: fmt.Append(nil, i%5), Value: fmt.Appendf(nil, "%d", i)}))(w.t)
	}
	check(w.t, pr.Close(w.t.Context()))
}

// path is that of a file of a partition.
func (w *wreck) path(p stream.TopicPartition, name string) string {
	return filepath.Join(w.dir, "topics", p.String(), name)
}

// files returns the paths of a partition's files with a suffix, in order.
func (w *wreck) files(p stream.TopicPartition, suffix string) []string {
	w.t.Helper()
	names := must(filepath.Glob(w.path(p, "*"+suffix)))(w.t)
	slices.Sort(names)
	return names
}

// batches walks a partition's segments.
func (w *wreck) batches(p stream.TopicPartition) (ps []place) {
	w.t.Helper()
	for _, file := range w.files(p, ".log") {
		b := must(os.ReadFile(file))(w.t)
		for pos := 0; pos < len(b); {
			n, err := batch.Peek(b[pos:])
			if err != nil {
				break // reserved space
			}
			at := batch.Batch(b[pos : pos+n])
			ps = append(ps, place{file, int64(pos), int64(n), at.BaseOffset(), at.LastOffset() + 1})
			pos += n
		}
	}
	return ps
}

// batch returns where the batch with an offset lies.
func (w *wreck) batch(p stream.TopicPartition, offset int64) place {
	w.t.Helper()
	bs := w.batches(p)
	i := slices.IndexFunc(bs, func(b place) bool { return b.base <= offset && offset < b.next })
	if i < 0 {
		w.t.Fatalf("offset %d is in no file", offset)
	}
	return bs[i]
}

// flip inverts a byte of a file, zero clears some.
func (w *wreck) flip(file string, pos int64) {
	w.t.Helper()
	w.change(file, func(b []byte) []byte { b[pos] ^= 0xff; return b })
}

func (w *wreck) zero(file string, pos, n int64) {
	w.t.Helper()
	w.change(file, func(b []byte) []byte { clear(b[pos : pos+n]); return b })
}

func (w *wreck) change(file string, f func(b []byte) []byte) {
	w.t.Helper()
	b := must(os.ReadFile(file))(w.t)
	check(w.t, os.WriteFile(file, f(b), 0o600))
}

// A reading is what a consumer gets of a partition from its start.
type reading struct {
	values []string
	errs   []*stream.CorruptError
}

// read reads a partition to its end, over all damage that it is told of.
func (w *wreck) read(p stream.TopicPartition) (got reading) {
	w.t.Helper()
	c := newConsumer(w.t, w.eng, stream.ConsumerConfig{Reset: stream.ResetEarliest})
	defer func() { check(w.t, c.Close(w.t.Context())) }()
	check(w.t, c.Assign(p))
	for range 1000 {
		rs, err := c.Poll(w.t.Context(), 0)
		if err == nil && len(rs) == 0 {
			return got
		}
		got.values = append(got.values, values(rs)...)
		if err != nil {
			ce := w.corrupt(err)
			got.errs = append(got.errs, ce)
			check(w.t, c.Seek(p, ce.To))
		}
	}
	w.t.Fatal("a thousand polls did not come to the end")
	return got
}

// corrupt returns the facts of an error, which has to be one of damage.
func (w *wreck) corrupt(err error) *stream.CorruptError {
	w.t.Helper()
	var ce *stream.CorruptError
	if !errors.Is(err, stream.ErrCorrupt) || !errors.As(err, &ce) {
		w.t.Fatalf("error %v", err)
	}
	return ce
}

// facts is a CorruptError without its reason.
func facts(e *stream.CorruptError) string {
	return fmt.Sprintf("%v [%d,%d) %s %d", e.TopicPartition, e.From, e.To, e.File, e.Pos)
}

// verify returns what Verify reports, in order.
func (w *wreck) verify() (found []string) {
	w.t.Helper()
	check(w.t, w.eng.Verify(w.t.Context(), func(e *stream.CorruptError) {
		if !errors.Is(e, stream.ErrCorrupt) || e.Reason == nil {
			w.t.Errorf("%v has no reason", e)
		}
		found = append(found, strings.TrimSpace(facts(e)))
	}))
	return found
}

// without returns the numbers [0, end) but for [from, to).
func without(end, from, to int) []string {
	return append(numbers(0, from), numbers(to, end)...)
}
