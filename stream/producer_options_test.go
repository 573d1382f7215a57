package stream_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

var codecs = map[string]stream.Compression{
	"none": stream.CompressionNone, "gzip": stream.CompressionGzip, "snappy": stream.CompressionSnappy, "lz4": stream.CompressionLZ4, "zstd": stream.CompressionZstd,
}

// A setting is refused when the producer is made, or it works: 0, 1 and the extremes of each.
func TestProducerSettingsWorkOrAreRefused(t *testing.T) {
	type setting struct {
		name    string
		c       stream.ProducerConfig
		refused bool
		record  error // of a record of 10 bytes, instead of success
	}
	var settings []setting
	add := func(refused bool, record error, name string, c stream.ProducerConfig) {
		settings = append(settings, setting{name, c, refused, record})
	}
	add(false, nil, "BatchSize 1", stream.ProducerConfig{BatchSize: 1})
	add(true, nil, "BatchSize -1", stream.ProducerConfig{BatchSize: -1})
	add(false, nil, "BatchSize greatest", stream.ProducerConfig{BatchSize: math.MaxInt32})
	tooLarge := uint32(math.MaxInt32) + 1 // negative where int has 32 bits
	add(true, nil, "BatchSize too great", stream.ProducerConfig{BatchSize: int(tooLarge)})
	add(true, nil, "BufferMemory 1", stream.ProducerConfig{BufferMemory: 1})
	add(false, stream.ErrBufferFull, "BufferMemory 1, BatchSize 1", stream.ProducerConfig{BufferMemory: 1, BatchSize: 1})
	add(true, nil, "BufferMemory -1", stream.ProducerConfig{BufferMemory: -1})
	add(false, nil, "BufferMemory greatest", stream.ProducerConfig{BufferMemory: math.MaxInt64})
	add(true, nil, "BufferMemory below BatchSize", stream.ProducerConfig{BufferMemory: 999, BatchSize: 1000})
	add(false, nil, "BufferMemory as BatchSize", stream.ProducerConfig{BufferMemory: 1000, BatchSize: 1000})
	add(false, nil, "MaxInFlight 1", stream.ProducerConfig{MaxInFlight: 1})
	add(true, nil, "MaxInFlight -1", stream.ProducerConfig{MaxInFlight: -1})
	add(false, nil, "MaxInFlight greatest", stream.ProducerConfig{MaxInFlight: math.MaxInt})
	add(false, stream.ErrRecordTooLarge, "MaxMessageBytes 1", stream.ProducerConfig{MaxMessageBytes: 1})
	add(true, nil, "MaxMessageBytes -1", stream.ProducerConfig{MaxMessageBytes: -1})
	add(false, nil, "Linger 1 ns", stream.ProducerConfig{Linger: 1})
	add(true, nil, "Linger -1", stream.ProducerConfig{Linger: -1})
	add(false, nil, "MaxBlock 1 ns", stream.ProducerConfig{MaxBlock: 1})
	add(false, nil, "MaxBlock -1", stream.ProducerConfig{MaxBlock: -1})
	add(false, nil, "MaxBlock greatest", stream.ProducerConfig{MaxBlock: math.MaxInt64})
	add(false, nil, "MaxBlock least", stream.ProducerConfig{MaxBlock: math.MinInt64})
	add(true, nil, "DeliveryTimeout -1", stream.ProducerConfig{DeliveryTimeout: -1})
	add(true, nil, "DeliveryTimeout below Linger", stream.ProducerConfig{DeliveryTimeout: 1, Linger: 2})
	add(false, nil, "DeliveryTimeout greatest", stream.ProducerConfig{DeliveryTimeout: math.MaxInt64})
	add(false, nil, "Retries 1", stream.ProducerConfig{Retries: 1})
	add(false, nil, "Retries -1", stream.ProducerConfig{Retries: -1})
	add(false, nil, "Retries greatest", stream.ProducerConfig{Retries: math.MaxInt})
	for name, codec := range codecs {
		for _, level := range []int{1, 9} {
			add(false, nil, fmt.Sprint(name, " level ", level), stream.ProducerConfig{Compression: codec, CompressionLevel: level})
		}
	}
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			eng := streamtest.New(t)
			create(t, eng, "a", 1)
			p, err := eng.NewProducer(t.Context(), s.c)
			if s.refused {
				wantErr(t, err, stream.ErrInvalidConfig)
				return
			}
			check(t, err)
			for name, produce := range verbs {
				for range 3 {
					_, err := produce(p, t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 10)})
					if s.record == nil || name == "ProduceSync" && err == nil { // a call that finds nothing accumulated needs no buffer
						check(t, err)
					} else if !errors.Is(err, s.record) && !errors.Is(err, stream.ErrRecordTooLarge) {
						t.Fatalf("%s: %v", name, err)
					}
				}
			}
			check(t, p.Close(t.Context()))
		})
	}
}

// No time to deliver is no time: each record is there, or it is not, and its answer says so.
func TestDeliveryTimeoutOfANanosecond(t *testing.T) {
	eng := streamtest.New(t)
	create(t, eng, "a", 1)
	p := newProducer(t, eng, stream.ProducerConfig{DeliveryTimeout: 1})
	acked, open := 0, 0
	for range 100 {
		for _, produce := range verbs {
			switch _, err := produce(p, t.Context(), &stream.Record{Topic: "a"}); {
			case err == nil:
				acked++
			case !errors.Is(err, stream.ErrTimeout):
				t.Fatal(err)
			case errors.Is(err, stream.ErrOutcomeUnknown):
				open++
			}
		}
	}
	if n := len(readAll(t, eng, tp("a", 0))); n < acked || n > acked+open {
		t.Fatalf("%d records, %d acknowledged, %d unknown", n, acked, open)
	}
}

// Every level of every codec that a producer can be made with gives back what was sent.
func TestCompressionLevelsWorkOrAreRefused(t *testing.T) {
	for name, codec := range codecs {
		for _, level := range []int{math.MinInt, -200_000, -7, -1, 0, 1, 3, 6, 9, 10, 12, 17, 22, 23, 100, math.MaxInt} {
			t.Run(fmt.Sprint(name, level), func(t *testing.T) {
				eng := streamtest.New(t)
				create(t, eng, "a", 1)
				p, err := eng.NewProducer(t.Context(), stream.ProducerConfig{Compression: codec, CompressionLevel: level})
				if err != nil {
					wantErr(t, err, stream.ErrInvalidConfig)
					return
				}
				value := strings.Repeat("what is said twice is compressed. ", 200)
				out := must(p.ProduceAll(t.Context(), []stream.Record{{Topic: "a", Value: []byte(value)}, {Topic: "a", Value: []byte(value)}}, nil))(t)
				eq(t, "results", len(out), 2)
				eq(t, "values", values(readAll(t, eng, tp("a", 0))), []string{value, value})
			})
		}
	}
}

// F9: a record of exactly MaxMessageBytes passes, one byte more is too large, by every verb and with every codec; so for the topic's own limit.
func TestRecordOfExactlyTheGreatestSize(t *testing.T) {
	const value = 1000
	const greatest = 61 + 2 + 7 + value // the batch's header, the record's length, its fields, its value
	for name, codec := range codecs {
		for verb, produce := range verbs {
			for _, whose := range []string{"producer", "topic"} {
				t.Run(name+" "+verb+" "+whose, func(t *testing.T) {
					eng := streamtest.New(t)
					c, topic := stream.ProducerConfig{Compression: codec}, stream.TopicConfig{}
					if whose == "topic" {
						topic.Config = map[string]string{"max.message.bytes": fmt.Sprint(greatest)}
					} else {
						c.MaxMessageBytes = greatest
					}
					check(t, eng.Admin().CreateTopic(t.Context(), "a", topic))
					p := newProducer(t, eng, c)
					random := make([]byte, value+1) // compresses badly: the topic's limit is for what is stored
					for i := range random {
						random[i] = byte(i * i * 40503 >> 7)
					}
					must(produce(p, t.Context(), &stream.Record{Topic: "a", Value: random[:value]}))(t)
					if whose == "producer" || codec == stream.CompressionNone {
						_, err := produce(p, t.Context(), &stream.Record{Topic: "a", Value: random})
						wantErr(t, err, stream.ErrRecordTooLarge)
						eq(t, "unknown", errors.Is(err, stream.ErrOutcomeUnknown), false)
					}
					eq(t, "end", endOf(t, eng, tp("a", 0)), 1)
				})
			}
		}
	}
}

// F9: records that are allowed one by one are not refused because of the batch that they are put into.
func TestSmallRecordsOfATopicWithASmallLimit(t *testing.T) {
	eng := streamtest.New(t)
	check(t, eng.Admin().CreateTopic(t.Context(), "a", stream.TopicConfig{Config: map[string]string{"max.message.bytes": "300"}}))
	p := newProducer(t, eng, stream.ProducerConfig{Linger: 20 * time.Millisecond})
	for range 200 {
		p.Produce(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 50)}, func(_ stream.Receipt, err error) { report(t, err) })
	}
	must(p.ProduceAll(t.Context(), make200(), nil))(t)
	check(t, p.Flush(t.Context()))
	eq(t, "end", endOf(t, eng, tp("a", 0)), 400)
}

func make200() (rs []stream.Record) {
	for range 200 {
		rs = append(rs, stream.Record{Topic: "a", Value: make([]byte, 50)})
	}
	return rs
}

// Whatever a record is made of comes back as it was, with every codec, alone and in a batch: nil and empty, headers, times.
func TestRecordsRoundTripThroughEveryCodec(t *testing.T) {
	rs := []stream.Record{
		{}, {Key: []byte{}}, {Value: []byte{}}, {Key: []byte{}, Value: []byte{}}, {Key: []byte("k")}, {Value: []byte("v")},
		{Headers: []stream.Header{{}}}, {Headers: []stream.Header{{Key: "h", Value: []byte{}}, {Key: "h"}, {Key: "h", Value: []byte("x")}}},
		{Timestamp: time.UnixMilli(0)}, {Timestamp: time.UnixMilli(1)}, {Timestamp: time.Date(9999, 1, 1, 0, 0, 0, 123e6, time.UTC)}, {Timestamp: time.UnixMilli(5)},
		{Key: bytes.Repeat([]byte("k"), 100_000), Value: bytes.Repeat([]byte{0}, 300_000), Headers: []stream.Header{{Key: strings.Repeat("h", 70_000), Value: make([]byte, 70_000)}}},
	}
	for i := range rs {
		rs[i].Topic = "a"
	}
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			onGrounds(t, func(t *testing.T, g *ground) {
				eng := g.open()
				create(t, eng, "a", 1)
				p := newProducer(t, eng, stream.ProducerConfig{Compression: codec, Linger: time.Millisecond, Partitioner: stream.ManualPartitioner()})
				for i := range rs {
					p.Produce(t.Context(), &rs[i], nil)
				}
				must(p.ProduceAll(t.Context(), rs, nil))(t)
				for i := range rs {
					must(p.ProduceSync(t.Context(), &rs[i]))(t)
				}
				got := readAll(t, eng, tp("a", 0))
				eq(t, "records", len(got), 3*len(rs))
				for i, r := range got {
					want := rs[i%len(rs)]
					if !bytes.Equal(r.Key, want.Key) || (r.Key == nil) != (want.Key == nil) || !bytes.Equal(r.Value, want.Value) || (r.Value == nil) != (want.Value == nil) ||
						len(r.Headers) != len(want.Headers) || !want.Timestamp.IsZero() && !r.Timestamp.Equal(want.Timestamp) || r.Timestamp.IsZero() {
						t.Fatalf("record %d is another", i)
					}
					for k, h := range r.Headers {
						if w := want.Headers[k]; h.Key != w.Key || !bytes.Equal(h.Value, w.Value) || (h.Value == nil) != (w.Value == nil) {
							t.Fatalf("record %d, header %d is another", i, k)
						}
					}
				}
			})
		})
	}
}
