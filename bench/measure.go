package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"
)

// A sample is what one side of a workload has made of one round.
type sample struct {
	seconds  float64
	read     int           // records that were read back and found to be what was sent
	allocs   float64       // per record, of the whole process while the clock ran
	p50, p99 time.Duration // of single calls, or of single records on their way; 0: not measured
	how      string        // what a limit has been given to work with
}

// runnelLabel is the label of the first side.
const runnelLabel = "Runnel"

// A side is one of those that are compared in a workload. Its run does the work once, from a clean start, and returns an error unless everything it
// wrote was read back.
type side struct {
	label string
	run   func(ctx context.Context) (sample, error)
}

// A clock runs from start to stop, and counts allocations.
type clock struct {
	begin   time.Time
	mallocs uint64
}

// startClock collects garbage first, so that nobody pays for what was before.
func startClock() clock {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return clock{time.Now(), m.Mallocs}
}

// stop returns the time and the allocations of n records.
func (c clock) stop(n int) sample {
	took := time.Since(c.begin)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return sample{seconds: took.Seconds(), allocs: float64(m.Mallocs-c.mallocs) / float64(n)}
}

// measure lets the sides of a workload alternate, rounds times. The first side is Runnel.
func measure(ctx context.Context, e *env, w *workload, rounds int) (_ *result, err error) {
	job, err := w.prepare(ctx, e, w)
	if err != nil {
		return nil, err
	}
	defer func() {
		if failed := job.close(); err == nil {
			err = failed
		}
	}()
	samples := make([][]sample, len(job.sides))
	for round := range rounds {
		for i, s := range job.sides {
			var one sample
			var err error
			pprof.Do(ctx, pprof.Labels("workload", w.name, "side", s.label), func(ctx context.Context) {
				one, err = s.run(ctx)
			})
			if err == nil {
				err = ctx.Err()
			}
			if want := w.written(e); err == nil && one.read != want {
				err = fmt.Errorf("%d records read back of %d", one.read, want)
			}
			if err != nil {
				return nil, fmt.Errorf("round %d, %s: %w", round+1, s.label, err)
			}
			samples[i] = append(samples[i], one)
		}
	}
	all := make([]figures, len(job.sides))
	for i, s := range job.sides {
		label := s.label
		if how := samples[i][0].how; how != "" {
			label += "; " + how
		}
		all[i] = summarize(label, samples[i], w.records(e))
	}
	return newResult(e, w, all), nil
}

// summarize makes a side's figures of its rounds.
func summarize(label string, samples []sample, records int) figures {
	of := func(get func(sample) float64) []float64 {
		all := make([]float64, len(samples))
		for i, s := range samples {
			all[i] = get(s)
		}
		return all
	}
	f := figures{
		Label:   label,
		Seconds: of(func(s sample) float64 { return s.seconds }),
		Allocs:  median(of(func(s sample) float64 { return s.allocs })),
		P50:     median(of(func(s sample) float64 { return float64(s.p50) })),
		P99:     median(of(func(s sample) float64 { return float64(s.p99) })),
	}
	f.Median = median(f.Seconds)
	f.Spread = spread(f.Seconds)
	f.Rate = float64(records) / f.Median
	f.Each = f.Median / float64(records) * 1e9
	return f
}

// percentiles sets the times of single calls.
func (s *sample) percentiles(took []time.Duration) {
	slices.Sort(took)
	s.p50, s.p99 = percentile(took, 0.50), percentile(took, 0.99)
}

// median returns the middle value, or the mean of both that are in the middle.
func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// spread returns the greatest value divided by the least.
func spread(values []float64) float64 { return slices.Max(values) / slices.Min(values) }

// percentile returns the value below which the share p of the values lies; values are sorted.
func percentile(values []time.Duration, p float64) time.Duration {
	return values[min(int(p*float64(len(values))), len(values)-1)]
}
