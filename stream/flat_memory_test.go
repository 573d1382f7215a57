package stream_test

import (
	"context"
	"flag"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/dustin/go-humanize"

	"github.com/runnelmq/runnel/stream"
)

var flatBytes = flag.Uint64("flatbytes", 300<<20, "how much TestProducingKeepsMemoryFlat produces; NIGHT: 20000000000, with GOMEMLIMIT=256MiB")

// F14: however much is produced, and however slow promises are, the heap stays what BufferMemory allows.
func TestProducingKeepsMemoryFlat(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(256 << 20))
	eng := must(stream.Open(t.TempDir(), nil))(t)
	defer eng.Close()
	check(t, eng.Admin().CreateTopic(t.Context(), "a", stream.TopicConfig{Partitions: 4, SegmentBytes: 64 << 20, RetentionBytes: 256 << 20}))
	const buffer = 16 << 20
	p := newProducer(t, eng, stream.ProducerConfig{Acks: stream.AcksWritten, BufferMemory: buffer})
	value := []byte(strings.Repeat("0123456789", 100))
	var heap, most uint64
	var stats runtime.MemStats
	acked, work := 0, 0
	promise := func(_ stream.Receipt, err error) {
		if err != nil {
			t.Error(err)
		}
		for i := range value { // slower than the producer
			work += int(value[i])
		}
		acked++
	}
	n := 0
	for sent := uint64(0); sent < *flatBytes; sent += uint64(len(value)) {
		p.Produce(context.Background(), &stream.Record{Topic: "a", Value: value}, promise)
		if n++; n%20000 == 0 {
			runtime.ReadMemStats(&stats)
			heap = stats.HeapInuse
			most = max(most, heap)
		}
	}
	check(t, p.Flush(t.Context()))
	eq(t, "promises", acked, n)
	runtime.GC()
	runtime.ReadMemStats(&stats)
	t.Logf("%s in %d records; heap at most %s, %s afterwards, %s of memory from the system", humanize.Bytes(*flatBytes), n, humanize.IBytes(most), humanize.IBytes(stats.HeapInuse), humanize.IBytes(stats.Sys))
	if limit := uint64(64<<20 + 2*buffer); most > limit {
		t.Errorf("the heap had %s, with a buffer of %s", humanize.IBytes(most), humanize.IBytes(buffer))
	}
}
