package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/runnelmq/runnel/group"

	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
)

// phase is where a consumer stands in its group.
type phase int8

const (
	phaseOut     phase = iota // not a member
	phaseJoining              // waits for the answer to its Join
	phaseSyncing              // waits for the answer to its Sync
	phaseIn                   // has its assignment
)

// membership is a consumer's side of the group protocol. The consumer's lock guards it; only the goroutine that polls moves it on, step by step (attend), and everybody may end it.
type membership struct {
	phase      phase
	id         string // "" until the group has given one
	generation int32  // of the assignment, -1: none
	begun      int32  // that the group has begun with this member, -1: none. Later than generation until its assignment has been taken up
	since      int64  // partitions that were made later are read from their first record
	attempt    int    // number of the last request; see answers
	again      bool   // join again, for a reason of the consumer's own
	leads      bool
	// topics is what the consumer said that it subscribes to, counts how many partitions the topics of all members had when it, as the leader, made the
	// assignment, or those of its own when it came back as a static leader; all as of changes.
	topics  []string
	counts  map[string]int32
	changes int64
	wait    time.Duration // after the last request, which the group could not write down: until then no other one
	until   time.Time
	had     []TopicPartition // what was given up for the rebalance that goes on
	lost    []TopicPartition // what was taken away, and the listener has not heard of
	fatal   error            // another instance has taken the place
	evicted *PollTimeoutError
}

// answers is where the group's answers arrive. It has a lock of its own, which is held for nothing else: the goroutine that brings an answer may be another consumer's.
type answers struct {
	sync.Mutex
	attempt int // answers to others come too late
	joined  *group.Joined
	synced  *group.Synced
}

// expect makes the answers those to a new request.
func (a *answers) expect(attempt int) {
	a.Lock()
	defer a.Unlock()
	a.attempt, a.joined, a.synced = attempt, nil, nil
}

// there reports whether the answer that a phase waits for has come.
func (a *answers) there(p phase) bool {
	a.Lock()
	defer a.Unlock()
	return p == phaseJoining && a.joined != nil || p == phaseSyncing && a.synced != nil
}

// followed puts the generation that has begun in the place of id's, if the consumer is still in that one: it has not taken up the next assignment, and until it does nobody else has what it has, cs
// among it. It reports whether that is so.
func (c *consumer) followed(id *group.Identity, cs []broker.Commit) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &c.mu.member
	if m.id != id.MemberID || m.generation != id.Generation {
		return false
	}
	for _, o := range cs {
		if t := c.mu.byTP[o.Partition.TopicPartition()]; t == nil || t.p != o.Partition {
			return false
		}
	}
	switch m.phase {
	case phaseSyncing:
		id.Generation = m.begun
		return true
	case phaseJoining:
		c.answers.Lock()
		defer c.answers.Unlock()
		if j := c.answers.joined; j != nil && j.Err == nil {
			id.Generation = j.Generation
			return true
		}
	}
	return false
}

// takeJoined returns the answer to a Join; nil: it was taken back meanwhile.
func (a *answers) takeJoined() (j *group.Joined) {
	a.Lock()
	defer a.Unlock()
	j, a.joined = a.joined, nil
	return j
}

// takeSynced returns the answer to a Sync; nil: it was taken back meanwhile.
func (a *answers) takeSynced() (s *group.Synced) {
	a.Lock()
	defer a.Unlock()
	s, a.synced = a.synced, nil
	return s
}

// answered takes an answer of the group, unless it comes too late.
func (c *consumer) answered(attempt int, take func(a *answers)) {
	c.answers.Lock()
	if c.answers.attempt == attempt {
		take(&c.answers)
	}
	c.answers.Unlock()
	c.waiter.Wake()
}

// request begins a new request; c.mu is held.
func (c *consumer) request(p phase) (attempt int) {
	m := &c.mu.member
	m.attempt++
	m.phase = p
	c.answers.expect(m.attempt)
	return m.attempt
}

// grouped reports whether the consumer has to be a member of its group; c.mu is held.
func (c *consumer) grouped() bool { return c.c.Group != "" && !c.mu.sub.empty() }

// identity says who the consumer is; c.mu is held.
func (c *consumer) identity() group.Identity {
	m := &c.mu.member
	if m.id == "" {
		return group.Identity{Group: c.c.Group, Generation: -1}
	}
	return group.Identity{Group: c.c.Group, MemberID: m.id, InstanceID: c.c.InstanceID, Generation: m.generation}
}

// attend does what the group and the topics ask for, as far as it goes without waiting for others. c.polling is held.
func (c *consumer) attend(ctx context.Context) error {
	if c.c.Group == "" {
		return nil
	}
	for {
		step, err := c.nextStep()
		if step == nil || err != nil {
			return err
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
}

// nextStep returns what is to be done next, nil if there is nothing, or only to wait.
func (c *consumer) nextStep() (step func(context.Context) error, err error) {
	if err := c.lockToPoll(); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	m := &c.mu.member
	switch {
	case len(m.lost) > 0:
		return c.tellLost, nil
	case m.evicted != nil:
		err, m.evicted = m.evicted, nil
		return nil, err
	case m.fatal != nil:
		return nil, m.fatal
	case !c.grouped():
		return nil, nil
	case m.wait > 0 && time.Now().Before(m.until):
		return nil, nil
	}
	switch {
	case m.phase == phaseOut:
		return c.join, nil
	case m.phase != phaseIn && !c.answers.there(m.phase):
		return nil, nil
	case m.phase == phaseJoining:
		return c.onJoined, nil
	case m.phase == phaseSyncing:
		return c.onSynced, nil
	case c.summoned.Swap(false):
		return c.askGroup, nil
	case m.changes != c.e.b.Changes():
		return c.lookAtTopics, nil
	case m.again:
		return c.rejoin, nil
	}
	return nil, nil
}

// summon is what the group calls when there is something to ask it for.
func (c *consumer) summon() {
	c.summoned.Store(true)
	c.waiter.Wake()
}

// rejoin joins again: what goes elsewhere is given up before, all of it unless the group is cooperative.
func (c *consumer) rejoin(ctx context.Context) error {
	c.mu.Lock()
	topics := c.matching()
	var up []TopicPartition
	for _, t := range c.mu.tracks {
		if !c.cooperative || !slices.Contains(topics, t.tp.Topic) {
			up = append(up, t.tp)
		}
	}
	if len(up) > 0 { // else they were given up for a rebalance that has not come to its end
		c.mu.member.had = up
	}
	c.mu.Unlock()
	if err := c.giveUp(ctx, up); err != nil {
		return err
	}
	return c.join(ctx)
}

// giveUp commits where the consumer stands, tells the listener, and takes partitions out of the assignment.
func (c *consumer) giveUp(ctx context.Context, tps []TopicPartition) error {
	if len(tps) == 0 {
		return nil
	}
	if err := c.lastCommit(ctx); err != nil {
		c.e.o.Logger.Warn("commit before partitions are given up", "group", c.c.Group, "error", err)
	}
	c.tell(RebalanceListener.Revoked, tps)
	if err := c.lockToPoll(); err != nil {
		return err
	}
	defer c.mu.Unlock()
	c.assign(c.without(tps))
	return nil
}

// without is the assignment but for some partitions; c.mu is held.
func (c *consumer) without(tps []TopicPartition) (ps []*broker.Partition) {
	for _, t := range c.mu.tracks {
		if !slices.Contains(tps, t.tp) {
			ps = append(ps, t.p)
		}
	}
	return ps
}

// join sends the request for the next generation.
func (c *consumer) join(context.Context) error {
	if err := c.lockToPoll(); err != nil {
		return err
	}
	m := &c.mu.member
	m.changes = c.e.b.Changes() // before the topics: one that is missed now is seen next time
	m.topics = c.matching()
	m.again = false
	attempt := c.request(phaseJoining)
	owned := m.had
	if c.cooperative {
		owned = c.assigned()
	}
	r := group.JoinRequest{
		Group: c.c.Group, MemberID: m.id, InstanceID: c.c.InstanceID, ClientID: c.c.Group, ProtocolType: group.ConsumerProtocol,
		SessionTimeout: c.c.SessionTimeout, RebalanceTimeout: c.c.MaxPollInterval, Notify: c.summon,
		Synced: func(s group.Synced) { c.answered(attempt, func(a *answers) { a.synced = &s }) },
	}
	for _, a := range c.assignors {
		s := group.NewSubscription(a, m.topics, owned, m.generation)
		if !c.cooperative && a.Name() != group.Sticky().Name() {
			s.Owned = nil
		}
		r.Protocols = append(r.Protocols, group.Protocol{Name: a.Name(), Metadata: s.Append(nil)})
	}
	c.mu.Unlock()
	c.summoned.Store(false)
	id := c.e.b.JoinGroup(r, func(j group.Joined) {
		c.answered(attempt, func(a *answers) { a.joined = &j })
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case id == "":
	case m.attempt == attempt:
		m.id = id
		c.startPollTimer()
	case m.id != id: // it has been ended meanwhile, by somebody who did not know the id
		c.leaveAs(group.Identity{Group: c.c.Group, MemberID: id})
	}
	return nil
}

// onJoined goes on when the next generation has begun: the leader makes the assignment, and everybody waits for its own.
func (c *consumer) onJoined(context.Context) error {
	c.mu.Lock()
	m := &c.mu.member
	j := c.answers.takeJoined()
	if j == nil || m.phase != phaseJoining {
		c.mu.Unlock()
		return nil
	}
	if j.Err != nil {
		defer c.mu.Unlock()
		return c.refused(j.Err)
	}
	m.id, m.begun, m.since = j.MemberID, j.Generation, j.Since
	m.leads = j.Leader == j.MemberID
	if !m.leads || j.SkipAssignment {
		m.phase, m.counts = phaseSyncing, nil // the Join has asked for it
		if m.leads {
			m.counts = map[string]int32{}
			for _, t := range m.topics {
				m.counts[t] = c.partitionsOf(t)
			}
		}
		c.mu.Unlock()
		return nil
	}
	attempt := c.request(phaseSyncing)
	r := group.SyncRequest{Identity: c.identity()}
	r.Generation = m.begun
	c.mu.Unlock()
	var err error
	var counts map[string]int32
	if r.Assignments, counts, err = c.makeAssignment(j); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		m.lost = append(m.lost, c.assigned()...) // others get it
		c.leaveGroup()
		c.assign(nil)
		return err
	}
	c.mu.Lock()
	if m.attempt == attempt {
		m.counts = counts
	}
	c.mu.Unlock()
	c.e.b.SyncGroup(r, func(s group.Synced) {
		c.answered(attempt, func(a *answers) { a.synced = &s })
	})
	return nil
}

// makeAssignment is the leader's work.
func (c *consumer) makeAssignment(j *group.Joined) (assignments map[string][]byte, counts map[string]int32, err error) {
	i := slices.IndexFunc(c.assignors, func(a Assignor) bool { return a.Name() == j.Protocol })
	if i < 0 {
		return nil, nil, fmt.Errorf("%w: %s", kafka.ErrInconsistentProtocol, j.Protocol)
	}
	var members []GroupMember
	counts = map[string]int32{}
	for _, m := range j.Members {
		s, err := group.ParseSubscription(m.Metadata)
		if err != nil {
			c.e.o.Logger.Warn("member is given nothing", "group", c.c.Group, "member", m.ID, "error", err)
		}
		members = append(members, GroupMember{ID: m.ID, InstanceID: m.InstanceID, Topics: s.Topics, UserData: s.UserData, Owned: s.Owned, Generation: s.Generation})
		for _, t := range s.Topics {
			counts[t] = c.partitionsOf(t)
		}
	}
	there := map[string]int32{}
	for t, n := range counts {
		if n > 0 {
			there[t] = n
		}
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: assignor %s panicked: %v", kafka.ErrInconsistentProtocol, j.Protocol, v)
		}
	}()
	assignments = map[string][]byte{}
	for id, tps := range group.Assign(c.assignors[i], members, there) {
		assignments[id] = group.AppendAssignment(nil, tps)
	}
	return assignments, counts, nil
}

// partitionsOf is how many partitions a topic has; 0: it is not there.
func (c *consumer) partitionsOf(topic string) int32 {
	t, err := c.e.b.Topic(topic)
	if err != nil {
		return 0
	}
	return int32(len(t.Partitions()))
}

// onSynced takes over the assignment.
func (c *consumer) onSynced(ctx context.Context) error {
	c.mu.Lock()
	m := &c.mu.member
	s := c.answers.takeSynced()
	if s == nil || m.phase != phaseSyncing {
		c.mu.Unlock()
		return nil
	}
	attempt, generation := m.attempt, m.begun
	tps, err := group.ParseAssignment(s.Assignment)
	if err = errors.Join(s.Err, err); err != nil {
		defer c.mu.Unlock()
		return c.refused(err)
	}
	want := map[TopicPartition]*broker.Partition{}
	for _, tp := range tps {
		if p, err := c.e.b.Partition(tp); err == nil { // else it has been deleted since
			want[tp] = p
		}
	}
	var added, revoked []TopicPartition
	for tp, p := range want {
		if t := c.mu.byTP[tp]; t == nil || t.p != p {
			added = append(added, tp)
		}
	}
	for tp, t := range c.mu.byTP {
		if want[tp] != t.p {
			revoked = append(revoked, tp)
		}
	}
	slices.SortFunc(added, compareTP)
	slices.SortFunc(revoked, compareTP)
	c.mu.Unlock()
	if err := c.giveUp(ctx, revoked); err != nil {
		return err
	}
	if err := c.lockToPoll(); err != nil {
		return err
	}
	if m.attempt != attempt { // ended, or begun anew, while the listener was called
		c.mu.Unlock()
		return nil
	}
	old := c.mu.byTP
	var ps []*broker.Partition
	for _, p := range want {
		ps = append(ps, p)
	}
	c.assign(ps)
	for tp, t := range c.mu.byTP {
		t.fresh = t.fresh || old[tp] != t && t.p.Born() > m.since
	}
	m.phase, m.generation, m.had, m.wait = phaseIn, generation, nil, 0
	// What has been given up is somebody else's in the generation after this one.
	m.again = m.again || c.cooperative && len(revoked) > 0
	c.mu.Unlock()
	c.tell(RebalanceListener.Assigned, added)
	return nil
}

// How long a member waits before it asks again for what the group could not write down; twice as long each time (retry.backoff.ms, retry.backoff.max.ms).
const (
	leastWait = 100 * time.Millisecond
	mostWait  = time.Second
)

// refused is what the consumer does when the group answers with an error; c.mu is held. A nil result goes on at once.
func (c *consumer) refused(err error) error {
	m := &c.mu.member
	switch {
	case errors.Is(err, kafka.ErrFenced):
		c.lose()
		m.fatal = err
		return nil
	case errors.Is(err, kafka.ErrRebalance):
		m.phase, m.again = phaseIn, true
		return nil
	case errors.Is(err, kafka.ErrUnknownMember):
		if c.c.InstanceID == "" { // it was waited for in vain; others may have been taken out by somebody
			m.evicted = c.tooLate(max(time.Since(c.mu.watched.last), c.c.MaxPollInterval))
		}
		c.lose()
		return nil
	case errors.Is(err, kafka.ErrIllegalGeneration):
		m.lost = append(m.lost, c.assigned()...)
		c.leaveGroup()
		c.assign(nil)
		return nil
	}
	if passing(err) { // tried again later: at once, all members would do so together, for as long as the store is down
		m.wait = min(max(2*m.wait, leastWait), mostWait)
		m.until = time.Now().Add(m.wait)
		c.e.b.Wheel().Schedule(&c.retry, m.wait)
	}
	m.phase, m.again = phaseIn, true
	if m.id == "" {
		m.phase = phaseOut
	}
	return err
}

// askGroup finds out why the group has summoned the consumer.
func (c *consumer) askGroup(context.Context) error {
	c.mu.Lock()
	id := c.identity()
	id.Generation = c.mu.member.begun
	c.mu.Unlock()
	err := c.e.b.Heartbeat(id)
	if err == nil || errors.Is(err, kafka.ErrClosed) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.member.id != id.MemberID {
		return nil
	}
	return c.refused(err)
}

// lookAtTopics finds out what it means for the assignment that topics have changed.
func (c *consumer) lookAtTopics(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &c.mu.member
	m.changes = c.e.b.Changes()
	if !slices.Equal(c.matching(), m.topics) {
		m.again = true
	}
	if m.leads {
		for t, n := range m.counts {
			m.again = m.again || c.partitionsOf(t) != n
		}
	}
	// A topic that was deleted takes its partitions with it; one of the same name that is there by now is another one, which the group gives to somebody anew.
	var gone []TopicPartition
	for _, t := range c.mu.tracks {
		if p, err := c.e.b.Partition(t.tp); err != nil || p != t.p {
			gone = append(gone, t.tp)
		}
	}
	if len(gone) > 0 {
		m.lost = append(m.lost, gone...)
		m.again = true
		c.assign(c.without(gone))
	}
	return nil
}

// lose ends the membership without leaving: the group does not know this member any more. c.mu is held.
func (c *consumer) lose() {
	m := &c.mu.member
	m.lost = append(m.lost, c.assigned()...)
	c.forgetGroup()
	c.assign(nil)
}

// forgetGroup makes the consumer a member of nothing; c.mu is held.
func (c *consumer) forgetGroup() {
	m := &c.mu.member
	c.request(phaseOut) // answers that are still to come are nobody's
	m.id, m.generation, m.begun, m.leads, m.again, m.had = "", -1, -1, false, false, nil
	c.stopPollTimer()
}

// tellLost tells the listener what was taken away.
func (c *consumer) tellLost(context.Context) error {
	c.mu.Lock()
	tps := c.mu.member.lost
	c.mu.member.lost = nil
	c.mu.Unlock()
	c.tell(RebalanceListener.Lost, tps)
	return nil
}

// leaveGroup ends the membership; c.mu is held.
func (c *consumer) leaveGroup() {
	id := c.identity()
	c.forgetGroup()
	if id.MemberID != "" {
		c.leaveAs(id)
	}
}

// leaveAs tells the group. A static member keeps its place.
func (c *consumer) leaveAs(id group.Identity) {
	err := c.e.b.LeaveGroup(id, c.c.InstanceID != "")
	if err != nil && !errors.Is(err, kafka.ErrUnknownMember) && !errors.Is(err, kafka.ErrClosed) {
		c.e.o.Logger.Warn("leave group", "group", id.Group, "member", id.MemberID, "error", err)
	}
}

// assigned lists the assigned partitions; c.mu is held.
func (c *consumer) assigned() (tps []TopicPartition) {
	for _, t := range c.mu.tracks {
		tps = append(tps, t.tp)
	}
	return tps
}

// matching is what the subscription means now, in order; c.mu is held.
func (c *consumer) matching() []string {
	topics := slices.Clone(c.mu.sub.topics)
	if c.mu.sub.pattern != nil {
		ts, err := c.e.b.Topics()
		if err != nil {
			return c.mu.member.topics // the engine is closing
		}
		for _, t := range ts {
			if c.mu.sub.matches(t.Name()) {
				topics = append(topics, t.Name())
			}
		}
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// tell calls the listener, on the goroutine that polls, without locks.
func (c *consumer) tell(what func(l RebalanceListener, tps []TopicPartition), tps []TopicPartition) {
	if c.c.Listener == nil || len(tps) == 0 || c.telling.Swap(true) { // it may call what leads here
		return
	}
	defer c.telling.Store(false)
	defer func() {
		if v := recover(); v != nil {
			c.e.o.Logger.Error("rebalance listener panicked", "group", c.c.Group, "panic", v)
		}
	}()
	what(c.c.Listener, slices.Clone(tps))
}
