package group

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/runnelmq/runnel/internal/kafka"
)

// Member is what an assignor knows of a member.
type Member struct {
	ID         string
	InstanceID string // of a static member
	Topics     []string
	UserData   []byte
	// Owned is what the member owns, since it got it in this generation; -1 if it did not say which.
	Owned      []kafka.TopicPartition
	Generation int32
}

// Assignor distributes the partitions of topics among the members of a group (ConsumerPartitionAssignor). One of the members, the leader, calls Assign for all of them.
type Assignor interface {
	// Name is what members agree on: the same for all members that may use it together.
	Name() string
	// Cooperative says whether members keep what they own during a rebalance and give up only what goes to somebody else (KIP-429). If not, they give up everything before.
	// What a member of a cooperative group still owns, and another is to get, is given to nobody at first: a second rebalance, when it has been given up, hands it over.
	Cooperative() bool
	// Assign returns what each member, by id, is to own. partitions has the number of partitions of every topic that anybody subscribes to and that is there.
	// It may give a partition to several members: order is then their affair, and so is what they commit. None of them is said to own it then.
	Assign(members []Member, partitions map[string]int32) map[string][]kafka.TopicPartition
}

// userDater is an assignor whose members say in their user data what they owned, or since when.
type userDater interface {
	userData(owned []kafka.TopicPartition, generation int32) []byte
	// claim reads it, for a member that does not say so itself.
	claim(m *Member)
}

// Assign has a compute the assignment, and takes out what must be given up first.
func Assign(a Assignor, members []Member, partitions map[string]int32) map[string][]kafka.TopicPartition {
	members = slices.Clone(members)
	sortMembers(members)
	if u, ok := a.(userDater); ok {
		for i := range members {
			u.claim(&members[i])
		}
	}
	owners := dropConflicts(members, partitions)
	out := a.Assign(members, partitions)
	if !a.Cooperative() {
		return out
	}
	for id, tps := range out {
		out[id] = slices.DeleteFunc(slices.Clone(tps), func(tp kafka.TopicPartition) bool {
			givesUp := func(owner string) bool { return !slices.Contains(out[owner], tp) }
			return !slices.Contains(owners[tp], id) && slices.ContainsFunc(owners[tp], givesUp)
		})
	}
	return out
}

// sortMembers puts static members first, by instance id, then the others by member id.
func sortMembers(members []Member) {
	slices.SortFunc(members, func(a, b Member) int {
		if a.InstanceID != "" && b.InstanceID != "" {
			return cmp.Or(strings.Compare(a.InstanceID, b.InstanceID), strings.Compare(a.ID, b.ID))
		}
		if (a.InstanceID != "") != (b.InstanceID != "") {
			if a.InstanceID != "" {
				return -1
			}
			return 1
		}
		return strings.Compare(a.ID, b.ID)
	})
}

// dropConflicts leaves each partition with one owner: the one of the highest generation. Of several of the same generation none has a claim, nor has anybody on what is
// not there or not subscribed to. It returns who has what at this moment, several or not.
func dropConflicts(members []Member, partitions map[string]int32) (owners map[kafka.TopicPartition][]string) {
	claims := map[kafka.TopicPartition][]string{} // of the highest generation
	since := map[kafka.TopicPartition]int32{}
	for _, m := range members {
		for _, tp := range m.Owned {
			switch {
			case claims[tp] == nil || m.Generation > since[tp]:
				claims[tp], since[tp] = []string{m.ID}, m.Generation
			case m.Generation == since[tp] && !slices.Contains(claims[tp], m.ID):
				claims[tp] = append(claims[tp], m.ID)
			}
		}
	}
	owners = map[kafka.TopicPartition][]string{}
	for i := range members {
		m := &members[i]
		var owned []kafka.TopicPartition
		for _, tp := range m.Owned {
			if tp.Partition < 0 || tp.Partition >= partitions[tp.Topic] || !slices.Contains(m.Topics, tp.Topic) ||
				!slices.Contains(claims[tp], m.ID) || slices.Contains(owners[tp], m.ID) {
				continue
			}
			owners[tp] = append(owners[tp], m.ID)
			if len(claims[tp]) == 1 {
				owned = append(owned, tp)
			}
		}
		m.Owned = owned
	}
	return owners
}

// subscribers returns, for each topic that is there, the members that subscribe to it, by number.
func subscribers(members []Member, partitions map[string]int32) map[string][]int {
	out := map[string][]int{}
	for i, m := range members {
		for t := range toSet(m.Topics) {
			if partitions[t] > 0 {
				out[t] = append(out[t], i)
			}
		}
	}
	return out
}

func toSet(topics []string) map[string]bool {
	s := make(map[string]bool, len(topics))
	for _, t := range topics {
		s[t] = true
	}
	return s
}

func sortedTopics[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// empty returns an assignment of nothing to everybody.
func empty(members []Member) map[string][]kafka.TopicPartition {
	out := make(map[string][]kafka.TopicPartition, len(members))
	for _, m := range members {
		out[m.ID] = nil
	}
	return out
}

// Range returns Kafka's RangeAssignor: the partitions of each topic are cut into runs, one for each subscriber, and the first members get one more where they do not come out even.
func Range() Assignor { return ranges{} }

type ranges struct{}

func (ranges) Name() string      { return "range" }
func (ranges) Cooperative() bool { return false }

func (ranges) Assign(members []Member, partitions map[string]int32) map[string][]kafka.TopicPartition {
	out := empty(members)
	subs := subscribers(members, partitions)
	for _, topic := range sortedTopics(subs) {
		ms := subs[topic]
		n, each := partitions[topic], partitions[topic]/int32(len(ms))
		next := int32(0)
		for i, m := range ms {
			take := each
			if int32(i) < n%int32(len(ms)) {
				take++
			}
			id := members[m].ID
			for range take {
				out[id] = append(out[id], kafka.TopicPartition{Topic: topic, Partition: next})
				next++
			}
		}
	}
	return out
}

// RoundRobin returns Kafka's RoundRobinAssignor: all partitions, by topic and number, are dealt to the members in turn; who does not subscribe to a topic is passed over.
func RoundRobin() Assignor { return roundRobin{} }

type roundRobin struct{}

func (roundRobin) Name() string      { return "roundrobin" }
func (roundRobin) Cooperative() bool { return false }

func (roundRobin) Assign(members []Member, partitions map[string]int32) map[string][]kafka.TopicPartition {
	out := empty(members)
	subs := subscribers(members, partitions)
	turn := 0
	for _, topic := range sortedTopics(subs) {
		for p := range partitions[topic] {
			for !slices.Contains(subs[topic], turn%len(members)) {
				turn++
			}
			id := members[turn%len(members)].ID
			out[id] = append(out[id], kafka.TopicPartition{Topic: topic, Partition: p})
			turn++
		}
	}
	return out
}
