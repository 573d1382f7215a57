package group_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/runnelmq/runnel/group"
	"github.com/runnelmq/runnel/internal/kafka"
)

// nobody owns a partition, or more than one member says so.
const nobody = -1

// item is a partition that can be assigned: to whom, and who owned it.
type item struct {
	tp        kafka.TopicPartition
	subs      []int
	owner     int
	contested bool // several say so in the highest generation
}

// cost is 1 if m's having it takes it from its owner.
func (it *item) cost(m int) int {
	if it.owner == nobody || it.owner == m {
		return 0
	}
	return 1
}

// items lists the partitions that can be assigned. The owner is who says so in the highest generation, if it is one member and it subscribes.
func (top *topology) items() (items []item) {
	for t, n := range top.partitions {
		for p := range n {
			it := item{tp: kafka.TopicPartition{Topic: t, Partition: p}, owner: nobody}
			highest := int32(math.MinInt32)
			for i, m := range top.members {
				if slices.Contains(m.Topics, t) {
					it.subs = append(it.subs, i)
				}
				if !slices.Contains(m.Owned, it.tp) {
					continue
				}
				switch {
				case m.Generation > highest:
					it.owner, highest, it.contested = i, m.Generation, false
				case m.Generation == highest:
					it.owner, it.contested = nobody, true
				}
			}
			if it.owner != nobody && !slices.Contains(it.subs, it.owner) {
				it.owner = nobody
			}
			if len(it.subs) > 0 {
				items = append(items, it)
			}
		}
	}
	slices.SortFunc(items, func(a, b item) int { return compareTPs(a.tp, b.tp) })
	return items
}

// score is what an assignment is measured by: the sum of the squared loads, then the number of partitions that were taken from their owners.
type score struct{ squares, moves int }

func scoreOf(items []item, holders []int, members int) (s score) {
	loads := make([]int, members)
	for i, m := range holders {
		loads[m]++
		s.moves += items[i].cost(m)
	}
	for _, l := range loads {
		s.squares += l * l
	}
	return s
}

// best is the best score there is. Partitions come one by one, each along the shortest chain: it goes to a member, which hands another one on, and so on to the member that ends up with one more.
// What a chain adds to the squares weighs more than all moves. (Successive shortest paths; each prefix is the best for its partitions, so no cycle is negative.)
func best(items []item, members int) score {
	holders := make([]int, 0, len(items))
	held := make([][]int, members) // items by member
	weight := len(items) + 1
	for i := range items {
		const far = math.MaxInt / 2
		dist, from, via := make([]int, members), make([]int, members), make([]int, members)
		for m := range dist {
			dist[m], from[m], via[m] = far, nobody, i
		}
		for _, m := range items[i].subs {
			dist[m] = items[i].cost(m)
		}
		for again := true; again; {
			again = false
			for m := range members {
				if dist[m] == far {
					continue
				}
				for _, j := range held[m] {
					for _, to := range items[j].subs {
						if d := dist[m] - items[j].cost(m) + items[j].cost(to); d < dist[to] {
							dist[to], from[to], via[to] = d, m, j
							again = true
						}
					}
				}
			}
		}
		end, least := nobody, far
		for m := range members {
			if d := dist[m] + weight*(2*len(held[m])+1); dist[m] < far && d < least {
				end, least = m, d
			}
		}
		holders = append(holders, nobody)
		for m := end; m != nobody; m = from[m] {
			holders[via[m]] = m
		}
		for m := range held {
			held[m] = held[m][:0]
		}
		for j, m := range holders {
			held[m] = append(held[m], j)
		}
	}
	return scoreOf(items, holders, members)
}

// tryAll is the best score among all assignments.
func tryAll(items []item, members int) score {
	holders := make([]int, len(items))
	found := score{squares: math.MaxInt}
	var try func(i int)
	try = func(i int) {
		if i < len(items) {
			for _, m := range items[i].subs {
				holders[i] = m
				try(i + 1)
			}
			return
		}
		s := scoreOf(items, holders, members)
		if s.squares < found.squares || s.squares == found.squares && s.moves < found.moves {
			found = s
		}
	}
	try(0)
	return found
}

// fewEnough reports whether all assignments can be tried.
func fewEnough(items []item) bool {
	n := 1
	for _, it := range items {
		if n *= len(it.subs); n > 5000 {
			return false
		}
	}
	return true
}

// evenScore is the best score if all subscribe to the same: loads differ by one at most, each member keeps what it owned up to its share, and as many as there are greater shares one more.
func evenScore(items []item, members int) (s score) {
	each, more := len(items)/members, len(items)%members
	s.squares = (members-more)*each*each + more*(each+1)*(each+1)
	owned := make([]int, members)
	for _, it := range items {
		if it.owner != nobody {
			owned[it.owner]++
			s.moves++
		}
	}
	for _, n := range owned {
		s.moves -= min(n, each)
		if n > each && more > 0 {
			s.moves--
			more--
		}
	}
	return s
}

// The oracle itself is right: in small groups it agrees with trying out everything, and in uniform ones with the formula.
func TestOracle(t *testing.T) {
	tried, uniform := 0, 0
	eachSeed(t, func(t *testing.T, rng *rand.Rand) {
		top := randomTopology(rng)
		top.own(rng)
		items := top.items()
		got := best(items, len(top.members))
		if fewEnough(items) {
			tried++
			if want := tryAll(items, len(top.members)); got != want {
				t.Errorf("%+v, of all %+v\n%v", got, want, top)
			}
		}
		if top.uniform {
			uniform++
			if want := evenScore(items, len(top.members)); got != want {
				t.Errorf("%+v, by the formula %+v\n%v", got, want, top)
			}
		}
	})
	if oneSeed() == 0 && *assignments > 100 && (tried < 20 || uniform < 20) {
		t.Errorf("only %d of all tried, %d uniform", tried, uniform)
	}
}

// reached is the score of an assignment that gives out all partitions.
func (top *topology) reached(items []item, out map[string][]kafka.TopicPartition) score {
	holders := make([]int, len(items))
	for m, member := range top.members {
		for _, tp := range out[member.ID] {
			i, _ := slices.BinarySearchFunc(items, tp, func(it item, tp kafka.TopicPartition) int { return compareTPs(it.tp, tp) })
			holders[i] = m
		}
	}
	return scoreOf(items, holders, len(top.members))
}

// assertBest fails unless the assignment is the best there is.
func (top *topology) assertBest(t *testing.T, a group.Assignor, out map[string][]kafka.TopicPartition) {
	t.Helper()
	items := top.items()
	want := best(items, len(top.members))
	if got := top.reached(items, out); got != want {
		t.Errorf("%s: %+v, the best is %+v\n%v%v", a.Name(), got, want, top, out)
	}
}
