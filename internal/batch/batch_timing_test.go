package batch

import (
	"fmt"
	"testing"

	"github.com/runnelmq/runnel/internal/kafka"
)

// The record of these benchmarks is that of docs and issues: a key of 16 bytes, a value of 100.
var (
	timingKey   = []byte("0123456789abcdef")
	timingValue = []byte("the quick brown fox jumps over the lazy dog, then over another one, and over a third one for luck ...")[:100]
)

// timingBatch fills 64 KiB: a size at which a batch stays in the second-level cache.
func timingBatch(headers []kafka.Header) Batch {
	var b Builder
	b.Reset(nil)
	for b.Len() < 64<<10-256 {
		b.Append(1_700_000_000_000+int64(b.Count()/4), timingKey, timingValue, headers)
	}
	return b.Seal(NoProducer())
}

func BenchmarkAppend(bench *testing.B) {
	buf := make([]byte, 0, 64<<10)
	var b Builder
	b.Reset(buf)
	bench.ReportAllocs()
	for i := 0; bench.Loop(); i++ {
		if b.Len() > 64<<10-256 {
			b.Reset(buf)
		}
		b.Append(1_700_000_000_000+int64(b.Count()/4), timingKey, timingValue, nil)
	}
}

func BenchmarkSizeOf(bench *testing.B) {
	var b Builder
	b.Reset(make([]byte, 0, 1<<10))
	b.Append(1_700_000_000_000, timingKey, timingValue, nil)
	bench.ReportAllocs()
	n := 0
	for bench.Loop() {
		n += b.SizeOf(1_700_000_000_000, timingKey, timingValue, nil)
	}
	_ = n
}

// BenchmarkSealOne is what a batch of one record costs beside its record: Reset and Seal.
func BenchmarkSealOne(bench *testing.B) {
	var b Builder
	b.Reset(make([]byte, 0, 1<<10))
	b.Append(1_700_000_000_000, timingKey, timingValue, nil)
	bench.ReportAllocs()
	for bench.Loop() {
		b.Seal(NoProducer())
	}
}

func BenchmarkNext(bench *testing.B) {
	for _, c := range []struct {
		name    string
		headers []kafka.Header
	}{{"plain", nil}, {"headers=2", []kafka.Header{{Key: "trace", Value: timingKey}, {Key: "kind", Value: nil}}}} {
		bench.Run(c.name, func(bench *testing.B) {
			b := timingBatch(c.headers)
			it := b.Iter()
			var r Record
			n := 0
			bench.ReportAllocs()
			for bench.Loop() {
				if !it.Next(&r) {
					if it.Err() != nil {
						bench.Fatal(it.Err())
					}
					it = b.Iter()
				}
				n += len(r.Value)
			}
			if n == 0 {
				bench.Fatal("nothing was read")
			}
		})
	}
}

func BenchmarkSkip(bench *testing.B) {
	b := timingBatch(nil)
	it := b.Iter()
	for bench.Loop() {
		if !it.Skip() {
			it = b.Iter()
		}
	}
}

func BenchmarkCheck(bench *testing.B) {
	for _, n := range []int{1, 550} {
		bench.Run(fmt.Sprintf("records=%d", n), func(bench *testing.B) {
			var b Builder
			b.Reset(nil)
			for range n {
				b.Append(1_700_000_000_000, timingKey, timingValue, nil)
			}
			sealed := b.Seal(NoProducer())
			bench.SetBytes(int64(len(sealed)))
			bench.ReportAllocs()
			for bench.Loop() {
				if err := Check(sealed); err != nil {
					bench.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkValidate(bench *testing.B) {
	b := timingBatch(nil)
	bench.SetBytes(int64(len(b)))
	bench.ReportAllocs()
	for bench.Loop() {
		if _, err := Validate(b, nil, 0); err != nil {
			bench.Fatal(err)
		}
	}
}

// BenchmarkCompress and BenchmarkPlain count plain bytes.
func BenchmarkCompress(bench *testing.B) {
	b := timingBatch(nil)
	for _, codec := range codecs[1:] {
		bench.Run(codec.String(), func(bench *testing.B) {
			c := NewCompressor(codec, 0)
			var dst Batch
			var err error
			bench.SetBytes(int64(len(b)))
			bench.ReportAllocs()
			for bench.Loop() {
				if dst, err = c.Compress(dst, b); err != nil {
					bench.Fatal(err)
				}
			}
			bench.ReportMetric(float64(len(b))/float64(len(dst)), "times-smaller")
		})
	}
}

func BenchmarkPlain(bench *testing.B) {
	b := timingBatch(nil)
	for _, codec := range codecs[1:] {
		bench.Run(codec.String(), func(bench *testing.B) {
			packed := packed(bench, NewCompressor(codec, 0), b)
			var buf []byte
			bench.SetBytes(int64(len(b)))
			bench.ReportAllocs()
			for bench.Loop() {
				if _, err := new(Decompressor).Plain(packed, &buf, len(b)); err != nil {
					bench.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFilter drops every second record.
func BenchmarkFilter(bench *testing.B) {
	for _, codec := range []Codec{None, LZ4} {
		for _, horizon := range []int64{-1, 1 << 41} {
			bench.Run(fmt.Sprintf("%s/horizon=%v", codec, horizon >= 0), func(bench *testing.B) {
				b := packed(bench, NewCompressor(codec, 0), timingBatch(nil))
				var f Filter
				bench.SetBytes(int64(len(timingBatch(nil))))
				bench.ReportAllocs()
				for bench.Loop() {
					if _, _, err := f.Apply(b, func(r *Record) bool { return r.Offset%2 == 0 }, horizon); err != nil {
						bench.Fatal(err)
					}
				}
			})
		}
	}
}
