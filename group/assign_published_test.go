package group_test

import (
	"strings"
	"testing"

	"github.com/runnelmq/runnel/group"
	"github.com/runnelmq/runnel/internal/kafka"
)

// members reads a line for each: id, topics, and after a bar what it owns in generation 1.
func members(lines ...string) (out []group.Member) {
	for _, l := range lines {
		said, owned, _ := strings.Cut(l, "|")
		f := strings.Fields(said)
		out = append(out, group.Member{ID: f[0], Topics: f[1:], Owned: tps(owned), Generation: 1})
	}
	return out
}

// assigned reads a line for each: id and what it gets.
func assigned(lines ...string) map[string][]kafka.TopicPartition {
	out := map[string][]kafka.TopicPartition{}
	for _, l := range lines {
		id, list, _ := strings.Cut(l, " ")
		out[id] = tps(list)
	}
	return out
}

// The examples in the documentation of Kafka's assignors come out as they are written there.
func TestAssignAsKafkaDocuments(t *testing.T) {
	two := map[string]int32{"t0": 3, "t1": 3}
	rising := map[string]int32{"t0": 1, "t1": 2, "t2": 3}
	four := map[string]int32{"t0": 2, "t1": 2, "t2": 2, "t3": 2}
	for _, c := range []struct {
		name       string
		assignor   group.Assignor
		partitions map[string]int32
		members    []group.Member
		want       map[string][]kafka.TopicPartition
	}{
		{"RangeAssignor", group.Range(), two, members("C0 t0 t1", "C1 t0 t1"),
			assigned("C0 t0-0 t0-1 t1-0 t1-1", "C1 t0-2 t1-2")},
		{"RangeAssignor, C0 is now C3 and C1 is C2", group.Range(), two, members("C3 t0 t1", "C2 t0 t1"),
			assigned("C3 t0-2 t1-2", "C2 t0-0 t0-1 t1-0 t1-1")},
		{"RangeAssignor, they are static", group.Range(), two, []group.Member{
			{ID: "C3", InstanceID: "I0", Topics: []string{"t0", "t1"}}, {ID: "C2", InstanceID: "I1", Topics: []string{"t0", "t1"}},
		}, assigned("C3 t0-0 t0-1 t1-0 t1-1", "C2 t0-2 t1-2")},
		{"RoundRobinAssignor", group.RoundRobin(), two, members("C0 t0 t1", "C1 t0 t1"),
			assigned("C0 t0-0 t0-2 t1-1", "C1 t0-1 t1-0 t1-2")},
		{"RoundRobinAssignor, subscriptions differ", group.RoundRobin(), rising, members("C0 t0", "C1 t0 t1", "C2 t0 t1 t2"),
			assigned("C0 t0-0", "C1 t1-0", "C2 t1-1 t2-0 t2-1 t2-2")},
		{"StickyAssignor", group.Sticky(), four, members("C0 t0 t1 t2 t3", "C1 t0 t1 t2 t3", "C2 t0 t1 t2 t3"),
			assigned("C0 t0-0 t1-1 t3-0", "C1 t0-1 t2-0 t3-1", "C2 t1-0 t2-1")},
		{"StickyAssignor, C1 leaves", group.Sticky(), four, members("C0 t0 t1 t2 t3 | t0-0 t1-1 t3-0", "C2 t0 t1 t2 t3 | t1-0 t2-1"),
			assigned("C0 t0-0 t1-1 t3-0 t2-0", "C2 t1-0 t2-1 t0-1 t3-1")},
		{"RoundRobinAssignor, C1 leaves", group.RoundRobin(), four, members("C0 t0 t1 t2 t3", "C2 t0 t1 t2 t3"),
			assigned("C0 t0-0 t1-0 t2-0 t3-0", "C2 t0-1 t1-1 t2-1 t3-1")},
		{"StickyAssignor, subscriptions differ", group.Sticky(), rising, members("C0 t0", "C1 t0 t1", "C2 t0 t1 t2"),
			assigned("C0 t0-0", "C1 t1-0 t1-1", "C2 t2-0 t2-1 t2-2")},
		{"StickyAssignor, subscriptions differ, C0 leaves", group.Sticky(), rising, members("C1 t0 t1 | t1-0 t1-1", "C2 t0 t1 t2 | t2-0 t2-1 t2-2"),
			assigned("C1 t1-0 t1-1 t0-0", "C2 t2-0 t2-1 t2-2")},
		{"RoundRobinAssignor, subscriptions differ, C0 leaves", group.RoundRobin(), rising, members("C1 t0 t1", "C2 t0 t1 t2"),
			assigned("C1 t0-0 t1-1", "C2 t1-0 t2-0 t2-1 t2-2")},
		{"CooperativeStickyAssignor, C1 leaves: all of it is free", group.CooperativeSticky(), four, members("C0 t0 t1 t2 t3 | t0-0 t1-1 t3-0", "C2 t0 t1 t2 t3 | t1-0 t2-1"),
			assigned("C0 t0-0 t1-1 t3-0 t2-0", "C2 t1-0 t2-1 t0-1 t3-1")},
		{"CooperativeStickyAssignor, C2 joins: the others give up one each", group.CooperativeSticky(), two, members("C0 t0 t1 | t0-0 t0-2 t1-1", "C1 t0 t1 | t0-1 t1-0 t1-2", "C2 t0 t1"),
			assigned("C0 t0-0 t0-2", "C1 t0-1 t1-0", "C2")},
		{"CooperativeStickyAssignor, C2 has joined: it gets them", group.CooperativeSticky(), two, members("C0 t0 t1 | t0-0 t0-2", "C1 t0 t1 | t0-1 t1-0", "C2 t0 t1"),
			assigned("C0 t0-0 t0-2", "C1 t0-1 t1-0", "C2 t1-1 t1-2")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := group.Assign(c.assignor, c.members, c.partitions); !same(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
