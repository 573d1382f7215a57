package stream_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// everything describes every file below dir: name, size, time of last change and content.
func everything(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	check(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			fmt.Fprintln(&b, name)
			return err
		}
		info := must(d.Info())(t)
		fmt.Fprintln(&b, name, info.Size(), info.ModTime().UnixNano(), sha256.Sum256(must(os.ReadFile(name))(t)))
		return nil
	}))
	return b.String()
}

// copyTree copies a directory that an engine has open, as kill -9 would leave it.
func copyTree(t testing.TB, dir string) string {
	t.Helper()
	to := t.TempDir()
	check(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

func openReadOnly(t testing.TB, dir string) *stream.Engine {
	t.Helper()
	eng := must(stream.Open(dir, &stream.Options{ReadOnly: true}))(t)
	t.Cleanup(func() { report(t, eng.Close()) })
	return eng
}

// F5: a directory that is opened read only, closed in order before or not, shows its records and committed offsets, and not a byte of it changes.
func TestReadOnlyWritesNothing(t *testing.T) {
	dir := t.TempDir()
	eng := must(stream.Open(dir, nil))(t)
	check(t, eng.Admin().CreateTopic(t.Context(), "a", stream.TopicConfig{Partitions: 2, SegmentBytes: 1024}))
	check(t, eng.Admin().CreateTopic(t.Context(), "gone", stream.TopicConfig{}))
	fill(t, eng, tp("a", 0), 0, 100)
	fill(t, eng, tp("gone", 0), 0, 10)
	c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Reset: stream.ResetEarliest, Topics: []string{"a"}})
	check(t, c.CommitOffsets(t.Context(), stream.Offsets{tp("a", 0): {Offset: 40}}))
	check(t, eng.Admin().DeleteTopic(t.Context(), "gone"))
	killed := copyTree(t, dir)
	check(t, eng.Close())
	for what, dir := range map[string]string{"closed": dir, "killed": killed} {
		before := everything(t, dir)
		eng := openReadOnly(t, dir)
		eq(t, what, values(readAll(t, eng, tp("a", 0))), numbers(0, 100))
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}})
		eq(t, what+": committed", committed(t, c, tp("a", 0)), 40)
		eq(t, what+": from the committed offset on", poll(t, c, 1000), numbers(40, 100))
		eq(t, what+": topics", len(must(eng.Admin().Topics(t.Context()))(t)), 1)
		a := eng.Admin()
		_, err := eng.NewProducer(t.Context(), stream.ProducerConfig{})
		for name, err := range map[string]error{
			"NewProducer": err, "Commit": c.Commit(t.Context()),
			"CreateTopic": a.CreateTopic(t.Context(), "b", stream.TopicConfig{}), "DeleteTopic": a.DeleteTopic(t.Context(), "a"),
			"AddPartitions": a.AddPartitions(t.Context(), "a", 9), "AlterTopic": a.AlterTopic(t.Context(), "a", nil),
			"DeleteRecords": a.DeleteRecords(t.Context(), map[stream.TopicPartition]int64{tp("a", 0): 1}),
			"SkipCorrupt":   eng.SkipCorrupt(t.Context(), tp("a", 0), 0, 1),
		} {
			if wantErr(t, err, stream.ErrReadOnly); err == nil {
				t.Error(name)
			}
		}
		check(t, eng.Verify(t.Context(), func(d *stream.CorruptError) { t.Errorf("%s: %v", what, d) }))
		check(t, c.Close(t.Context()))
		check(t, eng.Close())
		eq(t, what+": directory", everything(t, dir), before)
	}
}

// Beside a live writer: records are seen as they are appended, segments that retention removes are out of range, and what only the metadata knows is ErrLocked.
func TestReadOnlyBesideAWriter(t *testing.T) {
	dir := t.TempDir()
	eng := must(stream.Open(dir, nil))(t)
	defer eng.Close()
	check(t, eng.Admin().CreateTopic(t.Context(), "a", stream.TopicConfig{Partitions: 3, SegmentBytes: 1024}))
	fill(t, eng, tp("a", 1), 0, 50)
	ro := openReadOnly(t, dir)
	c := newConsumer(t, ro, stream.ConsumerConfig{Reset: stream.ResetEarliest, MaxWait: 10 * time.Millisecond})
	check(t, c.Assign(tp("a", 1)))
	var got []string
	for next := 50; next <= 500; next += 50 {
		for len(got) < next {
			got = append(got, poll(t, c, 1000)...)
		}
		eq(t, "records", got, numbers(0, next))
		fill(t, eng, tp("a", 1), next, next+50)
	}
	check(t, eng.Admin().DeleteRecords(t.Context(), map[stream.TopicPartition]int64{tp("a", 1): 500}))
	for len(got) < 550 {
		got = append(got, poll(t, c, 1000)...)
	}
	eq(t, "records", got, numbers(0, 550))
	check(t, c.Seek(tp("a", 1), 0))
	eq(t, "first record that is left", poll(t, c, 1)[0] >= "100", true)
	g := newConsumer(t, ro, stream.ConsumerConfig{Group: "g"})
	_, err := g.Committed(t.Context(), tp("a", 1))
	wantErr(t, err, stream.ErrLocked)
	check(t, g.Close(t.Context()))
	check(t, c.Close(t.Context()))
}

// A directory that is not there, or has no engine in it, is not made.
func TestReadOnlyMakesNothing(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Join(dir, "missing")} {
		if _, err := stream.Open(d, &stream.Options{ReadOnly: true}); err == nil {
			t.Fatal("it could be opened")
		}
	}
	eq(t, "files", len(must(os.ReadDir(dir))(t)), 0)
}
