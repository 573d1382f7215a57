package main

import (
	"errors"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

func TestMedianAndSpread(t *testing.T) {
	for _, c := range []struct {
		values         []float64
		median, spread float64
	}{
		{[]float64{2}, 2, 1},
		{[]float64{4, 2}, 3, 2},
		{[]float64{9, 1, 3}, 3, 9},
		{[]float64{8, 2, 4, 6}, 5, 4},
		{[]float64{5, 5, 1, 5, 10}, 5, 10},
	} {
		before := append([]float64(nil), c.values...)
		if m, s := median(c.values), spread(c.values); m != c.median || s != c.spread {
			t.Errorf("%v: median %v, spread %v", c.values, m, s)
		}
		for i, v := range before { // the rounds stay in order
			if c.values[i] != v {
				t.Errorf("%v has become %v", before, c.values)
			}
		}
	}
}

func TestPercentile(t *testing.T) {
	values := make([]time.Duration, 100)
	for i := range values {
		values[i] = time.Duration(i)
	}
	for p, want := range map[float64]time.Duration{0: 0, 0.5: 50, 0.99: 99, 1: 99} {
		if got := percentile(values, p); got != want {
			t.Errorf("%v: %d, want %d", p, got, want)
		}
	}
}

// Each record counts once, whatever the rounds were; a figure of no round is left out.
func TestSummarize(t *testing.T) {
	f := summarize("x", []sample{
		{seconds: 2, allocs: 1, p50: 10, p99: 40},
		{seconds: 4, allocs: 2, p50: 20, p99: 50},
		{seconds: 1, allocs: 9, p50: 30, p99: 90},
	}, 1000)
	if f.Label != "x" || f.Median != 2 || f.Spread != 4 || f.Rate != 500 || f.Each != 2e6 || f.Allocs != 2 || f.P50 != 20 || f.P99 != 50 {
		t.Errorf("%+v", f)
	}
	if want := []float64{2, 4, 1}; len(f.Seconds) != 3 || f.Seconds[0] != want[0] || f.Seconds[1] != want[1] || f.Seconds[2] != want[2] {
		t.Errorf("seconds of the rounds: %v", f.Seconds)
	}
}

// A record whose promise has not been kept is noticed, and so is one whose promise has been kept twice or with an error.
func TestPromises(t *testing.T) {
	failed := errors.New("failed")
	for _, c := range []struct {
		name    string
		offsets []int64
		err     error
		ok      bool
	}{
		{"all", []int64{0, 1, 2}, nil, true},
		{"one is missing", []int64{0, 1}, nil, false},
		{"one too many", []int64{0, 1, 2, 3}, nil, false},
		{"one twice", []int64{0, 1, 1}, nil, false},
		{"two exchanged", []int64{0, 2, 1}, nil, false},
		{"an error", []int64{0, 1, 2}, failed, false},
	} {
		var p promises
		for i, offset := range c.offsets {
			var err error
			if i == 1 {
				err = c.err
			}
			p.promise(stream.Receipt{Offset: offset}, err)
		}
		if err := p.kept(3); (err == nil) != c.ok || c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
