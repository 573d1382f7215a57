package cluster_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/runnelmq/runnel/stream"
)

// An operator finds the transaction that holds readers up, and ends it: the readers go on, and its producer cannot commit it any more.
func TestHangingTransaction(t *testing.T) {
	onClusterYet(t, func(ctx context.Context, c stream.Client) error {
		_, err := c.Admin().Transactions(ctx)
		return err
	}, scenarioHanging)
}

func scenarioHanging(t *testing.T, c stream.Client, _ func() stream.Client) {
	create(t, c, "t", 1)
	at := tp("t", 0)
	p := newProducer(t, c, stream.ProducerConfig{TransactionalID: "stuck"})
	tx := must(p.Begin(t.Context()))(t)
	must(tx.ProduceSync(t.Context(), &stream.Record{Topic: "t", Value: []byte("held")}))(t)
	fill(t, c, at, 0, 2)
	check(t, c.Admin().SetOffsets(t.Context(), "g", stream.Offsets{at: {Offset: 0, LeaderEpoch: -1}}))
	eq(t, "seen", len(drain(t, c, stream.ReadCommitted, at)), 0)

	why := must(c.Admin().Explain(t.Context(), "g"))(t)
	eq(t, "explanations", len(why), 1)
	for _, s := range []string{"Empty", "3 records behind", "open transaction"} {
		if !strings.Contains(why[0].Text, s) {
			t.Errorf("%q does not say %q", why[0].Text, s)
		}
	}
	ts := must(c.Admin().Transactions(t.Context()))(t)
	eq(t, "transactions", len(ts), 1)
	eq(t, "transaction", []string{ts[0].TransactionalID, ts[0].State}, []string{"stuck", "Ongoing"})
	ps := must(c.Admin().Producers(t.Context(), at))(t)
	found := false
	for _, p := range ps {
		found = found || p.ProducerID == ts[0].ProducerID
	}
	eq(t, "among the producers", found, true)
	is(t, "of another producer", c.Admin().AbortTransaction(t.Context(), at, ts[0].ProducerID+1), stream.ErrNoTxn)
	check(t, c.Admin().AbortTransaction(t.Context(), at, ts[0].ProducerID))
	eq(t, "seen", values(drain(t, c, stream.ReadCommitted, at)), numbers(0, 2))
	is(t, "Commit", tx.Commit(t.Context()), stream.ErrFenced)
	_ = p.Close(t.Context())
}

// Settings of a topic are changed and taken back, and records are removed from its start: a reader who is before them goes on by its reset policy.
func TestAlterAndDeleteRecords(t *testing.T) {
	onBoth(t, scenarioAlter)
}

func scenarioAlter(t *testing.T, c stream.Client, _ func() stream.Client) {
	create(t, c, "t", 1)
	a := c.Admin()
	config := func() string { return must(a.Topics(t.Context(), "t"))(t)[0].Config["max.message.bytes"] }
	check(t, a.AlterTopic(t.Context(), "t", map[string]string{"max.message.bytes": "1000"}))
	eq(t, "config", config(), "1000")
	check(t, a.AlterTopic(t.Context(), "t", nil, "max.message.bytes"))
	eq(t, "config", config(), "")
	is(t, "no topic", a.AlterTopic(t.Context(), "missing", map[string]string{"max.message.bytes": "1000"}), stream.ErrUnknownTopic)

	fill(t, c, tp("t", 0), 0, 10)
	check(t, a.DeleteRecords(t.Context(), map[stream.TopicPartition]int64{tp("t", 0): 6}))
	eq(t, "start", must(a.StartOffsets(t.Context(), tp("t", 0)))(t)[tp("t", 0)].Offset, int64(6))
	is(t, "behind the end", a.DeleteRecords(t.Context(), map[stream.TopicPartition]int64{tp("t", 0): 11}), stream.ErrOffsetOutOfRange)
	co := newConsumer(t, c, stream.ConsumerConfig{Reset: stream.ResetEarliest})
	check(t, co.Assign(tp("t", 0)))
	check(t, co.Seek(tp("t", 0), 2))
	eq(t, "records", values(gather(t, co, 4)), numbers(6, 10))
	check(t, co.Close(t.Context()))
}

// CommitAsync commits what Commit would, and says when.
func TestCommitAsync(t *testing.T) { onBoth(t, scenarioCommitAsync) }

func scenarioCommitAsync(t *testing.T, c stream.Client, _ func() stream.Client) {
	create(t, c, "t", 1)
	fill(t, c, tp("t", 0), 0, 3)
	co := newConsumer(t, c, stream.ConsumerConfig{Group: "g", Topics: []string{"t"}, Reset: stream.ResetEarliest, ManualCommit: true})
	gather(t, co, 2)
	type result struct {
		o   stream.Offsets
		err error
	}
	done := make(chan result, 1)
	co.CommitAsync(nil, func(o stream.Offsets, err error) { done <- result{o, err} })
	r := <-done
	check(t, r.err)
	eq(t, "told", r.o[tp("t", 0)].Offset, int64(2))
	eq(t, "committed", must(co.Committed(t.Context()))(t)[tp("t", 0)].Offset, int64(2))
	check(t, co.Close(t.Context()))
}

// Close of the client flushes its producers: every promise has run, and every record is in the log.
func TestClientClose(t *testing.T) { onBoth(t, scenarioClose) }

func scenarioClose(t *testing.T, c stream.Client, dial func() stream.Client) {
	const n = 200
	create(t, c, "t", 1)
	other := dial()
	p := newProducer(t, other, stream.ProducerConfig{})
	var ran, failed atomic.Int32
	for range n {
		p.Produce(t.Context(), &stream.Record{Topic: "t"}, func(_ stream.Receipt, err error) {
			ran.Add(1)
			if err != nil {
				failed.Add(1)
			}
		})
	}
	co := newConsumer(t, other, stream.ConsumerConfig{Group: "g", Topics: []string{"t"}})
	check(t, other.Close())
	eq(t, "promises, failures", []int32{ran.Load(), failed.Load()}, []int32{n, 0})
	_, err := p.ProduceSync(t.Context(), &stream.Record{Topic: "t"})
	is(t, "producer", err, stream.ErrClosed)
	_, err = co.Poll(t.Context(), 1)
	is(t, "consumer", err, stream.ErrClosed)
	_, err = other.NewProducer(t.Context(), stream.ProducerConfig{})
	is(t, "client", err, stream.ErrClosed)
	check(t, other.Close())
}

// Flush waits for the records before it, and not for those that others go on producing.
func TestFlushEnds(t *testing.T) { onBoth(t, scenarioFlush) }

func scenarioFlush(t *testing.T, c stream.Client, _ func() stream.Client) {
	create(t, c, "t", 1)
	p := newProducer(t, c, stream.ProducerConfig{})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				p.Produce(context.Background(), &stream.Record{Topic: "t", Acks: stream.AcksWritten}, nil)
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	for range 3 {
		check(t, p.Flush(ctx))
	}
	close(stop)
	<-stopped
	check(t, p.Close(t.Context()))
}

// Health names every partition that is asked for, or all; one that the cluster has no leader for has failed, and why is said.
func TestHealth(t *testing.T) {
	scenarioHealth := func(t *testing.T, c stream.Client, _ func() stream.Client) {
		create(t, c, "t", 2)
		create(t, c, "u", 1)
		all := must(c.Admin().Health(t.Context()))(t)
		eq(t, "all", all, []stream.PartitionHealth{{TopicPartition: tp("t", 0)}, {TopicPartition: tp("t", 1)}, {TopicPartition: tp("u", 0)}})
		eq(t, "one", must(c.Admin().Health(t.Context(), tp("t", 1)))(t), all[1:2])
		_, err := c.Admin().Health(t.Context(), tp("t", 2))
		is(t, "unknown", err, stream.ErrUnknownTopic)
	}
	onBoth(t, scenarioHealth)
	t.Run("no leader", func(t *testing.T) {
		onFaults(t, func(t *testing.T, k *kfake.Cluster, c *client) {
			h := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Partitions: []int32{1}, Err: kerr.LeaderNotAvailable, Count: -1})
			defer h.Remove()
			hs := must(c.Admin().Health(t.Context()))(t)
			eq(t, "states", []stream.PartitionState{hs[0].State, hs[1].State}, []stream.PartitionState{stream.PartitionOK, stream.PartitionFailed})
			is(t, "why", hs[1].Err, stream.ErrPartitionFailed)
			is(t, "why", hs[1].Err, kerr.LeaderNotAvailable)
		})
	})
}
