package stream_test

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

var randomBytes = flag.Int64("randombytes", 1<<30, "bytes of the log that BenchmarkReadRandom reads from")

// BenchmarkReadRandom reads one record anywhere in a log of 1 GiB with keys of 16 bytes and values of 100: Seek, then PollInto. Each one is compared. The log has been
// read once before. Its batches are those that an asynchronous producer makes, or have 16 KiB.
func BenchmarkReadRandom(b *testing.B) {
	for _, fill := range []struct {
		name string
		fn   func(b *testing.B, p stream.Producer) (total int64)
	}{{"async", fillAsync}, {"16KiB", fillAll}} {
		b.Run(fill.name, func(b *testing.B) {
			eng, err := stream.Open(b.TempDir(), nil)
			check(b, err)
			defer eng.Close()
			create(b, eng, "a", 1)
			p, err := eng.NewProducer(b.Context(), stream.ProducerConfig{Acks: stream.AcksWritten})
			check(b, err)
			total := fill.fn(b, p)
			check(b, p.Close(b.Context()))
			readRandom(b, eng, total)
		})
	}
}

func readRandom(b *testing.B, eng *stream.Engine, total int64) {
	for _, borrow := range []bool{false, true} {
		b.Run(fmt.Sprintf("borrow=%t", borrow), func(b *testing.B) {
			c, err := eng.NewConsumer(b.Context(), stream.ConsumerConfig{Borrow: borrow})
			check(b, err)
			defer c.Close(b.Context())
			tp := stream.TopicPartition{Topic: "a"}
			check(b, c.Assign(tp))
			readEverything(b, c, tp, total)
			r := rand.New(rand.NewPCG(1, 1))
			var one [1]stream.Record
			var key, value []byte
			took := make([]time.Duration, 0, 1<<20)
			b.ReportAllocs()
			for b.Loop() {
				at := r.Int64N(total)
				begin := time.Now()
				err := c.Seek(tp, at)
				n, err2 := c.PollInto(b.Context(), one[:])
				t := time.Since(begin)
				if len(took) < cap(took) {
					took = append(took, t)
				}
				key, value = randomRecord(key, value, at)
				if err != nil || err2 != nil || n != 1 || !bytes.Equal(one[0].Key, key) || !bytes.Equal(one[0].Value, value) {
					b.Fatalf("offset %d: %d records, %v, %v", at, n, err, err2)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(quantile(took, 0.5).Nanoseconds())/1e3, "µs-p50")
			b.ReportMetric(float64(quantile(took, 0.99).Nanoseconds())/1e3, "µs-p99")
		})
	}
}

// quantile is that of sorted durations.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// randomRecord is the record at an offset.
func randomRecord(key, value []byte, at int64) (k, v []byte) {
	const text = "a record of a log that somebody looks up; it says the same as every other one, but for its number: "
	key = fmt.Appendf(key[:0], "%016x", at)
	value = append(binary.BigEndian.AppendUint64(value[:0], uint64(at)), text[:92]...)
	return key, value
}

// fillAll writes the log in batches that are full, and returns how many records it has.
func fillAll(b *testing.B, p stream.Producer) (total int64) {
	rs := make([]stream.Record, 1000)
	var out []stream.Result
	for total*(16+100) < *randomBytes {
		for i := range rs {
			key, value := randomRecord(rs[i].Key, rs[i].Value, total+int64(i))
			rs[i] = stream.Record{Topic: "a", Key: key, Value: value}
		}
		var err error
		out, err = p.ProduceAll(b.Context(), rs, out)
		check(b, err)
		total += int64(len(rs))
	}
	return total
}

// fillAsync writes the log record by record.
func fillAsync(b *testing.B, p stream.Producer) (total int64) {
	var failed atomic.Pointer[error]
	promise := func(_ stream.Receipt, err error) {
		if err != nil {
			failed.CompareAndSwap(nil, &err)
		}
	}
	r := &stream.Record{Topic: "a"}
	for ; total*(16+100) < *randomBytes; total++ {
		r.Key, r.Value = randomRecord(r.Key, r.Value, total)
		p.Produce(b.Context(), r, promise)
	}
	check(b, p.Flush(b.Context()))
	if err := failed.Load(); err != nil {
		b.Fatal(*err)
	}
	return total
}

// readEverything reads the log once, so that it is in memory.
func readEverything(b *testing.B, c stream.Consumer, tp stream.TopicPartition, total int64) {
	check(b, c.Seek(tp, 0))
	rs := make([]stream.Record, 1000)
	for n := int64(0); n < total; {
		k, err := c.PollInto(b.Context(), rs)
		check(b, err)
		n += int64(k)
	}
}
