package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// config is what the command line says.
type config struct {
	chosen     []*workload
	rounds     int
	factor     float64
	json       bool
	dir        string
	cpuprofile string
	memprofile string
}

// parse reads the command line. Errors have been written to stderr.
func parse(args []string, stderr io.Writer) (*config, error) {
	c := &config{}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprintln(stderr, "usage: bench [flags]")
		fs.PrintDefaults()
		fmt.Fprintln(stderr, "workloads:")
		for _, w := range workloads {
			fmt.Fprintf(stderr, "  %-19s %s\n", w.name, w.description)
		}
	}
	expr := fs.String("run", "", "run the workloads whose names match this `regexp`")
	fs.IntVar(&c.rounds, "rounds", 5, "`rounds` in which the sides take turns")
	fs.Float64Var(&c.factor, "n", 1, "`factor` by which all numbers of records are multiplied")
	fs.BoolVar(&c.json, "json", false, "print one JSON object a line")
	fs.StringVar(&c.dir, "dir", "", "`directory` to work in, which decides the file system (default: that for temporary files); what is made there is removed")
	fs.StringVar(&c.cpuprofile, "cpuprofile", "", "write a CPU profile to this `file`; its samples have the labels workload and side")
	fs.StringVar(&c.memprofile, "memprofile", "", "write a profile of allocations to this `file`")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	var err error
	switch c.chosen, err = choose(*expr); {
	case err != nil:
		err = fmt.Errorf("-run: %w", err)
	case fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case c.rounds < 1:
		err = fmt.Errorf("-rounds is %d and has to be at least 1", c.rounds)
	case !(c.factor > 0 && c.factor <= 1000):
		err = fmt.Errorf("-n is %v and has to be above 0 and at most 1000", c.factor)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
	}
	return c, err
}

// run is the program; it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, open func(dir string) (stream.Client, error)) int {
	c, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	}
	if err := c.bench(ctx, stdout, stderr, open); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitFailed
	}
	return exitOK
}

// bench runs the chosen workloads, and prints those that were verified, also if a later one fails.
func (c *config) bench(ctx context.Context, stdout, stderr io.Writer, open func(dir string) (stream.Client, error)) (err error) {
	dir, err := os.MkdirTemp(c.dir, "runnel-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	stop, err := c.profile()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	e := &env{dir: dir, factor: c.factor, open: open, about: describe(filepath.Dir(dir))}
	var results []*result
	if !c.json {
		defer func() { err = errors.Join(printTable(stdout, results), err) }()
	}
	for _, w := range c.chosen {
		begun := time.Now()
		r, err := measure(ctx, e, w, c.rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		r.compare(w, results)
		results = append(results, r)
		if c.json {
			if err := printJSON(stdout, r); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(stderr, "%s: %s, %s\n", r.Name, rate(r.Rate), time.Since(begun).Round(100*time.Millisecond))
	}
	return nil
}

// profile begins what the flags ask for, and returns what writes it.
func (c *config) profile() (stop func() error, err error) {
	if c.cpuprofile == "" {
		return c.writeMemory, nil
	}
	f, err := os.Create(c.cpuprofile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return errors.Join(f.Close(), c.writeMemory())
	}, nil
}

func (c *config) writeMemory() error {
	if c.memprofile == "" {
		return nil
	}
	f, err := os.Create(c.memprofile)
	if err != nil {
		return err
	}
	runtime.GC() // so that all of it is counted
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}
