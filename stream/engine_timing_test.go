package stream_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// BenchmarkOpenMemory opens and closes an engine in memory, and reports the median time of the opening.
func BenchmarkOpenMemory(b *testing.B) {
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		eng, err := stream.OpenMemory(nil)
		took = append(took, time.Since(begin))
		if err != nil {
			b.Fatal(err)
		}
		if err := eng.Close(); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "ns/open-p50")
}

// benchmarked opens an engine on disk or in memory, with a topic "a" of one partition.
func benchmarked(b *testing.B, ground string) (eng *stream.Engine) {
	var err error
	if ground == "disk" {
		eng, err = stream.Open(b.TempDir(), nil)
	} else {
		eng, err = stream.OpenMemory(nil)
	}
	check(b, err)
	create(b, eng, "a", 1)
	return eng
}

// BenchmarkProduceSync sends one record at a time, AcksWritten.
func BenchmarkProduceSync(b *testing.B) {
	for _, ground := range []string{"disk", "memory"} {
		b.Run(ground, func(b *testing.B) {
			eng := benchmarked(b, ground)
			defer eng.Close()
			p, err := eng.NewProducer(b.Context(), stream.ProducerConfig{Acks: stream.AcksWritten})
			check(b, err)
			r := &stream.Record{Topic: "a", Key: make([]byte, 16), Value: make([]byte, 100)}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.ProduceSync(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkProduce sends records of 100 bytes by Produce, AcksWritten, and waits for all of them.
func BenchmarkProduce(b *testing.B) {
	for _, ground := range []string{"disk", "memory"} {
		b.Run(ground, func(b *testing.B) {
			eng := benchmarked(b, ground)
			defer eng.Close()
			p, err := eng.NewProducer(b.Context(), stream.ProducerConfig{Acks: stream.AcksWritten, Partitioner: stream.ManualPartitioner()})
			check(b, err)
			r := &stream.Record{Topic: "a", Key: make([]byte, 16), Value: make([]byte, 100)}
			acked := 0
			promise := func(_ stream.Receipt, err error) {
				if err == nil {
					acked++
				}
			}
			ctx := context.Background()
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				p.Produce(ctx, r, promise)
				n++
			}
			check(b, p.Flush(ctx))
			if acked != n {
				b.Fatalf("%d of %d", acked, n)
			}
		})
	}
}

// BenchmarkProduceSynced has callers send one record at a time, AcksSynced: their syncs are shared.
func BenchmarkProduceSynced(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		b.Run(strconv.Itoa(callers), func(b *testing.B) {
			eng, err := stream.Open(b.TempDir(), nil)
			check(b, err)
			defer eng.Close()
			create(b, eng, "a", 1)
			p, err := eng.NewProducer(b.Context(), stream.ProducerConfig{})
			check(b, err)
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			b.ResetTimer()
			for range callers {
				wg.Go(func() {
					r := &stream.Record{Topic: "a", Key: make([]byte, 16), Value: make([]byte, 100)}
					for left.Add(-1) >= 0 {
						if _, err := p.ProduceSync(context.Background(), r); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
