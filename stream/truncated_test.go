package stream_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/runnelmq/runnel/stream"
)

// B1: of a file that somebody else has cut short nothing is handed over that was not written, also if it was read whole before.
func TestFileCutShortByAnother(t *testing.T) {
	for _, size := range []int64{1000, 3000, 4500, 8000} {
		dir := t.TempDir()
		eng := must(stream.Open(dir, &stream.Options{MinFree: -1}))(t)
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{})
		var rs []stream.Record
		for _, v := range []string{"x", "y", "z"} {
			rs = append(rs, stream.Record{Topic: "a", Value: bytes.Repeat([]byte(v), 3500)})
		}
		must(p.ProduceAll(t.Context(), rs, nil))(t)
		read := func() ([]stream.Record, error) {
			c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest, MaxWait: -1})
			return c.Poll(t.Context(), 10)
		}
		eq(t, "records", len(must(read())(t)), 3)
		check(t, os.Truncate(filepath.Join(dir, "topics", "a-0", "00000000000000000000.log"), size))
		got, err := read()
		if len(got) > 0 || err == nil {
			t.Fatalf("cut to %d: %d records, error %v", size, len(got), err)
		}
		_ = eng.Close() // it cannot be closed in order
	}
}
