package crashtest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/vfs"
	rlog "github.com/runnelmq/runnel/log"
	"github.com/runnelmq/runnel/stream"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// A tracer writes down what a log asks of the disk and of its checkpoints.
type tracer struct {
	disk  *vfs.Sim
	st    *store
	shape shape
	log   *rlog.Log
	lines []string
}

func newTracer(t *testing.T) *tracer {
	x := &tracer{disk: vfs.NewSim(1), st: &store{}, shape: shape{SegmentBytes: 1000, IndexInterval: 400}}
	if err := x.disk.Mkdir(root); err != nil {
		t.Fatal(err)
	}
	x.open(t)
	return x
}

func (x *tracer) open(t *testing.T) {
	m := x.st.now()
	var err error
	if x.log, err = rlog.Open(x.shape.options(x.disk, x.st, m)); err != nil {
		t.Fatal(err)
	}
}

// append appends n records of 300 bytes of which each third one has the same key.
func (x *tracer) append(t *testing.T, n int) {
	for range n {
		end := x.log.EndOffset()
		b := build(record{key: []byte{byte('a' + end%3)}, value: make([]byte, 300), timestamp: earliest + end}, batch.NoProducer())
		if _, err := x.log.Append(b); err != nil {
			t.Fatal(err)
		}
	}
}

// trace writes down what fn does.
func (x *tracer) trace(t *testing.T, fn func() error) {
	x.lines = nil
	x.disk.OnOp(func(op vfs.Op) { x.lines = append(x.lines, op.String()) })
	x.st.reached = func(op string) {
		if !strings.HasPrefix(op, "before ") {
			m := x.st.now()
			how := "checkpoint "
			if len(x.st.Pending) == 0 {
				how = "checkpoint, synced: "
			}
			x.lines = append(x.lines, how+op+fmt.Sprintf(" (recovery point %d, log start %d, cleaned %d)", m.RecoveryPoint, m.LogStart, m.Cleaned))
		}
	}
	err := fn()
	x.disk.OnOp(nil)
	x.st.reached = nil
	if err != nil {
		t.Fatal(err)
	}
}

// A10: the order in which the disk is asked for things, step by step: what makes a change durable stands between the change and what relies on it.
func TestTraces(t *testing.T) {
	ctx := context.Background()
	for name, play := range map[string]func(t *testing.T, x *tracer){
		"roll": func(t *testing.T, x *tracer) {
			x.append(t, 2)
			x.trace(t, func() error { x.append(t, 1); return nil })
		},
		"retain": func(t *testing.T, x *tracer) {
			x.append(t, 7)
			x.trace(t, func() error {
				_, err := x.log.Retain(rlog.Retention{Now: earliest + 1000, Age: -1, Bytes: 1000})
				return err
			})
		},
		"retain-everything": func(t *testing.T, x *tracer) {
			x.append(t, 3)
			x.trace(t, func() error {
				_, err := x.log.Retain(rlog.Retention{Now: earliest + 1000, Age: 1, Bytes: -1})
				return err
			})
		},
		"trim": func(t *testing.T, x *tracer) {
			x.append(t, 6)
			x.trace(t, func() error { return x.log.TrimTo(ctx, 5) })
		},
		"compact": func(t *testing.T, x *tracer) {
			x.append(t, 5)
			x.trace(t, func() error { return x.compact() })
		},
		"compact-several-into-one": func(t *testing.T, x *tracer) {
			x.append(t, 9)
			if err := x.compact(); err != nil {
				t.Fatal(err)
			}
			x.append(t, 2)
			x.trace(t, func() error { return x.compact() })
		},
		"settle-swap": func(t *testing.T, x *tracer) {
			x.append(t, 9)
			x.stopAt(t, "rename d/t-0/00000000000000000000.log.cleaned")
			x.trace(t, func() error { x.open(t); return nil })
		},
		"settle-cleaned": func(t *testing.T, x *tracer) {
			x.append(t, 9)
			x.stopAt(t, "create d/t-0/00000000000000000000.log.cleaned")
			x.trace(t, func() error { x.open(t); return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTracer(t)
			defer func() { x.log.Abandon() }()
			play(t, x)
			goldenTrace(t, name, x.lines)
		})
	}
}

func (x *tracer) compact() error {
	_, err := x.log.Compact(context.Background(), rlog.Compaction{Now: earliest + 1000})
	return err
}

// stopAt compacts, and ends the process behind an operation.
func (x *tracer) stopAt(t *testing.T, op string) {
	var left *vfs.Sim
	x.disk.OnOp(func(o vfs.Op) {
		if left == nil && strings.HasPrefix(o.String(), op) {
			left = x.disk.Crash()
		}
	})
	if err := x.compact(); err != nil {
		t.Fatal(err)
	}
	x.disk.OnOp(nil)
	x.log.Abandon()
	if left == nil {
		t.Fatalf("there was no %q", op)
	}
	x.disk = left
	x.st = &store{Durable: x.st.now()}
}

// goldenTrace compares a trace with the one in testdata. Names lose the directory and most of the zeros.
func goldenTrace(t *testing.T, name string, lines []string) {
	t.Helper()
	got := strings.Join(lines, "\n") + "\n"
	got = strings.NewReplacer("d/t-0/", "", "d/t-0", ".", strings.Repeat("0", 17), "").Replace(got)
	file := filepath.Join("testdata", "traces", name+".txt")
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	w := strings.Split(string(want), "\n")
	g := strings.Split(got, "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			t.Fatalf("A10: line %d of the trace is %q, in %s it is %q:\n%s", i+1, g[i], file, slices.Concat(w, []string{"missing"})[min(i, len(w))], got)
		}
	}
	t.Fatalf("A10: the trace ends before %s:\n%s", file, got)
}

// A10: a topic's deletion is durable in the metadata store before the first of its files goes, and its directories are gone when it returns.
func TestTraceOfADeletion(t *testing.T) {
	ctx := t.Context()
	disk := vfs.NewSim(1)
	eng, err := stream.Open(engineDir, &stream.Options{FS: disk, MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := eng.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := eng.Admin().CreateTopic(ctx, "t", stream.TopicConfig{}); err != nil {
		t.Fatal(err)
	}
	produceTo(t, eng, "one")
	var lines []string
	random := regexp.MustCompile("[0-9a-f]{32}")
	disk.OnOp(func(op vfs.Op) {
		line := op.String()
		switch {
		case strings.Contains(line, engineDir+"/topics"):
			lines = append(lines, random.ReplaceAllString(strings.ReplaceAll(line, engineDir+"/topics", ""), "ID"))
		case op.Kind == vfs.OpSync && strings.HasPrefix(op.Name, engineDir+"/meta/") && strings.HasSuffix(op.Name, ".log"):
			lines = append(lines, "sync the metadata store's log")
		}
	})
	if err := eng.Admin().DeleteTopic(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	disk.OnOp(nil)
	goldenTrace(t, "delete-topic", lines)
}
