package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// Consume, transform, produce: through an error of the transformation and a crash between the records and the commit, each input has been transformed
// exactly once, in every topic, for who reads committed records. Who reads all records sees that both did happen.
func TestExactlyOnce(t *testing.T) {
	onClusterYet(t, func(ctx context.Context, c stream.Client) error {
		return c.Process(ctx, stream.ProcessConfig{}, nil)
	}, scenarioExactlyOnce)
}

var errBoom = errors.New("the transformation failed")

func scenarioExactlyOnce(t *testing.T, c stream.Client, dial func() stream.Client) {
	const n = 100
	create(t, c, "in", 2)
	create(t, c, "all", 2)
	create(t, c, "even", 1)
	fill(t, c, tp("in", 0), 0, n/2)
	fill(t, c, tp("in", 1), n/2, n)
	cfg := stream.ProcessConfig{
		Producer:   stream.ProducerConfig{TransactionalID: "tx"},
		Consumer:   stream.ConsumerConfig{Group: "g", Topics: []string{"in"}, Reset: stream.ResetEarliest},
		MaxRecords: 7,
	}
	transform := func(ctx context.Context, tx stream.Txn, rs []stream.Record) error {
		for i := range rs {
			v := rs[i].Value
			tx.Produce(ctx, &stream.Record{Topic: "all", Key: v, Value: v}, nil)
			if k, _ := strconv.Atoi(string(v)); k%2 == 0 {
				if _, err := tx.ProduceSync(ctx, &stream.Record{Topic: "even", Value: v}); err != nil {
					return err
				}
			}
		}
		return nil
	}
	runs := 0
	after := func(k int, then func(tx stream.Txn) error) func(ctx context.Context, tx stream.Txn, rs []stream.Record) error {
		runs = 0
		return func(ctx context.Context, tx stream.Txn, rs []stream.Record) error {
			is(t, "Commit inside", tx.Commit(ctx), stream.ErrUnsupported)
			is(t, "Abort inside", tx.Abort(ctx), stream.ErrUnsupported)
			if err := transform(ctx, tx, rs); err != nil {
				return err
			}
			if runs++; runs == k {
				return then(tx)
			}
			return nil
		}
	}

	// The transformation fails in its third run: Process returns that error, and nothing of the run is kept.
	is(t, "first Process", c.Process(t.Context(), cfg, after(3, func(tx stream.Txn) error {
		must(tx.ProduceSync(t.Context(), &stream.Record{Topic: "all", Value: []byte("undone")}))(t)
		return errBoom
	})), errBoom)
	// The client goes away in the fourth run of the next, its records written, its transaction open.
	crashed := dial()
	err := crashed.Process(t.Context(), cfg, after(4, func(stream.Txn) error { return crashed.Close() }))
	is(t, "Process of a closed client", err, stream.ErrClosed)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	restarted := dial()
	go func() { ended <- restarted.Process(ctx, cfg, transform) }()
	co := newConsumer(t, c, stream.ConsumerConfig{Reset: stream.ResetEarliest, Isolation: stream.ReadCommitted, MaxWait: 20 * time.Millisecond})
	check(t, co.Assign(tp("all", 0), tp("all", 1), tp("even", 0)))
	seen := map[string]int{}
	for _, r := range gather(t, co, n+n/2) {
		seen[r.Topic+" "+string(r.Value)]++
	}
	cancel()
	is(t, "Process", <-ended, context.Canceled)
	rs := must(co.Poll(t.Context(), 0))(t)
	eq(t, "records too many", values(rs), []string{})
	check(t, co.Close(t.Context()))
	eq(t, "of the transaction that failed", seen["all undone"], 0)
	for k := range n {
		eq(t, fmt.Sprintf("input %d in all", k), seen[fmt.Sprintf("all %d", k)], 1)
		eq(t, fmt.Sprintf("input %d in even", k), seen[fmt.Sprintf("even %d", k)], 1-k%2)
	}
	var twice []string
	log := map[string]int{}
	for _, r := range drain(t, c, stream.ReadUncommitted, tp("all", 0), tp("all", 1)) {
		log[string(r.Value)]++
	}
	for _, v := range slices.Sorted(maps.Keys(log)) {
		if log[v] > 1 {
			twice = append(twice, v)
		}
	}
	if len(twice) == 0 {
		t.Fatal("no record was written twice: neither the error nor the crash came between the records and the commit")
	}
	t.Logf("written more than once: %v", twice)
}
