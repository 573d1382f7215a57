package stream_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// text is a Codec of strings; "bad" can be neither encoded nor decoded.
type text struct{}

var errBad = errors.New("bad")

func (text) Append(dst []byte, v string) ([]byte, error) {
	if v == "bad" {
		return nil, errBad
	}
	return append(dst, v...), nil
}

func (text) Decode(src []byte) (string, error) {
	if string(src) == "bad" {
		return "", errBad
	}
	return string(src), nil
}

// decimal is a Codec of numbers, of which 0 is no bytes at all: nil, not empty.
type decimal struct{}

func (decimal) Append(dst []byte, v int) ([]byte, error) {
	if v == 0 && len(dst) == 0 {
		return nil, nil
	}
	if v == 0 {
		return dst, nil
	}
	return strconv.AppendInt(dst, int64(v), 10), nil
}

func (decimal) Decode(src []byte) (int, error) {
	if len(src) == 0 {
		return 0, nil
	}
	return strconv.Atoi(string(src))
}

func typedPair(t *testing.T, eng *stream.Engine) (*stream.TypedProducer[int, string], *stream.TypedConsumer[int, string]) {
	t.Helper()
	p := newProducer(t, eng, stream.ProducerConfig{})
	c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest})
	return stream.NewTypedProducer[int, string](p, decimal{}, text{}), stream.NewTypedConsumer[int, string](c, decimal{}, text{})
}

func TestTypedRecordsComeBackAsTheyWere(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 1)
		p, c := typedPair(t, eng)
		ctx := t.Context()
		at := time.UnixMilli(1234)
		sent := []stream.TypedRecord[int, string]{
			{Topic: "a", Key: 1, Value: "one", Timestamp: at, Headers: []stream.Header{{Key: "h", Value: []byte("v")}}},
			{Topic: "a", Key: 2, Value: "", Timestamp: at},
			{Topic: "a", Key: 3, Tombstone: true, Timestamp: at},
			{Topic: "a", Key: 0, Value: "no key bytes", Timestamp: at},
		}
		must(p.ProduceSync(ctx, &sent[0]))(t)
		done := make(chan error, 1)
		p.Produce(ctx, &sent[1], func(_ stream.Receipt, err error) { done <- err })
		check(t, <-done)
		out := must(p.ProduceAll(ctx, sent[2:], make([]stream.Result, 9)))(t)
		eq(t, "results", len(out), 2)
		eq(t, "tombstone", must(p.Tombstone(ctx, "a", 4))(t).Offset, 4)

		got := must(c.Poll(ctx, 10))(t)
		for i := range sent {
			sent[i].Offset = int64(i)
			eq(t, "record "+strconv.Itoa(i), got[i], sent[i])
		}
		eq(t, "tombstone", []any{got[4].Key, got[4].Value, got[4].Tombstone}, []any{4, "", true})

		// In bytes: an empty value is there and empty, a tombstone has none, and a key of no bytes is a key.
		raw := readAll(t, eng, tp("a", 0))
		if v := raw[1].Value; v == nil || len(v) != 0 {
			t.Errorf("empty value: %v", v)
		}
		if raw[2].Value != nil || raw[4].Value != nil {
			t.Errorf("tombstones: %v, %v", raw[2].Value, raw[4].Value)
		}
		if k := raw[3].Key; k == nil || len(k) != 0 {
			t.Errorf("key of no bytes: %#v", k)
		}
		n := 0
		check(t, c.SeekToStart()) // the untyped verbs are there
		for r, err := range c.Records(ctx) {
			check(t, err)
			eq(t, "key", r.Key, []int{1, 2, 3, 0, 4}[n])
			if n++; n == 5 {
				break
			}
		}
		check(t, c.Commit(ctx))
		eq(t, "committed", committed(t, c.Consumer, tp("a", 0)), 5)
	})
}

func TestTypedProducerSendsNothingThatItCannotEncode(t *testing.T) {
	eng := streamtest.New(t)
	create(t, eng, "a", 1)
	p, _ := typedPair(t, eng)
	bad := stream.TypedRecord[int, string]{Topic: "a", Value: "bad"}
	_, err := p.ProduceSync(t.Context(), &bad)
	wantErr(t, err, errBad)
	promised := make(chan error, 2)
	p.Produce(t.Context(), &bad, func(_ stream.Receipt, err error) { promised <- err })
	wantErr(t, <-promised, errBad)
	p.Produce(t.Context(), &bad, nil)
	out, err := p.ProduceAll(t.Context(), []stream.TypedRecord[int, string]{{Topic: "a"}, bad, {Topic: "a"}}, nil)
	wantErr(t, err, errBad)
	eq(t, "results", len(out), 3)
	for _, r := range out {
		wantErr(t, r.Err, errBad)
	}
	eq(t, "end", endOf(t, eng, tp("a", 0)), 0)
}

func TestTypedLoopYieldsWhatItCannotDecodeAndGoesOn(t *testing.T) {
	eng := streamtest.New(t)
	create(t, eng, "a", 1)
	_, c := typedPair(t, eng)
	raw := newProducer(t, eng, stream.ProducerConfig{})
	for _, v := range []string{"x", "bad", "y"} {
		must(raw.ProduceSync(t.Context(), &stream.Record{Topic: "a", Value: []byte(v)}))(t)
	}
	must(raw.ProduceSync(t.Context(), &stream.Record{Topic: "a", Key: []byte("no number"), Value: []byte("z")}))(t)
	var got []string
	for r, err := range c.Records(t.Context()) {
		var d *stream.DecodeError
		switch {
		case errors.As(err, &d):
			got = append(got, fmt.Sprintf("error at %d", d.Record.Offset))
		case err != nil:
			t.Fatal(err)
		default:
			got = append(got, r.Value)
		}
		if len(got) == 4 {
			break
		}
	}
	eq(t, "yielded", got, []string{"x", "error at 1", "y", "error at 3"})
}

// DecodeError says that the position lies behind its record. So the next poll goes on with the record after it, and no commit covers records that
// nobody has seen.
func TestTypedPollGoesOnBehindWhatItCannotDecode(t *testing.T) {
	eng := streamtest.New(t)
	create(t, eng, "a", 1)
	_, c := typedPair(t, eng)
	raw := newProducer(t, eng, stream.ProducerConfig{})
	for _, v := range []string{"x", "bad", "y", "z"} {
		must(raw.ProduceSync(t.Context(), &stream.Record{Topic: "a", Value: []byte(v)}))(t)
	}
	rs, err := c.Poll(t.Context(), 10)
	var d *stream.DecodeError
	if !errors.As(err, &d) || d.Record.Offset != 1 || len(rs) != 1 || rs[0].Value != "x" {
		t.Fatalf("%v, %v", rs, err)
	}
	eq(t, "position", must(c.Position(tp("a", 0)))(t), 2)
	rs = must(c.Poll(t.Context(), 10))(t)
	eq(t, "rest", len(rs), 2)
}
