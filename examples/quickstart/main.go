// Quickstart counts lines with Runnel, and goes on where it stopped, also after kill -9: no line is lost and none is
// counted twice.
//
//	go run ./examples/quickstart -dir DIR [FILE…]
//
// It takes lines from files, or from standard input if none is named, and
//
//  1. opens an engine in DIR and makes a topic with four partitions           (run.go)
//  2. finds out which lines are in the topic already                          (resume.go)
//  3. produces the others, in batches; its first word is a line's key         (produce.go)
//  4. meanwhile consumes them and commits how far it has come                 (count.go)
//
// The last line on standard output is "N lines counted", where N is the sum of the committed positions. Progress goes to standard error.
//
// # Why no line is lost or counted twice
//
// Two numbers are kept by the engine, and nothing by this program. The producer has a name, and every record carries
// the number of its line as its Sequence; a record whose Sequence is not above the last one of that name in its partition
// is refused. So the program reads its files from the start again, and LastSequence tells it which lines to pass over. The consumer's
// group has a committed offset in each partition. Offsets have no gaps, so the offset of the next record to be counted is how many have been.
//
// That needs input which can be read again and has not changed; lines added at its end are welcome. Every record carries a checksum of the input
// up to its line, so a change is noticed and refused. Standard input cannot be read again: each run adds its lines to those
// of earlier runs, and lines that a killed run had read but not stored are gone.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/runnelmq/runnel/stream"
)

// interrupted is the exit code of a run that Ctrl-C has ended.
const interrupted = 130

func main() {
	dir := flag.String("dir", "", "`directory` in which the engine keeps its data; made if it is missing")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: quickstart -dir DIR [FILE…]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *dir == "" {
		flag.Usage()
		os.Exit(2)
	}

	// The first Ctrl-C ends the run in order, the second one at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)

	err := run(ctx, *dir, flag.Args(), os.Stdin, os.Stdout, os.Stderr)
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "interrupted: the next run goes on from here")
		os.Exit(interrupted)
	case errors.Is(err, stream.ErrLocked):
		fmt.Fprintf(os.Stderr, "quickstart: another run is using %s: %v\n", *dir, err)
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}
