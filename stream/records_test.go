package stream_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/stream"
)

// sizeOf is the size of a batch with this record alone.
func sizeOf(r *stream.Record) int {
	var b batch.Builder
	b.Reset(nil)
	b.Append(1, r.Key, r.Value, r.Headers)
	return b.Len()
}

// ofSize returns a record that takes size bytes in a batch of its own.
func ofSize(t testing.TB, topic string, size int) *stream.Record {
	t.Helper()
	for _, key := range [][]byte{nil, {1}, {1, 2}} { // some sizes need another key: the length's varint jumps
		for n := max(size-batch.HeaderSize-20, 0); n <= size-batch.HeaderSize; n++ {
			if r := (&stream.Record{Topic: topic, Key: key, Value: make([]byte, n)}); sizeOf(r) == size {
				return r
			}
		}
	}
	t.Fatalf("no record of %d bytes", size)
	return nil
}

var shapes = []stream.Record{
	{},
	{Key: []byte{}},
	{Value: []byte{}},
	{Key: []byte{}, Value: []byte{}},
	{Key: []byte("k")},
	{Value: []byte("v")},
	{Key: []byte("k"), Value: []byte("v")},
	{Key: []byte{0}, Value: bytes.Repeat([]byte{0xff}, 70_000)},
	{Value: []byte("v"), Headers: []stream.Header{{}}},
	{Value: []byte("v"), Headers: []stream.Header{{Key: "a"}, {Key: "a", Value: []byte{}}, {Key: "a", Value: []byte("x")}, {Key: "ä\x00", Value: []byte{0, 1}}}},
	{Key: bytes.Repeat([]byte("k"), 20_000), Headers: []stream.Header{{Key: string(bytes.Repeat([]byte("h"), 300)), Value: bytes.Repeat([]byte("v"), 20_000)}}},
}

// nil and empty are different, and every byte comes back, one by one and in a batch, copied and borrowed, before and after reopening.
func TestRecordsComeBackAsTheyWere(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{})
		at := time.UnixMilli(1_700_000_000_000)
		var rs []stream.Record
		for i, r := range shapes {
			r.Topic, r.Timestamp = "a", at.Add(time.Duration(i)*time.Second)
			rs = append(rs, r)
			must(p.ProduceSync(t.Context(), &r))(t)
		}
		must(p.ProduceAll(t.Context(), rs, nil))(t)
		for range 2 {
			for _, borrow := range []bool{false, true} {
				c := newConsumer(t, eng, stream.ConsumerConfig{Reset: stream.ResetEarliest, Borrow: borrow})
				check(t, c.Assign(tp("a", 0)))
				var got []stream.Record
				for len(got) < 2*len(rs) {
					polled := must(c.Poll(t.Context(), 3))(t)
					if len(polled) == 0 {
						t.Fatalf("%d records", len(got))
					}
					for _, r := range polled {
						want := rs[r.Offset%int64(len(rs))]
						want.Offset = r.Offset
						if !reflect.DeepEqual(r, want) {
							t.Fatalf("borrow %v: got %#v, want %#v", borrow, r, want)
						}
					}
					got = append(got, polled...)
				}
				check(t, c.Close(t.Context()))
			}
			eng = g.reopen()
		}
	})
}

// Timestamps are the caller's: they may go backwards, repeat and lie in the far future.
func TestTimestampsComeBackInMilliseconds(t *testing.T) {
	clock := time.UnixMilli(1_700_000_000_000)
	stamps := []time.Time{
		time.UnixMilli(5000), time.UnixMilli(1000), time.UnixMilli(1000), {}, time.UnixMilli(0), time.Unix(0, 999_999),
		time.UnixMilli(math.MaxInt64), time.UnixMilli(1), {}, time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
		time.UnixMilli(math.MaxInt64), time.UnixMilli(0), time.Unix(12, 345_678_901),
	}
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open(func(o *stream.Options) { o.WallClock = func() time.Time { return clock } })
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{Acks: stream.AcksWritten})
		var rs []stream.Record
		var want []int64
		for _, at := range stamps {
			if rs = append(rs, stream.Record{Topic: "a", Timestamp: at}); at.IsZero() {
				at = clock
			}
			want = append(want, at.UnixMilli())
		}
		var receipts []int64
		for i := range rs {
			receipts = append(receipts, must(p.ProduceSync(t.Context(), &rs[i]))(t).Timestamp.UnixMilli())
		}
		for _, res := range must(p.ProduceAll(t.Context(), rs, nil))(t) {
			receipts = append(receipts, res.Receipt.Timestamp.UnixMilli())
		}
		want = append(want, want...)
		eq(t, "receipts", receipts, want)
		for range 2 {
			var got []int64
			for _, r := range readAll(t, eng, tp("a", 0)) {
				got = append(got, r.Timestamp.UnixMilli())
			}
			eq(t, "records", got, want)
			eng = g.reopen()
		}
	})
}

// F9: a record of the greatest size passes, one byte more does not and takes neither offset nor sequence.
func TestGreatestRecordPassesAndOneByteMoreDoesNot(t *testing.T) {
	const usual = 1<<20 + 12
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		for i, tc := range []struct {
			producer int
			topic    string
			limit    int
		}{
			{0, "", usual},
			{500, "", 500},
			{0, "700", 700},
			{500, "700", 500},
			{900, "700", 700},
			{3 << 20, "2000000", 2_000_000},
			{3 << 20, "", usual},
		} {
			name := fmt.Sprintf("t%d", i)
			var c stream.TopicConfig
			if tc.topic != "" {
				c.Config = map[string]string{"max.message.bytes": tc.topic}
			}
			check(t, eng.Admin().CreateTopic(t.Context(), name, c))
			p := newProducer(t, eng, stream.ProducerConfig{MaxMessageBytes: tc.producer})
			next := int64(0)
			for _, produce := range verbs {
				_, err := produce(p, t.Context(), ofSize(t, name, tc.limit+1))
				wantErr(t, err, stream.ErrRecordTooLarge)
				rec := must(produce(p, t.Context(), ofSize(t, name, tc.limit)))(t)
				eq(t, "offset", rec.Offset, next)
				next++
			}
			got := readAll(t, eng, tp(name, 0))
			eq(t, "records", len(got), 3)
			eq(t, "size", sizeOf(&got[2]), tc.limit)
		}
	})
}

// The limit is that of a record in a batch of its own, wherever it stands in a ProduceAll; and no batch is larger than what the topic takes.
func TestGreatestRecordPassesAmongOthers(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		check(t, eng.Admin().CreateTopic(t.Context(), "a", stream.TopicConfig{Config: map[string]string{"max.message.bytes": "1000"}}))
		for _, batchSize := range []int{0, 1, 100_000} {
			p := newProducer(t, eng, stream.ProducerConfig{BatchSize: batchSize})
			var rs []stream.Record
			for range 200 {
				rs = append(rs, stream.Record{Topic: "a", Value: []byte("x"), Timestamp: time.UnixMilli(math.MaxInt64)})
			}
			largest := ofSize(t, "a", 1000)
			largest.Timestamp = time.UnixMilli(1)
			rs = append(rs, *largest)
			if _, err := p.ProduceAll(t.Context(), rs, nil); err != nil {
				t.Errorf("BatchSize %d: %v", batchSize, err)
			}
		}
		part := must(eng.Broker().Partition(tp("a", 0)))(t)
		c := must(part.Life())(t).NewCursor(0)
		defer c.Close()
		for {
			b := must(c.Next(math.MaxInt64))(t)
			if b == nil {
				break
			}
			if len(b) > 1000 {
				t.Fatalf("a batch of %d bytes", len(b))
			}
		}
	})
}

// A record that ends exactly at segment.bytes, or one below, still goes into the segment; one above begins the next, and one that is
// larger than a segment has its own.
func TestSegmentsRollAtTheirSize(t *testing.T) {
	const limit = 4096
	for _, tc := range []struct {
		name  string
		sizes []int
		want  []int64
	}{
		{"exactly at the limit", []int{2048, 2048, 100}, []int64{0, 2}},
		{"one below", []int{2048, 2047, 100}, []int64{0, 2}},
		{"one above", []int{2048, 2049, 100}, []int64{0, 1}},
		{"room for the smallest", []int{2048, 2048 - 68, 68, 68}, []int64{0, 3}},
		{"alone exactly at the limit", []int{4096, 100, 4096}, []int64{0, 1, 2}},
		{"larger than a segment", []int{100, 4097, 100, 9000}, []int64{0, 1, 2, 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onGrounds(t, func(t *testing.T, g *ground) {
				eng := g.open()
				check(t, eng.Admin().CreateTopic(t.Context(), "a", stream.TopicConfig{SegmentBytes: limit}))
				p := newProducer(t, eng, stream.ProducerConfig{Acks: stream.AcksWritten})
				for _, size := range tc.sizes {
					must(p.ProduceSync(t.Context(), ofSize(t, "a", size)))(t)
				}
				eq(t, "segments", g.segments(tp("a", 0)), tc.want)
				for range 2 {
					var got []int
					for _, r := range readAll(t, eng, tp("a", 0)) {
						got = append(got, sizeOf(&r))
					}
					eq(t, "sizes", got, tc.sizes)
					eng = g.reopen()
				}
			})
		})
	}
}

// runnel.seq carries a named producer's sequence to consumers, behind the record's own headers.
func TestSequenceTravelsAsAHeader(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{Name: "n"})
		sequences := []int64{1, 2, 1000, math.MaxInt64}
		for _, s := range sequences {
			must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: s, Headers: []stream.Header{{Key: "own", Value: []byte("x")}}}))(t)
		}
		must(newProducer(t, eng, stream.ProducerConfig{}).ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
		got := readAll(t, eng, tp("a", 0))
		for i, s := range sequences {
			h := got[i].Headers
			if len(h) != 2 || h[0].Key != "own" || h[1].Key != "runnel.seq" || len(h[1].Value) != 8 || int64(binary.BigEndian.Uint64(h[1].Value)) != s {
				t.Fatalf("sequence %d: %v", s, h)
			}
			eq(t, "Sequence is for producing only", got[i].Sequence, 0)
		}
		eq(t, "headers without a name", len(got[len(sequences)].Headers), 0)
	})
}

// Owned records stay as they are: after later polls, Close of the consumer, of the engine, and appends over them.
func TestOwnedRecordsAreTheCallersForEver(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		check(t, eng.Admin().CreateTopic(t.Context(), "a", stream.TopicConfig{SegmentBytes: 4096}))
		p := newProducer(t, eng, stream.ProducerConfig{Acks: stream.AcksWritten})
		for i := range 300 {
			s := []byte(strconv.Itoa(i))
			must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Key: s, Value: bytes.Repeat(s, i), Headers: []stream.Header{{Key: string(s), Value: s}}}))(t)
		}
		c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest})
		var all []stream.Record
		buf := make([]stream.Record, 7)
		for len(all) < 300 {
			n := must(c.PollInto(t.Context(), buf))(t)
			all = append(all, buf[:n]...)
		}
		// Records share memory with their neighbours, never bytes: appending to one does not reach the next.
		for i := range all {
			_ = append(all[i].Key, "overwritten"...)
			_ = append(all[i].Value, "overwritten"...)
		}
		check(t, c.Close(t.Context()))
		check(t, eng.Admin().DeleteTopic(t.Context(), "a"))
		g.close()
		for i, r := range all {
			s := []byte(strconv.Itoa(i))
			if !bytes.Equal(r.Key, s) || !bytes.Equal(r.Value, bytes.Repeat(s, i)) || r.Headers[0].Key != string(s) || !bytes.Equal(r.Headers[0].Value, s) {
				t.Fatalf("record %d: %v", i, r)
			}
		}
	})
}
