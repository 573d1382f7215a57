package group

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
)

const modelPartitions = 4

// A ledger is what all players of a history know together.
type ledger struct {
	c       func() *Coordinator
	commits func(partition int, by *past) // is told of every commit that is accepted, if it is set
	mu      struct {
		sync.Mutex
		leaders map[int32]string // of generations
		sent    map[int32]int    // assignments that leaders have sent for a generation
		chosen  map[int32]int    // the one that the first member got
		given   map[string][]int // partitions, by the bytes that say them
		calls   []*atomic.Int32  // how often each Join and Sync was answered
		wrong   error            // the first thing that should not be
		took    map[string]int32 // by player: the last generation whose assignment was given to it
		past    []past           // identities of members, or what were some
	}
}

// A past is an identity that a player has had.
type past struct {
	Identity
	player string
	native bool
	owns   []int
}

func newLedger(c func() *Coordinator) *ledger {
	l := &ledger{c: c}
	l.mu.leaders, l.mu.sent, l.mu.chosen = map[int32]string{}, map[int32]int{}, map[int32]int{}
	l.mu.given, l.mu.took = map[string][]int{}, map[string]int32{}
	return l
}

// violated records that something is wrong; l.mu is held.
func (l *ledger) violated(format string, args ...any) {
	if l.mu.wrong == nil {
		l.mu.wrong = fmt.Errorf(format, args...)
	}
}

func (l *ledger) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.wrong
}

// expect returns a counter for a call that is to be answered once.
func (l *ledger) expect() *atomic.Int32 {
	n := new(atomic.Int32)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.calls = append(l.mu.calls, n)
	return n
}

// answered checks that every call has been answered, once.
func (l *ledger) answered() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, n := range l.mu.calls {
		if n := n.Load(); n != 1 {
			return fmt.Errorf("call %d of %d was answered %d times", i, len(l.mu.calls), n)
		}
	}
	return nil
}

type playerPhase int

const (
	playerOut playerPhase = iota // has to join
	playerJoining
	playerJoined // has to ask for its assignment
	playerSyncing
	playerIn
)

// A player is a member that does what clients do, and what they should not. It belongs to one goroutine.
type player struct {
	l      *ledger
	r      *rand.Rand
	name   string
	native bool
	req    JoinRequest
	phase  playerPhase
	number int32 // the generation that it has joined
	leads  bool
	shares map[string][]byte // as the leader has made them
	had    past              // what it works on: of the last generation whose assignment it has got
	told   atomic.Bool
	// attempt tells the answers to the last call from those to earlier ones.
	attempt int
	got     struct {
		sync.Mutex
		attempt int
		joined  *Joined
		synced  *Synced
	}
}

func newPlayer(l *ledger, r *rand.Rand, i int) *player {
	p := &player{l: l, r: r, name: fmt.Sprintf("p%d", i), native: r.IntN(2) == 0, number: -1}
	p.req = JoinRequest{Group: groupName, ClientID: p.name, ProtocolType: ConsumerProtocol,
		SessionTimeout: time.Duration(6+r.IntN(10)) * time.Second, RebalanceTimeout: time.Duration(5+r.IntN(15)) * time.Second}
	if r.IntN(3) == 0 {
		p.req.InstanceID = "i" + p.name
	}
	if !p.native {
		p.req.RequireMemberID = r.IntN(2) == 0
	}
	p.subscribe()
	p.out(true)
	return p
}

// subscribe makes the player say its name and something else.
func (p *player) subscribe() {
	p.req.Protocols = []Protocol{{"range", fmt.Appendf(nil, "%s %d", p.name, p.r.IntN(3))}}
}

// out makes the player begin anew, forgetting its member id or not.
func (p *player) out(forget bool) {
	p.phase = playerOut
	p.attempt++ // answers that are still to come are nobody's
	if forget {
		p.req.MemberID, p.number, p.had = "", -1, past{}
	}
	if p.native {
		p.req.Notify = func() { p.told.Store(true) }
	}
}

func (p *player) identity() Identity {
	return Identity{Group: groupName, MemberID: p.req.MemberID, InstanceID: p.req.InstanceID, Generation: p.number}
}

// remember keeps an identity for somebody to try it later.
func (p *player) remember(x past) {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.l.mu.past = append(p.l.mu.past, x); len(p.l.mu.past) > 20 {
		p.l.mu.past = slices.Delete(p.l.mu.past, 0, 1)
	}
}

// step does the next thing that a client would.
func (p *player) step() {
	switch p.phase {
	case playerOut:
		p.join()
	case playerJoining:
		p.onJoined()
	case playerJoined:
		p.sync()
	case playerSyncing:
		p.onSynced()
	case playerIn:
		if !p.native || p.told.Swap(false) {
			p.refused(p.l.c().Heartbeat(p.identity()))
		}
	}
}

func (p *player) begin(phase playerPhase) (attempt int, n *atomic.Int32) {
	p.attempt++
	p.phase = phase
	return p.attempt, p.l.expect()
}

func (p *player) join() {
	attempt, n := p.begin(playerJoining)
	p.told.Store(false)
	id := p.l.c().Join(p.req, func(j Joined) {
		n.Add(1)
		p.got.Lock()
		defer p.got.Unlock()
		if p.got.attempt <= attempt {
			p.got.attempt, p.got.joined, p.got.synced = attempt, &j, nil
		}
	})
	if id != "" {
		p.req.MemberID = id
	}
}

// answer takes the answer to the last call, if it is there.
func (p *player) answer() (j *Joined, s *Synced) {
	p.got.Lock()
	defer p.got.Unlock()
	if p.got.attempt == p.attempt {
		j, s = p.got.joined, p.got.synced
		p.got.joined, p.got.synced = nil, nil
	}
	return j, s
}

func (p *player) onJoined() {
	j, _ := p.answer()
	if j == nil {
		return
	}
	if j.Err != nil {
		if errors.Is(j.Err, kafka.ErrMemberIDRequired) {
			p.req.MemberID = j.MemberID
		}
		p.refused(j.Err)
		return
	}
	p.req.MemberID, p.number, p.phase = j.MemberID, j.Generation, playerJoined
	p.leads = j.Leader == j.MemberID
	p.remember(past{Identity: p.identity(), player: p.name, native: p.native})
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.leads != (len(j.Members) > 0) {
		p.l.violated("%s: leader is %s, told of %d members", p.name, j.Leader, len(j.Members))
	}
	if !p.leads {
		return
	}
	if was, ok := p.l.mu.leaders[p.number]; ok && was != p.name {
		p.l.violated("generation %d has leaders %s and %s", p.number, was, p.name)
	}
	p.l.mu.leaders[p.number] = p.name
	if p.shares = nil; !j.SkipAssignment {
		p.shares = p.l.divide(j, p.r)
	}
}

// divide makes an assignment; l.mu is held.
func (l *ledger) divide(j *Joined, r *rand.Rand) map[string][]byte {
	l.mu.sent[j.Generation]++
	owners := make([]int, modelPartitions)
	for i := range owners {
		owners[i] = r.IntN(len(j.Members))
	}
	shares := map[string][]byte{}
	for i, m := range j.Members {
		name, _, _ := strings.Cut(string(m.Metadata), " ")
		says := fmt.Sprintf("%d/%d/%s", j.Generation, l.mu.sent[j.Generation], name)
		shares[m.ID] = []byte(says)
		for partition, o := range owners {
			if o == i {
				l.mu.given[says] = append(l.mu.given[says], partition)
			}
		}
	}
	return shares
}

func (p *player) sync() {
	r := SyncRequest{Identity: p.identity()}
	if p.leads {
		r.Assignments = p.shares
	}
	attempt, n := p.begin(playerSyncing)
	p.l.c().Sync(r, func(s Synced) {
		n.Add(1)
		if s.Err == nil {
			p.l.mu.Lock()
			p.l.mu.took[p.name] = r.Generation
			p.l.mu.Unlock()
		}
		p.got.Lock()
		defer p.got.Unlock()
		if p.got.attempt <= attempt {
			p.got.attempt, p.got.joined, p.got.synced = attempt, nil, &s
		}
	})
}

func (p *player) onSynced() {
	_, s := p.answer()
	if s == nil {
		return
	}
	if s.Err != nil {
		p.refused(s.Err)
		return
	}
	p.phase = playerIn
	var generation int32
	var n int
	var name string
	_, err := fmt.Sscanf(string(s.Assignment), "%d/%d/%s", &generation, &n, &name)
	p.l.mu.Lock()
	if err != nil || generation != p.number || name != p.name {
		p.l.violated("%s of generation %d got %q", p.name, p.number, s.Assignment)
	}
	if was, ok := p.l.mu.chosen[p.number]; ok && was != n {
		p.l.violated("members of generation %d got parts of two assignments, %d and %d", p.number, was, n)
	}
	p.l.mu.chosen[p.number] = n
	owns := p.l.mu.given[string(s.Assignment)]
	p.l.mu.Unlock()
	p.had = past{Identity: p.identity(), player: p.name, native: p.native, owns: owns}
	p.remember(p.had)
}

// refused goes on after an error as clients do.
func (p *player) refused(err error) {
	switch {
	case err == nil:
	case errors.Is(err, kafka.ErrRebalance), errors.Is(err, kafka.ErrMemberIDRequired):
		p.out(false)
	case errors.Is(err, kafka.ErrClosed): // the coordinator has been restarted, and natives with it
		p.out(p.native)
	case errors.Is(err, kafka.ErrUnknownMember), errors.Is(err, kafka.ErrIllegalGeneration), errors.Is(err, kafka.ErrFencedInstance):
		p.out(true)
	default:
		p.l.mu.Lock()
		defer p.l.mu.Unlock()
		p.l.violated("%s: %v", p.name, err)
	}
}

// commit commits something of what x owns, and says in which partition; -1: it owns nothing.
func (l *ledger) commit(x *past, r *rand.Rand) (partition int, err error) {
	if partition = -1; len(x.owns) > 0 {
		partition = x.owns[r.IntN(len(x.owns))]
	}
	return partition, l.c().Fence(x.Identity, func() error {
		if l.commits != nil && partition >= 0 {
			l.commits(partition, x)
		}
		return nil
	})
}

// leave ends the membership in order: a static native member keeps its place.
func (p *player) leave() {
	id := p.req.MemberID
	if p.native && p.req.InstanceID != "" {
		p.l.c().Detach(groupName, id)
	} else if id != "" {
		_ = p.l.c().Leave(groupName, id, p.req.InstanceID) // it may be out already
	}
	p.out(true)
}

// stray does what a client should not do, but may.
func (p *player) stray() {
	switch p.r.IntN(4) {
	case 0: // the request is sent again
		switch p.phase {
		case playerJoining:
			p.join()
		case playerSyncing:
			p.sync()
		}
	case 1:
		p.leave()
	case 2:
		if p.native && p.req.InstanceID == "" {
			p.leave() // it cannot go without its process
		} else {
			p.out(true)
		}
	case 3: // it subscribes to something else
		p.subscribe()
		if p.phase == playerIn {
			p.join()
		}
	}
}
