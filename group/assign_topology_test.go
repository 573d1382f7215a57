package group_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/runnelmq/runnel/group"
	"github.com/runnelmq/runnel/internal/kafka"
)

var assignments = flag.Uint64("assignments", 500, "seeds of each random test of the assignors: 1 and so on; with -seed it is that one only")

// oneSeed is the flag -seed, which the tests inside the package share; 0 if it is not given.
func oneSeed() uint64 { return flag.Lookup("seed").Value.(flag.Getter).Get().(uint64) }

// eachSeed runs f with a source of chance for each seed, and names the seed of a failure.
func eachSeed(t *testing.T, f func(t *testing.T, rng *rand.Rand)) {
	first, last := uint64(1), *assignments
	if s := oneSeed(); s != 0 {
		first, last = s, s
	}
	for s := first; s <= last; s++ {
		t.Run(fmt.Sprintf("seed=%d", s), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("repeat with -seed %d", s)
				}
			}()
			f(t, rand.New(rand.NewPCG(s, 0)))
		})
	}
}

func builtIn() []group.Assignor {
	return []group.Assignor{group.Range(), group.RoundRobin(), group.Sticky(), group.CooperativeSticky()}
}

// topology is a group before a rebalance, and the topics that are there.
type topology struct {
	members    []group.Member
	partitions map[string]int32
	next       int // number of the next member
	uniform    bool
}

// randomTopology is of any size up to 12 members and 8 topics of 12 partitions, or small enough to try out every assignment.
func randomTopology(rng *rand.Rand) *topology {
	top := &topology{partitions: map[string]int32{}, uniform: rng.IntN(2) == 0}
	members, topics, partitions := 1+rng.IntN(12), 1+rng.IntN(8), 13
	if rng.IntN(3) == 0 {
		members, topics, partitions = 1+rng.IntN(4), 1+rng.IntN(3), 3
	}
	for i := range topics {
		top.partitions[fmt.Sprint("t", i)] = int32(rng.IntN(partitions))
	}
	for range members {
		top.join(rng)
	}
	return top
}

// join adds a member with an id that does not come last in order, one of four of them static.
func (top *topology) join(rng *rand.Rand) {
	m := group.Member{ID: fmt.Sprintf("%c%d", 'a'+rng.IntN(26), top.next), Generation: -1}
	if rng.IntN(4) == 0 {
		m.InstanceID = fmt.Sprintf("%c%d", 'A'+rng.IntN(26), top.next)
	}
	top.next++
	m.Topics = top.subscription(rng)
	if top.uniform && len(top.members) > 0 {
		m.Topics = slices.Clone(top.members[0].Topics)
	}
	top.members = append(top.members, m)
}

// subscription is a choice of topics; one may be named twice, and one may not be there.
func (top *topology) subscription(rng *rand.Rand) (topics []string) {
	for _, t := range slices.Sorted(maps.Keys(top.partitions)) {
		if rng.IntN(3) > 0 {
			topics = append(topics, t)
		}
	}
	if rng.IntN(6) == 0 {
		topics = append(topics, "gone")
	}
	if len(topics) > 0 && rng.IntN(6) == 0 {
		topics = append(topics, topics[0])
	}
	return topics
}

// own has the members say what they own: each partition of one, or whatever comes to their minds.
func (top *topology) own(rng *rand.Rand) {
	switch rng.IntN(3) {
	case 0:
		for _, t := range slices.Sorted(maps.Keys(top.partitions)) {
			for p := range top.partitions[t] {
				if m := &top.members[rng.IntN(len(top.members))]; rng.IntN(4) > 0 {
					m.Owned = append(m.Owned, kafka.TopicPartition{Topic: t, Partition: p})
					m.Generation = 7
				}
			}
		}
	case 1:
		for i := range top.members {
			m := &top.members[i]
			m.Generation = int32(rng.IntN(4)) - 1
			for range rng.IntN(12) {
				t := fmt.Sprint("t", rng.IntN(len(top.partitions)+1))
				m.Owned = append(m.Owned, kafka.TopicPartition{Topic: t, Partition: int32(rng.IntN(int(top.partitions[t])+3)) - 1})
			}
		}
	}
}

// change has members come and go, subscribe to something else, or own what they owned a generation before; topics grow, come and go.
func (top *topology) change(rng *rand.Rand) {
	for range 1 + rng.IntN(3) {
		switch rng.IntN(6) {
		case 0:
			top.join(rng)
		case 1:
			if len(top.members) > 1 {
				i := rng.IntN(len(top.members))
				top.members = slices.Delete(top.members, i, i+1)
			}
		case 2:
			topics := top.subscription(rng)
			top.members[rng.IntN(len(top.members))].Topics = topics
			for i := range top.members {
				if top.uniform {
					top.members[i].Topics = slices.Clone(topics)
				}
			}
		case 3:
			top.partitions[fmt.Sprint("t", rng.IntN(len(top.partitions)))] += int32(rng.IntN(4))
		case 4:
			top.partitions[fmt.Sprint("t", rng.IntN(len(top.partitions)))] = 0
		case 5:
			m := &top.members[rng.IntN(len(top.members))]
			if o := top.members[rng.IntN(len(top.members))]; len(o.Owned) > 0 {
				m.Owned = append(m.Owned, o.Owned[0])
				m.Generation -= int32(rng.IntN(2))
			}
		}
	}
}

// take gives the members what they were assigned, in a new generation.
func (top *topology) take(out map[string][]kafka.TopicPartition) {
	generation := int32(0)
	for _, m := range top.members {
		generation = max(generation, m.Generation+1)
	}
	for i := range top.members {
		m := &top.members[i]
		m.Owned, m.Generation = slices.Clone(out[m.ID]), generation
	}
}

func (top *topology) clone() *topology {
	c := *top
	c.members = slices.Clone(top.members)
	for i := range c.members {
		m := &c.members[i]
		m.Topics, m.Owned, m.UserData = slices.Clone(m.Topics), slices.Clone(m.Owned), slices.Clone(m.UserData)
	}
	c.partitions = maps.Clone(top.partitions)
	return &c
}

// shuffled is the same group in another order.
func (top *topology) shuffled(rng *rand.Rand) *topology {
	c := top.clone()
	rng.Shuffle(len(c.members), func(i, j int) { c.members[i], c.members[j] = c.members[j], c.members[i] })
	for _, m := range c.members {
		rng.Shuffle(len(m.Topics), func(i, j int) { m.Topics[i], m.Topics[j] = m.Topics[j], m.Topics[i] })
		rng.Shuffle(len(m.Owned), func(i, j int) { m.Owned[i], m.Owned[j] = m.Owned[j], m.Owned[i] })
	}
	return c
}

// inUserData is the same group of members of Kafka's sticky assignor, which say in their user data what they owned and give it up before they join.
func (top *topology) inUserData() *topology {
	c := top.clone()
	for i := range c.members {
		m := &c.members[i]
		m.UserData = group.NewSubscription(group.Sticky(), m.Topics, m.Owned, m.Generation).UserData
		m.Owned, m.Generation = nil, -1
	}
	return c
}

func (top *topology) String() string {
	var s strings.Builder
	fmt.Fprintln(&s, "topics", top.partitions)
	for _, m := range top.members {
		fmt.Fprintf(&s, "%s %q %v owns %v of %d\n", m.ID, m.InstanceID, m.Topics, m.Owned, m.Generation)
	}
	return s.String()
}

// tps reads "t0-1 t1-0", or the same with commas; "-" and nothing are none.
func tps(text string) (out []kafka.TopicPartition) {
	for _, f := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' }) {
		if at := strings.LastIndexByte(f, '-'); at > 0 {
			p, err := strconv.ParseInt(f[at+1:], 10, 32)
			if err != nil {
				panic(err)
			}
			out = append(out, kafka.TopicPartition{Topic: f[:at], Partition: int32(p)})
		}
	}
	return out
}

func compareTPs(a, b kafka.TopicPartition) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

func sorted(list []kafka.TopicPartition) []kafka.TopicPartition {
	return slices.SortedFunc(slices.Values(list), compareTPs)
}

// same reports whether everybody gets the same, in whatever order; nobody and nothing are the same.
func same(a, b map[string][]kafka.TopicPartition) bool {
	for _, ids := range []map[string][]kafka.TopicPartition{a, b} {
		for id := range ids {
			if !slices.Equal(sorted(a[id]), sorted(b[id])) {
				return false
			}
		}
	}
	return true
}
