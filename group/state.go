package group

import (
	"slices"
	"sync"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/meta"
)

// State is the state of a group, by Kafka's names.
type State int8

const (
	// Empty: no members; offsets may be there.
	Empty State = iota
	// PreparingRebalance: waiting for members to join.
	PreparingRebalance
	// CompletingRebalance: waiting for the leader's assignment.
	CompletingRebalance
	// Stable: every member has, or can have, its assignment.
	Stable
	// Dead: not there.
	Dead
)

func (s State) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}[s]
}

// group is one group.
type group struct {
	c    *Coordinator
	name string

	mu        sync.Mutex
	after     []func() // to be called when mu has been let go of
	gone      bool     // out of the coordinator's map
	state     State
	kind      string // protocol type; "" until somebody has joined
	proto     string // the assignor of this generation
	number    int32  // the generation
	settled   int32  // the last generation that has had an assignment, -1: none
	leader    string
	members   []*member // in the order in which they came
	pending   map[string]*alarm
	unwritten bool // that it is empty
	// timer bounds the phase of a rebalance that the group is in.
	timer alarm
	// gathering: the first rebalance is waiting for more members than there are; so much more time it may take.
	gathering bool
	patience  time.Duration
	arrived   bool // somebody, since the timer was set
	since     int64
	empty     int64 // ms, since when it is; 0: it is not
}

// member is a member of a group.
type member struct {
	id, instance, client, host string
	rebalanceTimeout           time.Duration
	sessionTimeout             time.Duration
	protocols                  []Protocol
	assignment                 []byte
	notify                     func() // of a native member that is there
	native                     bool
	fresh                      bool         // it has not been in a generation yet
	last                       int32        // the last generation whose assignment it has got; -1: none
	synced                     bool         // it has asked for the assignment of this generation
	joining                    func(Joined) // its Join that waits
	syncing                    func(Synced) // its Sync that waits
	sync                       func(Synced) // its Sync that came with the last Join
	session                    alarm        // off for native members that are there
}

func newGroup(c *Coordinator, name string) *group {
	g := &group{c: c, name: name, pending: map[string]*alarm{}, settled: -1}
	g.timer.init(c.o.Wheel, g.locker(), g.timeUp)
	return g
}

// unlock lets go of the group and calls what has been put off.
func (g *group) unlock() {
	after := g.after
	g.after = nil
	g.mu.Unlock()
	for _, fn := range after {
		fn()
	}
}

// locker is the group's lock as timers take it.
func (g *group) locker() sync.Locker { return groupLocker{g} }

type groupLocker struct{ g *group }

func (l groupLocker) Lock()   { l.g.mu.Lock() }
func (l groupLocker) Unlock() { l.g.unlock() }

func (g *group) byID(id string) *member {
	for _, m := range g.members {
		if m.id == id {
			return m
		}
	}
	return nil
}

func (g *group) byInstance(instance string) *member {
	for _, m := range g.members {
		if instance != "" && m.instance == instance {
			return m
		}
	}
	return nil
}

// remove takes a member out. What it waits for is answered with err.
func (g *group) remove(m *member, err error) {
	m.session.cancel()
	g.answerJoin(m, Joined{Err: err, MemberID: m.id, Generation: -1})
	g.answerSync(m, Synced{Err: err})
	g.members = slices.DeleteFunc(g.members, func(x *member) bool { return x == m })
	if g.leader == m.id {
		g.leader = ""
	}
	if m.notify != nil {
		g.after = append(g.after, m.notify)
	}
}

func (g *group) answerJoin(m *member, j Joined) {
	if done := m.joining; done != nil {
		m.joining = nil
		g.after = append(g.after, func() { done(j) })
	}
}

func (g *group) answerSync(m *member, s Synced) {
	if done := m.syncing; done != nil {
		m.syncing = nil
		g.after = append(g.after, func() { done(s) })
	}
}

// alive starts a member's session anew, unless it needs none.
func (g *group) alive(m *member) {
	if m.notify == nil && m.joining == nil && m.syncing == nil {
		m.session.set(m.sessionTimeout)
	}
}

// expire is what a member's session does when it ends.
func (g *group) expire(m *member) {
	if g.byID(m.id) != m || m.notify != nil {
		return
	}
	if m.syncing != nil || m.joining != nil && !m.fresh {
		return
	}
	g.c.o.Logger.Info("member has expired", "group", g.name, "member", m.id, "instance", m.instance)
	g.removeAndGoOn(m, kafka.ErrUnknownMember)
}

// removeAndGoOn takes a member out and has the others share what it had.
func (g *group) removeAndGoOn(m *member, err error) {
	g.remove(m, err)
	g.goOn()
}

// goOn brings the group to where its members, of whom some have left, take it.
func (g *group) goOn() {
	switch g.state {
	case Stable, CompletingRebalance:
		g.prepare()
	case PreparingRebalance:
		g.tryComplete()
	}
}

// vote chooses the protocol: of those that all members know, the one that most of them like best. Of two with as many votes it is the one that the member that has been there longest likes better.
func (g *group) vote() string {
	votes := map[string]int{}
	for _, m := range g.members {
		for _, p := range m.protocols {
			if g.allKnow(p.Name, nil) {
				votes[p.Name]++
				break
			}
		}
	}
	best := ""
	for _, m := range g.members {
		for _, p := range m.protocols {
			if votes[p.Name] > votes[best] {
				best = p.Name
			}
		}
	}
	return best
}

// allKnow reports whether all members, but for one, know a protocol.
func (g *group) allKnow(name string, but *member) bool {
	for _, m := range g.members {
		if m != but && m.protocol(name) == nil {
			return false
		}
	}
	return true
}

// agrees reports whether a member with these protocols, which is but's word from now on, would have one that all others know.
func (g *group) agrees(kind string, ps []Protocol, but *member) bool {
	if len(g.members) > 0 && g.kind != kind {
		return false
	}
	for _, p := range ps {
		if g.allKnow(p.Name, but) {
			return true
		}
	}
	return false
}

// protocol returns what a member says for a protocol, nil if it does not know it.
func (m *member) protocol(name string) *Protocol {
	for i := range m.protocols {
		if m.protocols[i].Name == name {
			return &m.protocols[i]
		}
	}
	return nil
}

// maxRebalanceTimeout is how long a phase of a rebalance may take.
func (g *group) maxRebalanceTimeout() (d time.Duration) {
	for _, m := range g.members {
		d = max(d, m.rebalanceTimeout)
	}
	return d
}

// close answers everybody who waits.
func (g *group) close() {
	for len(g.members) > 0 {
		g.remove(g.members[0], kafka.ErrClosed)
	}
	for id, a := range g.pending {
		a.cancel()
		delete(g.pending, id)
	}
	g.timer.cancel()
	g.gone = true
	g.state = Dead
}

// load takes over what was written.
func (g *group) load(r meta.Group) {
	g.kind, g.proto, g.number, g.leader, g.empty = r.Type, r.Protocol, r.Generation, r.Leader, r.EmptySince
	for _, w := range r.Members {
		m := g.newMember(w.ID, w.InstanceID)
		m.client, m.host, m.native = w.ClientID, w.Host, w.Native
		m.rebalanceTimeout = time.Duration(w.RebalanceTimeout) * time.Millisecond
		m.sessionTimeout = time.Duration(w.SessionTimeout) * time.Millisecond
		m.protocols = []Protocol{{r.Protocol, w.Metadata}}
		m.assignment, m.synced, m.last = w.Assignment, true, r.Generation
		g.members = append(g.members, m)
		g.state, g.settled, g.since = Stable, r.Generation, g.c.o.Since()
	}
}

// revive goes on with a group that had members when the process before this one ended.
func (g *group) revive() {
	n := len(g.members)
	for _, m := range slices.Clone(g.members) {
		if m.native && m.instance == "" {
			g.remove(m, kafka.ErrUnknownMember)
		} else {
			m.session.set(m.sessionTimeout)
		}
	}
	if len(g.members) < n {
		g.prepare()
	}
}

// save writes the group; with sync it is durable then.
func (g *group) save(sync bool) error {
	r := meta.Group{Type: g.kind, Protocol: g.proto, Generation: g.number, Leader: g.leader, EmptySince: g.empty}
	for _, m := range g.members {
		w := meta.GroupMember{ID: m.id, InstanceID: m.instance, ClientID: m.client, Host: m.host, Native: m.native,
			RebalanceTimeout: m.rebalanceTimeout.Milliseconds(), SessionTimeout: m.sessionTimeout.Milliseconds(), Assignment: m.assignment}
		if p := m.protocol(g.proto); p != nil {
			w.Metadata = p.Metadata
		}
		r.Members = append(r.Members, w)
	}
	b := g.c.o.Store.NewBatch()
	if err := b.SetGroup(g.name, r); err != nil {
		return err
	}
	err := b.Commit(sync)
	if err == nil {
		g.unwritten = false
	}
	return err
}
