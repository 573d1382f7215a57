package batch

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The vectors in testdata/kafka are made by Kafka's Java client; testdata/java/README.md says how.

var forJava = flag.String("java", "", "directory to which batches for the Java client are written")

var codecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

func javaVector(t testing.TB, name string) (b Batch, text string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "kafka", name+".batch"))
	if err != nil {
		t.Fatal(err)
	}
	says, err := os.ReadFile(filepath.Join("testdata", "kafka", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return b, string(says)
}

// describe says what a reader finds in b, in the words of Vectors.java.
func describe(t testing.TB, b Batch) string {
	t.Helper()
	var s strings.Builder
	fmt.Fprintf(&s, "offsets %d to %d epoch %d\n", b.BaseOffset(), b.LastOffset(), b.LeaderEpoch())
	fmt.Fprintf(&s, "producer %d epoch %d sequences %d to %d\n", b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.LastSequence())
	fmt.Fprintf(&s, "codec %s", b.Codec())
	for _, bit := range []struct {
		set  bool
		name string
	}{{b.LogAppendTime(), "append-time"}, {b.Transactional(), "transactional"}, {b.Control(), "control"}} {
		if bit.set {
			s.WriteString(" " + bit.name)
		}
	}
	if ms, ok := b.DeleteHorizon(); ok {
		fmt.Fprintf(&s, " horizon %d", ms)
	}
	fmt.Fprintf(&s, "\nmax timestamp %d records %d\n", b.MaxTimestamp(), b.Count())
	var buf []byte
	plain, err := new(Decompressor).Plain(b, &buf, maxRecords)
	if err != nil {
		t.Fatal(err)
	}
	all, err := read(plain, (*Iter).Next)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		fmt.Fprintf(&s, "%d at %d %s %s", r.offset, r.ts, text(r.key), text(r.value))
		for _, h := range r.headers {
			fmt.Fprintf(&s, " %s=%s", text([]byte(h.Key)), text(h.Value))
		}
		s.WriteString("\n")
	}
	return s.String()
}

func text(field []byte) string {
	switch {
	case field == nil:
		return "null"
	case len(field) <= 40:
		return fmt.Sprintf("[%x]", field)
	}
	return fmt.Sprintf("[%d bytes, %08x]", len(field), crc32.ChecksumIEEE(field))
}

// Every batch that Kafka's client writes passes Check and reads as it reads there, whatever its codec.
func TestReadsWhatJavaWrites(t *testing.T) {
	files, err := filepath.Glob("testdata/kafka/*.batch")
	if err != nil || len(files) < 35 {
		t.Fatalf("%d vectors, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".batch")
		t.Run(name, func(t *testing.T) {
			b, want := javaVector(t, name)
			if err := Check(b); err != nil {
				t.Fatal(err)
			}
			if got := describe(t, b); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			// A client may send those that no broker has changed.
			client := strings.HasPrefix(name, "mixed-") || strings.HasPrefix(name, "large-")
			if err := validate(b); (err == nil) != client {
				t.Errorf("Validate: %v", err)
			}
		})
	}
}

// A12: Filter makes of a batch what Kafka's log cleaner makes of it. Batches that are not compressed are equal byte for
// byte, the others in what a reader finds.
func TestFiltersAsJavaDoes(t *testing.T) {
	const horizon = 1_700_086_400_000
	var f Filter
	check := func(from, to string, keep func(r *Record) bool, horizon int64) {
		b, _ := javaVector(t, from)
		theirs, want := javaVector(t, to)
		ours, kept, err := f.Apply(b, keep, horizon)
		if err != nil || kept != int(theirs.Count()) {
			t.Errorf("%s: %d records stay, %v", to, kept, err)
			return
		}
		if err := Check(ours); err != nil {
			t.Errorf("%s: %v", to, err)
		}
		if got := describe(t, ours); got != want {
			t.Errorf("%s: got\n%swant\n%s", to, got, want)
		}
		if theirs.Codec() == None && !bytes.Equal(ours, theirs) {
			t.Errorf("%s: got\n%x\nwant\n%x", to, ours, theirs)
		}
	}
	all := func(*Record) bool { return true }
	none := func(*Record) bool { return false }
	for _, c := range codecs {
		check("mixed-"+c.String(), "gaps-"+c.String(), func(r *Record) bool { return r.Value != nil && r.Offset%2 == 0 }, -1)
		check("mixed-"+c.String(), "horizon-"+c.String(), func(r *Record) bool { return r.Offset%3 != 0 }, horizon)
		check("horizon-"+c.String(), "horizon-again-"+c.String(), func(r *Record) bool { return r.Value != nil }, -1)
		check("horizon-"+c.String(), "horizon-again-"+c.String(), func(r *Record) bool { return r.Value != nil }, horizon+5)
		check("horizon-"+c.String(), "horizon-"+c.String(), all, horizon+5)
		check("mixed-"+c.String(), "empty-"+c.String(), none, -1)
		check("horizon-"+c.String(), "horizon-empty-"+c.String(), none, horizon)
		check("empty-"+c.String(), "empty-"+c.String(), none, horizon)
	}
	check("appended", "appended-horizon", all, horizon)
	check("appended", "appended-empty", none, horizon)
	check("abort", "abort-horizon", all, horizon)
}

// Markers are Kafka's, byte for byte, and are read; other control records are not taken for one.
func TestMarkersAreKafkas(t *testing.T) {
	for _, c := range []struct {
		name string
		want Marker
	}{
		{"commit", Marker{Commit: true, CoordinatorEpoch: 7}},
		{"abort", Marker{CoordinatorEpoch: math.MaxInt32}},
		{"abort-horizon", Marker{CoordinatorEpoch: math.MaxInt32}},
	} {
		b, _ := javaVector(t, c.name)
		got, err := b.Marker()
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
		if c.name == "abort-horizon" {
			continue
		}
		ours := c.want.Seal(nil, 4000, 2, b.MaxTimestamp())
		ours.SetOffset(b.BaseOffset(), b.LeaderEpoch())
		if !bytes.Equal(ours, b) {
			t.Errorf("%s: got\n%x\nwant\n%x", c.name, ours, b)
		}
	}
	b, _ := javaVector(t, "leader-change")
	if m, err := b.Marker(); !errors.Is(err, ErrRecord) {
		t.Errorf("a change of leaders is read as %+v, %v", m, err)
	}
	b, _ = javaVector(t, "mixed-none")
	if m, err := b.Marker(); !errors.Is(err, ErrHeader) {
		t.Errorf("a user's batch is read as %+v, %v", m, err)
	}
}

// TestWriteForJava writes what the Java client is to read, if -java says where.
func TestWriteForJava(t *testing.T) {
	if *forJava == "" {
		t.Skip("no -java")
	}
	if err := os.MkdirAll(*forJava, 0o755); err != nil {
		t.Fatal(err)
	}
	save := func(name string, b Batch) {
		for ext, content := range map[string][]byte{".batch": b, ".txt": []byte(describe(t, b))} {
			if err := os.WriteFile(filepath.Join(*forJava, name+ext), content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	var f Filter
	filtered := func(b Batch, keep func(r *Record) bool, horizon int64) Batch {
		out, _, err := f.Apply(b, keep, horizon)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, c := range codecs {
		for _, level := range []int{-100, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 17, 22} {
			compressor := NewCompressor(c, level)
			for _, v := range vectors() {
				save(fmt.Sprintf("%s-%s-%d", v.name, c, level), packed(t, compressor, build(v.stamp, v.recs...)))
			}
			rng := rand.New(rand.NewPCG(uint64(c), uint64(level+1000)))
			save(fmt.Sprintf("random-%s-%d", c, level), packed(t, compressor, randomBatch(rng)))
		}
		b := packed(t, NewCompressor(c, 0), randomBatch(rand.New(rand.NewPCG(1, 1))))
		odd := func(r *Record) bool { return r.Offset%2 == 1 }
		save("gaps-"+c.String(), filtered(b, odd, -1))
		horizon := bytes.Clone(filtered(b, odd, 1_700_000_000_000))
		save("horizon-"+c.String(), horizon)
		save("horizon-again-"+c.String(), filtered(horizon, func(r *Record) bool { return r.Offset%3 == 0 }, -1))
		save("empty-"+c.String(), filtered(b, func(*Record) bool { return false }, -1))
	}
	save("filler", Filler(nil, 1000, 3000, 7))
	save("filler-longest", Filler(nil, 5, 5+1<<31, 7))
	save("commit", Marker{true, 3}.Seal(nil, 99, 8, 1_700_000_000_000))
	save("abort", Marker{false, 4}.Seal(nil, 99, 8, 1_700_000_000_000))
}

// packed is b compressed, in fresh memory.
func packed(t testing.TB, c *Compressor, b Batch) Batch {
	t.Helper()
	out, err := c.Compress(nil, b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// randomBatch makes a batch of records at random, some long enough for several blocks of any codec.
func randomBatch(rng *rand.Rand) Batch {
	recs := make([]rec, 1+rng.IntN(60))
	for i := range recs {
		recs[i] = randomRec(rng)
		if rng.IntN(20) == 0 {
			recs[i].value = bytes.Repeat(recs[i].value, rng.IntN(2000))
			recs[i].value = recs[i].value[:min(len(recs[i].value), 150_000)]
		}
	}
	return build(Stamp{ProducerID: 1 << 35, ProducerEpoch: 4, BaseSequence: math.MaxInt32 - 3, BaseOffset: rng.Int64N(1 << 40), LeaderEpoch: 5}, recs...)
}
