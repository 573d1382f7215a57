package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/runnelmq/runnel/stream"
)

// tiny makes workloads that take milliseconds.
const tiny = "0.002"

// bench runs the program in dir and returns its exit status and output.
func bench(t *testing.T, dir string, open func(string) (stream.Client, error), args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(t.Context(), append([]string{"-dir", dir}, args...), &out, &errs, open)
	t.Logf("bench %q: status %d, standard error: %s", args, status, errs.String())
	return status, out.String(), errs.String()
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("%d files are left, %s among them", len(left), left[0].Name())
	}
}

// singleTimes are the workloads that take the times of single calls or records.
var singleTimes = regexp.MustCompile("^(P[459]|REBALANCE|COMMIT)")

// Every workload runs on the real engine, is verified, and tells in one line of JSON what a reader needs to compare it; nothing is left on the disk, not even until the next one.
func TestEveryWorkload(t *testing.T) {
	dir := t.TempDir()
	open := func(dir string) (stream.Client, error) {
		if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) != 1 {
			t.Errorf("%d directories beside the new engine's, %v", len(left)-1, err)
		}
		return openEngine(dir)
	}
	status, out, _ := bench(t, dir, open, "-json", "-n", tiny, "-rounds", "2")
	if status != exitOK {
		t.Fatalf("exit status %d", status)
	}
	wantEmpty(t, dir)
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	for _, w := range workloads {
		var r result
		if err := d.Decode(&r); err != nil {
			t.Fatalf("the line of %s: %v", w.name, err)
		}
		if r.Name != w.name || r.Description != w.description || !r.Verified {
			t.Errorf("%s: name %q, description %q, verified %v", w.name, r.Name, r.Description, r.Verified)
		}
		if r.Records < w.lanes || r.ReadBack < r.Records || w.valueSize > 0 && r.Bytes != r.Records*(keySize+w.valueSize) || w.valueSize == 0 && r.Bytes != 0 {
			t.Errorf("%s: %d records, %d read back, %d bytes", w.name, r.Records, r.ReadBack, r.Bytes)
		}
		if len(r.Limits) == 0 || r.Limits[0].Median != r.LimitMedian || r.Ratio <= 0 {
			t.Fatalf("%s: ratio %v, median of the limit %v, limits %+v", w.name, r.Ratio, r.LimitMedian, r.Limits)
		}
		want := r.Rate / r.Limits[0].Rate
		if w.ratioOfP50 {
			want = r.Limits[0].P50 / r.P50
		}
		if r.Ratio != want || r.RatioOf != map[bool]string{false: "rate", true: "p50"}[w.ratioOfP50] {
			t.Errorf("%s: ratio %v of %s, want %v", w.name, r.Ratio, r.RatioOf, want)
		}
		for _, f := range append(slices.Clone(r.Limits), r.figures) {
			if f.Label == "" || len(f.Seconds) != 2 || f.Spread < 1 || f.Median < slices.Min(f.Seconds) || f.Median > slices.Max(f.Seconds) {
				t.Errorf("%s: %+v", w.name, f)
			}
			if single := singleTimes.MatchString(w.name); single != (f.P50 > 0) || f.P99 < f.P50 {
				t.Errorf("%s, %s: p50 %v, p99 %v", w.name, f.Label, f.P50, f.P99)
			}
		}
		if got := r.RatioTo; got != w.ratioTo || got != "" && r.RateRatio <= 0 {
			t.Errorf("%s: ratio to %q is %v", w.name, got, r.RateRatio)
		}
		if e := r.Environment; e.Go == "" || e.OS == "" || e.Arch == "" || e.GOMAXPROCS < 1 || e.Dir != dir {
			t.Errorf("%s: environment %+v", w.name, e)
		}
	}
	if err := d.Decode(new(result)); err != io.EOF {
		t.Errorf("behind the last line: %v", err)
	}
}

// The table names what was chosen, and no other, and says what durability was measured.
func TestChosenWorkloads(t *testing.T) {
	status, out, _ := bench(t, t.TempDir(), openEngine, "-n", tiny, "-rounds", "1", "-run", "^P(4|5/16)$")
	if status != exitOK {
		t.Fatalf("exit status %d", status)
	}
	for _, want := range []string{"P4 ", "written", "P5/16 ", "synced", "limit: ", "medians of 1 rounds"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "P1 ") || strings.Contains(out, "P5/1 ") {
		t.Errorf("more than was chosen:\n%s", out)
	}
}

// A command line that makes no sense measures nothing, and says why.
func TestFlagErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-nosuch"}, "not defined"},
		{[]string{"-run", "("}, "missing closing"},
		{[]string{"-run", "^Q"}, "P5/16"},
		{[]string{"-rounds", "0"}, "-rounds"},
		{[]string{"-n", "0"}, "-n"},
		{[]string{"-n", "NaN"}, "-n"},
		{[]string{"-n", "x"}, "invalid value"},
		{[]string{"P1"}, "unexpected argument"},
	} {
		status, out, errs := bench(t, t.TempDir(), openEngine, c.args...)
		if status != exitUsage || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%q: status %d, output %q; %q has to be in what is said", c.args, status, out, c.want)
		}
	}
	if status, _, errs := bench(t, t.TempDir(), openEngine, "-h"); status != exitOK || !strings.Contains(errs, "P5/64") {
		t.Errorf("-h: status %d", status)
	}
	if status, _, _ := bench(t, filepath.Join(t.TempDir(), "missing"), openEngine); status != exitFailed {
		t.Errorf("a directory that is not there: status %d", status)
	}
}

func TestProfiles(t *testing.T) {
	dir := t.TempDir()
	names := []string{filepath.Join(dir, "cpu"), filepath.Join(dir, "mem")}
	status, _, _ := bench(t, t.TempDir(), openEngine, "-n", tiny, "-rounds", "1", "-run", "P4", "-cpuprofile", names[0], "-memprofile", names[1])
	if status != exitOK {
		t.Errorf("exit status %d", status)
	}
	for _, name := range names {
		if st, err := os.Stat(name); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Who interrupts a run gets no results of half of it, and his disk back.
func TestInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out bytes.Buffer
	opened := 0
	status := run(ctx, []string{"-dir", dir, "-n", tiny}, &out, io.Discard, func(dir string) (stream.Client, error) {
		if opened++; opened == 3 {
			cancel()
		}
		return openEngine(dir)
	})
	if status != exitFailed || out.Len() > 0 {
		t.Errorf("status %d, output %q", status, out.String())
	}
	wantEmpty(t, dir)
}

// A side that has not verified as many records as were written is no result.
func TestUnverifiedIsNoResult(t *testing.T) {
	for _, read := range []int{0, 9, 11} {
		fake := &job{
			sides: []side{{"Runnel", func(context.Context) (sample, error) { return sample{seconds: 1, read: read}, nil }}},
			close: noClose,
		}
		w := &workload{name: "X", lanes: 1, count: 10, prepare: func(context.Context, *env, *workload) (*job, error) { return fake, nil }}
		r, err := measure(t.Context(), &env{factor: 1}, w, 1)
		if want := fmt.Sprintf("%d records read back of 10", read); r != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d records of 10 verified: %v, %v", read, r, err)
		}
	}
}
