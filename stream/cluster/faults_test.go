package cluster_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/runnelmq/runnel/stream"
)

// onFaults runs fn on a cluster that fn makes fail.
func onFaults(t *testing.T, fn func(t *testing.T, k *kfake.Cluster, c *client)) {
	onFake(t, func(t *testing.T, k *kfake.Cluster) {
		c := must(connect(k.ListenAddrs()...))(t)
		t.Cleanup(func() { check(t, c.Close()) })
		create(t, c, "t", 2)
		fn(t, k, c)
	})
}

// holdProduce makes the next produce request wait at the broker. It returns a channel that is closed when it is there, and what lets it go on.
func holdProduce(k *kfake.Cluster) (arrived chan struct{}, release func()) {
	arrived, gate := make(chan struct{}), make(chan struct{})
	k.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		k.DropControl()
		close(arrived)
		k.SleepControl(func() { <-gate })
		return nil, nil, false
	})
	return arrived, func() { close(gate) }
}

// A ctx bounds its own call also when the cluster does not answer: the record is on its way then, and the error says that it may be kept.
func TestContextBoundsItsCall(t *testing.T) {
	onFaults(t, func(t *testing.T, k *kfake.Cluster, c *client) {
		arrived, release := holdProduce(k)
		p := newProducer(t, c, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-arrived
			cancel()
		}()
		_, err := p.ProduceSync(ctx, &stream.Record{Topic: "t", Value: []byte("on its way")})
		is(t, "ProduceSync", err, context.Canceled)
		is(t, "ProduceSync", err, stream.ErrOutcomeUnknown)
		eq(t, "retriable", stream.IsRetriable(err), false)
		release()
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "t", Value: []byte("the next")}))(t)
		eq(t, "the log", values(drain(t, c, stream.ReadUncommitted, tp("t", 0))), []string{"on its way", "the next"})
		check(t, p.Close(t.Context()))
	})
}

// What Close leaves no time for fails with ErrClosed, its outcome unknown: once, like every promise.
func TestCloseCutsShort(t *testing.T) {
	onFaults(t, func(t *testing.T, k *kfake.Cluster, c *client) {
		arrived, release := holdProduce(k)
		defer release()
		p := newProducer(t, c, stream.ProducerConfig{})
		var errs []error
		for range 3 {
			p.Produce(t.Context(), &stream.Record{Topic: "t"}, func(_ stream.Receipt, err error) { errs = append(errs, err) })
		}
		<-arrived
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		is(t, "Close", p.Close(ctx), stream.ErrClosed)
		eq(t, "promises", len(errs), 3)
		for _, err := range errs {
			is(t, "promise", err, stream.ErrClosed)
			is(t, "promise", err, stream.ErrOutcomeUnknown)
		}
	})
}

// A batch is in the log once, also when the broker has written it and said that it has not.
func TestRetriesWriteOnce(t *testing.T) {
	onFaults(t, func(t *testing.T, k *kfake.Cluster, c *client) {
		h := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend, Count: 2})
		p := newProducer(t, c, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
		rec := must(p.ProduceSync(t.Context(), &stream.Record{Topic: "t", Value: []byte("once")}))(t)
		eq(t, "offset", rec.Offset, int64(0))
		eq(t, "faults", h.Hits(), 2)
		eq(t, "the log", values(drain(t, c, stream.ReadUncommitted, tp("t", 0))), []string{"once"})
		check(t, p.Close(t.Context()))
	})
}

// DeliveryTimeout gives up a record that no broker takes, and it is known not to be kept.
func TestDeliveryTimeout(t *testing.T) {
	onFaults(t, func(t *testing.T, k *kfake.Cluster, c *client) {
		h := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: -1})
		p := newProducer(t, c, stream.ProducerConfig{DeliveryTimeout: time.Second, Partitioner: stream.ManualPartitioner()}) // kgo's least
		_, err := p.ProduceSync(t.Context(), &stream.Record{Topic: "t"})
		is(t, "ProduceSync", err, stream.ErrTimeout)
		eq(t, "retriable", stream.IsRetriable(err), true)
		h.Remove()
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "t", Value: []byte("again")}))(t)
		eq(t, "the log", values(drain(t, c, stream.ReadUncommitted, tp("t", 0))), []string{"again"})
		check(t, p.Close(t.Context()))
	})
}

// One partition that cannot be read is named, moves no position and is paused; the others go on, and Resume reads it again.
func TestPartitionError(t *testing.T) {
	onFaults(t, func(t *testing.T, k *kfake.Cluster, c *client) {
		fill(t, c, tp("t", 0), 0, 3)
		fill(t, c, tp("t", 1), 3, 6)
		h := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Partitions: []int32{0}, Err: kerr.TopicAuthorizationFailed, Count: -1})
		co := newConsumer(t, c, stream.ConsumerConfig{Reset: stream.ResetEarliest})
		check(t, co.Assign(tp("t", 0), tp("t", 1)))
		var got []string
		var failed *stream.PartitionError
		ctx, cancel := context.WithTimeout(t.Context(), hang)
		defer cancel()
		for len(got) < 3 || failed == nil {
			rs, err := co.Poll(ctx, 10)
			if err != nil && !errors.As(err, &failed) {
				t.Fatal(err)
			}
			if err != nil && len(rs) > 0 {
				t.Fatalf("%d records beside %v", len(rs), err)
			}
			got = append(got, values(rs)...)
		}
		eq(t, "partition", failed.TopicPartition, tp("t", 0))
		eq(t, "records", got, numbers(3, 6))
		eq(t, "position", must(co.Position(tp("t", 0)))(t), int64(0))
		eq(t, "paused", co.Paused(), []stream.TopicPartition{tp("t", 0)})
		h.Remove()
		co.Resume(tp("t", 0))
		eq(t, "after Resume", values(gather(t, co, 2)), numbers(0, 2))
		check(t, co.Seek(tp("t", 0), 1))
		eq(t, "after Seek", values(gather(t, co, 2)), numbers(1, 3))
		check(t, co.Close(t.Context()))
	})
}

// A commit that the group refuses had no effect, and its kind says what to do.
func TestCommitErrors(t *testing.T) {
	onFaults(t, func(t *testing.T, k *kfake.Cluster, c *client) {
		fill(t, c, tp("t", 0), 0, 3)
		co := newConsumer(t, c, stream.ConsumerConfig{Group: "g", Topics: []string{"t"}, Reset: stream.ResetEarliest, ManualCommit: true})
		gather(t, co, 3)
		for _, f := range []struct {
			code      *kerr.Error
			kind      error
			retriable bool
		}{
			{kerr.RebalanceInProgress, stream.ErrRebalance, true},
			{kerr.IllegalGeneration, stream.ErrRebalance, true},
			{kerr.UnknownMemberID, stream.ErrUnknownMember, false},
			{kerr.FencedInstanceID, stream.ErrFenced, false},
		} {
			k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: f.code})
			err := co.Commit(t.Context())
			is(t, "Commit", err, f.kind)
			eq(t, f.code.Message+" is retriable", stream.IsRetriable(err), f.retriable)
			eq(t, "committed", len(must(co.Committed(t.Context()))(t)), 0)
		}
		check(t, co.Commit(t.Context()))
		check(t, co.Close(t.Context()))
	})
}

// Errors that a client can meet on a cluster and for which package stream has no kind yet. A program can read them, and cannot decide on them.
var nameless = []*kerr.Error{
	kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed, kerr.SaslAuthenticationFailed,
	kerr.LeaderNotAvailable, kerr.NotLeaderForPartition, kerr.BrokerNotAvailable, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.NotCoordinator,
	kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.NetworkException, kerr.UnknownLeaderEpoch, kerr.ThrottlingQuotaExceeded,
	kerr.NonEmptyGroup, kerr.GroupIDNotFound, kerr.GroupMaxSizeReached, kerr.GroupSubscribedToTopic, kerr.InvalidSessionTimeout, kerr.OffsetMetadataTooLarge,
	kerr.InvalidProducerIDMapping, kerr.UnknownProducerID, kerr.ConcurrentTransactions, kerr.TransactionAbortable, kerr.PolicyViolation, kerr.ReassignmentInProgress,
	kerr.UnknownServerError,
}

// Each error of the table has the kind that package stream says, and the cluster's own error with it; those without a kind are known.
func TestKindsOfErrors(t *testing.T) {
	for _, k := range kinds {
		err := fault(k.from)
		is(t, k.from.Error(), err, k.kind)
		is(t, k.from.Error(), err, k.from)
	}
	for _, e := range nameless {
		if fault(e) != e {
			t.Errorf("%v has a kind: take it off the list", e)
		}
		if stream.IsRetriable(fault(e)) || stream.IsFatal(fault(e)) || stream.NeedsAbort(fault(e)) {
			t.Errorf("%v can be decided on: take it off the list", e)
		}
	}
	if i := slices.IndexFunc(nameless, func(e *kerr.Error) bool { return e.Retriable }); i < 0 {
		t.Error("none of them is retriable")
	}
}
