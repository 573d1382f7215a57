package stream_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

var (
	cleanBytes  = flag.Int64("cleanbytes", 256<<20, "bytes of the log that the cleaner compacts in BenchmarkProduceWhileCleaning")
	cleanFor    = flag.Duration("cleanfor", 2*time.Second, "how long it measures, with the cleaner and without, in each round")
	cleanRounds = flag.Int("cleanrounds", 5, "rounds of BenchmarkProduceWhileCleaning")
)

// BenchmarkProduceWhileCleaning measures ProduceSync with the cleaner in the middle of a long compaction at its default rate (busy), beside the same without it
// (quiet): in turn, each in an engine of its own with the same log in it, reported are medians over the rounds. AcksWritten has a record every 10 µs, AcksSynced one after
// the other. Everything is read back.
func BenchmarkProduceWhileCleaning(b *testing.B) {
	for _, acks := range []stream.Acks{stream.AcksWritten, stream.AcksSynced} {
		b.Run(strings.ToLower(fmt.Sprint(acks)), func(b *testing.B) {
			for range b.N {
				var quiet, busy [][]time.Duration
				for range *cleanRounds {
					quiet = append(quiet, produceWhileCleaning(b, acks, false))
					busy = append(busy, produceWhileCleaning(b, acks, true))
				}
				for name, q := range map[string]float64{"p50": 0.5, "p99": 0.99, "p999": 0.999} {
					b.ReportMetric(medianQuantile(quiet, q), "quiet-µs-"+name)
					b.ReportMetric(medianQuantile(busy, q), "busy-µs-"+name)
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// medianQuantile is the median over rounds of a quantile, in µs.
func medianQuantile(rounds [][]time.Duration, q float64) float64 {
	var of []time.Duration
	for _, r := range rounds {
		of = append(of, quantile(slices.Sorted(slices.Values(r)), q))
	}
	return float64(quantile(slices.Sorted(slices.Values(of)), 0.5).Nanoseconds()) / 1e3
}

func produceWhileCleaning(b *testing.B, acks stream.Acks, clean bool) []time.Duration {
	dir, err := os.MkdirTemp(b.TempDir(), "")
	check(b, err)
	defer os.RemoveAll(dir)
	fillToClean(b, dir)

	var compacted atomic.Int64
	eng, err := stream.Open(dir, &stream.Options{Events: stream.Events{
		Compacted: func(stream.TopicPartition, int64, int64, int64, int64) { compacted.Add(1) },
	}})
	check(b, err)
	defer eng.Close()
	create(b, eng, "p", 1)
	p, err := eng.NewProducer(b.Context(), stream.ProducerConfig{Acks: acks})
	check(b, err)
	if clean {
		check(b, eng.Admin().AlterTopic(b.Context(), "c", map[string]string{"cleanup.policy": "compact"}))
		awaitCleaned(b, filepath.Join(dir, "topics", "c-0"))
	}
	took := produceTimed(b, p, acks)
	if compacted.Load() > 0 {
		b.Fatal("the compaction was over too early: use larger -cleanbytes or shorter -cleanfor")
	}
	wantProduced(b, eng, len(took))
	return took
}

// fillToClean makes a log with a record of 126 bytes for each of 400 000 keys, and several more for most. It is closed, so all of it is on the disk.
func fillToClean(b *testing.B, dir string) {
	eng, err := stream.Open(dir, nil)
	check(b, err)
	check(b, eng.Admin().CreateTopic(b.Context(), "c", stream.TopicConfig{SegmentBytes: 16 << 20}))
	p, err := eng.NewProducer(b.Context(), stream.ProducerConfig{Acks: stream.AcksWritten})
	check(b, err)
	r := rand.New(rand.NewPCG(1, 1))
	rs := make([]stream.Record, 1000)
	var out []stream.Result
	for n := int64(0); n < *cleanBytes; n += int64(126 * len(rs)) {
		for i := range rs {
			key, value := randomRecord(rs[i].Key, rs[i].Value, r.Int64N(400_000))
			rs[i] = stream.Record{Topic: "c", Key: key, Value: value}
		}
		out, err = p.ProduceAll(b.Context(), rs, out)
		check(b, err)
	}
	check(b, eng.Close())
}

// awaitCleaned waits until compaction has begun to rewrite segments.
func awaitCleaned(b *testing.B, dir string) {
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		found, err := filepath.Glob(filepath.Join(dir, "*.cleaned"))
		check(b, err)
		if len(found) > 0 {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			b.Fatal("no compaction has begun")
		}
	}
}

// produceTimed sends records and returns how long each call took.
func produceTimed(b *testing.B, p stream.Producer, acks stream.Acks) (took []time.Duration) {
	ctx := b.Context()
	rec := &stream.Record{Topic: "p"}
	begin := time.Now()
	for at := time.Duration(0); at < *cleanFor; {
		rec.Key, rec.Value = randomRecord(rec.Key, rec.Value, int64(len(took)))
		now := time.Now()
		_, err := p.ProduceSync(ctx, rec)
		took = append(took, time.Since(now))
		check(b, err)
		for due := at + 10*time.Microsecond; ; {
			if at = time.Since(begin); acks == stream.AcksSynced || at >= due {
				break
			}
		}
	}
	return took
}

// wantProduced reads what was sent.
func wantProduced(b *testing.B, eng *stream.Engine, n int) {
	c, err := eng.NewConsumer(b.Context(), stream.ConsumerConfig{Topics: []string{"p"}, Reset: stream.ResetEarliest, MaxWait: -1})
	check(b, err)
	rs := make([]stream.Record, 1000)
	var key, value []byte
	at := 0
	for k := len(rs); k > 0; at += k {
		k, err = c.PollInto(b.Context(), rs)
		check(b, err)
		for i := range rs[:k] {
			key, value = randomRecord(key, value, int64(at+i))
			if !bytes.Equal(rs[i].Key, key) || !bytes.Equal(rs[i].Value, value) {
				b.Fatalf("record %d is not what was sent", at+i)
			}
		}
	}
	if at != n {
		b.Fatalf("%d records of %d", at, n)
	}
	check(b, c.Close(b.Context()))
}
