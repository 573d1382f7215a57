package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/runnelmq/runnel/stream"
)

// topic is the topic of every workload.
const topic = "bench"

// A workload is one line of the table: a kind of work, done by Runnel and by the machine's limits in turn.
type workload struct {
	name        string
	description string
	acks        stream.Acks
	valueSize   int
	lanes       int    // partitions, producers or callers, each with an equal share of the records
	count       int    // records that the clock runs for, with -n 1
	more        int    // records written besides, with -n 1: for what is measured apart
	ratioTo     string // a workload whose rate is the measure of this one, too
	prepare     func(context.Context, *env, *workload) (*job, error)
}

// A job is a workload that is ready to run.
type job struct {
	sides []side // Runnel, then the limits, the one that counts first
	close func() error
}

// noClose is for jobs that keep nothing between rounds.
func noClose() error { return nil }

// workloads is the table of all workloads, in the order in which they run.
var workloads = []*workload{
	{name: "P1", description: "produce async, 1 producer, 100 B values", acks: stream.AcksWritten, valueSize: 100, lanes: 1, count: 3_000_000, prepare: produceAsync},
	{name: "P2", description: "produce async, 4 producers, 4 partitions, 100 B values", acks: stream.AcksWritten, valueSize: 100, lanes: 4, count: 3_000_000, ratioTo: "P1", prepare: produceAsync},
	{name: "P3", description: "produce async, 1 producer, 1 KiB values", acks: stream.AcksWritten, valueSize: 1 << 10, lanes: 1, count: 500_000, prepare: produceAsync},
	{name: "P4", description: "ProduceSync, 1 caller, 100 B values", acks: stream.AcksWritten, valueSize: 100, lanes: 1, count: 1_000_000, more: 250_000, prepare: produceSync},
	{name: "P5/1", description: "ProduceSync, 1 caller, 100 B values", acks: stream.AcksSynced, valueSize: 100, lanes: 1, count: 4_000, prepare: produceSynced},
	{name: "P5/16", description: "ProduceSync, 16 callers, 100 B values", acks: stream.AcksSynced, valueSize: 100, lanes: 16, count: 32_000, prepare: produceSynced},
	{name: "P5/64", description: "ProduceSync, 64 callers, 100 B values", acks: stream.AcksSynced, valueSize: 100, lanes: 64, count: 96_000, prepare: produceSynced},
	{name: "P6", description: "produce async in bulk, 1 producer, 100 B values", acks: stream.AcksSynced, valueSize: 100, lanes: 1, count: 2_000_000, prepare: produceBulk},
	{name: "P7", description: "consume owned records with PollInto, 100 B values", valueSize: 100, lanes: 1, count: 3_000_000, prepare: consumeOwned},
	{name: "P8", description: "consume borrowed records with PollInto, 100 B values", valueSize: 100, lanes: 1, count: 3_000_000, prepare: consumeBorrowed},
}

// perLane is how many records of the clock's each lane has.
func (w *workload) perLane(e *env) int { return max(1, int(float64(w.count)*e.factor)/w.lanes) }

// records is how many records the clock runs for.
func (w *workload) records(e *env) int { return w.perLane(e) * w.lanes }

// extra is how many records each lane writes besides.
func (w *workload) extra(e *env) int {
	if w.more == 0 {
		return 0
	}
	return max(1, int(float64(w.more)*e.factor)/w.lanes)
}

// written is how many records are written in all, and have to be read back.
func (w *workload) written(e *env) int { return w.records(e) + w.extra(e)*w.lanes }

// choose returns the workloads whose names the expression matches.
func choose(expr string) ([]*workload, error) {
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, err
	}
	var chosen []*workload
	names := make([]string, len(workloads))
	for i, w := range workloads {
		names[i] = w.name
		if re.MatchString(w.name) {
			chosen = append(chosen, w)
		}
	}
	if chosen == nil {
		return nil, fmt.Errorf("no workload matches %q; there are %s", expr, strings.Join(names, ", "))
	}
	return chosen, nil
}

// An env is what workloads run in.
type env struct {
	dir    string // everything is below it
	factor float64
	open   func(dir string) (stream.Client, error)
	about  environment
}

// scratch makes a new directory; its remover is called when its owner is done with it.
func (e *env) scratch() (dir string, remove func() error, err error) {
	dir, err = os.MkdirTemp(e.dir, "run-")
	return dir, func() error { return os.RemoveAll(dir) }, err
}
