package stream_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/stream"
)

// BenchmarkProduceCompressed sends text-like records by Produce with each codec, and in the same rounds compresses the same batches with the codec alone; it reports medians and their ratio.
func BenchmarkProduceCompressed(b *testing.B) {
	for name, codec := range map[string]stream.Compression{"lz4": stream.CompressionLZ4, "zstd": stream.CompressionZstd, "snappy": stream.CompressionSnappy, "gzip": stream.CompressionGzip} {
		b.Run(name, func(b *testing.B) {
			eng, err := stream.OpenMemory(nil)
			check(b, err)
			defer eng.Close()
			create(b, eng, "a", 1)
			p, err := eng.NewProducer(b.Context(), stream.ProducerConfig{Acks: stream.AcksWritten, Compression: codec})
			check(b, err)
			const records = 100_000
			values := textLike(records)
			// The batches, as the producer makes them.
			var plain []batch.Batch
			var build batch.Builder
			build.Reset(nil)
			for i, v := range values {
				if build.Len()+batch.SizeBound(key, v, nil) > 16<<10 || i == records-1 {
					plain = append(plain, slices.Clone(build.Seal(batch.NoProducer())))
					build.Reset(nil)
				}
				build.Append(1, key, v, nil)
			}
			size := 0
			for _, bt := range plain {
				size += len(bt)
			}
			var took, bare []time.Duration
			c := batch.NewCompressor(batch.Codec(codec), 0)
			var buf []byte
			r := &stream.Record{Topic: "a", Key: key}
			for b.Loop() {
				begin := time.Now()
				for _, v := range values {
					r.Value = v
					p.Produce(context.Background(), r, nil)
				}
				check(b, p.Flush(b.Context()))
				took = append(took, time.Since(begin))
				begin = time.Now()
				for _, bt := range plain {
					packed, err := c.Compress(buf, bt)
					check(b, err)
					buf = packed[:0]
				}
				bare = append(bare, time.Since(begin))
			}
			slices.Sort(took)
			slices.Sort(bare)
			t, f := took[len(took)/2], bare[len(bare)/2]
			b.ReportMetric(float64(size)/t.Seconds()/1e6, "MB/s")
			b.ReportMetric(float64(size)/f.Seconds()/1e6, "MB/s-codec")
			b.ReportMetric(100*float64(f)/float64(t), "%-of-codec")
		})
	}
}

var key = []byte("0123456789abcdef")

// textLike returns n values of 100 bytes of words.
func textLike(n int) [][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	words := make([]string, 500)
	for i := range words {
		words[i] = fmt.Sprintf("w%x ", r.Uint32N(1<<20))
	}
	values := make([][]byte, n)
	for i := range values {
		for len(values[i]) < 100 {
			values[i] = append(values[i], words[r.IntN(len(words))]...)
		}
		values[i] = values[i][:100]
	}
	return values
}
