package cluster_test

import (
	"encoding/binary"
	"errors"
	"strconv"
	"testing"

	"github.com/runnelmq/runnel/stream"
)

// A named producer's numbers keep every record in the log once, across a restart and a second instance, which fences the first.
func TestNamedProducer(t *testing.T) { onBoth(t, scenarioNamed) }

func scenarioNamed(t *testing.T, c stream.Client, dial func() stream.Client) {
	create(t, c, "t", 1)
	at := tp("t", 0)
	record := func(n int) *stream.Record {
		return &stream.Record{Topic: "t", Value: []byte(strconv.Itoa(n)), Sequence: int64(n)}
	}
	first := newProducer(t, c, stream.ProducerConfig{Name: "source"})
	eq(t, "last sequence of nothing", must(first.LastSequence(t.Context(), at))(t), int64(0))
	for _, n := range []int{1, 2, 5} { // gaps are allowed
		eq(t, "duplicate", must(first.ProduceSync(t.Context(), record(n)))(t).Duplicate, false)
	}
	rec := must(first.ProduceSync(t.Context(), record(2)))(t)
	eq(t, "of a duplicate", []any{rec.Duplicate, rec.Offset}, []any{true, -1})
	out := must(first.ProduceAll(t.Context(), []stream.Record{*record(5), *record(6), *record(6), *record(7)}, nil))(t)
	eq(t, "duplicates", []bool{out[0].Receipt.Duplicate, out[1].Receipt.Duplicate, out[2].Receipt.Duplicate, out[3].Receipt.Duplicate}, []bool{true, false, true, false})
	eq(t, "last sequence", must(first.LastSequence(t.Context(), at))(t), int64(7))

	second := newProducer(t, dial(), stream.ProducerConfig{Name: "source"})
	eq(t, "last sequence of the second", must(second.LastSequence(t.Context(), at))(t), int64(7))
	_, err := first.ProduceSync(t.Context(), record(8))
	is(t, "the first", err, stream.ErrFenced)
	if errors.Is(err, stream.ErrOutcomeUnknown) {
		t.Fatalf("outcome unknown: %v", err)
	}
	for n := range 11 {
		if n > 0 {
			must(second.ProduceSync(t.Context(), record(n)))(t)
		}
	}
	check(t, second.Close(t.Context()))
	_ = first.Close(t.Context())

	other := newProducer(t, c, stream.ProducerConfig{Name: "other"})
	must(other.ProduceSync(t.Context(), record(1)))(t) // a name's numbers are its own
	check(t, other.Close(t.Context()))

	rs := drain(t, c, stream.ReadCommitted, at)
	eq(t, "the log", values(rs), []string{"1", "2", "5", "6", "7", "8", "9", "10", "1"})
	for _, r := range rs {
		eq(t, "header", r.Headers[0].Key, "runnel.seq")
		eq(t, "sequence", strconv.FormatUint(binary.BigEndian.Uint64(r.Headers[0].Value), 10), string(r.Value))
	}
}
