package crashtest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/stream"
)

var newDirs = flag.String("newdirs", "", "name of a version of the format, such as v2: TestOldDirectories first makes its directories anew in testdata/dirs")

// oldDirs is where archives of directories lie, one for each version of the format: those of viewDirs, with more in them, and oldWant.
const (
	oldDirs = "testdata/dirs"
	oldWant = "want.json"
)

const (
	oldNamed  = "named"  // of a named producer
	oldPacked = "packed" // a compressed batch of each codec
	oldName   = "source"
	oldLast   = 20 // the last sequence of the named producer
)

// An oldPart is what a partition of a directory holds.
type oldPart struct {
	Start   int64
	Records []oldRecord
}

type oldRecord struct {
	Offset, Timestamp int64
	Key, Hash         string // the hash is that of key, value and headers
}

// compacted reports whether got is what compaction may have left of p: some of its records, the last of each key among them.
func (p oldPart) compacted(got oldPart) bool {
	last := map[string]oldRecord{}
	for _, r := range p.Records {
		last[r.Key] = r
	}
	for _, r := range got.Records {
		if !slices.Contains(p.Records, r) {
			return false
		}
		if last[r.Key] == r {
			delete(last, r.Key)
		}
	}
	return len(last) == 0 && got.Start == p.Start
}

func oldTPs() []stream.TopicPartition {
	return append(viewTPs(), part(oldNamed, 0), part(oldPacked, 0), part(viewEmpty, 2))
}

// F15: directories that earlier versions have left, whatever way they ended, open: read only, and for writing. Records, log starts, committed offsets and sequences are those that were there
// when they were made, and everything goes on behind them.
func TestOldDirectories(t *testing.T) {
	if *newDirs != "" {
		makeOldDirs(t, filepath.Join(oldDirs, *newDirs+archiveExt))
	}
	archives, err := filepath.Glob(filepath.Join(oldDirs, "*"+archiveExt))
	if err != nil || len(archives) == 0 {
		t.Fatalf("there are no old directories: %v", err)
	}
	for _, name := range archives {
		home := t.TempDir()
		if err := unpack(name, home); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := os.ReadFile(filepath.Join(home, oldWant))
		want := map[string]map[string]oldPart{}
		if err == nil {
			err = json.Unmarshal(text, &want)
		}
		if err != nil || len(want) == 0 {
			t.Fatalf("%s: %v", name, err)
		}
		for _, how := range slices.Sorted(maps.Keys(want)) {
			t.Run(strings.TrimSuffix(filepath.Base(name), archiveExt)+"/"+how, func(t *testing.T) {
				openOld(t, filepath.Join(home, how), want[how])
			})
		}
	}
}

func openOld(t *testing.T, dir string, want map[string]oldPart) {
	for _, o := range []stream.Options{{ReadOnly: true}, {MinFree: -1}, {MinFree: -1}} {
		o.Events.Corrupt = func(err *stream.CorruptError) { t.Errorf("F15: %v", err) }
		eng, err := stream.Open(dir, &o)
		if err != nil {
			t.Fatalf("F15: open, read only %t: %v", o.ReadOnly, err)
		}
		got, err := oldParts(atOnce(t), eng)
		if err != nil {
			t.Errorf("F15: read only %t: %v", o.ReadOnly, err)
		}
		for tp := range want {
			if same := fmt.Sprint(got[tp]) == fmt.Sprint(want[tp]); !same && (tp != viewCompacted+"-0" || o.ReadOnly || !want[tp].compacted(got[tp])) {
				t.Errorf("F15: read only %t: %s holds\n%v\nwant\n%v", o.ReadOnly, tp, got[tp], want[tp])
			}
		}
		if len(got) != len(want) {
			t.Errorf("F15: %d partitions, want %d", len(got), len(want))
		}
		wantCommit(t, eng)
		if err := eng.Close(); err != nil {
			t.Error(err)
		}
	}
	eng := openAt(t, dir, stream.Options{MinFree: -1})
	goOnInOld(t, eng, want)
	if err := eng.Close(); err != nil {
		t.Error(err)
	}
}

func wantCommit(t *testing.T, eng *stream.Engine) {
	t.Helper()
	ctx, tp := atOnce(t), part(viewKept, 0)
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Group: viewGroup, ManualCommit: true, MaxWait: -1})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Committed(ctx, tp)
	if o, ok := got[tp]; err != nil || !ok || o.Offset != viewCommit {
		t.Errorf("F15: the committed offset is %+v, %v", got, err)
	}
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
}

// goOnInOld appends to each partition, and to the named producer's what is there already, and what is not.
func goOnInOld(t *testing.T, eng *stream.Engine, want map[string]oldPart) {
	ctx := atOnce(t)
	named, err := eng.NewProducer(ctx, stream.ProducerConfig{Name: oldName, Partitioner: stream.ManualPartitioner()})
	if err != nil {
		t.Fatal(err)
	}
	if last, err := named.LastSequence(ctx, part(oldNamed, 0)); err != nil || last != oldLast {
		t.Errorf("F15: the last sequence is %d, %v", last, err)
	}
	r := stream.Record{Topic: oldNamed, Value: []byte("again"), Sequence: oldLast}
	if rc, err := named.ProduceSync(ctx, &r); err != nil || !rc.Duplicate {
		t.Errorf("F15: the last record, sent again, got %+v, %v", rc, err)
	}
	if err := named.Close(ctx); err != nil {
		t.Error(err)
	}
	p, err := eng.NewProducer(ctx, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
	if err != nil {
		t.Fatal(err)
	}
	for _, tp := range oldTPs() {
		next := int64(0)
		if rs := want[tp.String()].Records; len(rs) > 0 {
			next = rs[len(rs)-1].Offset + 1
		}
		rc, err := p.ProduceSync(ctx, &stream.Record{Topic: tp.Topic, Partition: tp.Partition, Key: []byte("new"), Value: []byte("new")})
		if err != nil || rc.Offset != next {
			t.Errorf("F15: a new record of %v got %+v, %v, want offset %d", tp, rc, err, next)
		}
		rs, err := readFrom(ctx, eng, tp, next)
		if err != nil || len(rs) != 1 || string(rs[0].Value) != "new" {
			t.Errorf("F15: behind the old records of %v: %v, %v", tp, rs, err)
		}
	}
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
}

// oldParts reads everything.
func oldParts(ctx context.Context, eng *stream.Engine) (map[string]oldPart, error) {
	all := map[string]oldPart{}
	starts, err := eng.Admin().StartOffsets(ctx, oldTPs()...)
	if err != nil {
		return all, err
	}
	for _, tp := range oldTPs() {
		c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Reset: stream.ResetEarliest, MaxWait: -1})
		if err == nil {
			err = c.Assign(tp)
		}
		if err != nil {
			return all, err
		}
		p := oldPart{Start: starts[tp].Offset}
		for {
			rs, err := c.Poll(ctx, 0)
			if err != nil {
				return all, errors.Join(err, c.Close(ctx))
			}
			if len(rs) == 0 {
				break
			}
			for i := range rs {
				r := &rs[i]
				h := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", r.Key, r.Value, r.Headers))
				p.Records = append(p.Records, oldRecord{r.Offset, r.Timestamp.UnixMilli(), string(r.Key), fmt.Sprintf("%x", h[:8])})
			}
		}
		all[tp.String()] = p
		if err := c.Close(ctx); err != nil {
			return all, err
		}
	}
	return all, nil
}

// makeOldDirs makes directories, and an archive of them and of what they hold.
func makeOldDirs(t *testing.T, archive string) {
	home := t.TempDir()
	want := map[string]map[string]oldPart{}
	for how, dir := range viewDirs(t, home, fillOld) {
		if how == "short" { // not of an engine's making
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			continue
		}
		eng, err := stream.Open(dir, &stream.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := viewOf(t, eng); err != nil {
			t.Fatal(err)
		}
		got, err := oldParts(atOnce(t), eng)
		if err := errors.Join(err, eng.Close()); err != nil {
			t.Fatal(err)
		}
		if n := len(got[oldPacked+"-0"].Records); n != 5*len(oldCodecs) || len(got[oldNamed+"-0"].Records) != oldLast {
			t.Fatalf("%s: %v", how, got)
		}
		want[how] = got
	}
	text, err := json.Marshal(want)
	if err == nil {
		err = os.WriteFile(filepath.Join(home, oldWant), text, 0o644)
	}
	if err == nil {
		err = os.MkdirAll(oldDirs, 0o755)
	}
	if err == nil {
		err = pack(home, archive)
	}
	if err != nil {
		t.Fatal(err)
	}
}

var oldCodecs = []batch.Codec{batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd}

// fillOld makes what is not in every view: records of a named producer, and compressed batches.
func fillOld(t *testing.T, eng *stream.Engine) {
	ctx := atOnce(t)
	createTopic(t, eng, oldNamed, stream.TopicConfig{})
	createTopic(t, eng, oldPacked, stream.TopicConfig{})
	p, err := eng.NewProducer(ctx, stream.ProducerConfig{Name: oldName})
	if err != nil {
		t.Fatal(err)
	}
	for n := int64(1); n <= oldLast; n++ {
		r := stream.Record{
			Topic: oldNamed, Value: fmt.Appendf(nil, "number %d", n), Sequence: n, Timestamp: time.UnixMilli(1_800_000_000_000 + n),
			Headers: []stream.Header{{Key: "h", Value: []byte{byte(n)}}},
		}
		if _, err := p.ProduceSync(ctx, &r); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	tp := part(oldPacked, 0)
	pt, err := eng.Broker().Partition(tp)
	if err != nil {
		t.Fatal(err)
	}
	life, err := pt.Life()
	if err != nil {
		t.Fatal(err)
	}
	for _, codec := range oldCodecs {
		var b batch.Builder
		b.Reset(nil)
		for i := range int64(5) {
			b.Append(1_800_000_000_000+i, fmt.Appendf(nil, "key %d", i), fmt.Appendf(nil, "%v %s", codec, strings.Repeat("value ", 50)), nil)
		}
		packed, err := batch.NewCompressor(codec, 0).Compress(nil, b.Seal(batch.NoProducer()))
		if err != nil || packed.Codec() != codec {
			t.Fatalf("%v: %v", codec, err)
		}
		if _, err := life.Append(packed); err != nil {
			t.Fatal(err)
		}
	}
	if err := life.WaitDurable(ctx, life.EndOffset()); err != nil {
		t.Fatal(err)
	}
}
