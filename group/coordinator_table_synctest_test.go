package group

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
)

// A scene is a group in some state: a foreign, a native and a static member, of which the native one leads.
type scene struct {
	*bed
	leader, foreign, static *actor
	generation              int32
}

// scenes are ways to bring a group into each of its states.
var scenes = []struct {
	state State
	make  func(s *scene)
}{
	{Dead, func(s *scene) {}},
	{Empty, func(s *scene) {
		s.stable(s.leader, s.foreign, s.static)
		for _, a := range []*actor{s.leader, s.foreign, s.static} {
			check(s, a.leave())
		}
	}},
	{PreparingRebalance, func(s *scene) {
		s.stable(s.leader, s.foreign, s.static)
		s.native("n").join()
	}},
	{CompletingRebalance, func(s *scene) { s.gather(s.leader, s.foreign, s.static) }},
	{Stable, func(s *scene) { s.stable(s.leader, s.foreign, s.static) }},
}

func onScene(t *testing.T, state State, fn func(s *scene)) {
	t.Helper()
	for _, sc := range scenes {
		if sc.state != state {
			continue
		}
		bubble(t, Options{}, func(b *bed) {
			s := &scene{bed: b, leader: b.native("leader"), foreign: b.foreign("foreign"), static: b.foreign("static").as("i")}
			sc.make(s)
			d := b.describe()
			if d.State != state {
				b.Fatalf("%v, want %v", d.State, state)
			}
			s.generation = d.Generation
			fn(s)
		})
	}
}

// who are the identities that a request may come with.
var who = []struct {
	name string
	id   func(s *scene) Identity
}{
	{"right", func(s *scene) Identity { return s.of(s.foreign) }},
	{"right static", func(s *scene) Identity { return s.of(s.static) }},
	{"right native", func(s *scene) Identity { return s.of(s.leader) }},
	{"static without its instance id", func(s *scene) Identity { id := s.of(s.static); id.InstanceID = ""; return id }},
	{"unknown", func(s *scene) Identity { id := s.of(s.foreign); id.MemberID = "nobody"; return id }},
	{"none", func(s *scene) Identity { id := s.of(s.foreign); id.MemberID = ""; return id }},
	{"stale", func(s *scene) Identity { id := s.of(s.foreign); id.Generation--; return id }},
	{"future", func(s *scene) Identity { id := s.of(s.foreign); id.Generation++; return id }},
	{"no generation", func(s *scene) Identity { id := s.of(s.foreign); id.Generation = -1; return id }},
	{"fenced", func(s *scene) Identity { id := s.of(s.static); id.MemberID = "its last life"; return id }},
	{"another instance", func(s *scene) Identity { id := s.of(s.foreign); id.InstanceID = "j"; return id }},
	{"another's instance", func(s *scene) Identity { id := s.of(s.foreign); id.InstanceID = "i"; return id }},
	{"stale native", func(s *scene) Identity { id := s.of(s.leader); id.Generation--; return id }},
}

// of is what a member of the scene says of itself.
func (s *scene) of(a *actor) Identity {
	id := Identity{Group: groupName, MemberID: a.r.MemberID, InstanceID: a.r.InstanceID, Generation: s.generation}
	if id.MemberID == "" { // there is no group
		id.MemberID = "nobody"
	}
	return id
}

// Short names of what a request is answered with.
var (
	unknown = kafka.ErrUnknownMember
	illegal = kafka.ErrIllegalGeneration
	fenced  = kafka.ErrFencedInstance
	again   = kafka.ErrRebalance
	fine    = (*kafka.Error)(nil)
	waiting = &kafka.Error{} // no answer yet
)

// answers holds, for a state, what each of who gets.
type answers map[State][]*kafka.Error

var nobody = []*kafka.Error{unknown, unknown, unknown, unknown, unknown, unknown, unknown, unknown, unknown, unknown, unknown, unknown, unknown}

// E2: a stale generation or member, or a fenced instance, can neither heartbeat, nor get an assignment, nor commit, in any state; and what is refused changes nothing.
func TestWhoIsAnswered(t *testing.T) {
	for _, verb := range []struct {
		name string
		ask  func(s *scene, id Identity) error // kafka.ErrTimeout: no answer yet
		want answers
	}{
		{"Heartbeat", func(s *scene, id Identity) error { return s.c.Heartbeat(id) }, answers{
			Dead: nobody, Empty: nobody,
			PreparingRebalance:  {again, again, again, again, unknown, unknown, illegal, illegal, illegal, fenced, unknown, fenced, illegal},
			CompletingRebalance: {fine, fine, fine, fine, unknown, unknown, illegal, illegal, illegal, fenced, unknown, fenced, illegal},
			Stable:              {fine, fine, fine, fine, unknown, unknown, illegal, illegal, illegal, fenced, unknown, fenced, illegal},
		}},
		{"Sync", func(s *scene, id Identity) error {
			c := newCall[Synced](s.bed, nil)
			s.c.Sync(SyncRequest{Identity: id, Assignments: map[string][]byte{}}, c.done)
			if !c.answered() {
				return waiting
			}
			return c.answer().Err
		}, answers{
			Dead: nobody, Empty: nobody,
			PreparingRebalance:  {again, again, again, again, unknown, unknown, illegal, illegal, illegal, fenced, unknown, fenced, illegal},
			CompletingRebalance: {waiting, waiting, fine, waiting, unknown, unknown, illegal, illegal, illegal, fenced, unknown, fenced, illegal},
			Stable:              {fine, fine, fine, fine, unknown, unknown, illegal, illegal, illegal, fenced, unknown, fenced, illegal},
		}},
		{"Fence", func(s *scene, id Identity) error { return s.fence(id) }, answers{
			Dead: nobody, Empty: nobody,
			// The rebalance may not have been heard of.
			PreparingRebalance: {fine, fine, fine, fine, unknown, unknown, illegal, illegal, illegal, fenced, unknown, fenced, illegal},
			// Nobody in the scene has had an assignment yet.
			CompletingRebalance: {again, again, again, again, unknown, unknown, illegal, illegal, illegal, fenced, unknown, fenced, illegal},
			Stable:              {fine, fine, fine, fine, unknown, unknown, illegal, illegal, illegal, fenced, unknown, fenced, illegal},
		}},
		{"Leave", func(s *scene, id Identity) error { return s.c.Leave(id.Group, id.MemberID, id.InstanceID) }, answers{
			Dead: nobody, Empty: nobody,
			PreparingRebalance:  {fine, fine, fine, fine, unknown, unknown, fine, fine, fine, fenced, unknown, fenced, fine},
			CompletingRebalance: {fine, fine, fine, fine, unknown, unknown, fine, fine, fine, fenced, unknown, fenced, fine},
			Stable:              {fine, fine, fine, fine, unknown, unknown, fine, fine, fine, fenced, unknown, fenced, fine},
		}},
	} {
		for state, want := range verb.want {
			for i, w := range who {
				t.Run(verb.name+"/"+state.String()+"/"+w.name, func(t *testing.T) {
					onScene(t, state, func(s *scene) {
						before := s.describe()
						err := verb.ask(s, w.id(s))
						if want[i] == fine && err != nil || want[i] != fine && !errors.Is(err, want[i]) {
							s.Fatalf("%v, want %v", err, want[i])
						}
						if want[i] == fenced && !errors.Is(err, kafka.ErrFenced) {
							s.Fatalf("%v does not say that its life is over", err)
						}
						if after := s.describe(); err != nil && want[i] != waiting && !reflect.DeepEqual(before, after) {
							s.Fatalf("%+v\nwas %+v", after, before)
						}
					})
				})
			}
		}
	}
}

// E2: a Join is refused for the same reasons, and for a member that the group has no use for.
func TestWhoMayJoin(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(s *scene, r *JoinRequest)
		want   *kafka.Error
		in     []State
	}{
		"unknown":          {func(s *scene, r *JoinRequest) { r.MemberID = "nobody" }, unknown, []State{Dead, Empty, PreparingRebalance, CompletingRebalance, Stable}},
		"unknown static":   {func(s *scene, r *JoinRequest) { r.MemberID, r.InstanceID = "nobody", "j" }, unknown, []State{Dead, Empty, PreparingRebalance, CompletingRebalance, Stable}},
		"fenced":           {func(s *scene, r *JoinRequest) { r.MemberID, r.InstanceID = "its last life", "i" }, fenced, []State{PreparingRebalance, CompletingRebalance, Stable}},
		"another instance": {func(s *scene, r *JoinRequest) { r.InstanceID = "j" }, unknown, []State{PreparingRebalance, CompletingRebalance, Stable}},
		"another's":        {func(s *scene, r *JoinRequest) { r.InstanceID = "i" }, fenced, []State{PreparingRebalance, CompletingRebalance, Stable}},
		"protocol type":    {func(s *scene, r *JoinRequest) { r.ProtocolType = "connect" }, kafka.ErrInconsistentProtocol, []State{PreparingRebalance, CompletingRebalance, Stable}},
		"protocol":         {func(s *scene, r *JoinRequest) { r.Protocols = protocols("x", "y") }, kafka.ErrInconsistentProtocol, []State{PreparingRebalance, CompletingRebalance, Stable}},
		"new protocol": {func(s *scene, r *JoinRequest) { r.MemberID, r.Protocols = "", protocols("x", "y") }, kafka.ErrInconsistentProtocol,
			[]State{PreparingRebalance, CompletingRebalance, Stable}},
		"no protocol type": {func(s *scene, r *JoinRequest) { r.MemberID, r.ProtocolType = "", "" }, kafka.ErrInconsistentProtocol,
			[]State{Dead, Empty, PreparingRebalance, CompletingRebalance, Stable}},
		"no protocols": {func(s *scene, r *JoinRequest) { r.MemberID, r.Protocols = "", nil }, kafka.ErrInconsistentProtocol,
			[]State{Dead, Empty, PreparingRebalance, CompletingRebalance, Stable}},
		"short session": {func(s *scene, r *JoinRequest) { r.SessionTimeout = MinSessionTimeout - 1 }, kafka.ErrSessionTimeout, []State{Dead, Empty, Stable}},
		"long session":  {func(s *scene, r *JoinRequest) { r.SessionTimeout = MaxSessionTimeout + 1 }, kafka.ErrSessionTimeout, []State{Dead, Empty, Stable}},
		"no group":      {func(s *scene, r *JoinRequest) { r.Group = "" }, kafka.ErrInvalidGroup, []State{Dead, Stable}},
	} {
		for _, state := range tc.in {
			t.Run(name+"/"+state.String(), func(t *testing.T) {
				onScene(t, state, func(s *scene) {
					before := s.describe()
					a := s.bed.foreign("a")
					a.r.MemberID = s.foreign.r.MemberID
					tc.change(s, &a.r)
					j := a.join().answer()
					s.wants(j.Err, tc.want)
					if j.Generation != -1 || j.MemberID != a.r.MemberID {
						s.Fatalf("%+v", j)
					}
					if after := s.describe(); !reflect.DeepEqual(before, after) {
						s.Fatalf("%+v\nwas %+v", after, before)
					}
				})
			})
		}
	}
}

// The bounds of a session are good ones, and do not bind native members.
func TestSessionTimeoutBounds(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		for i, d := range []time.Duration{MinSessionTimeout, MaxSessionTimeout, time.Millisecond} {
			a := b.foreign("a")
			if i == 2 {
				a = b.native("a")
			}
			a.r.SessionTimeout = d
			check(b, a.join().answer().Err)
			check(b, a.leave())
		}
	})
}

// E2: without a member, offsets are committed only while the group has no members.
func TestFenceWithoutMember(t *testing.T) {
	for state, want := range map[State]*kafka.Error{Dead: fine, Empty: fine, PreparingRebalance: unknown, CompletingRebalance: unknown, Stable: unknown} {
		t.Run(state.String(), func(t *testing.T) {
			onScene(t, state, func(s *scene) {
				err := s.fence(Identity{Group: groupName, Generation: -1})
				if want == fine && err != nil || want != fine && !errors.Is(err, want) {
					s.Fatalf("%v, want %v", err, want)
				}
				s.wants(s.fence(Identity{Generation: -1}), kafka.ErrInvalidGroup)
			})
		})
	}
}

// E2: what fn returns is what Fence returns, and it has run once.
func TestFenceReturnsTheErrorOfWhatItGuards(t *testing.T) {
	onScene(t, Stable, func(s *scene) {
		reason := errors.New("reason")
		if err := s.c.Fence(s.of(s.foreign), func() error { return reason }); err != reason {
			s.Fatal(err)
		}
	})
}

// E2: whatever protocol a Sync says it is for is the group's.
func TestSyncSaysTheProtocol(t *testing.T) {
	for _, state := range []State{CompletingRebalance, Stable} {
		onScene(t, state, func(s *scene) {
			for _, tc := range []struct {
				kind, protocol string
				want           error
			}{{"connect", "range", kafka.ErrInconsistentProtocol}, {ConsumerProtocol, "x", kafka.ErrInconsistentProtocol}, {"", "x", kafka.ErrInconsistentProtocol}, {ConsumerProtocol, "range", nil}} {
				c := newCall[Synced](s.bed, nil)
				s.c.Sync(SyncRequest{Identity: s.of(s.leader), ProtocolType: tc.kind, Protocol: tc.protocol, Assignments: map[string][]byte{}}, c.done)
				s.wants(c.answer().Err, tc.want)
			}
		})
	}
}

// E2: a native member may commit what it owns until the next generation has its assignment, whatever becomes of generations between that never have one; a foreign one until the next
// generation begins.
func TestHowLongAGenerationLasts(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		a, f, n, m := b.native("a"), b.foreign("f"), b.native("n"), b.native("m")
		b.stable(a, f)
		before := a.identity()
		foreign := f.identity()
		n.join()
		b.wants(b.fence(before), nil)
		b.wants(b.fence(foreign), nil)
		a.join()
		b.wants(b.fence(before), nil)
		f.join()
		b.is(CompletingRebalance, a, f, n)
		b.wants(b.fence(before), nil)
		b.wants(b.fence(foreign), illegal)
		b.wants(a.fence(), again)
		b.wants(f.fence(), again)
		b.wants(n.fence(), again)
		joins := []*call[Joined]{m.join()} // the generation of three never has an assignment
		b.is(PreparingRebalance, a, f, n, m)
		b.wants(b.fence(before), nil)
		b.wants(b.fence(foreign), illegal)
		for _, x := range []*actor{a, f, n} {
			joins = append(joins, x.join())
		}
		for _, j := range joins {
			check(b, j.answer().Err)
		}
		b.wants(b.fence(before), nil)
		check(b, a.sync().answer().Err)
		b.is(Stable, a, f, n, m)
		b.wants(b.fence(before), illegal)
		b.wants(a.fence(), nil)
	})
}

// E1, E2: a member that has slept through a whole generation cannot commit what it owned before: that is somebody else's by now.
func TestNoCommitPastAGenerationThatWasMissed(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		lead, slow, n := b.native("lead"), b.native("slow"), b.native("n")
		b.stable(lead, slow)
		before := slow.identity()
		joins := []*call[Joined]{n.join(), lead.join(), slow.join()}
		for _, j := range joins {
			check(b, j.answer().Err)
		}
		b.wants(b.fence(before), nil) // nobody has anything of it yet
		check(b, lead.sync().answer().Err)
		check(b, n.sync().answer().Err)
		b.wants(n.fence(), nil)
		b.wants(b.fence(before), illegal)
		// And the one after it begins, without slow having asked for its assignment.
		joins = []*call[Joined]{lead.join(), n.join(), slow.join()}
		b.wants(b.fence(before), illegal)
		for _, j := range joins {
			check(b, j.answer().Err)
		}
		b.is(CompletingRebalance, lead, slow, n)
		b.wants(b.fence(before), illegal)
		b.wants(n.fence(), again)
	})
}
