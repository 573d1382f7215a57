package crashtest

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

var (
	kafkaDump        = flag.Bool("kafkadump", false, "have Kafka's DumpLogSegments read directories that the engine has left; needs Maven and Java")
	kafkaDumpVersion = flag.String("kafkadumpversion", "", "Kafka's version for -kafkadump; default: that of kafkadump/run")
	kafkaDumpKeep    = flag.String("kafkadumpkeep", "", "directory to put the engine's directory into, to be kept; default: a temporary one")
)

// A dumpTopic is a topic for Kafka to read.
type dumpTopic struct {
	name      string
	config    stream.TopicConfig
	records   int // in all
	batchSize int // of its producers
	record    func(r *rand.Rand, i int) stream.Record
	single    float64 // probability that a record is sent alone, not with others
	compacted bool    // offsets may be missing
}

// smallSegments makes many files.
func smallSegments(partitions int, more map[string]string) stream.TopicConfig {
	c := map[string]string{"segment.bytes": "4096", "index.interval.bytes": "512"}
	maps.Copy(c, more)
	return stream.TopicConfig{Partitions: partitions, Config: c}
}

var dumpTopics = []dumpTopic{
	{name: "mixed", config: smallSegments(3, nil), records: 12000, batchSize: 2000, single: 0.05, record: mixedRecord},
	{name: "single", config: smallSegments(1, map[string]string{"index.interval.bytes": "1"}), records: 800, single: 1, record: mixedRecord},
	{name: "large", config: smallSegments(2, nil), records: 60, batchSize: 1 << 20, single: 0.3, record: func(r *rand.Rand, i int) stream.Record {
		return stream.Record{Value: randomBytes(r, r.IntN(100_000))} // most are greater than a segment
	}},
	{name: "late", config: smallSegments(1, nil), records: 2000, batchSize: 1000, single: 0.1, record: func(r *rand.Rand, i int) stream.Record {
		rec := mixedRecord(r, i)
		rec.Timestamp = time.UnixMilli(1_700_000_000_000 + int64(i) - r.Int64N(500)) // neither rising nor falling
		return rec
	}},
	{name: "ancient", config: smallSegments(1, nil), records: 1000, batchSize: 1000, record: func(r *rand.Rand, i int) stream.Record {
		rec := mixedRecord(r, i)
		rec.Timestamp = time.UnixMilli(int64(i / 700)) // 0 and 1
		return rec
	}},
	{name: "full-index", config: smallSegments(1, map[string]string{"segment.bytes": "1048576", "segment.index.bytes": "1024"}), records: 2000, batchSize: 600, record: mixedRecord},
	{name: "one.large_segment", config: stream.TopicConfig{Partitions: 2}, records: 5000, record: mixedRecord},
	{name: "compacted", config: smallSegments(1, map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}), records: 4000, batchSize: 1000, single: 0.1,
		record: func(r *rand.Rand, i int) stream.Record {
			rec := mixedRecord(r, i)
			rec.Key = fmt.Appendf(nil, "key %d", r.IntN(100))
			return rec
		}, compacted: true},
	{name: "few", config: smallSegments(4, nil), records: 2, single: 1, record: mixedRecord},
}

// mixedRecord has everything that a record can have, and that it can lack.
func mixedRecord(r *rand.Rand, i int) stream.Record {
	rec := stream.Record{Key: fmt.Appendf(nil, "key %d", r.IntN(100)), Value: randomBytes(r, r.IntN(200))}
	switch r.IntN(6) {
	case 0:
		rec.Key = nil
	case 1:
		rec.Value = nil
	case 2:
		rec.Key, rec.Value = []byte{}, []byte{}
	}
	for range r.IntN(3) {
		rec.Headers = append(rec.Headers, stream.Header{Key: fmt.Sprintf("header %d", i), Value: randomBytes(r, r.IntN(20))})
	}
	if r.IntN(10) == 0 {
		rec.Headers = append(rec.Headers, stream.Header{}, stream.Header{Key: "empty", Value: []byte{}})
	}
	return rec
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// FORMAT.md, "Kafka's and ours": what is Kafka's in the format is read by Kafka: segments, indexes and producer state after a close in order.
func TestKafkaDump(t *testing.T) {
	needKafkaDump(t)
	r := random(startSeed(t), 77)
	dir := dumpDir(t, "written")
	// The engine is opened again with half of the records written: segments and snapshots go on where they ended.
	for part := range 2 {
		writeDumpTopics(t, r, dir, part, dumpTopics...)
	}
	runKafkaDump(t, dir, 0)
}

// FORMAT.md: what recovery has cut, rebuilt and written on is read by Kafka too.
func TestKafkaDumpAfterKills(t *testing.T) {
	needKafkaDump(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l := KillLoop{Dir: dumpDir(t, "killed"), Seed: startSeed(t), Kills: min(*kills, 20)}
	l.Child = func(round int) *exec.Cmd {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", killChildEnv, l.Seed, round, l.Dir))
		cmd.Stderr = os.Stderr
		return cmd
	}
	if _, err := l.Run(); err != nil {
		t.Fatal(err)
	}
	runKafkaDump(t, l.Dir, 0)
}

// Damage that Runnel would report is reported here too, so a clean verdict says something.
func TestKafkaDumpNoticesDamage(t *testing.T) {
	needKafkaDump(t)
	dir := dumpDir(t, "damaged")
	topic := dumpTopic{name: "t", config: smallSegments(1, map[string]string{"index.interval.bytes": "1"}), records: 200, single: 1, record: mixedRecord}
	writeDumpTopics(t, random(startSeed(t), 78), dir, 0, topic)
	for _, d := range []struct {
		name, suffix, says string
		harm               func(b []byte) []byte
	}{
		{"record", ".log", "isvalid: false", flip(62)},
		{"base offset", ".log", "was to come", flip(7)},
		{"length", ".log", "WRONG: log:", flip(10)},
		{"zeros behind the end", ".log", "WRONG: log: exit status", func(b []byte) []byte { return append(b, make([]byte, 512)...) }},
		{"offset in an index", ".index", "Mismatches in", flip(3)},
		{"position in an index", ".index", "WRONG: index: exit status", flip(7)},
		{"zeroed entry", ".index", "were read", func(b []byte) []byte { clear(b[8:16]); return b }},
		{"half an entry", ".index", "is corrupt", func(b []byte) []byte { return b[:len(b)-3] }},
		{"time in a time index", ".timeindex", "timestamp mismatch", flip(7)},
		{"offset in a time index", ".timeindex", "indexed offsets are not found", flip(8)},
		{"producer in a snapshot", ".snapshot", "Snapshot is corrupt", flip(20)},
		{"end of a snapshot", ".snapshot", "Snapshot is corrupt", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }},
	} {
		t.Run(d.name, func(t *testing.T) {
			names, err := filepath.Glob(filepath.Join(dir, "topics", "t-0", "*"+d.suffix))
			if err != nil || len(names) < 2 {
				t.Fatal(names, err)
			}
			name := names[len(names)/2]
			whole, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, d.harm(bytes.Clone(whole)), 0o644); err != nil {
				t.Fatal(err)
			}
			out := runKafkaDump(t, dir, 1)
			if !bytes.Contains(out, []byte(d.says)) {
				t.Errorf("it does not say %q", d.says)
			}
			if err := os.WriteFile(name, whole, 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
	runKafkaDump(t, dir, 0)
}

// flip turns a bit of one byte.
func flip(at int) func(b []byte) []byte {
	return func(b []byte) []byte { b[at] ^= 1; return b }
}

func needKafkaDump(t *testing.T) {
	if !*kafkaDump {
		t.Skip("no -kafkadump")
	}
	for _, name := range []string{"bash", "mvn", "java"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed", name)
		}
	}
}

// dumpDir returns a directory that does not exist yet.
func dumpDir(t *testing.T, name string) string {
	if *kafkaDumpKeep == "" {
		return filepath.Join(t.TempDir(), name)
	}
	dir, err := filepath.Abs(filepath.Join(*kafkaDumpKeep, name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s is there already (%v)", dir, err)
	}
	return dir
}

// runKafkaDump demands an exit status of the script and returns what it has said.
func runKafkaDump(t *testing.T, dir string, status int) []byte {
	t.Helper()
	args := []string{filepath.Join("kafkadump", "run")}
	if *kafkaDumpVersion != "" {
		args = append(args, "-k", *kafkaDumpVersion)
	}
	for _, topic := range dumpTopics {
		if topic.compacted {
			args = append(args, "-c", topic.name)
		}
	}
	out, err := exec.Command("bash", append(args, dir)...).CombinedOutput()
	t.Logf("%s", out)
	var exit *exec.ExitError
	switch {
	case err == nil && status == 0:
	case errors.As(err, &exit) && exit.ExitCode() == status:
	default:
		t.Errorf("%v, want exit status %d", err, status)
	}
	return out
}

// writeDumpTopics opens the engine, writes the first or the second half of topics, and closes it.
func writeDumpTopics(t *testing.T, r *rand.Rand, dir string, part int, topics ...dumpTopic) {
	t.Helper()
	ctx := t.Context()
	compacted := make(chan string, 1000)
	eng, err := stream.Open(dir, &stream.Options{CleanRate: -1, Events: stream.Events{
		Compacted: func(tp stream.TopicPartition, _, _, _, _ int64) { compacted <- tp.Topic },
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := eng.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, topic := range topics {
		if part == 0 {
			if err := eng.Admin().CreateTopic(ctx, topic.name, topic.config); err != nil {
				t.Fatalf("%s: %v", topic.name, err)
			}
		}
		if err := topic.write(ctx, r, eng, part*topic.records/2, (part+1)*topic.records/2); err != nil {
			t.Fatalf("%s: %v", topic.name, err)
		}
		for topic.compacted && <-compacted != topic.name {
		}
	}
}

// write sends the records from, from+1 … to-1 by four producers in turn, of which two have a name.
func (d dumpTopic) write(ctx context.Context, r *rand.Rand, eng *stream.Engine, from, to int) error {
	var producers [4]stream.Producer
	for i := range producers {
		c := stream.ProducerConfig{Acks: stream.AcksWritten, BatchSize: d.batchSize}
		if i < 2 {
			c.Name = fmt.Sprintf("%s %d", d.name, i)
		}
		p, err := eng.NewProducer(ctx, c)
		if err != nil {
			return err
		}
		defer p.Close(ctx)
		producers[i] = p
	}
	for i := from; i < to; {
		who := r.IntN(len(producers))
		n := 1
		if r.Float64() >= d.single {
			n = min(1+r.IntN(60), to-i)
		}
		rs := make([]stream.Record, n)
		for k := range rs {
			rs[k] = d.record(r, i)
			rs[k].Topic = d.name
			if who == 0 {
				rs[k].Sequence = int64(i + 1)
			}
			i++
		}
		var err error
		if n == 1 {
			_, err = producers[who].ProduceSync(ctx, &rs[0])
		} else {
			_, err = producers[who].ProduceAll(ctx, rs, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
