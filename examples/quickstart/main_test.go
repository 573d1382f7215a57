package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/runnelmq/runnel/stream"
)

// random returns a source whose seed is logged and can be set in the environment.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("RUNNEL_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal("RUNNEL_SEED:", err)
		}
	}
	t.Logf("RUNNEL_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return name
}

// inProcess runs the program in this process and returns what it writes to standard output.
func inProcess(t *testing.T, dir, stdin string, files ...string) (string, error) {
	t.Helper()
	defer goleak.VerifyNone(t)
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), dir, files, strings.NewReader(stdin), &stdout, &stderr)
	t.Logf("standard error: %s", stderr.String())
	return stdout.String(), err
}

func wantCount(t *testing.T, n int, dir, stdin string, files ...string) {
	t.Helper()
	out, err := inProcess(t, dir, stdin, files...)
	if want := fmt.Sprintf("%d lines counted\n", n); err != nil || out != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}

// contents returns the lines in dir's topic, by partition.
func contents(t *testing.T, dir, topic string) (lines [partitions][]string) {
	t.Helper()
	eng, err := stream.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	c, err := eng.NewConsumer(t.Context(), stream.ConsumerConfig{Topics: []string{topic}, Reset: stream.ResetEarliest, MaxWait: -1})
	if err != nil {
		t.Fatal(err)
	}
	for {
		rs, err := c.Poll(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(rs) == 0 {
			return lines
		}
		for _, r := range rs {
			if r.Key == nil || r.Value == nil {
				t.Errorf("%s-%d, offset %d: key %q, value %q", r.Topic, r.Partition, r.Offset, r.Key, r.Value)
			}
			lines[r.Partition] = append(lines[r.Partition], string(r.Value))
		}
	}
}

// divide returns the lines of text as the partitions ought to have them.
func divide(text string) (lines [partitions][]string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		p := partitionOf(line)
		lines[p] = append(lines[p], line)
	}
	return lines
}

func partitionOf(line string) int32 {
	return stream.KeyPartitioner().Partition(&stream.Record{Key: key([]byte(line))}, partitions)
}

func wantContents(t *testing.T, dir, topic, text string) {
	t.Helper()
	got, want := contents(t, dir, topic), divide(text)
	for p := range want {
		if !slices.Equal(got[p], want[p]) {
			t.Errorf("partition %d has %d lines, want %d, or not the same ones", p, len(got[p]), len(want[p]))
		}
	}
}

// randomLines returns n lines. A few keys are frequent, many are rare.
func randomLines(rnd *rand.Rand, n int) string {
	var b strings.Builder
	for i := range n {
		switch rnd.IntN(20) {
		case 0: // an empty line
		case 1:
			fmt.Fprintf(&b, "rare%d", rnd.Uint32())
		default:
			fmt.Fprintf(&b, "key%d line %d %s", rnd.IntN(3), i, strings.Repeat("x", rnd.IntN(60)))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestLinesOfFilesAreCounted(t *testing.T) {
	tmp := t.TempDir()
	for _, tc := range []struct {
		name  string
		texts []string
		lines int
	}{
		{"no lines", []string{""}, 0},
		{"one line", []string{"a\n"}, 1},
		{"no line break at the end", []string{"a\nb"}, 2},
		{"empty lines", []string{"\n\n\n"}, 3},
		{"only spaces", []string{" \n\t\n  \n \n"}, 4},
		{"carriage returns", []string{"a\r\nb\r\n"}, 2},
		{"zero bytes", []string{"\x00\x00\n\x00"}, 2},
		{"the longest line", []string{"a\n" + strings.Repeat("x", maxLine) + "\nb\n" + strings.Repeat("y", maxLine)}, 4},
		{"lines as long as a call", []string{strings.Repeat(strings.Repeat("x", callBytes-1)+"\n", 5)}, 5},
		{"several files", []string{"a\nb", "", "c\n"}, 3},
		{"more than one call", []string{strings.Repeat("a b\n", 3*callLines+1)}, 3*callLines + 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sub := filepath.Join(tmp, strings.ReplaceAll(tc.name, " ", "-"))
			var files []string
			for i, text := range tc.texts {
				files = append(files, write(t, fmt.Sprintf("%s-%d.txt", sub, i), text))
			}
			wantCount(t, tc.lines, sub, "", files...)
			wantCount(t, tc.lines, sub, "", files...)
			whole := ""
			for _, text := range tc.texts {
				if text != "" {
					whole += strings.TrimSuffix(text, "\n") + "\n"
				}
			}
			wantContents(t, sub, "lines", whole)
		})
	}
}

func TestStandardInputIsAddedToEarlierRuns(t *testing.T) {
	tmp := t.TempDir()
	dir := filepath.Join(tmp, "data")
	wantCount(t, 3, dir, "a\n\nb")
	wantCount(t, 5, dir, "a\n\n")
	wantContents(t, dir, "stdin", "a\n\nb\na\n\n")
	// The lines of files are counted for themselves.
	wantCount(t, 1, dir, "", write(t, filepath.Join(tmp, "f"), "x\n"))
	wantCount(t, 5, dir, "")
}

func TestLinesAddedAtTheEndAreCounted(t *testing.T) {
	tmp := t.TempDir()
	dir, a, b := filepath.Join(tmp, "data"), filepath.Join(tmp, "a"), filepath.Join(tmp, "b")
	wantCount(t, 2, dir, "", write(t, a, "a\nb"))
	wantCount(t, 3, dir, "", write(t, a, "a\nb\nc\n"))
	wantCount(t, 4, dir, "", a, write(t, b, "d\n"))
}

func TestChangedInputIsRefused(t *testing.T) {
	tmp := t.TempDir()
	dir := filepath.Join(tmp, "data")
	f := write(t, filepath.Join(tmp, "f"), "a\nb\nc\nd\ne\n")
	other := write(t, filepath.Join(tmp, "other"), "z\na\nb\nc\nd\ne\n")
	wantCount(t, 5, dir, "", f)
	for name, text := range map[string]string{
		"shorter":             "a\nb\nc\nd\n",
		"empty":               "",
		"a longer last line":  "a\nb\nc\nd\nee\n",
		"an edited line":      "a\nb\nC\nd\ne\n",
		"a line removed":      "b\nc\nd\ne\nf\n",
		"a line put in front": "0\na\nb\nc\nd\ne\n",
	} {
		t.Run(name, func(t *testing.T) {
			out, err := inProcess(t, dir, "", write(t, f, text))
			if !errors.Is(err, errChanged) || out != "" {
				t.Errorf("got %q, %v, want %v", out, err, errChanged)
			}
		})
	}
	if _, err := inProcess(t, dir, "", other, f); !errors.Is(err, errChanged) {
		t.Errorf("another file: got %v, want %v", err, errChanged)
	}
	wantCount(t, 5, dir, "", write(t, f, "a\nb\nc\nd\ne\n"))
}

func TestLineThatNoRecordCanHoldIsNamed(t *testing.T) {
	tmp := t.TempDir()
	dir := filepath.Join(tmp, "data")
	a := write(t, filepath.Join(tmp, "a"), "1\n2\n")
	b := write(t, filepath.Join(tmp, "b"), "3\n"+strings.Repeat("x", maxLine+1)+"\n5\n")
	out, err := inProcess(t, dir, "", a, b)
	if err == nil || !strings.Contains(err.Error(), b+":2:") || out != "" {
		t.Errorf("got %q, %v, want an error that names %s:2", out, err, b)
	}
	// With the line made shorter the run goes on.
	wantCount(t, 5, dir, "", a, write(t, b, "3\n"+strings.Repeat("x", maxLine)+"\n5\n"))
}

func TestInputThatCannotBeReadAgainIsRefused(t *testing.T) {
	tmp := t.TempDir()
	for _, name := range []string{tmp, filepath.Join(tmp, "missing")} {
		if _, err := inProcess(t, filepath.Join(tmp, "data"), "", name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want an error that names %s", err, name)
		}
	}
}

// After a power cut each partition has a beginning of its lines: how many differs.
func TestPartitionsThatStoppedAtDifferentLinesGoOn(t *testing.T) {
	rnd := random(t)
	tmp := t.TempDir()
	for i := range 20 {
		text := randomLines(rnd, 1+rnd.IntN(2000))
		dir, f := filepath.Join(tmp, fmt.Sprint("data", i)), write(t, filepath.Join(tmp, "f"), text)
		var stops [partitions]int64
		for p := range stops {
			stops[p] = rnd.Int64N(2000)
		}
		storeUntil(t, dir, f, stops)
		wantCount(t, strings.Count(text, "\n"), dir, "", f)
		wantContents(t, dir, "lines", text)
	}
}

// storeUntil stores a file's lines up to a number that is each partition's own.
func storeUntil(t *testing.T, dir, file string, stops [partitions]int64) {
	t.Helper()
	eng, err := stream.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	if err := eng.Admin().CreateTopic(t.Context(), "lines", stream.TopicConfig{Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
	p, err := eng.NewProducer(t.Context(), stream.ProducerConfig{Name: name, Acks: stream.AcksWritten})
	if err != nil {
		t.Fatal(err)
	}
	in := newInput([]string{file}, nil)
	defer in.close()
	for {
		text, err := in.next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if in.number > stops[partitionOf(string(text))] {
			continue
		}
		r := record("lines", text, in)
		if _, err := p.ProduceSync(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRunThatIsInterruptedAtOnceStoresNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	dir := t.TempDir()
	if err := run(ctx, dir, nil, strings.NewReader("a\n"), &stdout, &stderr); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	wantCount(t, 1, dir, "a\n")
}
