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
	members     int    // of the consumer group
	count       int    // records, rebalances or commits that the clock runs for, with -n 1
	more        int    // records written besides, with -n 1: for what is measured apart, or before
	ratioOfP50  bool   // the measure is the median of single times, and not the rate
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
	{name: "P7/g1", description: "as P7, 4 partitions, a group of 1 member", valueSize: 100, lanes: 4, members: 1, count: 2_000_000, prepare: consumeGroupOwned},
	{name: "P7/g4", description: "as P7, 4 partitions, a group of 4 members", valueSize: 100, lanes: 4, members: 4, count: 2_000_000, ratioTo: "P7/g1", prepare: consumeGroupOwned},
	{name: "P8/g1", description: "as P8, 4 partitions, a group of 1 member", valueSize: 100, lanes: 4, members: 1, count: 2_000_000, prepare: consumeGroupBorrowed},
	{name: "P8/g4", description: "as P8, 4 partitions, a group of 4 members", valueSize: 100, lanes: 4, members: 4, count: 2_000_000, ratioTo: "P8/g1", prepare: consumeGroupBorrowed},
	{name: "P9", description: "end to end at 50 000 records/s, ProduceSync to a group of 1, 100 B values", acks: stream.AcksWritten, valueSize: 100, lanes: 1, members: 1, count: 25_000, more: 5_000, ratioOfP50: true, prepare: endToEnd},
	{name: "REBALANCE/2/join", description: "a member joins 1 polling member, 100 partitions", lanes: 1, members: 2, count: 40, prepare: rebalanceJoin},
	{name: "REBALANCE/2/leave", description: "a member leaves 1 polling member, 100 partitions", lanes: 1, members: 2, count: 40, prepare: rebalanceLeave},
	{name: "REBALANCE/10/join", description: "a member joins 9 polling members, 100 partitions", lanes: 1, members: 10, count: 20, prepare: rebalanceJoin},
	{name: "REBALANCE/10/leave", description: "a member leaves 9 polling members, 100 partitions", lanes: 1, members: 10, count: 20, prepare: rebalanceLeave},
	{name: "REBALANCE/100/join", description: "a member joins 99 polling members, 100 partitions", lanes: 1, members: 100, count: 10, prepare: rebalanceJoin},
	{name: "REBALANCE/100/leave", description: "a member leaves 99 polling members, 100 partitions", lanes: 1, members: 100, count: 10, prepare: rebalanceLeave},
	{name: "COMMIT/1", description: "CommitOffsets of 1 partition, 1 consumer", acks: stream.AcksSynced, lanes: 1, count: 2_000, prepare: commitGroups},
	{name: "COMMIT/16", description: "CommitOffsets of 1 partition, 16 consumers of different groups", acks: stream.AcksSynced, lanes: 16, count: 16_000, prepare: commitGroups},
	{name: "COMMIT/16/one", description: "CommitOffsets of 1 partition, 16 goroutines of one consumer", acks: stream.AcksSynced, lanes: 16, count: 16_000, prepare: commitOne},
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

// bytes is how many bytes of keys and values the clock's records have.
func (w *workload) bytes(e *env) int {
	if w.valueSize == 0 {
		return 0
	}
	return w.records(e) * (keySize + w.valueSize)
}

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
