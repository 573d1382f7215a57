package group

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
)

// A history is some players' life in a group, one thing after the other.
type history struct {
	*bed
	r       *rand.Rand
	l       *ledger
	players []*player
	paused  map[*player]time.Time
	settled int32 // the last generation that has its assignment
	// Since when the group is in a phase of a generation.
	state  State
	number int32
	since  time.Time
	alone  time.Time             // when nobody was waiting in it
	owner  [modelPartitions]past // who has committed last
	trace  []string
	counts map[string]int
}

// E1, E2, E6: random histories of native, foreign and static members that join, commit, pause, crash, leave and come back, over restarts of the coordinator, are what a model of the
// protocol says, at every step; and when all behave, the group is stable, or empty, in the end.
func TestHistories(t *testing.T) {
	start := startSeed(t)
	counts := map[string]int{}
	for s := start; s < start+uint64(*histories) && !t.Failed(); s++ {
		bubble(t, Options{InitialDelay: time.Duration(s%2) * 3 * time.Second}, func(b *bed) {
			h := newHistory(b, s, counts)
			if err := h.run(); err != nil {
				for _, line := range h.trace[max(0, len(h.trace)-40):] {
					b.Log(line)
				}
				b.Fatalf("seed %d: %v", s, err)
			}
		})
	}
	t.Log(counts)
	for what, least := range map[string]int{"generation": 3, "restart": 1, "accepted": 10, "accepted of the generation before": 0, "refused": 10} {
		if n := counts[what]; n <= least**histories/2 && !t.Failed() {
			t.Errorf("%s: only %d", what, n)
		}
	}
}

func newHistory(b *bed, seed uint64, counts map[string]int) *history {
	h := &history{bed: b, r: rand.New(rand.NewPCG(seed, 7)), paused: map[*player]time.Time{}, since: time.Now(), counts: counts, settled: -1}
	h.l = newLedger(func() *Coordinator { return b.c })
	h.l.commits = h.committed
	for i := range 2 + h.r.IntN(4) {
		h.players = append(h.players, newPlayer(h.l, h.r, i))
	}
	return h
}

func (h *history) note(format string, args ...any) {
	h.trace = append(h.trace, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

func (h *history) run() error {
	for range 250 {
		if err := h.step(); err != nil {
			return err
		}
	}
	if err := h.behave(); err != nil {
		return err
	}
	h.c.Close()
	synctest.Wait()
	return h.l.answered()
}

func (h *history) step() error {
	p := h.players[h.r.IntN(len(h.players))]
	awake := !time.Now().Before(h.paused[p])
	switch n := h.r.IntN(100); {
	case n < 50 && awake:
		h.note("%s steps", p.name)
		p.step()
	case n < 65 && awake && p.had.Generation > 0:
		if err := h.commit(&p.had); err != nil {
			return err
		}
	case n < 72:
		if x := h.l.anyPast(h.r); x.Generation > 0 {
			if err := h.commit(&x); err != nil {
				return err
			}
		}
	case n < 78 && awake:
		h.note("%s strays", p.name)
		p.stray()
	case n < 80:
		h.paused[p] = time.Now().Add(time.Duration(h.r.IntN(30)) * time.Second)
	case n < 81:
		if err := h.again(); err != nil {
			return err
		}
	case n < 98:
		time.Sleep(time.Duration(h.r.IntN(1500)) * time.Millisecond)
	default:
		time.Sleep(time.Duration(h.r.IntN(20000)) * time.Millisecond)
	}
	return h.look()
}

// look holds the group against what is known of it.
func (h *history) look() error {
	d := h.describe()
	h.note("%v %d of %d, leader %s", d.State, d.Generation, len(d.Members), d.Leader)
	if d.Generation < h.number {
		return fmt.Errorf("generation %d after %d", d.Generation, h.number)
	}
	if d.State != h.state || d.Generation != h.number {
		h.counts["generation"] += int(d.Generation - h.number)
		h.begins(&d)
	}
	if d.State == Stable && d.Generation > h.settled {
		h.settled = d.Generation
	}
	if d.State != PreparingRebalance && d.State != CompletingRebalance {
		return h.l.err()
	}
	waits, awaited, patience := false, d.State == CompletingRebalance, time.Duration(0)
	for _, m := range d.Members {
		waits = waits || m.Waiting
		awaited = awaited || !m.Waiting && m.InstanceID == ""
	}
	if !waits {
		h.alone = time.Now()
	}
	for _, p := range h.players {
		patience = max(patience, p.req.RebalanceTimeout)
	}
	// Static members that nobody waits for may come when they like.
	if took := time.Since(h.since); awaited && took > patience+moment {
		return fmt.Errorf("E6: %v of generation %d has taken %v, and may take %v", d.State, d.Generation, took, patience)
	}
	if took := time.Since(h.alone); waits && took > patience+moment {
		return fmt.Errorf("E6: somebody has waited for %v, and may wait for %v", took, patience)
	}
	return h.l.err()
}

// begins is told when the group has got into a phase of a generation.
func (h *history) begins(d *Description) {
	h.state, h.number = d.State, d.Generation
	h.since, h.alone = time.Now(), time.Now()
}

// again ends the process and starts the next one.
func (h *history) again() error {
	how := []stop{inOrder, kill, power}[h.r.IntN(3)]
	h.note("%s", how)
	h.counts["restart"]++
	h.restart(how)
	for _, p := range h.players {
		switch {
		case p.native:
			p.out(true)
			h.paused[p] = time.Time{}
		case p.phase == playerJoining || p.phase == playerSyncing:
			p.out(false) // the answer is lost
		}
	}
	d := h.describe()
	if d.Generation < h.settled {
		return fmt.Errorf("generation %d after %d was stable", d.Generation, h.settled)
	}
	// A generation that did not come to an assignment may come again.
	h.begins(&d)
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	for g := range h.l.mu.leaders {
		if g > h.settled {
			delete(h.l.mu.leaders, g)
		}
	}
	for _, m := range d.Members { // what a static native one comes back to counts as taken
		h.l.mu.took[m.ClientID] = d.Generation
	}
	h.l.mu.past = slices.DeleteFunc(h.l.mu.past, func(x past) bool { return x.native })
	return nil
}

// commit commits for a member, or what was one, and compares the answer with what it should be.
func (h *history) commit(x *past) error {
	if err := h.look(); err != nil {
		return err
	}
	why, want := h.verdict(x)
	_, err := h.l.commit(x, h.r)
	h.note("%s commits for %d: %v", x.player, x.Generation, err)
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		return fmt.Errorf("E2: %s commits for generation %d: %v, want %v: %s", x.player, x.Generation, err, want, why)
	}
	if err == nil {
		h.counts["accepted"]++
		if x.Generation < h.number {
			h.counts["accepted of the generation before"]++
		}
	} else {
		h.counts["refused"]++
	}
	return nil
}

// verdict is what a commit is to be answered with.
func (h *history) verdict(x *past) (why string, err error) {
	d := h.describe()
	there, instance := false, false
	for _, m := range d.Members {
		there = there || m.ID == x.MemberID
		instance = instance || m.InstanceID == x.InstanceID && x.InstanceID != ""
	}
	switch {
	case !there && instance:
		return "somebody else has its instance id", kafka.ErrFencedInstance
	case !there:
		return "it is not in the group", kafka.ErrUnknownMember
	case x.native && x.Generation == h.l.mu.took[x.player] && x.Generation == h.settled && d.State != Stable:
		return "no later generation has its assignment", nil
	case x.Generation != d.Generation:
		return fmt.Sprintf("the group is in %d", d.Generation), kafka.ErrIllegalGeneration
	case d.State == CompletingRebalance:
		return "the generation has no assignment yet", kafka.ErrRebalance
	}
	return "it is of the generation", nil
}

// committed is told of every commit that is accepted: a partition has one owner in each generation, and none of an earlier one later.
func (h *history) committed(partition int, x *past) {
	last := h.owner[partition]
	if x.Generation < last.Generation || x.Generation == last.Generation && last.player != "" && x.player != last.player {
		h.l.mu.Lock()
		defer h.l.mu.Unlock()
		h.l.violated("E1: partition %d: %s commits for generation %d after %s for %d", partition, x.player, x.Generation, last.player, last.Generation)
	}
	h.owner[partition] = *x
}

// behave has everybody do what is right until the group is stable, and then leave.
func (h *history) behave() error {
	end := time.Now().Add(3 * time.Minute)
	for {
		for _, p := range h.players {
			p.step()
			synctest.Wait()
		}
		if err := h.look(); err != nil {
			return err
		}
		d := h.describe()
		in := 0
		for _, p := range h.players {
			if p.phase == playerIn && p.number == d.Generation && slices.ContainsFunc(d.Members, func(m MemberDescription) bool { return m.ID == p.req.MemberID }) {
				in++
			}
		}
		if in == len(h.players) && d.State == Stable && len(d.Members) == in {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("E6: %v of %d members, %d are in", d.State, len(d.Members), in)
		}
		time.Sleep(500 * time.Millisecond)
	}
	for _, p := range h.players {
		if err := h.commit(&p.had); err != nil {
			return err
		}
	}
	for _, p := range h.players {
		if err := h.c.Leave(groupName, p.req.MemberID, p.req.InstanceID); err != nil {
			return err
		}
	}
	h.pass(time.Minute) // ids that were given out are awaited too
	if d := h.describe(); d.State != Empty || len(d.Members) > 0 {
		return fmt.Errorf("%+v", d)
	}
	return nil
}
