package group

import (
	"fmt"
	"slices"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/sabotage"
)

// Identity says who a request is from.
type Identity struct {
	Group      string
	MemberID   string
	InstanceID string // "" if it is not said
	Generation int32
}

// SyncRequest asks for a member's assignment (SyncGroup).
type SyncRequest struct {
	Identity
	ProtocolType, Protocol string            // "" if they are not said
	Assignments            map[string][]byte // from the leader, by member id
}

// Synced answers a SyncRequest.
type Synced struct {
	Err                    error
	ProtocolType, Protocol string
	Assignment             []byte
}

// Sync hands over the leader's assignment and gets the member's own. done is called once, when the leader has sent it or with an error.
//
// Errors: kafka.ErrUnknownMember, ErrIllegalGeneration, ErrFencedInstance, ErrInconsistentProtocol, ErrRebalance (join again), ErrMetaFailed (join again), ErrClosed.
func (c *Coordinator) Sync(r SyncRequest, done func(Synced)) {
	g, m, err := c.member(r.Identity)
	if err != nil {
		done(Synced{Err: err})
		return
	}
	defer g.unlock()
	answer := func(s Synced) { g.after = append(g.after, func() { done(s) }) }
	if err := g.sameProtocol(&r); err != nil {
		answer(Synced{Err: err})
		return
	}
	switch g.state {
	case PreparingRebalance:
		answer(Synced{Err: kafka.ErrRebalance})
	case Stable:
		m.syncing, m.synced = done, true
		g.giveAssignment(m)
		g.stopTimer()
		g.alive(m)
	case CompletingRebalance:
		g.answerSync(m, Synced{Err: kafka.ErrRebalance}) // an earlier one, which nobody waits for any more
		m.syncing, m.synced = done, true
		m.session.cancel()
		if m.id == g.leader {
			g.settle(r.Assignments)
		}
	default:
		answer(Synced{Err: kafka.ErrUnknownMember})
	}
}

func (g *group) sameProtocol(r *SyncRequest) error {
	if r.ProtocolType != "" && r.ProtocolType != g.kind || r.Protocol != "" && r.Protocol != g.proto {
		return fmt.Errorf("%w: %s %s, the group has %s %s", kafka.ErrInconsistentProtocol, r.ProtocolType, r.Protocol, g.kind, g.proto)
	}
	return nil
}

// settle makes the assignment that of the generation, durably, and gives it to those who wait.
func (g *group) settle(assignments map[string][]byte) {
	for _, m := range g.members {
		m.assignment = assignments[m.id]
	}
	if err := g.save(true); err != nil {
		for _, m := range g.members {
			g.answerSync(m, Synced{Err: err})
		}
		g.prepare()
		return
	}
	g.state, g.settled = Stable, g.number
	for _, m := range g.members {
		if m.syncing != nil {
			g.giveAssignment(m)
			g.alive(m)
		}
	}
	g.stopTimer()
}

// giveAssignment answers a Sync with the assignment of the generation.
func (g *group) giveAssignment(m *member) {
	m.last = g.number
	g.answerSync(m, Synced{ProtocolType: g.kind, Protocol: g.proto, Assignment: m.assignment})
}

// stopTimer stops the timer of a stable group if everybody has got its assignment.
func (g *group) stopTimer() {
	if !slices.ContainsFunc(g.members, func(m *member) bool { return !m.synced }) {
		g.timer.cancel()
	}
}

// dropUnsynced takes out the members that have joined the generation and not asked for their assignment, and begins another one if there are any or the leader is missing.
func (g *group) dropUnsynced() {
	n := len(g.members)
	for _, m := range slices.Clone(g.members) {
		if !m.synced && m.instance == "" {
			g.c.o.Logger.Info("member has not asked for its assignment in time", "group", g.name, "member", m.id)
			g.remove(m, kafka.ErrUnknownMember)
		}
	}
	if len(g.members) < n || g.state == CompletingRebalance {
		g.prepare()
	}
}

// Heartbeat says that a foreign member is alive, and asks for any member whether the generation goes on: kafka.ErrRebalance means that it has to join again.
//
// Errors: kafka.ErrRebalance, ErrUnknownMember, ErrIllegalGeneration, ErrFencedInstance, ErrClosed.
func (c *Coordinator) Heartbeat(id Identity) error {
	g, m, err := c.member(id)
	if err != nil {
		return err
	}
	defer g.unlock()
	g.alive(m)
	if g.state == PreparingRebalance {
		return kafka.ErrRebalance
	}
	return nil
}

// member finds who a request is from; without an error the group's lock is held.
func (c *Coordinator) member(id Identity) (*group, *member, error) {
	g, err := c.enter(id.Group, false)
	if err != nil {
		return nil, nil, err
	}
	if g == nil {
		return nil, nil, fmt.Errorf("%w: %s", kafka.ErrUnknownMember, id.MemberID)
	}
	m, err := g.known(id)
	if err != nil {
		g.unlock()
		return nil, nil, err
	}
	return g, m, nil
}

// known checks member and generation.
func (g *group) known(id Identity) (*member, error) {
	if s := g.byInstance(id.InstanceID); s != nil && s.id != id.MemberID {
		return nil, fencedInstance(id.InstanceID)
	}
	m := g.byID(id.MemberID)
	if m == nil || id.InstanceID != "" && m.instance != id.InstanceID {
		return nil, fmt.Errorf("%w: %s", kafka.ErrUnknownMember, id.MemberID)
	}
	if (id.Generation != g.number || m.fresh) && !sabotage.On(sabotage.AnyGeneration) {
		return nil, fmt.Errorf("%w: %d, the group is in generation %d", kafka.ErrIllegalGeneration, id.Generation, g.number)
	}
	return m, nil
}

// Fence calls fn if the member may commit at this moment; until fn has returned nothing else happens in the group. Without a member id and with generation -1 it is for a group without members.
//
// A generation is over for commits when the next one has its assignment for native members, who may still be at work on what they own, and when the next one begins for foreign ones, as in Kafka.
//
// Errors: fn's; kafka.ErrUnknownMember, ErrIllegalGeneration, ErrFencedInstance, ErrRebalance (the next generation has begun, and its assignment is not there), ErrClosed.
func (c *Coordinator) Fence(id Identity, fn func() error) error {
	if id.MemberID == "" && id.Generation < 0 {
		g, err := c.enter(id.Group, true)
		if err != nil {
			return err
		}
		defer g.unlock()
		if len(g.members) > 0 {
			return fmt.Errorf("%w: the group has members, and this is none", kafka.ErrUnknownMember)
		}
		defer g.release()
		return fn()
	}
	g, err := c.enter(id.Group, false)
	if err != nil {
		return err
	}
	if g == nil {
		return fmt.Errorf("%w: %s", kafka.ErrUnknownMember, id.MemberID)
	}
	defer g.unlock()
	if m := g.byID(id.MemberID); m != nil && m.native && m.last == id.Generation && m.last == g.settled {
		return fn()
	}
	m, err := g.known(id)
	if err != nil {
		return err
	}
	if g.state == CompletingRebalance {
		return kafka.ErrRebalance
	}
	g.alive(m)
	return fn()
}
