package stream_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// A history is everything that was ever sent to a compacted partition, by offset.
type history struct {
	sent  []stream.Record
	start int64 // log start offset, of topics that also expire
}

// last returns the last record of each key.
func last(rs []stream.Record) map[string]stream.Record {
	m := map[string]stream.Record{}
	for _, r := range rs {
		m[string(r.Key)] = r
	}
	return m
}

// holds checks what a reader sees of a compacted partition: every record is one that was sent, in order, and of each key the last one is there, or, if it was deleted, none.
func (h *history) holds(t testing.TB, where string, got []stream.Record) {
	t.Helper()
	next := int64(0)
	for _, r := range got {
		if r.Offset < next || r.Offset >= int64(len(h.sent)) {
			t.Fatalf("%s: offset %d where at least %d and less than %d is due", where, r.Offset, next, len(h.sent))
		}
		next = r.Offset + 1
		if s := h.sent[r.Offset]; !bytes.Equal(r.Key, s.Key) || !bytes.Equal(r.Value, s.Value) || (r.Value == nil) != (s.Value == nil) {
			t.Fatalf("%s: offset %d has key %q and value %q, sent were %q and %q", where, r.Offset, r.Key, r.Value, s.Key, s.Value)
		}
	}
	want, is := last(h.sent), last(got)
	for k, s := range want {
		r, there := is[k]
		switch {
		case s.Offset < h.start:
		case !there && s.Value != nil:
			t.Fatalf("%s: the last record of key %q, offset %d, is gone", where, k, s.Offset)
		case there && r.Offset != s.Offset:
			t.Fatalf("%s: key %q is at offset %d, its last record was %d (deleted %t)", where, k, r.Offset, s.Offset, s.Value == nil)
		}
	}
}

// A compactedTopic drives a topic with several partitions against what it has to hold.
type compactedTopic struct {
	g     *timed
	r     *rand.Rand
	name  string
	parts []*history
	named map[int]int64 // last sequence of the named producer in each partition
}

// change sends n random puts and deletes, of a producer with a name or without one.
func (c *compactedTopic) change(n, keys int) {
	t := c.g.t
	t.Helper()
	config := stream.ProducerConfig{Partitioner: stream.ManualPartitioner(), Acks: []stream.Acks{stream.AcksWritten, stream.AcksSynced}[c.r.IntN(2)]}
	if c.r.IntN(3) == 0 {
		config.Name = "n"
	}
	p := newProducer(t, c.g.eng, config)
	for n > 0 {
		var rs []stream.Record
		for range 1 + c.r.IntN(8) {
			i := c.r.IntN(len(c.parts))
			r := stream.Record{Topic: c.name, Partition: int32(i), Key: fmt.Appendf(nil, "key %d", c.r.IntN(keys))}
			if c.r.IntN(5) > 0 {
				r.Value = bytes.Repeat([]byte{byte('a' + c.r.IntN(26))}, c.r.IntN(80))
			}
			if config.Name != "" {
				c.named[i]++
				r.Sequence = c.named[i]
			}
			rs = append(rs, r)
			n--
		}
		out := must(p.ProduceAll(t.Context(), rs, nil))(t)
		for i, r := range rs {
			h := c.parts[r.Partition]
			eq(t, "offset", out[i].Receipt.Offset, int64(len(h.sent)))
			r.Offset = int64(len(h.sent))
			h.sent = append(h.sent, r)
		}
	}
	check(t, p.Close(t.Context()))
}

// check reads every partition.
func (c *compactedTopic) check(where string) (records int) {
	t := c.g.t
	t.Helper()
	c.g.wait(time.Second) // the cleaner comes to rest
	for i, h := range c.parts {
		p := tp(c.name, int32(i))
		b := c.g.bounds(p)
		eq(t, where+": end", b[1], int64(len(h.sent)))
		if b[0] < h.start {
			t.Fatalf("%s: the log start went back from %d to %d", where, h.start, b[0])
		}
		h.start = b[0]
		got := readAll(t, c.g.eng, p)
		h.holds(t, fmt.Sprintf("%s: %v", where, p), got)
		records += len(got)
		// From anywhere in the middle a reader crosses the holes too, and comes to the end.
		if len(h.sent) > 0 {
			from := h.start + c.r.Int64N(int64(len(h.sent))-h.start+1)
			cons := newConsumer(t, c.g.eng, stream.ConsumerConfig{MaxWait: -1, Borrow: c.r.IntN(2) == 0})
			check(t, cons.Assign(p))
			check(t, cons.Seek(p, from))
			want := slices.DeleteFunc(slices.Clone(got), func(r stream.Record) bool { return r.Offset < from })
			n := 0
			for {
				rs := must(cons.Poll(t.Context(), 1+c.r.IntN(20)))(t)
				if len(rs) == 0 {
					break
				}
				for _, r := range rs {
					if n >= len(want) || r.Offset != want[n].Offset || !bytes.Equal(r.Value, want[n].Value) {
						t.Fatalf("%s: from offset %d record %d is %d", where, from, n, r.Offset)
					}
					n++
				}
			}
			eq(t, where+": records from the middle", n, len(want))
			eq(t, where+": position", must(cons.Position(p))(t), int64(len(h.sent)))
			check(t, cons.Close(t.Context()))
		}
	}
	p := newProducer(t, c.g.eng, stream.ProducerConfig{Name: "n"})
	for i := range c.parts {
		eq(t, where+": last sequence", must(p.LastSequence(t.Context(), tp(c.name, int32(i))))(t), c.named[i])
	}
	check(t, p.Close(t.Context()))
	return records
}

// lost forgets what a loss of power has taken.
func (c *compactedTopic) lost() {
	for i, h := range c.parts {
		end := endOf(c.g.t, c.g.eng, tp(c.name, int32(i)))
		for _, r := range h.sent[end:] {
			if r.Sequence > 0 {
				c.named[i] = min(c.named[i], r.Sequence-1)
			}
		}
		h.sent = h.sent[:end]
	}
}

func newCompactedTopic(g *timed, r *rand.Rand, name string, partitions int) *compactedTopic {
	c := &compactedTopic{g: g, r: r, name: name, named: map[int]int64{}}
	for range partitions {
		c.parts = append(c.parts, &history{})
	}
	return c
}

// A12, C1: whatever is put and deleted, and however the engine stops in between, a compacted topic holds the last value of every key; readers cross its holes from everywhere; where
// the named producer stands is kept. It gets small.
func TestCompactedTopicAsAModel(t *testing.T) {
	r := newRand(t)
	for range 6 {
		policy := []stream.Cleanup{stream.CleanupCompact, stream.CleanupCompactDelete}[r.IntN(2)]
		memory := []int64{0, 24 * 40}[r.IntN(2)]
		inTime(t, func(t *testing.T, g *timed) {
			options := func(o *stream.Options) { o.CleanInterval, o.CleanMemory = 10*time.Second, memory }
			g.reopen(options)
			config := stream.TopicConfig{Partitions: 3, Cleanup: policy, DeleteRetention: 10 * time.Minute, Config: map[string]string{"min.cleanable.dirty.ratio": "0.1"}}
			if policy == stream.CleanupCompactDelete {
				config.Retention = 2 * time.Hour
			}
			g.topic("a", config)
			c := newCompactedTopic(g, r, "a", 3)
			for step := range 40 {
				c.change(1+r.IntN(80), 30)
				g.wait(time.Duration(r.IntN(300)) * time.Second)
				where := fmt.Sprintf("step %d", step)
				c.check(where)
				switch r.IntN(6) {
				case 0:
					g.reopen(options)
					c.check(where + ", opened again")
				case 1:
					g.crash(false, 0, options)
					c.check(where + ", killed")
				case 2:
					g.crash(true, r.Uint64(), options)
					c.lost()
					c.check(where + ", power cut")
				}
			}
			if len(g.seen.compactions()) < 10 {
				t.Errorf("%d passes", len(g.seen.compactions()))
			}
			// The active segments are not compacted: they are made old, and what they held is.
			g.alter("a", map[string]string{"segment.ms": "1000", "delete.retention.ms": "0"})
			for range 4 {
				g.wait(time.Minute)
				c.change(3, 30)
			}
			total := 0
			for _, h := range c.parts {
				total += len(h.sent)
			}
			if n := c.check("at the end"); n > 3*30+60 {
				t.Errorf("%d of %d records are left", n, total)
			}
		})
	}
}

// A12: what is deleted comes to an end: after delete.retention.ms the tombstone goes too, before that a reader sees it.
func TestTombstonesGo(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		ctx, a := t.Context(), tp("a", 0)
		g.topic("a", stream.TopicConfig{Cleanup: stream.CleanupCompact, DeleteRetention: time.Hour, Config: map[string]string{"min.cleanable.dirty.ratio": "0"}})
		p := newProducer(t, g.eng, stream.ProducerConfig{})
		put := func(key string, value []byte) {
			must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Key: []byte(key), Value: value}))(t)
		}
		// others fill the segment, so that it is compacted.
		others := func() {
			for i := range 40 {
				put(fmt.Sprint("other ", i%3), []byte("0123456789"))
			}
			g.wait(31 * time.Second)
		}
		find := func(key string) (values []string) {
			for _, r := range readAll(t, g.eng, a) {
				if string(r.Key) == key {
					values = append(values, fmt.Sprintf("%s %t", r.Value, r.Value == nil))
				}
			}
			return values
		}
		put("gone", []byte("value"))
		put("empty", []byte("value"))
		put("empty", []byte{})
		others()
		eq(t, "value", find("gone"), []string{"value false"})
		put("gone", nil)
		others()
		eq(t, "tombstone", find("gone"), []string{" true"})
		for range 5 {
			g.wait(10 * time.Minute)
			others()
			eq(t, "tombstone", find("gone"), []string{" true"})
		}
		g.reopen()
		p = newProducer(t, g.eng, stream.ProducerConfig{})
		g.wait(20 * time.Minute)
		others()
		others()
		eq(t, "tombstone", find("gone"), nil)
		eq(t, "an empty value", find("empty"), []string{" false"})
	})
}

// Records without a key are refused by a compacted topic, in time and alone: by every way to send, typed ones too; with a key of no length they are taken.
func TestCompactedTopicWantsKeys(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		ctx := t.Context()
		for i, policy := range []stream.Cleanup{stream.CleanupCompact, stream.CleanupCompactDelete} {
			name := fmt.Sprint("topic-", i)
			g.topic(name, stream.TopicConfig{Cleanup: policy})
			p := newProducer(t, g.eng, stream.ProducerConfig{})
			_, err := p.ProduceSync(ctx, &stream.Record{Topic: name, Value: []byte("v")})
			wantErr(t, err, stream.ErrInvalidRecord)
			got := make(chan error, 1)
			p.Produce(ctx, &stream.Record{Topic: name, Value: []byte("v")}, func(_ stream.Receipt, err error) { got <- err })
			wantErr(t, <-got, stream.ErrInvalidRecord)
			p.Produce(ctx, &stream.Record{Topic: name, Acks: stream.AcksNone}, func(_ stream.Receipt, err error) { got <- err })
			wantErr(t, <-got, stream.ErrInvalidRecord)
			out, err := p.ProduceAll(ctx, []stream.Record{{Topic: name, Key: []byte("k")}, {Topic: name}, {Topic: name, Key: []byte{}}}, nil)
			wantErr(t, err, stream.ErrInvalidRecord)
			eq(t, "results", []error{out[0].Err, out[2].Err}, []error{nil, nil})
			wantErr(t, out[1].Err, stream.ErrInvalidRecord)
			typed := stream.NewTypedProducer(p, nullableCodec{}, nullableCodec{}) // its keys are never none
			must(typed.ProduceSync(ctx, &stream.TypedRecord[string, string]{Topic: name, Key: "no key", Value: "value"}))(t)
			must(typed.Tombstone(ctx, name, "no key"))(t)
			named := newProducer(t, g.eng, stream.ProducerConfig{Name: "n"})
			_, err = named.ProduceSync(ctx, &stream.Record{Topic: name, Sequence: 1})
			wantErr(t, err, stream.ErrInvalidRecord)
			eq(t, "last sequence", must(named.LastSequence(ctx, tp(name, 0)))(t), 0)
			must(named.ProduceSync(ctx, &stream.Record{Topic: name, Key: []byte("k"), Sequence: 1}))(t)
			eq(t, "records", len(readAll(t, g.eng, tp(name, 0))), 5)
			// From the moment that the policy changes.
			g.alter(name, map[string]string{"cleanup.policy": "delete"})
			must(p.ProduceSync(ctx, &stream.Record{Topic: name}))(t)
			g.alter(name, nil, "cleanup.policy")
			must(p.ProduceSync(ctx, &stream.Record{Topic: name}))(t)
			g.alter(name, map[string]string{"cleanup.policy": "compact"})
			_, err = p.ProduceSync(ctx, &stream.Record{Topic: name})
			wantErr(t, err, stream.ErrInvalidRecord)
			check(t, errors.Join(p.Close(ctx), named.Close(ctx)))
		}
	})
}

// nullableCodec makes bytes of a string, and none at all of "no key".
type nullableCodec struct{}

func (nullableCodec) Append(dst []byte, v string) ([]byte, error) {
	if v == "no key" {
		return nil, nil
	}
	return append(dst, v...), nil
}
func (nullableCodec) Decode(src []byte) (string, error) { return string(src), nil }

// E3: a group whose committed offset lies in a hole goes on behind it; commits and positions are offsets, holes or not.
func TestCommitsInHoles(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		ctx, a := t.Context(), tp("a", 0)
		g.topic("a", stream.TopicConfig{Cleanup: stream.CleanupCompact, Config: map[string]string{"min.cleanable.dirty.ratio": "0"}})
		g.writeWith(stream.ProducerConfig{}, a, 100, 0, func(i int, r *stream.Record) { r.Key = fmt.Append(nil, i%4) })
		g.wait(time.Minute)
		all := readAll(t, g.eng, a)
		if all[0].Offset == 0 || len(all) > 30 {
			t.Fatalf("%d records from %d on", len(all), all[0].Offset)
		}
		for from := int64(0); from <= 100; from++ {
			c := newConsumer(t, g.eng, stream.ConsumerConfig{Group: "g", Reset: stream.ResetNone, ManualCommit: true, MaxWait: -1})
			check(t, c.Assign(a))
			check(t, c.CommitOffsets(ctx, stream.Offsets{a: {Offset: from, LeaderEpoch: -1}}))
			check(t, c.Close(ctx))
			c = newConsumer(t, g.eng, stream.ConsumerConfig{Group: "g", Reset: stream.ResetNone, ManualCommit: true, MaxWait: -1})
			check(t, c.Assign(a))
			eq(t, "committed", committed(t, c, a), from)
			i := slices.IndexFunc(all, func(r stream.Record) bool { return r.Offset >= from })
			rs := must(c.Poll(ctx, 1))(t)
			if i < 0 {
				eq(t, "records", len(rs), 0)
				continue
			}
			eq(t, "offset", rs[0].Offset, all[i].Offset)
			eq(t, "position", must(c.Position(a))(t), all[i].Offset+1)
			check(t, c.CommitRecords(ctx, rs...))
			eq(t, "committed", committed(t, c, a), all[i].Offset+1)
			check(t, c.Close(ctx))
		}
		eq(t, "start", startOf(t, g.eng, a), 0)
		at := must(g.eng.Admin().OffsetsForTime(ctx, time.UnixMilli(0), a))(t)
		eq(t, "offset of a time", at[a].Offset, all[0].Offset)
	})
}

// A12: the policy changes to and fro in the middle of passes; whatever it was, nothing is lost that the last value of a key is.
func TestPolicyChangesInTheMiddleOfAPass(t *testing.T) {
	r := newRand(t)
	inTime(t, func(t *testing.T, g *timed) {
		g.reopen(func(o *stream.Options) { o.CleanRate, o.CleanInterval = 4<<10, time.Second })
		g.topic("a", stream.TopicConfig{Partitions: 2, Cleanup: stream.CleanupCompact, Config: map[string]string{"min.cleanable.dirty.ratio": "0"}})
		c := newCompactedTopic(g, r, "a", 2)
		policies := []map[string]string{
			{"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}, {"cleanup.policy": "compact,delete", "retention.ms": "100000000"}, {"cleanup.policy": "delete", "retention.ms": "-1"},
		}
		for i := range 60 {
			c.change(60, 20)
			g.wait(time.Duration(r.IntN(9000)) * time.Millisecond)
			set := maps.Clone(policies[r.IntN(len(policies))])
			g.alter("a", set)
			if i%10 == 9 {
				c.check(fmt.Sprintf("change %d to %v", i, set))
				g.crash(r.IntN(2) == 0, r.Uint64(), func(o *stream.Options) { o.CleanRate, o.CleanInterval = 4<<10, time.Second })
				c.lost()
				c.check(fmt.Sprintf("change %d, crashed", i))
			}
		}
		if len(g.seen.compactions()) == 0 {
			t.Error("no pass came to an end")
		}
		// A topic that is not compacted any more is left alone.
		g.alter("a", map[string]string{"cleanup.policy": "delete"})
		g.wait(time.Minute)
		n := len(g.seen.compactions())
		c.change(200, 20)
		g.wait(time.Hour)
		eq(t, "passes", len(g.seen.compactions()), n)
		c.check("at the end")
	})
}

// A12: a pass that is under way when a topic ceases to be compacted takes nothing away any more.
func TestPassOfATopicThatIsNotCompactedAnyMore(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		g.reopen(func(o *stream.Options) { o.CleanRate = 1000 })
		a := tp("a", 0)
		g.topic("a", stream.TopicConfig{Cleanup: stream.CleanupCompact, Config: map[string]string{"min.cleanable.dirty.ratio": "0", "min.compaction.lag.ms": "60000"}})
		g.keyed(a, 300, 5)
		g.wait(61 * time.Second)
		for seconds := range 60 { // the pass takes about a minute
			g.wait(time.Second)
			if seconds < 40 {
				continue
			}
			g.alter("a", map[string]string{"cleanup.policy": "delete"})
			is := len(readAll(t, g.eng, a))
			g.wait(time.Hour)
			eq(t, "records", len(readAll(t, g.eng, a)), is)
			if is < 20 {
				t.Fatalf("%d records: the pass had ended before", is)
			}
			return
		}
	})
}
