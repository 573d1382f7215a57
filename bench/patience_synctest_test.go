package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/runnelmq/runnel/stream"
)

// inVirtualTime calls fn with an engine that has a fault, and the topic.
func inVirtualTime(t *testing.T, f fault, partitions int, fn func(t *testing.T, e *env, s *session)) {
	synctest.Test(t, func(t *testing.T) {
		e := &env{dir: t.TempDir(), factor: 1, open: func(string) (stream.Client, error) {
			eng, err := stream.OpenMemory(nil)
			return &faultyClient{Client: eng, fault: f}, err
		}}
		s, err := e.start(t.Context(), partitions)
		if err != nil {
			t.Fatal(err)
		}
		fn(t, e, s)
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
}

func wantGivenUp(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, %q has to be in it", err, want)
	}
}

// A group that does not come to the end of a partition is given up after a while, and says how far it is.
func TestGroupThatStopsIsGivenUp(t *testing.T) {
	early := deliveries()[slices.IndexFunc(deliveries(), func(f fault) bool { return f.name == "an end too early" })]
	inVirtualTime(t, early, 2, func(t *testing.T, _ *env, s *session) {
		g := newGenerator(100)
		parts := make([]*part, 2)
		for p := range parts {
			if err := fill(t.Context(), s.client, g, p, 100); err != nil {
				t.Fatal(err)
			}
			parts[p] = &part{end: 100, take: newChecker(g, p, 1).takeAll}
		}
		_, err := newGroupReaders(s.client, "group", false, parts).read(t.Context(), 2)
		wantGivenUp(t, err, "2 of 2 partitions are not at their ends")
	})
}

// A reader whose record does not come is given up.
func TestRecordThatDoesNotArriveIsGivenUp(t *testing.T) {
	lost := fault{deliver: func(rs []stream.Record) []stream.Record {
		return slices.DeleteFunc(rs, func(r stream.Record) bool { return r.Offset == 99 })
	}}
	inVirtualTime(t, lost, 1, func(t *testing.T, e *env, s *session) {
		g := newGenerator(100)
		if err := fill(t.Context(), s.client, g, 0, 100); err != nil {
			t.Fatal(err)
		}
		consumer, err := s.client.NewConsumer(t.Context(), stream.ConsumerConfig{Group: "group", Topics: []string{topic}, Reset: stream.ResetEarliest, MaxWait: patience})
		if err != nil {
			t.Fatal(err)
		}
		wantGivenUp(t, receive(t.Context(), &again{consumer}, newTransit(g, 0, 100)), "behind 99 of 100 records")
		if err := consumer.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// again polls once more where a fault has left nothing of a poll: that is none that has waited.
type again struct{ poller }

func (a *again) PollInto(ctx context.Context, dst []stream.Record) (n int, err error) {
	if n, err = a.poller.PollInto(ctx, dst); n == 0 && err == nil {
		n, err = a.poller.PollInto(ctx, dst)
	}
	return n, err
}

// A group that does not settle is given up, when it begins and later.
func TestGroupThatDoesNotSettleIsGivenUp(t *testing.T) {
	deaf := fault{listen: func(l stream.RebalanceListener) stream.RebalanceListener {
		return &listener{RebalanceListener: l, assigned: func(stream.RebalanceListener, []stream.TopicPartition) {}}
	}}
	inVirtualTime(t, deaf, sharedPartitions, func(t *testing.T, e *env, s *session) {
		r := &rebalanceWork{e: e, w: &workload{members: 2}, session: s, owners: newOwners(sharedPartitions)}
		_, err := r.await(t.Context(), 1, func() error { return r.join(t.Context()) })
		wantGivenUp(t, err, "a group of 1 members has not settled")
		for _, m := range r.members {
			if err := m.close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	unstable := fault{groups: func(infos []stream.GroupInfo) { infos[0].Generation++ }}
	inVirtualTime(t, unstable, sharedPartitions, func(t *testing.T, e *env, s *session) {
		r := &rebalanceWork{e: e, w: &workload{members: 2}, session: s, owners: newOwners(sharedPartitions)}
		_, err := r.await(t.Context(), 1, func() error { return r.join(t.Context()) })
		wantGivenUp(t, err, "not all of them are")
		for _, m := range r.members {
			if err := m.close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
