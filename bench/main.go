// Bench measures Runnel beside what the machine itself can do.
//
//	go run ./bench                       all workloads, about three minutes
//	go run ./bench -run '^P1$' -json     one of them, as a line of JSON
//
// Each workload is done by Runnel, through package stream, and by limit loops: the least code that does the same work on the same records with the
// same durability, without being a log that anybody could use. They take turns within each round, and what counts is the ratio of their medians: it says more than a
// rate, which is that of a machine.
//
// Everything that any side writes is read back and compared, every byte, order and number. What is not right is an error and exit status 1, and
// no result.
//
// # How it is made
//
// A workload is a line of the table in workload.go. Its prepare returns a job: sides, the first of which is Runnel, each a function that does the work once,
// from a clean start, and says how long that took and how many records it has verified. measure.go lets them take turns and compares that number;
// result.go and print.go are the output. Records come from one generator (records.go), are compared by one checker (verify.go), and neither knows who wrote them.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/runnelmq/runnel/stream"
)

func main() {
	// The first Ctrl-C ends the run in order, and removes its files; the second one at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, openEngine))
}

func openEngine(dir string) (stream.Client, error) { return stream.Open(dir, nil) }
