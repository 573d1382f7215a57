package group

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
)

// The protocol of a generation is, of those that all members know, the one that most of them like best.
func TestVote(t *testing.T) {
	for _, tc := range []struct {
		members string // by blank: each one's protocols, in its order
		want    string
	}{
		{"a", "a"},
		{"ab", "a"},
		{"ab ba ba", "b"},
		{"ab ab ba", "a"},
		{"ab b", "b"},
		{"ab ab b", "b"},
		{"abc bca cba", "a"},       // a tie is for the longest there to decide
		{"cba abc bca", "c"},       //
		{"abc ac ca ca", "a"},      // b is known to one only
		{"bac ac ca", "a"},         // and its vote goes to what it likes next
		{"xab yab zba wba", "a"},   // two each
		{"xba yab zba wab", "b"},   //
		{"xab yab zba wba b", "b"}, //
	} {
		t.Run(tc.members, func(t *testing.T) {
			bubble(t, Options{}, func(b *bed) {
				var as []*actor
				for i, ps := range strings.Fields(tc.members) {
					a := b.native(fmt.Sprint(i))
					a.r.Protocols = protocols(strings.Split(ps, "")...)
					as = append(as, a)
				}
				b.gather(as...)
				for _, a := range as {
					if j := a.joined(); j.Protocol != tc.want || j.ProtocolType != ConsumerProtocol {
						b.Fatalf("%+v, want %s", j, tc.want)
					}
				}
				for _, m := range as[0].joined().Members {
					if string(m.Metadata) != "says to "+tc.want {
						b.Fatalf("%s", m.Metadata)
					}
				}
			})
		})
	}
}

// A member may change what it knows, as long as there is one that all know; and what is known is asked of those who are there.
func TestProtocolsChange(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		a, f := b.native("a"), b.native("f")
		a.r.Protocols, f.r.Protocols = protocols("x", "y"), protocols("x", "y")
		b.stable(a, f)
		f.r.Protocols = protocols("y")
		joins := []*call[Joined]{f.join(), a.join()}
		for _, j := range joins {
			if j.answer().Protocol != "y" {
				b.Fatalf("%+v", j.answer())
			}
		}
		a.r.Protocols = protocols("x")
		b.wants(a.join().answer().Err, kafka.ErrInconsistentProtocol)
		b.is(CompletingRebalance, a, f) // it is refused, not out
		check(b, f.leave())
		if j := a.join().answer(); j.Err != nil || j.Protocol != "x" {
			b.Fatalf("%+v", j)
		}
		check(b, a.leave())
		c := b.native("c")
		c.r.ProtocolType, c.r.Protocols = "connect", protocols("eager")
		if j := c.join().answer(); j.Err != nil || j.ProtocolType != "connect" || j.Protocol != "eager" {
			b.Fatalf("%+v", j)
		}
	})
}

// Who joins when nobody is there but an id that was given out decides about the kind of the group, whatever state the last one has left it in.
func TestProtocolTypeOfAGroupThatSomebodyIsAboutToJoin(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		a, slow, p := b.native("a"), b.native("slow"), b.foreign("p")
		b.stable(a, slow)
		p.r.RequireMemberID, p.r.ProtocolType = true, ConsumerProtocol
		p.r.MemberID = p.join().answer().MemberID
		check(b, a.leave())
		check(b, slow.leave()) // the last one; the rebalance waits for p
		p.r.ProtocolType = "connect"
		j := p.join()
		b.pass(rebalance)
		if a := j.answer(); a.Err == nil && a.ProtocolType != "connect" {
			b.Fatalf("%+v", a)
		}
	})
}

// A group takes as many members as it may have, ids that were given out among them, and one more when one has left.
func TestGroupSize(t *testing.T) {
	bubble(t, Options{MaxSize: 3}, func(b *bed) {
		a, s, p := b.native("a"), b.foreign("s").as("i"), b.foreign("p")
		p.r.RequireMemberID = true
		b.stable(a, s)
		p.r.MemberID = p.join().answer().MemberID
		for _, more := range []*actor{b.native("more"), b.foreign("more"), b.foreign("more").as("j")} {
			b.wants(more.join().answer().Err, kafka.ErrGroupFull)
		}
		b.is(Stable, a, s)
		next := s.again() // takes a place that is there
		check(b, next.join().answer().Err)
		joins := []*call[Joined]{p.join(), a.join(), next.join()}
		for _, j := range joins {
			check(b, j.answer().Err) // members of a full group go on
		}
		b.wants(b.native("more").join().answer().Err, kafka.ErrGroupFull)
		check(b, a.leave())
		n := b.native("n")
		n.join()
		if !b.has(n) {
			b.Fatal("no place")
		}
	})
}

// Exactly one member leads a generation: the one that has led before, as long as it joins, else the one that has been there longest. It alone is told who is in, in a fixed order.
func TestLeader(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		as := []*actor{b.native("0"), b.foreign("1"), b.native("2").as("i"), b.foreign("3")}
		leads := func(want *actor, as ...*actor) {
			b.Helper()
			generation := b.describe().Generation
			for _, a := range as {
				j := a.joined()
				if j.Generation != generation || j.Leader != want.r.MemberID || j.SkipAssignment || (len(j.Members) > 0) != (a == want) {
					b.Fatalf("%s: %+v", a.r.ClientID, j)
				}
			}
			for i, m := range want.joined().Members {
				if a := as[i]; m.ID != a.r.MemberID || m.InstanceID != a.r.InstanceID || string(m.Metadata) != "says to range" {
					b.Fatalf("%d: %+v", i, m)
				}
			}
		}
		b.stable(as...)
		leads(as[0], as...)
		check(b, as[0].leave())
		joins := []*call[Joined]{as[3].join(), as[2].join(), as[1].join()}
		for _, j := range joins {
			check(b, j.answer().Err)
		}
		leads(as[1], as[1:]...)
		b.settle(as[1:]...)
		as[3].r.Protocols = []Protocol{{"range", []byte("says to range")}, {"other", nil}} // changed
		joins = []*call[Joined]{as[3].join(), as[2].join()}
		b.pass(rebalance) // the leader does not come
		for _, j := range joins {
			check(b, j.answer().Err)
		}
		leads(as[2], as[2:]...)
	})
}

// A follower that joins again and says what it has said gets the generation that there is; one that says something else, and the leader in any case, begin another one.
func TestRejoinOfAStableGroup(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		leader, f := b.native("leader"), b.foreign("f")
		b.stable(leader, f)
		leader.tells(1)
		before := f.joined()
		if j := f.join().answer(); j.Err != nil || j.Generation != before.Generation || j.Leader != leader.r.MemberID || len(j.Members) > 0 {
			b.Fatalf("%+v", j)
		}
		if s := f.sync().answer(); s.Err != nil || string(s.Assignment) != string(share(before.Generation, f.r.MemberID)) {
			b.Fatalf("%+v", s)
		}
		b.is(Stable, leader, f)
		leader.tells(0)
		for _, change := range []func(){
			func() { f.r.Protocols = []Protocol{{"range", []byte("something else")}} },
			func() { f.r.Protocols = append(slices.Clone(f.r.Protocols), Protocol{"other", nil}) },
			func() { f.r.Protocols = slices.Clone(f.r.Protocols); slices.Reverse(f.r.Protocols) },
		} {
			change()
			j := f.join()
			j.waits()
			b.is(PreparingRebalance, leader, f)
			leader.tells(1)
			leader.join()
			if a := j.answer(); a.Generation != before.Generation+1 {
				b.Fatalf("%+v", a)
			}
			b.settle(leader, f)
			before = f.joined()
		}
		j := leader.join()
		j.waits()
		b.wants(f.beat(), kafka.ErrRebalance)
		f.join()
		if a := j.answer(); a.Generation != before.Generation+1 || len(a.Members) != 2 {
			b.Fatalf("%+v", a)
		}
	})
}

// While the assignment is made, whoever joins again and says the same gets the same answer, the leader with all that it needs; something else begins another generation.
func TestRejoinWhileTheAssignmentIsMade(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		leader, f := b.native("leader"), b.foreign("f")
		b.gather(leader, f)
		leader.tells(1)
		for _, a := range []*actor{leader, f} {
			before := a.joined()
			if j := a.join().answer(); fmt.Sprint(j) != fmt.Sprint(before) {
				b.Fatalf("%+v, was %+v", j, before)
			}
		}
		leader.tells(0)
		waiting := f.sync()
		n := b.native("n")
		n.join()
		b.wants(waiting.answer().Err, kafka.ErrRebalance)
		leader.tells(1)
		leader.join()
		f.join()
		b.is(CompletingRebalance, leader, f, n)
		waiting = f.sync()
		leader.r.Protocols = protocols("range", "more")
		leader.join()
		b.wants(waiting.answer().Err, kafka.ErrRebalance)
		b.is(PreparingRebalance, leader, f, n)
	})
}

// A Join or Sync that is sent again takes the place of the one before: each is answered once.
func TestDuplicates(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		leader, f := b.native("leader"), b.foreign("f")
		b.stable(leader, f)
		n := b.native("n")
		joins := []*call[Joined]{n.join(), n.join(), f.join(), f.join(), n.join()}
		for _, j := range []int{0, 1, 2} {
			b.wants(joins[j].answer().Err, kafka.ErrRebalance)
		}
		joins[3].waits()
		joins[4].waits()
		b.is(PreparingRebalance, leader, f, n)
		leader.join()
		for _, j := range joins[3:] {
			check(b, j.answer().Err)
		}
		syncs := []*call[Synced]{f.sync(), f.sync(), n.sync()}
		b.wants(syncs[0].answer().Err, kafka.ErrRebalance)
		check(b, leader.sync().answer().Err)
		for _, s := range syncs[1:] {
			check(b, s.answer().Err)
		}
		check(b, f.sync().answer().Err) // once more
		b.is(Stable, leader, f, n)
	})
}

// Every member gets of the assignment what the leader has sent for it, as often as it asks; a follower's word about it counts nothing, nor does the leader's second.
func TestAssignmentIsTheLeaders(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		leader, f, n := b.native("leader"), b.foreign("f"), b.native("n")
		b.gather(leader, f, n)
		send := func(a *actor, what string) *call[Synced] {
			c := newCall[Synced](b, nil)
			as := map[string][]byte{"nobody": []byte("x"), n.r.MemberID: nil}
			for _, to := range []*actor{leader, f} {
				as[to.r.MemberID] = []byte(what + " to " + to.r.ClientID)
			}
			b.c.Sync(SyncRequest{Identity: a.identity(), Assignments: as}, c.done)
			return c
		}
		early := send(f, "follower")
		early.waits()
		gets := func(c *call[Synced], want string) {
			b.Helper()
			if s := c.answer(); s.Err != nil || string(s.Assignment) != want || s.Protocol != "range" || s.ProtocolType != ConsumerProtocol {
				b.Fatalf("%+v, want %s", s, want)
			}
		}
		gets(send(leader, "leader"), "leader to leader")
		gets(early, "leader to f")
		gets(n.sync(), "")
		gets(send(leader, "second"), "leader to leader")
		gets(send(f, "second"), "leader to f")
	})
}

// What Options.Since was when the group got its first member is told with every generation, until it has been empty.
func TestSince(t *testing.T) {
	now := int64(7)
	bubble(t, Options{Since: func() int64 { return now }}, func(b *bed) {
		a, f := b.native("a"), b.native("f")
		b.stable(a)
		now = 8
		joins := []*call[Joined]{f.join(), a.join()}
		check(b, joins[0].answer().Err)
		if a.joined().Since != 7 || f.joined().Since != 7 {
			b.Fatalf("%+v", f.joined())
		}
		check(b, a.leave())
		check(b, f.leave())
		now = 9
		if j := a.again().join().answer(); j.Since != 9 {
			b.Fatalf("%+v", j)
		}
	})
}

// Generations rise over everything that happens to a group, its being empty included.
func TestGenerationsRise(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		last := int32(0)
		for range 5 {
			a, f := b.native("a"), b.foreign("f")
			for _, j := range []Joined{a.join().answer(), func() Joined { c := f.join(); a.join(); return c.answer() }()} {
				if j.Generation <= last {
					b.Fatalf("%d after %d", j.Generation, last)
				}
				last = j.Generation
			}
			check(b, a.leave())
			check(b, f.leave())
			d := b.describe()
			if d.State != Empty || d.Generation <= last || d.EmptySince != time.Now().UnixMilli() {
				b.Fatalf("%+v", d)
			}
		}
	})
}
