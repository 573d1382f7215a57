package rlog

import (
	"testing"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/vfs"
)

// timingRecords fills one batch of about 16 KiB with records of a 16-byte key and a 100-byte value.
func timingRecords(b *batch.Builder, buf []byte) {
	key, value := make([]byte, 16), make([]byte, 100)
	for i := range value {
		value[i] = byte('a' + i%26)
	}
	b.Reset(buf)
	for b.Len()+130 < 16<<10 {
		b.Append(1, key, value, nil)
	}
}

func timingLog(tb testing.TB) (*env, *Log) {
	e := diskEnv(tb)
	e.opts = func(o *Options) { o.SegmentBytes = DefaultSegmentBytes }
	l := e.open()
	tb.Cleanup(l.Abandon)
	return e, l
}

// BenchmarkAppend appends 16 KiB batches: sealed: header and checksum made anew for each, as a producer does; encoded: the records too.
func BenchmarkAppend(bench *testing.B) {
	for _, c := range []struct {
		name   string
		encode bool
	}{{"sealed", false}, {"encoded", true}} {
		bench.Run(c.name, func(bench *testing.B) {
			_, l := timingLog(bench)
			var b batch.Builder
			buf := make([]byte, 0, 32<<10)
			timingRecords(&b, buf)
			bench.SetBytes(int64(b.Len()))
			bench.ReportAllocs()
			for bench.Loop() {
				if c.encode {
					timingRecords(&b, buf)
				}
				if _, err := l.Append(b.Seal(batch.NoProducer())); err != nil {
					bench.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendOne(bench *testing.B) {
	_, l := timingLog(bench)
	var b batch.Builder
	b.Reset(make([]byte, 0, 4096))
	b.Append(1, make([]byte, 16), make([]byte, 100), nil)
	bench.ReportAllocs()
	for bench.Loop() {
		if _, err := l.Append(b.Seal(batch.NoProducer())); err != nil {
			bench.Fatal(err)
		}
	}
}

const scanBatches = 16 << 10 // 256 MiB

// BenchmarkScan reads a log of 16 KiB batches with a cursor and decodes every record; BenchmarkDecode is its limit: the same bytes decoded in
// place on the heap.
func BenchmarkScan(bench *testing.B) {
	_, l := timingLog(bench)
	var b batch.Builder
	timingRecords(&b, nil)
	count := b.Count()
	for range scanBatches {
		if _, err := l.Append(b.Seal(batch.NoProducer())); err != nil {
			bench.Fatal(err)
		}
	}
	bench.SetBytes(int64(scanBatches * b.Len()))
	for bench.Loop() {
		c := l.NewCursor(0)
		n := 0
		for {
			bt, err := c.Next(l.EndOffset())
			if err != nil {
				bench.Fatal(err)
			}
			if bt == nil {
				break
			}
			k, err := decodeAll(c.File(), bt)
			if err != nil {
				bench.Fatal(err)
			}
			n += k
		}
		c.Close()
		if n != scanBatches*count {
			bench.Fatalf("%d records", n)
		}
	}
}

func decodeAll(f vfs.File, b batch.Batch) (n int, err error) {
	defer vfs.Catch(vfs.Arm(), f, &err)
	it := b.Iter()
	var r batch.Record
	for it.Next(&r) {
		n++
	}
	return n, it.Err()
}

func BenchmarkDecode(bench *testing.B) {
	var b batch.Builder
	timingRecords(&b, nil)
	one := b.Seal(batch.NoProducer())
	mem := make([]byte, 0, scanBatches*len(one))
	for range scanBatches {
		mem = append(mem, one...)
	}
	bench.SetBytes(int64(len(mem)))
	for bench.Loop() {
		for at := 0; at < len(mem); at += len(one) {
			it := batch.Batch(mem[at : at+len(one)]).Iter()
			var r batch.Record
			for it.Next(&r) {
			}
		}
	}
}
