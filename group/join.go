package group

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
)

// Protocol is an assignor that a member knows, and what it says to it.
type Protocol struct {
	Name     string
	Metadata []byte
}

// JoinRequest asks for membership in the next generation (JoinGroup). Its bytes are the coordinator's from then on.
type JoinRequest struct {
	Group            string
	MemberID         string // "" for a new member
	InstanceID       string // of a static member (KIP-345)
	ClientID, Host   string
	SessionTimeout   time.Duration // without a heartbeat
	RebalanceTimeout time.Duration // for each phase of a rebalance
	ProtocolType     string
	Protocols        []Protocol // in the order of preference
	// RequireMemberID: a new member that is not static gets kafka.ErrMemberIDRequired and the id to join with (version 4 and above).
	RequireMemberID bool
	// Synced, if it is set, is the member's Sync as well, unless it becomes the leader: it is called once with the assignment, or with an error, after done and if that had none.
	Synced func(Synced)
	// Notify makes the member a native one: it is called when the member has to join again, and when it is out of the group. It must not block, nor call back; Heartbeat says what
	// is the matter.
	Notify func()
}

// Joined answers a JoinRequest.
type Joined struct {
	Err          error
	MemberID     string
	Generation   int32 // -1 with an error
	ProtocolType string
	Protocol     string
	Leader       string
	Members      []JoinedMember // for the leader
	// SkipAssignment tells a leader that the assignment of this generation stands: it has come back as a static member.
	SkipAssignment bool
	// Since is what Options.Since was when the group got its first member.
	Since int64
}

// JoinedMember is what the leader is told of a member.
type JoinedMember struct {
	ID, InstanceID string
	Metadata       []byte
}

// Join joins a group, or joins it again, and returns the member's id, "" with an error. done is called once, when the generation begins or with an error, possibly before Join returns; the
// member need not be there any more by then.
//
// Errors: kafka.ErrInvalidGroup, ErrSessionTimeout, ErrInconsistentProtocol, ErrMemberIDRequired, ErrUnknownMember, ErrFencedInstance (with ErrFenced), ErrGroupFull, ErrMetaFailed, ErrClosed.
func (c *Coordinator) Join(r JoinRequest, done func(Joined)) (memberID string) {
	g, err := c.enter(r.Group, true)
	if err != nil {
		done(Joined{Err: err, MemberID: r.MemberID, Generation: -1})
		return ""
	}
	defer g.unlock()
	memberID, err = g.join(&r, done)
	if err != nil {
		j := Joined{Err: err, MemberID: r.MemberID, Generation: -1}
		g.after = append(g.after, func() { done(j) })
		g.release()
	}
	return memberID
}

// release lets an empty group go that nobody is about to join, once it is written.
func (g *group) release() {
	if g.state != Empty || len(g.members) > 0 || len(g.pending) > 0 {
		return
	}
	if g.unwritten {
		// Were this lost in the same process, the members would be back. At the start it may be: they are found to be gone once more.
		if err := g.save(!g.c.opening.Load()); err != nil {
			g.c.o.Logger.Warn("group", "group", g.name, "error", err) // it stays in memory, so that no generation comes twice
			return
		}
	}
	g.c.forget(g)
}

func (g *group) join(r *JoinRequest, done func(Joined)) (memberID string, err error) {
	if r.Notify == nil && (r.SessionTimeout < MinSessionTimeout || r.SessionTimeout > MaxSessionTimeout) {
		return "", fmt.Errorf("%w: %v is not between %v and %v", kafka.ErrSessionTimeout, r.SessionTimeout, MinSessionTimeout, MaxSessionTimeout)
	}
	m := g.byID(r.MemberID)
	static := g.byInstance(r.InstanceID)
	if static != nil && r.MemberID == "" {
		m = static // another life of it
	}
	if r.ProtocolType == "" || len(r.Protocols) == 0 || !g.agrees(r.ProtocolType, r.Protocols, m) {
		return "", fmt.Errorf("%w: %s %v", kafka.ErrInconsistentProtocol, r.ProtocolType, protocolNames(r.Protocols))
	}
	switch {
	case m != nil && m == static && r.MemberID == "":
		return g.comeBack(m, r, done), nil
	case m != nil && (m.instance == r.InstanceID || r.InstanceID == ""):
		g.rejoin(m, r, done)
		return m.id, nil
	case static != nil:
		return "", fencedInstance(r.InstanceID)
	case m != nil:
		return "", fmt.Errorf("%w: %s has no instance id %q", kafka.ErrUnknownMember, r.MemberID, r.InstanceID)
	}
	if err := g.admit(r); err != nil {
		return "", err
	}
	if a := g.pending[r.MemberID]; a != nil {
		a.cancel()
		delete(g.pending, r.MemberID)
	}
	g.add(r, done)
	return r.MemberID, nil
}

// admit checks that a member that is not in the group may come in, and gives it an id.
func (g *group) admit(r *JoinRequest) error {
	if r.MemberID != "" {
		if g.pending[r.MemberID] == nil {
			return fmt.Errorf("%w: %s", kafka.ErrUnknownMember, r.MemberID)
		}
		return nil
	}
	if n := g.c.o.MaxSize; n > 0 && len(g.members)+len(g.pending) >= n {
		return fmt.Errorf("%w: %d", kafka.ErrGroupFull, n)
	}
	prefix := r.ClientID
	if r.InstanceID != "" {
		prefix = r.InstanceID
	}
	if prefix == "" {
		prefix = g.name
	}
	r.MemberID = newID(prefix)
	if !r.RequireMemberID || r.InstanceID != "" {
		return nil
	}
	a := &alarm{}
	id := r.MemberID
	a.init(g.c.o.Wheel, g.locker(), func() {
		if g.pending[id] == a {
			delete(g.pending, id)
			g.tryComplete()
			g.release()
		}
	})
	a.set(r.SessionTimeout)
	g.pending[id] = a
	return fmt.Errorf("%w: %s", kafka.ErrMemberIDRequired, id)
}

func fencedInstance(instance string) error {
	return fmt.Errorf("%w: %w: %s", kafka.ErrFencedInstance, kafka.ErrFenced, instance)
}

func protocolNames(ps []Protocol) (names []string) {
	for _, p := range ps {
		names = append(names, p.Name)
	}
	return names
}

func (g *group) newMember(id, instance string) *member {
	m := &member{id: id, instance: instance, last: -1}
	m.session.init(g.c.o.Wheel, g.locker(), func() { g.expire(m) })
	return m
}

// add makes a new member.
func (g *group) add(r *JoinRequest, done func(Joined)) {
	m := g.newMember(r.MemberID, r.InstanceID)
	m.fresh = true
	if len(g.members) == 0 {
		g.kind, g.empty = r.ProtocolType, 0
		g.since = g.c.o.Since()
	}
	g.members = append(g.members, m)
	g.arrived = true
	m.take(r)
	m.joining = done
	if m.notify == nil {
		m.session.set(newMemberTimeout)
	}
	g.rebalance()
}

// take makes what a request says the member's word.
func (m *member) take(r *JoinRequest) {
	m.client, m.host = r.ClientID, r.Host
	m.rebalanceTimeout, m.sessionTimeout = r.RebalanceTimeout, r.SessionTimeout
	m.protocols = r.Protocols
	m.sync = r.Synced
	m.notify, m.native = r.Notify, r.Notify != nil
}

// rejoin is a Join of a member.
func (g *group) rejoin(m *member, r *JoinRequest, done func(Joined)) {
	changed := !sameProtocols(m.protocols, r.Protocols)
	// Only what a leader that joins again may have seen is for it alone to say: new partitions, for one.
	settled := !changed && (g.state == CompletingRebalance || g.state == Stable && m.id != g.leader)
	g.answerJoin(m, Joined{Err: kafka.ErrRebalance, MemberID: m.id, Generation: -1}) // an earlier one, which nobody waits for any more
	m.take(r)
	if settled {
		g.answerSync(m, Synced{Err: kafka.ErrRebalance})
		m.joining = done
		g.begin(m, g.joined(m))
		return
	}
	if !m.fresh {
		m.session.cancel()
	}
	m.joining = done
	g.rebalance()
}

func sameProtocols(a, b []Protocol) bool {
	return slices.EqualFunc(a, b, func(x, y Protocol) bool { return x.Name == y.Name && bytes.Equal(x.Metadata, y.Metadata) })
}

// comeBack is a Join of a static member's next life: the one before is fenced. In a stable group it keeps its assignment, and nobody else notices, unless it subscribes to something else.
func (g *group) comeBack(m *member, r *JoinRequest, done func(Joined)) (memberID string) {
	old, subscribed := m.id, m.subscribed(g.proto)
	g.answerJoin(m, Joined{Err: fencedInstance(m.instance), MemberID: old, Generation: -1})
	g.answerSync(m, Synced{Err: fencedInstance(m.instance)})
	if m.notify != nil {
		g.after = append(g.after, m.notify)
	}
	m.id = newID(m.instance)
	leads := g.leader == old
	if leads {
		g.leader = m.id
	}
	m.take(r)
	m.joining = done
	m.session.cancel()
	if g.state != Stable || g.vote() != g.proto || !slices.Equal(subscribed, m.subscribed(g.proto)) {
		g.rebalance()
		return m.id
	}
	if err := g.save(true); err != nil { // else a zombie of the old id could come back after the next start
		g.answerJoin(m, Joined{Err: err, Generation: -1})
		m.notify = nil
		g.alive(m)
		return ""
	}
	j := g.joined(m)
	j.SkipAssignment = leads
	g.begin(m, j)
	return m.id
}

// begin answers a Join with the generation, and takes the member's Sync, if it came with it.
func (g *group) begin(m *member, j Joined) {
	g.answerJoin(m, j)
	if m.sync != nil && (m.id != g.leader || j.SkipAssignment) {
		m.syncing, m.sync, m.synced = m.sync, nil, true
		if g.state == Stable {
			g.giveAssignment(m)
			g.stopTimer()
		}
	}
	g.alive(m)
}

// subscribed is what a member subscribes to, as far as anybody can tell.
func (m *member) subscribed(protocol string) []string {
	p := m.protocol(protocol)
	if p == nil {
		return nil
	}
	s, err := ParseSubscription(p.Metadata)
	if err != nil {
		return []string{string(p.Metadata)}
	}
	slices.Sort(s.Topics)
	return slices.Compact(s.Topics)
}

// joined is the answer to a Join in this generation.
func (g *group) joined(m *member) Joined {
	j := Joined{MemberID: m.id, Generation: g.number, ProtocolType: g.kind, Protocol: g.proto, Leader: g.leader, Since: g.since}
	if m.id == g.leader {
		for _, x := range g.members {
			jm := JoinedMember{ID: x.id, InstanceID: x.instance}
			if p := x.protocol(g.proto); p != nil {
				jm.Metadata = p.Metadata
			}
			j.Members = append(j.Members, jm)
		}
	}
	return j
}

// rebalance takes account of a Join that changes something: in the rebalance that goes on, or in a new one.
func (g *group) rebalance() {
	if g.state == PreparingRebalance {
		g.tryComplete()
	} else {
		g.prepare()
	}
}

// prepare begins a rebalance. It is over at once if nobody has to be waited for.
func (g *group) prepare() {
	if g.state == CompletingRebalance {
		for _, m := range g.members {
			m.assignment = nil
			g.answerSync(m, Synced{Err: kafka.ErrRebalance})
			if m.joining == nil {
				g.alive(m)
			}
		}
	}
	first := g.state == Empty
	g.state = PreparingRebalance
	limit := g.maxRebalanceTimeout()
	g.gathering = false
	if delay := g.c.o.InitialDelay; first && delay > 0 && len(g.members) > 0 && g.members[0].notify == nil {
		g.gathering, g.arrived, g.patience = true, false, max(limit-delay, 0)
		limit = min(delay, limit)
	}
	g.timer.set(limit)
	for _, m := range g.members {
		if m.notify != nil && m.joining == nil {
			g.after = append(g.after, m.notify)
		}
	}
	g.tryComplete()
}

// timeUp is what the group's timer does.
func (g *group) timeUp() {
	switch {
	case g.state == PreparingRebalance && g.gathering:
		if more := min(g.c.o.InitialDelay, g.patience); g.arrived && more > 0 {
			g.arrived = false
			g.patience -= more
			g.timer.set(more)
			return
		}
		g.gathering = false
		g.complete()
	case g.state == PreparingRebalance:
		g.complete()
	case g.state == CompletingRebalance || g.state == Stable:
		g.dropUnsynced()
	}
}

// tryComplete ends the first phase of a rebalance if everybody has joined.
func (g *group) tryComplete() {
	if g.state != PreparingRebalance || g.gathering && len(g.members) > 0 || len(g.pending) > 0 {
		return
	}
	for _, m := range g.members {
		if m.joining == nil {
			return
		}
	}
	g.complete()
}

// complete begins the next generation, without those who have not joined. A static member stays until its session ends.
func (g *group) complete() {
	for _, m := range slices.Clone(g.members) {
		if m.joining == nil && m.instance == "" {
			g.c.o.Logger.Info("member has not joined in time", "group", g.name, "member", m.id)
			g.remove(m, kafka.ErrUnknownMember)
		}
	}
	if len(g.members) == 0 {
		g.becomeEmpty()
		return
	}
	if l := g.byID(g.leader); l == nil || l.joining == nil {
		i := slices.IndexFunc(g.members, func(m *member) bool { return m.joining != nil })
		if i < 0 { // static ones that may still come
			g.timer.set(g.maxRebalanceTimeout())
			return
		}
		g.leader = g.members[i].id
	}
	g.number++
	g.proto = g.vote()
	g.state = CompletingRebalance
	g.timer.set(g.maxRebalanceTimeout())
	// The leader hears of it last, so that nobody has an assignment of a generation before all know that it has begun.
	leader := g.byID(g.leader)
	for _, m := range append(slices.DeleteFunc(slices.Clone(g.members), func(m *member) bool { return m == leader }), leader) {
		m.fresh, m.synced = false, false
		g.begin(m, g.joined(m))
	}
}

// becomeEmpty is what a group does whose last member has left.
func (g *group) becomeEmpty() {
	g.state, g.proto, g.leader = Empty, "", ""
	g.number++
	g.empty = g.c.o.Now()
	g.unwritten = true
	g.timer.cancel()
	g.release()
}
