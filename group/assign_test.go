package group_test

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/runnelmq/runnel/group"
	"github.com/runnelmq/runnel/internal/kafka"
)

// E1: whoever joins, leaves, subscribes to something else or says whatever of what it owns, over a chain of rebalances:
//
//   - every partition that somebody subscribes to goes to one member, which subscribes to it, and nothing else goes to anybody;
//   - the order in which members, topics and partitions are given changes nothing, and none of them is changed;
//   - sticky ones give the best assignment there is, cooperative ones when all have given up what they must;
//   - in a cooperative group nothing goes to somebody else than its owner, and after one more round it is over.
func TestAssignHoldsItsPromises(t *testing.T) {
	for _, a := range builtIn() {
		t.Run(a.Name(), func(t *testing.T) {
			eachSeed(t, func(t *testing.T, rng *rand.Rand) {
				top := randomTopology(rng)
				top.own(rng)
				for range 4 {
					out := assign(t, rng, a, top)
					if t.Failed() {
						return
					}
					if a.Cooperative() {
						out = settle(t, rng, a, top, out)
					}
					if sticky := a.Name() != "range" && a.Name() != "roundrobin"; sticky {
						top.assertBest(t, a, out)
					}
					if t.Failed() {
						return
					}
					top.take(out)
					top.change(rng)
				}
			})
		})
	}
}

// assign has a assign, and checks what holds for each single assignment.
func assign(t *testing.T, rng *rand.Rand, a group.Assignor, top *topology) map[string][]kafka.TopicPartition {
	t.Helper()
	before := top.clone()
	out := group.Assign(a, top.members, top.partitions)
	if !reflect.DeepEqual(top, before) {
		t.Errorf("%s has changed what it was given:\n%v was\n%v", a.Name(), top, before)
	}
	again := top.shuffled(rng)
	if other := group.Assign(a, again.members, again.partitions); !maps.EqualFunc(out, other, slices.Equal[[]kafka.TopicPartition]) {
		t.Errorf("%s: %v, and in another order %v\n%v", a.Name(), out, other, top)
	}
	if a.Name() == "sticky" {
		said := top.inUserData()
		if other := group.Assign(a, said.members, said.partitions); !same(out, other) {
			t.Errorf("%v, and by user data %v\n%v", out, other, top)
		}
	}
	top.assertProper(t, a, out)
	return out
}

// assertProper fails if a partition goes to somebody to whom it must not, or to nobody without need.
func (top *topology) assertProper(t *testing.T, a group.Assignor, out map[string][]kafka.TopicPartition) {
	t.Helper()
	getter := map[kafka.TopicPartition]int{}
	known := 0
	for i, m := range top.members {
		if _, ok := out[m.ID]; ok {
			known++
		}
		for _, tp := range out[m.ID] {
			if o, ok := getter[tp]; ok {
				t.Errorf("%s: %v goes to %s and %s\n%v", a.Name(), tp, top.members[o].ID, m.ID, top)
			}
			getter[tp] = i
			if tp.Partition < 0 || tp.Partition >= top.partitions[tp.Topic] || !slices.Contains(m.Topics, tp.Topic) {
				t.Errorf("%s: %v goes to %s\n%v", a.Name(), tp, m.ID, top)
			}
		}
	}
	if known != len(out) {
		t.Errorf("%s: somebody unknown gets something: %v\n%v", a.Name(), out, top)
	}
	for _, it := range top.items() {
		to, given := getter[it.tp]
		switch {
		case !given && (!a.Cooperative() || it.owner == nobody && !it.contested):
			t.Errorf("%s: %v goes to nobody\n%v%v", a.Name(), it.tp, top, out)
		case given && a.Cooperative() && it.owner != nobody && it.owner != to:
			t.Errorf("%s: %v goes to %s, %s still has it\n%v", a.Name(), it.tp, top.members[to].ID, top.members[it.owner].ID, top)
		}
	}
}

// settle goes on from a first round: in the second all are given what was held back and nobody gives up anything, in the third nothing changes.
func settle(t *testing.T, rng *rand.Rand, a group.Assignor, top *topology, first map[string][]kafka.TopicPartition) map[string][]kafka.TopicPartition {
	t.Helper()
	next := top.clone()
	next.take(first)
	second := assign(t, rng, a, next)
	for id, had := range first {
		for _, tp := range had {
			if !slices.Contains(second[id], tp) {
				t.Errorf("%v is taken from %s again\n%v%v", tp, id, top, second)
			}
		}
	}
	n := 0
	for _, list := range second {
		n += len(list)
	}
	if items := top.items(); n != len(items) {
		t.Errorf("after the second round %d of %d partitions are assigned\n%v%v", n, len(items), top, second)
	}
	next.take(second)
	if third := assign(t, rng, a, next); !same(second, third) {
		t.Errorf("the third round changes %v to %v\n%v", second, third, top)
	}
	return second
}

// In small groups the sticky ones are compared with all assignments there are, and in uniform ones with the formula: the oracle has no say.
func TestStickyIsBestOfAll(t *testing.T) {
	eachSeed(t, func(t *testing.T, rng *rand.Rand) {
		top := randomTopology(rng)
		top.own(rng)
		items := top.items()
		got := top.reached(items, group.Assign(group.Sticky(), top.members, top.partitions))
		if fewEnough(items) {
			if want := tryAll(items, len(top.members)); got != want {
				t.Errorf("%+v, the best of all is %+v\n%v", got, want, top)
			}
		}
		if top.uniform {
			if want := evenScore(items, len(top.members)); got != want {
				t.Errorf("%+v, by the formula %+v\n%v", got, want, top)
			}
		}
	})
}

// A group without members gets nothing.
func TestAssignToNobody(t *testing.T) {
	for _, a := range builtIn() {
		t.Run(a.Name(), func(t *testing.T) {
			defer func() {
				if r := recover(); r != nil {
					t.Error(r)
				}
			}()
			if out := group.Assign(a, nil, map[string]int32{"t0": 3}); len(out) != 0 {
				t.Error(out)
			}
		})
	}
}

// shared gives everything to everybody but those who own something.
type shared struct{}

func (shared) Name() string      { return "shared" }
func (shared) Cooperative() bool { return true }

func (shared) Assign(members []group.Member, partitions map[string]int32) map[string][]kafka.TopicPartition {
	out := map[string][]kafka.TopicPartition{}
	for _, m := range members {
		for t, n := range partitions {
			for p := range n {
				if len(m.Owned) == 0 || m.ID == "keeps" {
					out[m.ID] = append(out[m.ID], kafka.TopicPartition{Topic: t, Partition: p})
				}
			}
		}
	}
	return out
}

// An assignor may give a partition to several members. In a cooperative group they get it at once beside an owner that keeps it, and none of them gets it before its owner has given it up.
func TestAssignShared(t *testing.T) {
	members := func(owner string) []group.Member {
		return []group.Member{
			{ID: owner, Topics: []string{"t0"}, Owned: tps("t0-1"), Generation: 3},
			{ID: "x", Topics: []string{"t0"}}, {ID: "y", Topics: []string{"t0"}},
		}
	}
	for owner, want := range map[string]map[string][]kafka.TopicPartition{
		"keeps": {"keeps": tps("t0-0 t0-1"), "x": tps("t0-0 t0-1"), "y": tps("t0-0 t0-1")},
		"gives": {"x": tps("t0-0"), "y": tps("t0-0")},
	} {
		if got := group.Assign(shared{}, members(owner), map[string]int32{"t0": 2}); !same(got, want) {
			t.Errorf("%s: %v, want %v", owner, got, want)
		}
	}
}
