package cluster_test

import (
	"context"
	"testing"

	"github.com/runnelmq/runnel/stream"
)

func begin(ctx context.Context, c stream.Client) error {
	_, err := c.NewProducer(ctx, stream.ProducerConfig{TransactionalID: "tx"})
	return err
}

// A committed transaction is seen whole, an aborted one not at all, in all partitions and for the offsets in it; an older instance is fenced, and what it had left
// open is undone.
func TestTransactions(t *testing.T) { onClusterYet(t, begin, scenarioTransactions) }

func scenarioTransactions(t *testing.T, c stream.Client, dial func() stream.Client) {
	create(t, c, "a", 1)
	create(t, c, "b", 1)
	create(t, c, "in", 1)
	both := []stream.TopicPartition{tp("a", 0), tp("b", 0)}
	p := newProducer(t, c, stream.ProducerConfig{TransactionalID: "tx"})
	_, err := p.ProduceSync(t.Context(), &stream.Record{Topic: "a"})
	is(t, "outside of a transaction", err, stream.ErrNoTxn)
	write := func(tx stream.Txn, value string, offset int64) {
		t.Helper()
		must(tx.ProduceAll(t.Context(), []stream.Record{{Topic: "a", Value: []byte(value)}, {Topic: "b", Value: []byte(value)}}, nil))(t)
		check(t, tx.SendOffsets(t.Context(), stream.GroupMetadata{Group: "g", Generation: -1}, stream.Offsets{tp("in", 0): {Offset: offset, LeaderEpoch: -1}}))
	}
	committed := func() int64 {
		t.Helper()
		co := newConsumer(t, c, stream.ConsumerConfig{Group: "g"})
		defer func() { check(t, co.Close(t.Context())) }()
		return must(co.Committed(t.Context(), tp("in", 0)))(t)[tp("in", 0)].Offset
	}

	tx := must(p.Begin(t.Context()))(t)
	write(tx, "one", 1)
	eq(t, "seen while open", len(drain(t, c, stream.ReadCommitted, both...)), 0)
	check(t, tx.Commit(t.Context()))
	eq(t, "seen", values(drain(t, c, stream.ReadCommitted, both...)), []string{"one", "one"})
	eq(t, "offset", committed(), int64(1))
	is(t, "Commit again", tx.Commit(t.Context()), stream.ErrTxnDone)
	is(t, "Abort after", tx.Abort(t.Context()), stream.ErrTxnDone)
	_, err = tx.ProduceSync(t.Context(), &stream.Record{Topic: "a"})
	is(t, "Produce after", err, stream.ErrTxnDone)

	tx = must(p.Begin(t.Context()))(t)
	write(tx, "two", 2)
	check(t, tx.Abort(t.Context()))
	eq(t, "seen after an abort", values(drain(t, c, stream.ReadCommitted, both...)), []string{"one", "one"})
	eq(t, "in the log", len(drain(t, c, stream.ReadUncommitted, both...)), 4)
	eq(t, "offset after an abort", committed(), int64(1))

	for i, commit := range []bool{true, false, true} { // offsets alone
		tx = must(p.Begin(t.Context()))(t)
		check(t, tx.SendOffsets(t.Context(), stream.GroupMetadata{Group: "g", Generation: -1}, stream.Offsets{tp("in", 0): {Offset: int64(10 + i), LeaderEpoch: -1}}))
		if commit {
			check(t, tx.Commit(t.Context()))
			eq(t, "offset alone", committed(), int64(10+i))
			continue
		}
		check(t, tx.Abort(t.Context()))
		eq(t, "offset alone, aborted", committed(), int64(10+i-1))
	}
	tx = must(p.Begin(t.Context()))(t)
	check(t, tx.Commit(t.Context())) // of nothing

	tx = must(p.Begin(t.Context()))(t)
	write(tx, "three", 3)
	next := newProducer(t, dial(), stream.ProducerConfig{TransactionalID: "tx"})
	is(t, "the older instance", tx.Commit(t.Context()), stream.ErrFenced)
	tx = must(next.Begin(t.Context()))(t)
	write(tx, "four", 4)
	check(t, tx.Commit(t.Context()))
	eq(t, "seen in the end", values(drain(t, c, stream.ReadCommitted, tp("a", 0))), []string{"one", "four"})
	eq(t, "offset in the end", committed(), int64(4))
	check(t, next.Close(t.Context()))
	_ = p.Close(t.Context())
}

// A member's offsets go into a transaction under its generation: one that the group has gone on without is refused, and the transaction cannot commit.
func TestOffsetsAreFencedByGeneration(t *testing.T) { onClusterYet(t, begin, scenarioGeneration) }

func scenarioGeneration(t *testing.T, c stream.Client, _ func() stream.Client) {
	create(t, c, "in", 1)
	create(t, c, "out", 1)
	fill(t, c, tp("in", 0), 0, 4)
	co := newConsumer(t, c, stream.ConsumerConfig{Group: "g", Topics: []string{"in"}, Reset: stream.ResetEarliest, ManualCommit: true})
	p := newProducer(t, c, stream.ProducerConfig{TransactionalID: "tx"})
	pass := func(g stream.GroupMetadata) error {
		rs := gather(t, co, 2)
		tx := must(p.Begin(t.Context()))(t)
		must(tx.ProduceSync(t.Context(), &stream.Record{Topic: "out", Value: rs[1].Value}))(t)
		if err := tx.SendOffsets(t.Context(), g, stream.Offsets{tp("in", 0): {Offset: rs[1].Offset + 1, LeaderEpoch: rs[1].LeaderEpoch}}); err != nil {
			if tx.Commit(t.Context()) == nil {
				t.Error("committed without its offsets")
			}
			check(t, tx.Abort(t.Context()))
			return err
		}
		return tx.Commit(t.Context())
	}
	gather(t, co, 0)
	rs := gather(t, co, 1)
	check(t, co.Seek(tp("in", 0), rs[0].Offset))
	check(t, pass(co.Group()))
	old := co.Group()
	old.Generation--
	is(t, "an older generation", pass(old), stream.ErrRebalance)
	eq(t, "committed", must(co.Committed(t.Context()))(t)[tp("in", 0)].Offset, int64(2))
	eq(t, "seen", values(drain(t, c, stream.ReadCommitted, tp("out", 0))), []string{"1"})
	check(t, p.Close(t.Context()))
	check(t, co.Close(t.Context()))
}
