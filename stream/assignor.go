package stream

import "github.com/runnelmq/runnel/group"

// Assignor distributes partitions among the members of a group.
type Assignor = group.Assignor

// GroupMember is what an Assignor knows of a member.
type GroupMember = group.Member

// RangeAssignor gives each subscriber of a topic a run of its partitions (Kafka's RangeAssignor).
func RangeAssignor() Assignor { return group.Range() }

// RoundRobinAssignor deals all partitions to the members in turn (Kafka's RoundRobinAssignor).
func RoundRobinAssignor() Assignor { return group.RoundRobin() }

// StickyAssignor gives each member as many partitions as every other, and moves as few as that takes (Kafka's StickyAssignor).
func StickyAssignor() Assignor { return group.Sticky() }

// CooperativeStickyAssignor is StickyAssignor in groups whose members keep what they have during a rebalance, and give up only what goes to others (Kafka's CooperativeStickyAssignor). It is the
// default.
func CooperativeStickyAssignor() Assignor { return group.CooperativeSticky() }
