package group_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/runnelmq/runnel/group"
)

// large is a group in which every member subscribes to all topics, and which has settled.
func large(a group.Assignor, members, topics, partitions int) *topology {
	top := &topology{partitions: map[string]int32{}}
	for t := range topics {
		top.partitions[fmt.Sprint("t", t)] = int32(partitions)
	}
	for i := range members {
		m := group.Member{ID: fmt.Sprintf("m%04d", i), Topics: slices.Sorted(maps.Keys(top.partitions)), Generation: -1}
		top.members = append(top.members, m)
	}
	top.take(group.Assign(a, top.members, top.partitions))
	return top
}

// Ways in which subscriptions are not the same.
var differences = []struct {
	name string
	of   func(rng *rand.Rand, i int, all []string) []string
}{
	{"uniform", func(_ *rand.Rand, _ int, all []string) []string { return all }},
	{"all but one", func(_ *rand.Rand, i int, all []string) []string {
		return slices.Delete(slices.Clone(all), i%len(all), i%len(all)+1)
	}},
	{"chain", func(_ *rand.Rand, i int, all []string) []string { // neighbours share a topic
		return []string{all[i%len(all)], all[(i+1)%len(all)]}
	}},
	{"few", func(rng *rand.Rand, _ int, all []string) []string { // most like the first topics
		topics := []string{all[0]}
		for range 2 {
			topics = append(topics, all[min(rng.IntN(len(all)), rng.IntN(len(all)))])
		}
		return topics
	}},
}

// What a leader needs for one assignment: when nothing has changed, when a tenth of the members has left, when all are new, and when partitions are owned by anybody.
func BenchmarkAssign(b *testing.B) {
	for _, members := range []int{100, 1000} {
		for _, d := range differences {
			for _, a := range builtIn() {
				rng := rand.New(rand.NewPCG(1, 1))
				top := large(a, members, 10, 100)
				for i := range top.members {
					top.members[i].Topics = d.of(rng, i, top.members[i].Topics)
				}
				mixed := top.clone() // settled when all subscribed to all
				for i := range mixed.members {
					mixed.members[i].Owned = top.members[rng.IntN(members)].Owned
				}
				top.take(group.Assign(a, top.members, top.partitions))
				left := top.clone()
				left.members = left.members[members/10:]
				fresh := top.clone()
				for i := range fresh.members {
					fresh.members[i].Owned = nil
				}
				for _, c := range []struct {
					name string
					*topology
				}{{"same", top}, {"left", left}, {"fresh", fresh}, {"mixed", mixed}} {
					b.Run(fmt.Sprintf("members=%d/%s/%s/%s", members, d.name, a.Name(), c.name), func(b *testing.B) {
						b.ReportAllocs()
						for b.Loop() {
							group.Assign(a, c.members, c.partitions)
						}
					})
				}
			}
		}
	}
}
