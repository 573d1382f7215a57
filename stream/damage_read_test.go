package stream_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/runnelmq/runnel/stream"
)

// F7, A8: whatever is done to the bytes of some records, readers get a CorruptError with the partition, the offsets, the file and the position, once each, and all other
// records; the other partition and appends do not notice. SkipCorrupt ends it, durably.
func TestDamagedRecords(t *testing.T) {
	forms := map[string]struct {
		from, to int64 // offsets
		damage   func(w *wreck, a stream.TopicPartition)
	}{
		"a flipped byte": {37, 38, func(w *wreck, a stream.TopicPartition) { b := w.batch(a, 37); w.flip(b.file, b.pos+b.size-2) }},
		"a header":       {37, 38, func(w *wreck, a stream.TopicPartition) { b := w.batch(a, 37); w.flip(b.file, b.pos+20) }},
		"a length":       {37, 38, func(w *wreck, a stream.TopicPartition) { b := w.batch(a, 37); w.flip(b.file, b.pos+11) }},
		"an offset":      {37, 38, func(w *wreck, a stream.TopicPartition) { b := w.batch(a, 37); w.flip(b.file, b.pos+7) }},
		"the first of a segment": {-1, -1, func(w *wreck, a stream.TopicPartition) {
			for _, b := range w.batches(a) {
				if b.pos == 0 && b.base > 20 {
					w.flip(b.file, 30)
					return
				}
			}
		}},
		"zeros over three": {30, 33, func(w *wreck, a stream.TopicPartition) {
			x, y := w.batch(a, 30), w.batch(a, 32)
			w.zero(x.file, x.pos+1, y.pos+20-x.pos)
		}},
		"a segment of zeros": {-1, -1, func(w *wreck, a stream.TopicPartition) {
			f := w.files(a, ".log")[2]
			w.change(f, func(b []byte) []byte { clear(b); return b })
		}},
		"a segment cut short": {-1, -1, func(w *wreck, a stream.TopicPartition) {
			w.change(w.files(a, ".log")[2], func(b []byte) []byte { return b[:len(b)/2] })
		}},
		"an empty segment":       {-1, -1, func(w *wreck, a stream.TopicPartition) { check(w.t, os.Truncate(w.files(a, ".log")[2], 0)) }},
		"a segment that is gone": {-1, -1, func(w *wreck, a stream.TopicPartition) { check(w.t, os.Remove(w.files(a, ".log")[2])) }},
	}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			w := newWreck(t)
			eng := w.open()
			small(t, eng, "a", 2)
			a, b := tp("a", 0), tp("a", 1)
			w.write(a, 0, 100)
			w.write(b, 0, 30)
			w.close()
			was := w.batches(a)
			form.damage(w, a)
			eng = w.open()
			// What is gone of the files is what may be missing.
			got := w.read(a)
			if len(got.errs) == 0 {
				t.Fatal("nobody tells")
			}
			from, to := got.errs[0].From, got.errs[len(got.errs)-1].To
			if form.from >= 0 {
				eq(t, "damaged offsets", [2]int64{from, to}, [2]int64{form.from, form.to})
			} else if to-from > 16 || from < 10 {
				t.Fatalf("damaged are [%d,%d)", from, to)
			}
			eq(t, "records", got.values, without(100, int(from), int(to)))
			next := from
			for _, e := range got.errs {
				eq(t, "partition", e.TopicPartition, a)
				eq(t, "offset", e.From, next)
				next = e.To
			}
			for _, p := range was {
				if p.base == from && name != "a segment that is gone" {
					eq(t, "place", facts(got.errs[0]), facts(&stream.CorruptError{TopicPartition: a, From: from, To: got.errs[0].To, File: p.file, Pos: p.pos}))
				}
			}
			again := w.read(a)
			eq(t, "records read again", again.values, got.values)
			eq(t, "errors", len(again.errs), len(got.errs))
			eq(t, "events", len(w.seen.damages()), len(got.errs))
			h := must(eng.Admin().Health(t.Context(), a, b))(t)
			eq(t, "states", []stream.PartitionState{h[0].State, h[1].State}, []stream.PartitionState{stream.PartitionDamaged, stream.PartitionOK})
			eq(t, "the other partition", w.read(b).values, numbers(0, 30))
			w.write(a, 100, 105)
			w.write(b, 30, 35)
			eq(t, "end", endOf(t, eng, a), 105)

			// Half of it given up is not all of it.
			wantErr(t, eng.SkipCorrupt(t.Context(), a, to, from), stream.ErrOffsetOutOfRange)
			wantErr(t, eng.SkipCorrupt(t.Context(), a, from, from), stream.ErrOffsetOutOfRange)
			wantErr(t, eng.SkipCorrupt(t.Context(), a, -1, to), stream.ErrOffsetOutOfRange)
			if to-from > 1 && len(got.errs) == 1 {
				check(t, eng.SkipCorrupt(t.Context(), a, from, from+1))
				if len(w.read(a).errs) == 0 {
					t.Error("half of the damage was given up, and nobody tells of the rest")
				}
			}
			check(t, eng.SkipCorrupt(t.Context(), a, from, to))
			check(t, eng.SkipCorrupt(t.Context(), a, from, to))
			for range 2 {
				now := w.read(a)
				eq(t, "records", now.values, append(without(100, int(from), int(to)), numbers(100, 105)...))
				eq(t, "errors", len(now.errs), 0)
				eng = w.reopen()
			}
			w.write(a, 105, 107)
			eq(t, "end", endOf(t, eng, a), 107)
		})
	}
}

// A consumer that has paused a partition for its damage goes on by itself when that is given up: one that polls, one that ranges over Records, and one with a group; the
// position has not moved meanwhile, and other partitions go on.
func TestSkipCorruptResumesConsumers(t *testing.T) {
	for _, borrow := range []bool{false, true} {
		t.Run(fmt.Sprint("borrow ", borrow), func(t *testing.T) {
			w := newWreck(t)
			eng := w.open()
			small(t, eng, "a", 2)
			a, b := tp("a", 0), tp("a", 1)
			w.write(a, 0, 60)
			w.write(b, 0, 5)
			w.close()
			at := w.batch(a, 33)
			w.flip(at.file, at.pos+at.size-1)
			eng = w.open()
			ctx := t.Context()

			polls := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Reset: stream.ResetEarliest, Borrow: borrow, ManualCommit: true})
			check(t, polls.Assign(a, b))
			var mine []string
			var failed error
			for range 300 {
				rs, err := polls.Poll(ctx, 7)
				if err != nil {
					if failed != nil {
						t.Fatalf("told twice: %v", err)
					}
					failed = err
				}
				for _, r := range rs {
					if r.Partition == 0 {
						mine = append(mine, string(r.Value))
					}
				}
			}
			var pe *stream.PartitionError
			if !errors.As(failed, &pe) {
				t.Fatalf("error %v", failed)
			}
			eq(t, "error", facts(w.corrupt(failed)), facts(&stream.CorruptError{TopicPartition: a, From: 33, To: 34, File: at.file, Pos: at.pos}))
			eq(t, "where", []any{pe.TopicPartition, pe.Offset}, []any{a, int64(33)})
			eq(t, "position", must(polls.Position(a))(t), 33)
			eq(t, "paused", polls.Paused(), []stream.TopicPartition{a})
			eq(t, "records", mine, numbers(0, 33))
			check(t, polls.Commit(ctx))
			eq(t, "committed", committed(t, polls, a), 33)

			// The range goes on with the other partition, and with this one when it may.
			ranges := newConsumer(t, eng, stream.ConsumerConfig{Reset: stream.ResetEarliest, Borrow: borrow, MaxWait: forever})
			check(t, ranges.Assign(a, b))
			type step struct {
				r   stream.Record
				err error
			}
			steps := make(chan step)
			rctx, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() {
				defer close(steps)
				for r, err := range ranges.Records(rctx) {
					r.Value = append([]byte{}, r.Value...)
					select {
					case steps <- step{r, err}:
					case <-rctx.Done():
						return
					}
				}
			}()
			var ranged []string
			told := 0
			for len(ranged) < 33+5 || told == 0 {
				s := <-steps
				if s.err != nil {
					told++
					eq(t, "error", w.corrupt(s.err).From, 33)
					continue
				}
				ranged = append(ranged, string(s.r.Value))
			}
			check(t, eng.SkipCorrupt(ctx, a, 33, 34))
			eq(t, "paused", len(polls.Paused()), 0)
			ranged = nil
			for len(ranged) < 26 {
				s := <-steps
				check(t, s.err)
				ranged = append(ranged, string(s.r.Value))
			}
			eq(t, "records of the range", ranged, numbers(34, 60))
			cancel()
			for range steps {
			}

			mine = nil
			for range 100 {
				mine = append(mine, values(must(polls.Poll(ctx, 7))(t))...)
			}
			eq(t, "records", mine, numbers(34, 60))
			check(t, polls.Close(ctx))
			check(t, ranges.Close(ctx))
			eq(t, "events", len(w.seen.damages()), 1)
		})
	}
}

// A8, A5: a log whose end is lost is not used: neither read nor written, and says which offsets are missing; given up, it is, from behind them, and no offset is given twice.
func TestLostEnd(t *testing.T) {
	forms := map[string]func(w *wreck, a stream.TopicPartition){
		"cut": func(w *wreck, a stream.TopicPartition) {
			b := w.batch(a, 101)
			check(w.t, os.Truncate(b.file, b.pos+3))
		},
		"gone": func(w *wreck, a stream.TopicPartition) { f := w.files(a, ".log"); check(w.t, os.Remove(f[len(f)-1])) },
		"two gone": func(w *wreck, a stream.TopicPartition) {
			f := w.files(a, ".log")
			check(w.t, os.Remove(f[len(f)-1]))
			check(w.t, os.Remove(f[len(f)-2]))
		},
		"all gone": func(w *wreck, a stream.TopicPartition) { check(w.t, os.RemoveAll(w.path(a, ""))) },
		"zeroed": func(w *wreck, a stream.TopicPartition) {
			b := w.batch(a, 101)
			s, _ := os.Stat(b.file)
			w.zero(b.file, b.pos, s.Size()-b.pos)
		},
		"empty": func(w *wreck, a stream.TopicPartition) {
			f := w.files(a, ".log")
			check(w.t, os.Truncate(f[len(f)-1], 0))
		},
		"half a byte": func(w *wreck, a stream.TopicPartition) {
			b := w.batch(a, 104)
			check(w.t, os.Truncate(b.file, b.pos+b.size-1))
		},
	}
	for name, damage := range forms {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			w := newWreck(t)
			eng := w.open()
			small(t, eng, "a", 2)
			a, b := tp("a", 0), tp("a", 1)
			w.write(a, 0, 105)
			w.write(b, 0, 10)
			named := newProducer(t, eng, stream.ProducerConfig{Name: "n", Partitioner: stream.ManualPartitioner()})
			must(named.ProduceSync(ctx, &stream.Record{Topic: "a", Partition: 1, Sequence: 3}))(t)
			w.close()
			damage(w, a)
			bytes := map[string]string{}
			for _, f := range w.files(a, ".log") {
				bytes[f] = string(must(os.ReadFile(f))(t))
			}
			eng = w.open()
			_, err := eng.Admin().EndOffsets(ctx, a)
			lost := w.corrupt(err)
			if lost.TopicPartition != a || lost.To != 105 || lost.From > 104 || lost.File == "" {
				t.Fatalf("the error says %v", lost)
			}
			kept := lost.From
			switch name {
			case "cut", "zeroed":
				eq(t, "the end", kept, 101)
			case "half a byte":
				eq(t, "the end", kept, 104)
			case "all gone":
				eq(t, "the end", kept, 0)
			}
			p := newProducer(t, eng, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
			_, err = p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: []byte("new")})
			wantErr(t, err, stream.ErrCorrupt)
			if errors.Is(err, stream.ErrOutcomeUnknown) {
				t.Errorf("nothing was appended, and the error is %v", err)
			}
			c := newConsumer(t, eng, stream.ConsumerConfig{Reset: stream.ResetEarliest})
			check(t, c.Assign(a, b))
			var other, got []string
			var failed error
			for range 20 {
				rs, err := c.Poll(ctx, 0)
				other = append(other, values(rs)...)
				failed = errors.Join(failed, err)
			}
			w.corrupt(failed)
			eq(t, "the other partition", other, append(numbers(0, 10), ""))
			must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Partition: 1}))(t)

			for _, f := range w.files(a, ".log") {
				if b := string(must(os.ReadFile(f))(t)); b != bytes[f] {
					t.Errorf("%s had %d bytes, and has %d", f, len(bytes[f]), len(b))
				}
			}

			// Not all of it: it stays as it is.
			if err := eng.SkipCorrupt(ctx, a, kept, 104); kept < 104 {
				wantErr(t, err, stream.ErrCorrupt)
				_, err = eng.Admin().EndOffsets(ctx, a)
				wantErr(t, err, stream.ErrCorrupt)
			}
			check(t, eng.SkipCorrupt(ctx, a, kept, 105))
			eq(t, "end", endOf(t, eng, a), 105)
			rc := must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: []byte("new")}))(t)
			eq(t, "offset", rc.Offset, 105)
			for range 20 {
				got = append(got, values(must(c.Poll(ctx, 0))(t))...)
			}
			want := append(append([]string{""}, numbers(0, int(kept))...), "new") // and what has come into the other
			eq(t, "records of the consumer that was told", len(got), len(want))
			for range 2 {
				now := w.read(a)
				eq(t, "records", now.values, append(numbers(0, int(kept)), "new"))
				eq(t, "errors", len(now.errs), 0)
				eq(t, "bounds", [2]int64{startOf(t, eng, a), endOf(t, eng, a)}, [2]int64{0, 106})
				eng = w.reopen()
			}
		})
	}
}
