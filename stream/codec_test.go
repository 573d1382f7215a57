package stream_test

import (
	"math"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

type point struct {
	X, Y int
	Name string `json:",omitempty"`
}

type millis int64

// roundTrip sends values through a topic, and compares what comes back and the bytes of the first one, as they are in the record.
func roundTrip[T any](t *testing.T, c stream.Codec[T], bytes string, vs ...T) {
	t.Helper()
	eng := streamtest.New(t)
	create(t, eng, "a", 1)
	p := stream.NewTypedProducer(newProducer(t, eng, stream.ProducerConfig{}), stream.StringCodec(), c)
	raw := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest})
	typed := stream.NewTypedConsumer(newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest, Borrow: true}), stream.StringCodec(), c)
	for _, v := range vs {
		must(p.ProduceSync(t.Context(), &stream.TypedRecord[string, T]{Topic: "a", Key: "k", Value: v}))(t)
	}
	eq(t, "bytes", string(must(raw.Poll(t.Context(), 1))(t)[0].Value), bytes)
	var got []T
	for len(got) < len(vs) {
		for _, r := range must(typed.Poll(t.Context(), 10))(t) {
			eq(t, "key", r.Key, "k")
			got = append(got, r.Value)
		}
	}
	check(t, typed.Close(t.Context())) // what was borrowed is gone, what was decoded is not
	eq(t, "values", got, vs)
}

func TestCodecsBringValuesBack(t *testing.T) {
	t.Run("bytes", func(t *testing.T) {
		roundTrip(t, stream.BytesCodec(), "\x00\xffx", []byte("\x00\xffx"), []byte{}, []byte("y"))
	})
	t.Run("string", func(t *testing.T) { roundTrip(t, stream.StringCodec(), "é\xff", "é\xff", "", "x") })
	t.Run("JSON", func(t *testing.T) {
		roundTrip(t, stream.JSONCodec[point](), `{"X":1,"Y":-2}`, point{X: 1, Y: -2}, point{}, point{Name: "n"})
	})
	t.Run("binary", func(t *testing.T) {
		roundTrip(t, stream.BinaryCodec[time.Time](), "\x01\x00\x00\x00\x0e\x77\x91\xf7\x00\x00\x00\x00\x00\xff\xff", time.Unix(0, 0).UTC(), time.Unix(1, 2).UTC())
	})
	t.Run("int16", func(t *testing.T) {
		roundTrip(t, stream.IntegerCodec[int16](), "\xff\xfe", int16(-2), 0, math.MaxInt16, math.MinInt16)
	})
	t.Run("uint32", func(t *testing.T) {
		roundTrip(t, stream.IntegerCodec[uint32](), "\x01\x02\x03\x04", uint32(0x01020304), 0, math.MaxUint32)
	})
	t.Run("int32", func(t *testing.T) {
		roundTrip(t, stream.IntegerCodec[int32](), "\x80\x00\x00\x00", int32(math.MinInt32), math.MaxInt32)
	})
	t.Run("int64", func(t *testing.T) {
		roundTrip(t, stream.IntegerCodec[millis](), "\x7f\xff\xff\xff\xff\xff\xff\xff", millis(math.MaxInt64), -1, 0, math.MinInt64)
	})
}

func TestCodecsRefuseWhatTheyCannotDecode(t *testing.T) {
	refuse := func(name string, err error) {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, src := range []string{"", "1", "123", "12345", "123456789"} {
		_, err := stream.IntegerCodec[int64]().Decode([]byte(src))
		refuse("int64 of "+src, err)
		_, err = stream.IntegerCodec[int32]().Decode([]byte(src))
		refuse("int32 of "+src, err)
	}
	_, err := stream.JSONCodec[point]().Decode([]byte(`{"X":`))
	refuse("JSON", err)
	_, err = stream.BinaryCodec[time.Time]().Decode([]byte("x"))
	refuse("binary", err)
	_, err = stream.JSONCodec[func()]().Append(nil, nil)
	refuse("JSON of a func", err)
}
