package group

import (
	"fmt"
	"testing"
	"time"
)

// eachStop runs fn for every way in which a process ends.
func eachStop(t *testing.T, fn func(t *testing.T, how stop)) {
	t.Helper()
	for _, how := range []stop{inOrder, kill, power} {
		t.Run(string(how), func(t *testing.T) { fn(t, how) })
	}
}

// E2: foreign members of a stable group go on as if nothing had happened: with their heartbeats, commits and assignments. Each has its session timeout from the start on.
func TestRestartOfForeignMembers(t *testing.T) {
	eachStop(t, func(t *testing.T, how stop) {
		bubble(t, Options{}, func(b *bed) {
			leader, f, s := b.foreign("leader"), b.foreign("f"), b.foreign("s").as("i")
			b.stable(leader, f, s)
			before := b.describe()
			b.pass(session - moment)
			b.restart(how)
			if after := b.describe(); fmt.Sprint(after) != fmt.Sprint(before) {
				b.Fatalf("%+v\nwas %+v", after, before)
			}
			b.pass(session - moment)
			for _, a := range []*actor{leader, f, s} {
				check(b, a.beat())
				check(b, a.fence())
				if y := a.sync().answer(); string(y.Assignment) != string(share(before.Generation, a.r.MemberID)) || y.Protocol != "range" || y.ProtocolType != ConsumerProtocol {
					b.Fatalf("%+v", y)
				}
			}
			id := f.identity()
			id.Generation--
			b.wants(b.fence(id), illegal)
			b.is(Stable, leader, f, s)
			b.after(session, "all are out", func() bool { return !b.has(leader) && !b.has(f) && !b.has(s) })
			if d := b.describe(); d.State != Empty || d.Generation <= before.Generation {
				b.Fatalf("%+v", d)
			}
			n := b.native("n")
			if j := n.join().answer(); j.Err != nil || j.Generation <= before.Generation {
				b.Fatalf("%+v", j)
			}
		})
	})
}

// Dynamic native members have gone with their process. If they were all, the group is empty; else the others are to share what they had.
func TestRestartWithoutNativeMembers(t *testing.T) {
	eachStop(t, func(t *testing.T, how stop) {
		bubble(t, Options{InitialDelay: time.Hour}, func(b *bed) {
			a, n := b.native("a"), b.native("n")
			b.stable(a, n)
			generation := b.describe().Generation
			b.pass(time.Hour)
			b.restart(how)
			if d := b.describe(); d.State != Empty || d.Generation <= generation || d.EmptySince != time.Now().UnixMilli() {
				b.Fatalf("%+v", d)
			}
			b.wants(a.beat(), unknown)
			b.wants(a.fence(), unknown)
			check(b, b.fence(Identity{Group: groupName, Generation: -1}))
			next := b.native("next")
			b.stable(next)
			if d := b.describe(); d.Generation <= generation+1 {
				b.Fatalf("%+v", d)
			}
		})
		bubble(t, Options{}, func(b *bed) {
			a, f, g := b.native("a"), b.foreign("f"), b.foreign("g")
			b.stable(a, f, g)
			generation := b.describe().Generation
			b.restart(how)
			b.is(PreparingRebalance, f, g)
			b.wants(a.beat(), unknown)
			b.wants(f.beat(), again)
			check(b, g.fence())
			joins := []*call[Joined]{f.join(), g.join()}
			for _, j := range joins {
				if a := j.answer(); a.Err != nil || a.Generation <= generation || a.Leader != f.r.MemberID {
					b.Fatalf("%+v", a)
				}
			}
			b.settle(f, g)
		})
	})
}

// E6: that rebalance, too, ends when the rebalance timeout is over.
func TestRestartBeginsARebalanceThatEnds(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		a, f, g := b.native("a"), b.foreign("f"), b.foreign("g")
		f.r.SessionTimeout, g.r.SessionTimeout = 10*rebalance, 10*rebalance
		b.stable(a, f, g)
		b.restart(kill)
		j := f.join()
		b.after(rebalance, "generation begins", j.answered)
		b.is(CompletingRebalance, f)
	})
}

// Static members, native ones too, have their session timeout to come back, and then go on with the assignment that they had.
func TestRestartOfStaticMembers(t *testing.T) {
	eachStop(t, func(t *testing.T, how stop) {
		eachKind(t, func(b *bed, member func(string) *actor) {
			leader, s := member("leader").as("l"), member("s").as("i")
			b.stable(leader, s)
			before := b.describe()
			b.restart(how)
			b.is(Stable, leader, s)
			b.pass(session - moment)
			lead, next := leader.again(), s.again()
			lead.r.Protocols = append(lead.r.Protocols, Protocol{Name: "that was not written"})
			for _, x := range []struct{ is, was *actor }{{next, s}, {lead, leader}} {
				j := x.is.join().answer()
				if j.Err != nil || j.Generation != before.Generation || j.SkipAssignment != (x.is == lead) {
					b.Fatalf("%+v", j)
				}
				if y := x.is.sync().answer(); string(y.Assignment) != string(share(before.Generation, x.was.r.MemberID)) {
					b.Fatalf("%+v", y)
				}
				b.wants(x.was.fence(), fenced)
			}
			b.is(Stable, lead, next)
			b.restart(how) // the ids that are fenced are so for ever
			b.wants(s.fence(), fenced)
			b.wants(leader.beat(), fenced)
			b.is(Stable, lead, next)
			b.after(session, "all are out", func() bool { return !b.has(lead) && !b.has(next) })
			b.is(Empty)
		})
	})
}

// The assignment that was not written is not believed: of a rebalance that was under way there is nothing but the generation before it, whose members have to join again.
func TestRestartInTheMiddleOfARebalance(t *testing.T) {
	eachStop(t, func(t *testing.T, how stop) {
		bubble(t, Options{}, func(b *bed) {
			leader, f, s := b.foreign("leader"), b.foreign("f"), b.foreign("s").as("i")
			b.stable(leader, f, s)
			stable := b.describe()
			old := f.identity()
			n := b.foreign("n")
			waiting := n.join()
			b.restart(how)
			b.wants(waiting.answer().Err, errClosed)
			if after := b.describe(); fmt.Sprint(after) != fmt.Sprint(stable) {
				b.Fatalf("%+v\nwas %+v", after, stable)
			}
			b.wants(n.join().answer().Err, unknown)
			n.r.MemberID = ""
			joins := []*call[Joined]{n.join(), leader.join(), f.join(), s.join()}
			for _, j := range joins {
				check(b, j.answer().Err)
			}
			b.is(CompletingRebalance, leader, f, s, n)
			sync := f.sync()
			b.restart(how)
			b.wants(sync.answer().Err, errClosed)
			if after := b.describe(); fmt.Sprint(after) != fmt.Sprint(stable) {
				b.Fatalf("%+v\nwas %+v", after, stable)
			}
			b.wants(f.beat(), illegal)
			b.wants(f.fence(), illegal)
			b.wants(leader.sync().answer().Err, illegal)
			b.wants(n.fence(), unknown)
			check(b, b.fence(old))
			joins = []*call[Joined]{leader.join(), f.join(), s.join()}
			for _, j := range joins {
				if a := j.answer(); a.Generation <= stable.Generation {
					b.Fatalf("%+v", a)
				}
			}
			b.settle(leader, f, s)
		})
	})
}

// A group that was never stable is not there after a stop; its members have to begin anew.
func TestRestartBeforeTheFirstAssignment(t *testing.T) {
	eachStop(t, func(t *testing.T, how stop) {
		bubble(t, Options{}, func(b *bed) {
			f, s := b.foreign("f"), b.native("s").as("i")
			b.gather(f, s)
			b.restart(how)
			if d := b.describe(); d.State != Dead {
				b.Fatalf("%+v", d)
			}
			b.wants(f.beat(), unknown)
			b.wants(s.fence(), unknown)
			next := s.again()
			check(b, next.join().answer().Err)
		})
	})
}

// An empty group stays one, with its generation; if that was not written yet when the process ended, it is found out again.
func TestRestartOfAnEmptyGroup(t *testing.T) {
	eachStop(t, func(t *testing.T, how stop) {
		bubble(t, Options{}, func(b *bed) {
			f := b.foreign("f")
			b.stable(f)
			generation := f.joined().Generation
			check(b, f.leave())
			before := b.describe()
			b.restart(how)
			after := b.describe()
			if how == inOrder && fmt.Sprint(after) != fmt.Sprint(before) {
				b.Fatalf("%+v\nwas %+v", after, before)
			}
			b.pass(session)
			b.is(Empty)
			b.wants(f.beat(), unknown)
			n := b.foreign("n")
			b.stable(n)
			if n.joined().Generation <= generation {
				b.Fatalf("%+v after %d", n.joined(), generation)
			}
		})
	})
}

// Names and descriptions are of all groups, whether they have members or only a past.
func TestNamesAndDescriptions(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		a, s := b.native("a"), b.foreign("s").as("i")
		b.stable(a, s)
		other := b.native("other")
		other.r.Group = "new"
		other.join()
		past := b.native("past")
		past.r.Group = "past"
		past.join()
		past.sync()
		check(b, past.leave())
		names, err := b.c.Names()
		check(b, err)
		got := map[string]State{}
		for _, n := range names {
			d, err := b.c.Describe(n)
			check(b, err)
			got[n] = d.State
		}
		if want := map[string]State{groupName: Stable, "new": CompletingRebalance, "past": Empty}; fmt.Sprint(got) != fmt.Sprint(want) || len(names) != 3 {
			b.Fatalf("%v %v, want %v", names, got, want)
		}
		d := b.describe()
		if d.Leader != a.r.MemberID || d.Protocol != "range" || d.ProtocolType != ConsumerProtocol || d.Generation != 2 || d.EmptySince != 0 {
			b.Fatalf("%+v", d)
		}
		for i, x := range []*actor{a, s} {
			m := d.Members[i]
			if m.InstanceID != x.r.InstanceID || m.ClientID != x.r.ClientID || m.Host != x.r.Host || m.Native != (x == a) || m.Waiting ||
				string(m.Metadata) != "says to range" || string(m.Assignment) != string(share(2, x.r.MemberID)) {
				b.Fatalf("%+v", m)
			}
		}
		a.join()
		if d := b.describe(); !d.Members[0].Waiting || d.Members[1].Waiting {
			b.Fatalf("%+v", d)
		}
	})
}
