package group

import (
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
)

// eachKind runs fn with foreign and with native members.
func eachKind(t *testing.T, fn func(b *bed, member func(string) *actor)) {
	t.Helper()
	t.Run("foreign", func(t *testing.T) { bubble(t, Options{}, func(b *bed) { fn(b, b.foreign) }) })
	t.Run("native", func(t *testing.T) { bubble(t, Options{}, func(b *bed) { fn(b, b.native) }) })
}

// E2: a static member that comes back has its assignment again, and nobody else notices; its life before is fenced everywhere, and told if it lives here.
func TestStaticMemberComesBack(t *testing.T) {
	eachKind(t, func(b *bed, member func(string) *actor) {
		leader, s := b.native("leader"), member("s").as("i")
		b.stable(leader, s)
		leader.tells(1)
		before := b.describe()
		s.told.Store(0)
		next := s.again()
		j := next.join().answer()
		if j.Err != nil || j.Generation != before.Generation || j.Leader != leader.r.MemberID || j.MemberID == s.r.MemberID || j.SkipAssignment || len(j.Members) > 0 {
			b.Fatalf("%+v", j)
		}
		if y := next.sync().answer(); y.Err != nil || string(y.Assignment) != string(share(before.Generation, s.r.MemberID)) {
			b.Fatalf("%+v", y)
		}
		b.is(Stable, leader, next)
		leader.tells(0)
		next.tells(0)
		if s.r.Notify != nil {
			s.tells(1)
		}
		b.wants(s.beat(), fenced)
		b.wants(s.fence(), fenced)
		b.wants(s.sync().answer().Err, fenced)
		b.wants(s.join().answer().Err, fenced)
		b.wants(s.leave(), fenced)
		b.is(Stable, leader, next)
		b.wants(next.fence(), nil)
	})
}

// E2: whoever waits in the life before is told that it is over.
func TestStaticMemberComesBackWhileItsLastLifeWaits(t *testing.T) {
	eachKind(t, func(b *bed, member func(string) *actor) {
		leader, s := b.native("leader"), member("s").as("i")
		b.stable(leader)
		join := s.join()
		next := s.again()
		joins := []*call[Joined]{next.join()}
		b.wants(join.answer().Err, fenced)
		joins[0].waits()
		b.is(PreparingRebalance, leader, next)
		joins = append(joins, leader.join())
		for _, j := range joins {
			check(b, j.answer().Err)
		}
		sync := next.sync()
		third := next.again()
		joins = []*call[Joined]{third.join()} // the leader has been told of the second
		b.wants(sync.answer().Err, fenced)
		b.is(PreparingRebalance, leader, third)
		leader.join()
		check(b, joins[0].answer().Err)
		b.settle(leader, third)
	})
}

// A static leader that comes back leads on, and is told that the assignment stands: it is not to make another one.
func TestStaticLeaderComesBack(t *testing.T) {
	eachKind(t, func(b *bed, member func(string) *actor) {
		s, f := member("s").as("i"), b.native("f")
		b.stable(s, f)
		generation := s.joined().Generation
		f.tells(0)
		next := s.again()
		j := next.join().answer()
		if j.Err != nil || j.Generation != generation || j.Leader != next.r.MemberID || !j.SkipAssignment || len(j.Members) != 2 {
			b.Fatalf("%+v", j)
		}
		if y := next.sync().answer(); string(y.Assignment) != string(share(generation, s.r.MemberID)) {
			b.Fatalf("%+v", y)
		}
		f.tells(0)
		joins := []*call[Joined]{next.join(), f.join()} // as any leader's, this begins another generation
		for _, j := range joins {
			if a := j.answer(); a.Generation != generation+1 || a.SkipAssignment {
				b.Fatalf("%+v", a)
			}
		}
		b.settle(next, f)
	})
}

// A static member that comes back and subscribes to something else, or brings other protocols so that another one is chosen, begins a rebalance.
func TestStaticMemberComesBackChanged(t *testing.T) {
	subscription := func(user string, topics ...string) []Protocol {
		s := Subscription{Topics: topics, UserData: []byte(user)}
		return []Protocol{{"range", s.Append(nil)}}
	}
	for name, tc := range map[string]struct {
		ps      []Protocol
		changed bool
	}{
		"the same":                    {subscription("", "t", "u"), false},
		"in another order":            {subscription("", "u", "t"), false},
		"with other user data":        {subscription("x", "t", "u"), false},
		"a topic more":                {subscription("", "t", "u", "v"), true},
		"a topic less":                {subscription("", "t"), true},
		"another protocol beside it":  {append(subscription("", "t", "u"), Protocol{"more", nil}), false},
		"bytes that are no subscribe": {protocols("range"), true},
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(b *bed, member func(string) *actor) {
				leader, s := b.native("leader"), member("s").as("i")
				leader.r.Protocols, s.r.Protocols = subscription("", "t"), subscription("", "t", "u")
				b.stable(leader, s)
				leader.tells(1)
				next := s.again()
				next.r.Protocols = tc.ps
				j := next.join()
				if j.answered() == tc.changed {
					b.Fatalf("answered %v", j.answered())
				}
				if !tc.changed {
					b.is(Stable, leader, next)
					leader.tells(0)
					return
				}
				b.is(PreparingRebalance, leader, next)
				leader.tells(1)
				leader.join()
				check(b, j.answer().Err)
				b.settle(leader, next)
			})
		})
	}
}

// A static member that has gone without a word, or a native one that has been detached, keeps its place for its session timeout; then the others share what it had.
func TestStaticMemberIsAwaited(t *testing.T) {
	gone := func(t *testing.T, fn func(b *bed, leader, s *actor)) {
		t.Helper()
		eachKind(t, func(b *bed, member func(string) *actor) {
			leader, s := b.native("leader"), member("s").as("i")
			b.stable(leader, s)
			leader.tells(1)
			if s.r.Notify != nil {
				b.detach(s)
			}
			fn(b, leader, s)
		})
	}
	t.Run("too long", func(t *testing.T) {
		gone(t, func(b *bed, leader, s *actor) {
			b.after(session, "it is out", func() bool { return !b.has(s) })
			leader.tells(1)
			next := s.again()
			j := next.join()
			j.waits()
			leader.join()
			check(b, j.answer().Err)
			b.settle(leader, next)
		})
	})
	t.Run("in time", func(t *testing.T) {
		gone(t, func(b *bed, leader, s *actor) {
			b.pass(session - moment)
			next := s.again()
			check(b, next.join().answer().Err)
			check(b, next.sync().answer().Err)
			leader.tells(0)
			if s.r.Notify == nil {
				b.after(session, "it is out", func() bool { return !b.has(next) })
				return
			}
			b.pass(time.Hour)
			b.is(Stable, leader, next)
			s.tells(0) // it has closed
		})
	})
	t.Run("while others rebalance", func(t *testing.T) {
		gone(t, func(b *bed, leader, s *actor) {
			n := b.native("n")
			n.r.RebalanceTimeout, leader.r.RebalanceTimeout = session, session
			joins := []*call[Joined]{n.join(), leader.join()}
			joins[0].waits()
			b.pass(session / 2)
			joins = append(joins, s.again().join())
			for _, j := range joins {
				check(b, j.answer().Err)
			}
		})
	})
	t.Run("removed", func(t *testing.T) {
		gone(t, func(b *bed, leader, s *actor) {
			check(b, b.c.Leave(groupName, "", "i"))
			b.is(PreparingRebalance, leader)
		})
	})
}

// A static member that does not join in time stays in the next generation, which its leader may give something, and may ask for it when it comes back. If all are like that, the group waits
// for them, as long as their sessions last.
func TestStaticMembersMissAGeneration(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		leader, s := b.native("leader"), b.foreign("s").as("i")
		s.r.SessionTimeout = 5 * rebalance
		b.stable(leader, s)
		n := b.native("n")
		joins := []*call[Joined]{n.join(), leader.join()}
		b.after(rebalance, "generation begins", joins[0].answered)
		if j := leader.joined(); len(j.Members) != 3 {
			b.Fatalf("%+v", j)
		}
		b.wants(s.beat(), illegal) // it has to join
		check(b, leader.sync().answer().Err)
		check(b, n.sync().answer().Err)
		b.pass(rebalance) // nor is it out for not having asked for its assignment
		b.is(Stable, leader, s, n)
		next := s.again()
		j := next.join().answer()
		if j.Err != nil || j.Generation != leader.joined().Generation {
			b.Fatalf("%+v", j)
		}
		check(b, next.sync().answer().Err)
		b.is(Stable, leader, next, n)
	})
	bubble(t, Options{}, func(b *bed) {
		s1, s2 := b.foreign("s1").as("1"), b.foreign("s2").as("2")
		s1.r.SessionTimeout, s2.r.SessionTimeout = 5*rebalance, 3*rebalance
		b.stable(s1, s2)
		n := b.native("n")
		j := n.join()
		check(b, n.leave())
		b.wants(j.answer().Err, kafka.ErrUnknownMember)
		b.pass(3*rebalance - moment)
		b.is(PreparingRebalance, s1, s2)
		b.after(moment, "s2 is out", func() bool { return !b.has(s2) })
		b.after(2*rebalance, "s1 is out", func() bool { return !b.has(s1) })
		b.is(Empty)
	})
}

// Native members are told of every rebalance that they have to join, once, and when they are out; not when they know already. Of a static one that somebody else removes by its instance
// id, the member itself does not know.
func TestNativeMembersAreTold(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		a, f, n := b.native("a"), b.native("f"), b.native("n")
		a.join()
		a.tells(0)
		b.settle(a)
		f.join()
		a.tells(1)
		f.tells(0)
		n.join() // a has been told, f waits already
		a.tells(0)
		f.tells(0)
		a.join()
		for _, x := range []*actor{a, f, n} {
			x.tells(0)
		}
		b.settle(a, f, n)
		f.join() // unchanged
		b.pass(time.Hour)
		for _, x := range []*actor{a, f, n} {
			x.tells(0)
		}
		check(b, f.leave())
		f.tells(0)
		a.tells(1)
		n.tells(1)
		n.join()
		b.pass(rebalance)
		a.tells(1) // out
		n.tells(0)
		b.is(CompletingRebalance, n)
		b.c.Close()
		n.tells(1)
		a.tells(0)
	})
	bubble(t, Options{}, func(b *bed) {
		a, s := b.native("a"), b.native("s").as("i")
		b.stable(a, s)
		a.tells(1)
		check(b, b.c.Leave(groupName, "", "i"))
		a.tells(1)
		s.tells(1)
		b.wants(s.beat(), unknown)
	})
}

// Detach answers what waits, is nothing for who is not there, and ends what the coordinator tells the member.
func TestDetach(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		a, s := b.native("a"), b.native("s").as("i")
		b.c.Detach("nothing", "nobody")
		b.stable(a)
		b.c.Detach(groupName, "nobody")
		join := s.join()
		b.detach(s)
		b.wants(join.answer().Err, kafka.ErrClosed)
		b.is(PreparingRebalance, a, s)
		next := s.again()
		joins := []*call[Joined]{next.join(), a.join()}
		for _, j := range joins {
			check(b, j.answer().Err)
		}
		sync := next.sync()
		b.detach(next)
		b.wants(sync.answer().Err, kafka.ErrClosed)
		check(b, a.sync().answer().Err)
		b.after(session, "it is out", func() bool { return !b.has(next) })
		s.tells(0)
		next.tells(0)
	})
}
