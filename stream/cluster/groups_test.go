package cluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// An operator sees a group, moves it while it has no members, and deletes it; consumers begin where they were put.
func TestGroupAdmin(t *testing.T) { onBoth(t, scenarioGroupAdmin) }

func scenarioGroupAdmin(t *testing.T, c stream.Client, _ func() stream.Client) {
	create(t, c, "t", 2)
	fill(t, c, tp("t", 0), 0, 10)
	fill(t, c, tp("t", 1), 0, 10)
	a := c.Admin()
	check(t, a.SetOffsets(t.Context(), "g", stream.Offsets{tp("t", 0): {Offset: 8, LeaderEpoch: -1, Metadata: "moved"}, tp("t", 1): {Offset: 9, LeaderEpoch: -1}}))
	is(t, "unknown partition", a.SetOffsets(t.Context(), "g", stream.Offsets{tp("t", 2): {}}), stream.ErrUnknownTopic)
	is(t, "no name", a.SetOffsets(t.Context(), "", stream.Offsets{tp("t", 0): {}}), stream.ErrInvalidGroup)
	gs := must(a.Groups(t.Context()))(t)
	eq(t, "groups", len(gs), 1)
	eq(t, "group", []any{gs[0].Group, gs[0].State, gs[0].Offsets[tp("t", 0)]}, []any{"g", "Empty", stream.OffsetMetadata{Offset: 8, LeaderEpoch: -1, Metadata: "moved"}})

	co := newConsumer(t, c, stream.ConsumerConfig{Group: "g", Topics: []string{"t"}, Reset: stream.ResetEarliest})
	eq(t, "records", len(gather(t, co, 3)), 3)
	eq(t, "state", must(a.Groups(t.Context(), "g"))(t)[0].State, "Stable")
	is(t, "set under a member", a.SetOffsets(t.Context(), "g", stream.Offsets{tp("t", 0): {Offset: 1}}), stream.ErrUnknownMember)
	check(t, co.Close(t.Context()))

	check(t, a.DeleteOffsets(t.Context(), "g", tp("t", 0)))
	co = newConsumer(t, c, stream.ConsumerConfig{Group: "g", Reset: stream.ResetEarliest})
	at := must(co.Committed(t.Context(), tp("t", 0), tp("t", 1)))(t)
	eq(t, "offsets left", []int64{int64(len(at)), at[tp("t", 1)].Offset}, []int64{1, 10})
	check(t, a.DeleteGroup(t.Context(), "g"))
	eq(t, "offsets of no group", len(must(co.Committed(t.Context(), tp("t", 0), tp("t", 1)))(t)), 0)
	check(t, co.Close(t.Context()))
	eq(t, "groups", len(must(a.Groups(t.Context()))(t)), 0)

	check(t, a.SetOffsets(t.Context(), "h", stream.Offsets{tp("t", 0): {Offset: 5}}))
	check(t, a.DeleteTopic(t.Context(), "t"))
	create(t, c, "t", 2)
	co = newConsumer(t, c, stream.ConsumerConfig{Group: "h"})
	eq(t, "offsets in a deleted topic", len(must(co.Committed(t.Context(), tp("t", 0)))(t)), 0)
	check(t, co.Close(t.Context()))
}

// Two members of a group share its partitions; what the one who leaves has not committed comes to the other.
func TestTwoMembers(t *testing.T) { onBoth(t, scenarioTwoMembers) }

func scenarioTwoMembers(t *testing.T, c stream.Client, dial func() stream.Client) {
	create(t, c, "t", 4)
	for i := range 4 {
		fill(t, c, tp("t", int32(i)), 0, 5)
	}
	cfg := stream.ConsumerConfig{Group: "g", Topics: []string{"t"}, Reset: stream.ResetEarliest, ManualCommit: true, MaxWait: 20 * time.Millisecond}
	one := newConsumer(t, c, cfg)
	gather(t, one, 20)
	two := newConsumer(t, dial(), cfg)
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	for len(one.Assignment()) != 2 || len(two.Assignment()) != 2 {
		for _, co := range []stream.Consumer{one, two} {
			if _, err := co.Poll(ctx, 1); err != nil {
				t.Fatalf("assignments are %v and %v: %v", one.Assignment(), two.Assignment(), err)
			}
		}
	}
	if one.Group().Generation != two.Group().Generation || one.Group().MemberID == two.Group().MemberID {
		t.Fatalf("members are %+v and %+v", one.Group(), two.Group())
	}
	check(t, one.Close(t.Context()))
	check(t, two.Close(t.Context()))
	two = newConsumer(t, c, cfg)
	eq(t, "records again", len(gather(t, two, 20)), 20) // nobody has committed anything
	check(t, two.Close(t.Context()))
}
