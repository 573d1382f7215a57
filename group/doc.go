// Package group decides who owns which partition in which generation: Kafka's classic group protocol as a coordinator inside the process, and the
// assignors that its consumers use.
//
// The package is exported for reading. It carries no promise of compatibility: programs use package stream.
//
//	          first Join                    all have joined, or time is up
//	Empty ───────────────▶ PreparingRebalance ──────────────────────────▶ CompletingRebalance
//	  ▲                      ▲       ▲   │                                        │
//	  │ nobody is left       │       │   │ nobody is left                         │ the leader has sent the assignment
//	  └──────────────────────┼───────┼───┘                                        ▼
//	                         │       └──────────────────────────────────────── Stable
//	                         │        a member joins, leaves, or changes
//	                         └─── and Dead when the group is deleted
//
// A member joins with the names of the assignors that it knows and what it subscribes to. When all members have joined, the generation rises by one, the
// assignor that most of them prefer among those that all know is chosen, and one of the members, the leader, gets what all of them said. It computes the
// assignment and sends it with its Sync; the other members get theirs as the answer to their own, which may come with their Join. What members say and get passes through as bytes,
// so members may be of any kind; the coordinator looks into it only to see whether a static member that comes back subscribes to the same.
//
// Native members live in this process. They are told of a rebalance at once and send no heartbeats; foreign ones, which reach the coordinator by a
// protocol, hear of it as the answer to a heartbeat and are dropped when none comes for the session timeout.
//
// Invariants
//
//   - A generation and a member id together fence: nothing is accepted from a member that is not in the group, or of another generation.
//   - Generations of a group rise, also across restarts: the group is written, durably, before any member gets its assignment.
//   - A rebalance ends no later than the greatest rebalance timeout of the members after it began; who has not joined by then is out, unless it is static.
//   - No callback runs with a lock held; each runs once.
package group
