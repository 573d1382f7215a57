package group

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/runnelmq/runnel/internal/kafka"
)

// Sticky returns an assignor that gives each member as many partitions as every other, as far as subscriptions allow, and moves as few as that takes (StickyAssignor).
func Sticky() Assignor { return sticky{} }

// CooperativeSticky returns Sticky for a cooperative group (CooperativeStickyAssignor).
func CooperativeSticky() Assignor { return cooperativeSticky{} }

type sticky struct{}

func (sticky) Name() string      { return "sticky" }
func (sticky) Cooperative() bool { return false }

func (sticky) Assign(members []Member, partitions map[string]int32) map[string][]kafka.TopicPartition {
	if len(members) == 0 {
		return empty(members)
	}
	b := newBalance(members, partitions)
	b.keep()
	if b.uniform() {
		b.trim()
		b.place()
	} else {
		b.place()
		b.level()
		b.improve()
	}
	return b.assignment(members)
}

// userData is what Kafka's assignor of this name has its members say: what they owned, and since when.
func (sticky) userData(owned []kafka.TopicPartition, generation int32) []byte {
	b := appendPartitions(nil, owned)
	return binary.BigEndian.AppendUint32(b, uint32(generation))
}

func (sticky) claim(m *Member) {
	if len(m.Owned) > 0 || len(m.UserData) == 0 {
		return
	}
	r := reader{b: m.UserData}
	owned, generation := r.partitions(), int32(-1)
	if len(r.b) >= 4 {
		generation = r.int32()
	}
	if !r.bad { // else it is no claim
		m.Owned, m.Generation = owned, generation
	}
}

type cooperativeSticky struct{}

func (cooperativeSticky) Name() string      { return "cooperative-sticky" }
func (cooperativeSticky) Cooperative() bool { return true }

// userData is the generation, which subscriptions before version 2 do not have.
func (cooperativeSticky) userData(_ []kafka.TopicPartition, generation int32) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(generation))
}

func (cooperativeSticky) claim(m *Member) {
	if r := (reader{b: m.UserData}); m.Generation < 0 && len(r.b) == 4 {
		m.Generation = r.int32()
	}
}

func (cooperativeSticky) Assign(members []Member, partitions map[string]int32) map[string][]kafka.TopicPartition {
	return sticky{}.Assign(members, partitions)
}

// balance is an assignment in the making. Members and topics are numbered.
type balance struct {
	topics []string
	count  []int32   // partitions of each topic
	subs   [][]int   // subscribers of each topic
	owned  [][]place // by member: what it owns by its own word
	home   [][]int   // by topic and partition: whose it was, -1: nobody's
	held   [][]place // by member: what it is to have
	taken  [][]bool  // by topic and partition
}

// place is a partition of a numbered topic.
type place struct{ topic, partition int }

func newBalance(members []Member, partitions map[string]int32) *balance {
	b := &balance{held: make([][]place, len(members)), owned: make([][]place, len(members))}
	subs := subscribers(members, partitions)
	number := map[string]int{}
	for _, t := range sortedTopics(subs) {
		number[t] = len(b.topics)
		b.topics = append(b.topics, t)
		b.count = append(b.count, partitions[t])
		b.subs = append(b.subs, subs[t])
		home := make([]int, partitions[t])
		for i := range home {
			home[i] = -1
		}
		b.home = append(b.home, home)
		b.taken = append(b.taken, make([]bool, partitions[t]))
	}
	for i, m := range members {
		for _, tp := range m.Owned {
			p := place{number[tp.Topic], int(tp.Partition)}
			b.owned[i] = append(b.owned[i], p)
			b.home[p.topic][p.partition] = i
		}
		slices.SortFunc(b.owned[i], comparePlaces)
	}
	return b
}

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
}

// uniform reports whether everybody subscribes to the same.
func (b *balance) uniform() bool {
	for _, s := range b.subs {
		if len(s) != len(b.held) {
			return false
		}
	}
	return true
}

func (b *balance) total() (n int) {
	for _, c := range b.count {
		n += int(c)
	}
	return n
}

// keep begins with what everybody owns.
func (b *balance) keep() {
	for i, ps := range b.owned {
		b.held[i] = slices.Clone(ps)
		for _, p := range ps {
			b.taken[p.topic][p.partition] = true
		}
	}
}

// trim takes from everybody what is above an equal share, where all subscribe to the same. Of those who may have one more, the ones that have most keep it.
func (b *balance) trim() {
	each, more := b.total()/len(b.held), b.total()%len(b.held)
	for i := range b.held {
		quota := each
		if more > 0 && len(b.held[i]) > each {
			quota++
			more--
		}
		for len(b.held[i]) > quota {
			last := b.held[i][len(b.held[i])-1]
			b.held[i] = b.held[i][:len(b.held[i])-1]
			b.taken[last.topic][last.partition] = false
		}
	}
}

// place gives what nobody has to the subscriber that has least.
func (b *balance) place() {
	for t := range b.topics {
		for p, taken := range b.taken[t] {
			if !taken {
				m := b.least(t)
				b.held[m] = append(b.held[m], place{t, p})
				b.taken[t][p] = true
			}
		}
	}
}

// least is the subscriber of a topic that has least.
func (b *balance) least(topic int) int {
	return slices.MinFunc(b.subs[topic], func(x, y int) int { return len(b.held[x]) - len(b.held[y]) })
}

// level moves partitions straight to subscribers that have two less, until there is none to move.
func (b *balance) level() {
	for moved := true; moved; {
		moved = false
		for a := range b.held {
			for i := len(b.held[a]) - 1; i >= 0; i-- {
				p := b.held[a][i]
				to := b.least(p.topic)
				if len(b.held[to])+1 < len(b.held[a]) {
					b.held[a] = slices.Delete(b.held[a], i, i+1)
					b.held[to] = append(b.held[to], p)
					moved = true
				}
			}
		}
	}
}

func (b *balance) assignment(members []Member) map[string][]kafka.TopicPartition {
	out := empty(members)
	for i, ps := range b.held {
		slices.SortFunc(ps, comparePlaces)
		for _, p := range ps {
			out[members[i].ID] = append(out[members[i].ID], kafka.TopicPartition{Topic: b.topics[p.topic], Partition: int32(p.partition)})
		}
	}
	return out
}
