package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// What is produced is what is consumed: key, value, headers, timestamp, partition and offset, in order in each partition.
func TestRoundTrip(t *testing.T) { onBoth(t, scenarioRoundTrip) }

func scenarioRoundTrip(t *testing.T, c stream.Client, _ func() stream.Client) {
	rnd := newRand(t)
	create(t, c, "t", 3)
	p := newProducer(t, c, stream.ProducerConfig{})
	var sent []stream.Record
	for i := range 300 {
		sent = append(sent, stream.Record{
			Topic: "t", Key: []byte(strconv.Itoa(rnd.IntN(20))), Value: []byte(strconv.Itoa(i)), Timestamp: time.UnixMilli(1_700_000_000_000 + rnd.Int64N(1e6)),
			Headers: []stream.Header{{Key: "h", Value: []byte{byte(i)}}, {Key: "null"}, {Key: "empty", Value: []byte{}}, {Key: "h", Value: []byte("again")}},
		})
	}
	out := must(p.ProduceAll(t.Context(), sent, nil))(t)
	for i, r := range out {
		sent[i].Partition, sent[i].Offset = r.Receipt.Partition, r.Receipt.Offset
		eq(t, "timestamp of a receipt", r.Receipt.Timestamp.UnixMilli(), sent[i].Timestamp.UnixMilli())
	}
	co := newConsumer(t, c, stream.ConsumerConfig{Group: "g", Topics: []string{"t"}, Reset: stream.ResetEarliest})
	got := gather(t, co, len(sent))
	by := func(a, b stream.Record) int {
		return int(a.Partition-b.Partition)*len(sent) + int(a.Offset-b.Offset)
	}
	if !slices.IsSortedFunc(slices.DeleteFunc(slices.Clone(got), func(r stream.Record) bool { return r.Partition != 1 }), by) {
		t.Fatal("partition 1 is out of order")
	}
	slices.SortFunc(got, by)
	slices.SortFunc(sent, by)
	for i := range got {
		eq(t, "record", describe(&got[i]), describe(&sent[i]))
	}
	check(t, co.Close(t.Context()))
	check(t, p.Close(t.Context()))
}

// describe tells nil from empty.
func describe(r *stream.Record) string {
	s := fmt.Sprintf("%s-%d@%d %d key %#v value %#v", r.Topic, r.Partition, r.Offset, r.Timestamp.UnixMilli(), r.Key, r.Value)
	for _, h := range r.Headers {
		s += fmt.Sprintf(" %s=%#v", h.Key, h.Value)
	}
	return s
}

// A nil value is a tombstone and stays apart from an empty one, a nil key from an empty one.
func TestTombstones(t *testing.T) { onBoth(t, scenarioTombstones) }

func scenarioTombstones(t *testing.T, c stream.Client, _ func() stream.Client) {
	create(t, c, "t", 1)
	p := newProducer(t, c, stream.ProducerConfig{})
	var want []string
	for _, key := range [][]byte{nil, {}, []byte("k")} {
		for _, value := range [][]byte{nil, {}, []byte("v")} {
			r := stream.Record{Topic: "t", Key: key, Value: value, Timestamp: time.UnixMilli(1000)}
			r.Offset = must(p.ProduceSync(t.Context(), &r))(t).Offset
			want = append(want, describe(&r))
		}
	}
	var got []string
	for _, r := range drain(t, c, stream.ReadUncommitted, tp("t", 0)) {
		got = append(got, describe(&r))
	}
	eq(t, "records", got, want)
	check(t, p.Close(t.Context()))
}

// A receipt says what was waited for: at least what was asked. AcksNone waits for nothing, and the record arrives all the same.
func TestAcks(t *testing.T) { onBoth(t, scenarioAcks) }

func scenarioAcks(t *testing.T, c stream.Client, _ func() stream.Client) {
	create(t, c, "t", 1)
	levels := []stream.Acks{stream.AcksDefault, stream.AcksNone, stream.AcksWritten, stream.AcksSynced}
	n := 0
	for _, of := range levels {
		p := newProducer(t, c, stream.ProducerConfig{Acks: of})
		for _, r := range levels {
			asked := r
			if r == stream.AcksDefault {
				asked = of
			}
			if asked == stream.AcksDefault {
				asked = stream.AcksSynced
			}
			rec := must(p.ProduceSync(t.Context(), &stream.Record{Topic: "t", Value: []byte(strconv.Itoa(n)), Acks: r}))(t)
			switch {
			case asked == stream.AcksNone:
				eq(t, "receipt for AcksNone", [2]int64{rec.Offset, int64(rec.Acks)}, [2]int64{-1, int64(stream.AcksNone)})
			case rec.Acks < asked || rec.Offset != int64(n):
				t.Fatalf("asked for %v, got %v at offset %d, want %d", asked, rec.Acks, rec.Offset, n)
			}
			n++
		}
		check(t, p.Close(t.Context()))
	}
	eq(t, "the log", values(drain(t, c, stream.ReadUncommitted, tp("t", 0))), numbers(0, n))
}

// Promises run once each, one at a time, in the order of the offsets; one may produce, and one that panics harms no other. Flush comes after them.
// Produce keeps nothing of the record.
func TestPromises(t *testing.T) { onBoth(t, scenarioPromises) }

func scenarioPromises(t *testing.T, c stream.Client, _ func() stream.Client) {
	create(t, c, "t", 1)
	p := newProducer(t, c, stream.ProducerConfig{})
	const n = 500
	var running, ran atomic.Int32
	next := int64(-1)
	first, gate := make(chan struct{}), make(chan struct{}) // the first promise is held until the outcomes of all records are known: others could run, were they allowed to
	promise := func(rec stream.Receipt, err error) {
		if running.Add(1) != 1 {
			t.Error("two promises at a time")
		}
		defer running.Add(-1)
		if ran.Add(1) == 1 {
			close(first)
		}
		<-gate
		if err != nil || rec.Offset <= next {
			t.Errorf("offset %d after %d (%v)", rec.Offset, next, err)
		}
		next = rec.Offset
	}
	r := stream.Record{Topic: "t", Value: make([]byte, 3)}
	for i := range n {
		copy(r.Value, fmt.Sprintf("%03d", i))
		switch i {
		case 10:
			p.Produce(t.Context(), &r, func(rec stream.Receipt, err error) {
				promise(rec, err)
				p.Produce(t.Context(), &stream.Record{Topic: "t", Value: []byte("more")}, promise)
			})
		case 20:
			p.Produce(t.Context(), &r, func(rec stream.Receipt, err error) {
				promise(rec, err)
				panic("in a promise")
			})
		default:
			p.Produce(t.Context(), &r, promise)
		}
		if i == 0 {
			<-first
		}
	}
	must(p.ProduceSync(t.Context(), &stream.Record{Topic: "t", Value: []byte("more")}))(t)
	for range 1000 {
		runtime.Gosched()
	}
	close(gate)
	check(t, p.Flush(t.Context()))
	if ran.Load() < n {
		t.Fatalf("Flush came after %d of %d promises", ran.Load(), n)
	}
	check(t, p.Flush(t.Context()))
	eq(t, "promises", ran.Load(), n+1)
	got := slices.DeleteFunc(values(drain(t, c, stream.ReadUncommitted, tp("t", 0))), func(v string) bool { return v == "more" })
	for i, v := range got {
		eq(t, "value", v, fmt.Sprintf("%03d", i))
	}
	eq(t, "records", len(got), n)
	check(t, p.Close(t.Context()))
}

// A program's keys go to the same partitions on the engine and on a cluster, where the Java client would send them.
func TestSamePartitions(t *testing.T) {
	var placed [][]int32
	onBoth(t, func(t *testing.T, c stream.Client, _ func() stream.Client) {
		create(t, c, "t", 7)
		p := newProducer(t, c, stream.ProducerConfig{})
		var rs []stream.Record
		for i := range 100 {
			rs = append(rs, stream.Record{Topic: "t", Key: []byte("key " + strconv.Itoa(i))})
		}
		var at []int32
		for _, r := range must(p.ProduceAll(t.Context(), rs, nil))(t) {
			at = append(at, r.Receipt.Partition)
		}
		placed = append(placed, at)
		check(t, p.Close(t.Context()))
	})
	eq(t, "partitions", placed[0], placed[1])
}

// A record that cannot be written has the error that says why, alone: the others of its call are written.
func TestProduceErrors(t *testing.T) { onBoth(t, scenarioProduceErrors) }

func scenarioProduceErrors(t *testing.T, c stream.Client, _ func() stream.Client) {
	check(t, c.Admin().CreateTopic(t.Context(), "small", stream.TopicConfig{Config: map[string]string{"max.message.bytes": "2000"}}))
	create(t, c, "t", 2)
	p := newProducer(t, c, stream.ProducerConfig{Partitioner: stream.ManualPartitioner(), MaxMessageBytes: 5000})
	out, err := p.ProduceAll(t.Context(), []stream.Record{
		{Topic: "small", Value: []byte("a")},
		{Topic: "small", Value: make([]byte, 3000)},
		{Topic: "small", Value: []byte("b")},
		{Topic: "t", Value: make([]byte, 3000)},
		{Topic: "t", Value: make([]byte, 6000)},
		{Topic: "t", Partition: 2},
		{Topic: "missing"},
		{Topic: "no/name"},
		{Topic: "t", Timestamp: time.UnixMilli(-5)},
	}, nil)
	is(t, "the first error", err, stream.ErrRecordTooLarge)
	want := []error{nil, stream.ErrRecordTooLarge, nil, nil, stream.ErrRecordTooLarge, stream.ErrUnknownTopic, stream.ErrUnknownTopic, stream.ErrUnknownTopic, stream.ErrInvalidRecord}
	for i := range want {
		is(t, fmt.Sprintf("record %d", i), out[i].Err, want[i])
		if errors.Is(out[i].Err, stream.ErrOutcomeUnknown) {
			t.Errorf("record %d: outcome unknown: %v", i, out[i].Err)
		}
	}
	eq(t, "small", values(drain(t, c, stream.ReadUncommitted, tp("small", 0))), []string{"a", "b"})

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.ProduceSync(ended, &stream.Record{Topic: "t"})
	is(t, "ended context", err, context.Canceled)
	_, err = p.LastSequence(t.Context(), tp("t", 0))
	is(t, "LastSequence without a name", err, stream.ErrUnsupported)
	check(t, p.Close(t.Context()))
	check(t, p.Close(t.Context()))
	_, err = p.ProduceSync(t.Context(), &stream.Record{Topic: "t"})
	is(t, "closed", err, stream.ErrClosed)
	eq(t, "fatal", stream.IsFatal(err), true)
}
