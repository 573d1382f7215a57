package group

import (
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
)

// E2, E6: a foreign member that gives no sign of life for its session timeout is out, at that very tick, and the others hear of it. Every heartbeat, join, sync and commit begins
// the session anew.
func TestSessionTimeout(t *testing.T) {
	signs := map[string]func(b *bed, a *actor){
		"heartbeat": func(b *bed, a *actor) { b.wants(a.beat(), nil) },
		"join":      func(b *bed, a *actor) { b.wants(a.join().answer().Err, nil) },
		"sync":      func(b *bed, a *actor) { b.wants(a.sync().answer().Err, nil) },
		"commit":    func(b *bed, a *actor) { b.wants(a.fence(), nil) },
	}
	for name, sign := range signs {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(b *bed) {
				other, a := b.native("other"), b.foreign("a")
				b.stable(other, a)
				other.tells(1) // when a came
				for range 3 {
					b.pass(session - moment)
					sign(b, a)
				}
				b.pass(session / 20)
				sign(b, a)
				b.after(session, "member is out", func() bool { return !b.has(a) })
				b.wants(a.beat(), kafka.ErrUnknownMember)
				b.wants(a.fence(), kafka.ErrUnknownMember)
				other.tells(1)
				b.wants(other.beat(), kafka.ErrRebalance)
			})
		})
	}
}

// E6: a foreign member that is told of its first generation, and does not ask for its assignment, is out after its session timeout, if that is over before the rebalance timeout.
func TestSessionBeginsWithTheGeneration(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		slow, f := b.native("slow"), b.foreign("f")
		b.stable(slow)
		j := f.join()
		b.pass(session / 2)
		slow.join()
		check(b, j.answer().Err)
		b.after(session, "f is out", func() bool { return !b.has(f) })
		b.is(PreparingRebalance, slow)
	})
}

// E2: what is refused is no sign of life.
func TestRefusalsDoNotProlongTheSession(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		other, a := b.native("other"), b.foreign("a")
		b.stable(other, a)
		b.pass(session - moment)
		id := a.identity()
		id.Generation++
		b.wants(b.c.Heartbeat(id), kafka.ErrIllegalGeneration)
		b.wants(b.fence(id), kafka.ErrIllegalGeneration)
		b.c.Sync(SyncRequest{Identity: id}, func(s Synced) { b.wants(s.Err, kafka.ErrIllegalGeneration) })
		r := a.r
		r.Protocols = protocols("nobody knows")
		b.c.Join(r, func(j Joined) { b.wants(j.Err, kafka.ErrInconsistentProtocol) })
		b.after(moment, "member is out", func() bool { return !b.has(a) })
	})
}

// Native members send no heartbeats and stay.
func TestNativeMembersHaveNoSession(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		a, s := b.native("a"), b.native("s").as("i")
		b.stable(a, s)
		b.pass(24 * time.Hour)
		b.is(Stable, a, s)
		b.wants(a.fence(), nil)
		b.wants(s.fence(), nil)
	})
}

// E6: who waits in its Join or Sync does not expire, and has a whole session from the answer on.
func TestWaitingMembersDoNotExpire(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		a, slow := b.foreign("a"), b.native("slow")
		b.stable(slow, a)
		waiting := a.join() // unchanged, and a follower: at once
		check(b, waiting.answer().Err)
		n := b.foreign("n")
		joins := []*call[Joined]{n.join(), a.join()}
		b.pass(rebalance - moment) // of six sessions
		for _, c := range joins {
			c.waits()
		}
		b.is(PreparingRebalance, slow, a, n)
		joins = append(joins, slow.join())
		for _, c := range joins {
			check(b, c.answer().Err)
		}
		syncs := []*call[Synced]{a.sync(), n.sync()}
		b.pass(rebalance - moment)
		for _, c := range syncs {
			c.waits()
		}
		syncs = append(syncs, slow.sync())
		for _, c := range syncs {
			check(b, c.answer().Err)
		}
		b.after(session, "a and n are out", func() bool { return !b.has(a) && !b.has(n) })
	})
}

// E6: the first phase of a rebalance takes as long as the most patient member allows and not a tick longer. Dynamic members that have not joined are out; a static one stays.
func TestJoinPhaseEnds(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		patient := b.foreign("patient")
		patient.r.RebalanceTimeout = 2 * rebalance
		a, late, gone, static := b.native("a"), b.native("late"), b.foreign("gone"), b.foreign("static").as("i")
		for _, x := range []*actor{patient, gone, static} {
			x.r.SessionTimeout = 10 * rebalance // so that it is not this one
		}
		b.stable(a, late, gone, static, patient)
		late.tells(3) // whoever came
		check(b, patient.leave())
		late.tells(1)
		a.r.RebalanceTimeout = 90 * time.Second
		joined := a.join()
		b.after(rebalance, "generation begins", joined.answered) // the others' time; a's own counts from the next one on
		if j := joined.answer(); j.Err != nil || j.Leader != a.r.MemberID || len(j.Members) != 2 {
			b.Fatalf("%+v", j)
		}
		b.is(CompletingRebalance, a, static)
		late.tells(1)
		b.wants(late.beat(), kafka.ErrUnknownMember)
		b.wants(gone.beat(), kafka.ErrUnknownMember)
		b.wants(late.fence(), kafka.ErrUnknownMember)
	})
}

// The most patient member counts for the join phase.
func TestJoinPhaseWaitsForTheMostPatient(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		a, late, patient := b.native("a"), b.native("late"), b.native("patient")
		patient.r.RebalanceTimeout = 2 * rebalance
		b.stable(a, late, patient)
		n := b.native("n")
		calls := []*call[Joined]{n.join(), a.join(), patient.join()}
		b.after(2*rebalance, "generation begins", calls[0].answered)
		b.is(CompletingRebalance, a, patient, n)
	})
}

// E6: members that have joined and do not ask for their assignment within the rebalance timeout are out, and the others begin anew; whether it is the leader or another one.
func TestSyncPhaseEnds(t *testing.T) {
	t.Run("leader", func(t *testing.T) {
		bubble(t, Options{}, func(b *bed) {
			leader, a := b.native("leader"), b.native("a")
			b.gather(leader, a)
			a.tells(0)
			waiting := a.sync()
			b.after(rebalance, "sync is answered", waiting.answered)
			b.wants(waiting.answer().Err, kafka.ErrRebalance)
			b.is(PreparingRebalance, a)
			a.tells(1)
			leader.tells(2) // that a came, that it is out
			b.wants(leader.sync().answer().Err, kafka.ErrUnknownMember)
			check(b, a.join().answer().Err)
			b.settle(a)
		})
	})
	t.Run("follower", func(t *testing.T) {
		bubble(t, Options{}, func(b *bed) {
			leader, a, f := b.native("leader"), b.native("a"), b.foreign("f")
			f.r.SessionTimeout = 10 * rebalance
			b.gather(leader, a, f)
			check(b, leader.sync().answer().Err)
			b.pass(rebalance - moment)
			b.is(Stable, leader, a, f)
			a.tells(1)
			leader.tells(2)
			check(b, f.sync().answer().Err)
			b.after(moment, "a is out", func() bool { return !b.has(a) })
			b.is(PreparingRebalance, leader, f)
			a.tells(1)
			leader.tells(1)
			b.wants(f.beat(), kafka.ErrRebalance)
		})
	})
	t.Run("in time", func(t *testing.T) {
		bubble(t, Options{}, func(b *bed) {
			leader, a := b.native("leader"), b.native("a")
			b.gather(leader, a)
			check(b, leader.sync().answer().Err)
			b.pass(rebalance - moment)
			check(b, a.sync().answer().Err)
			b.pass(10 * rebalance)
			b.is(Stable, leader, a)
		})
	})
}

// The first rebalance of a group waits for more members, if the first one is foreign: once, or as long as there are arrivals, up to the first one's rebalance timeout.
func TestInitialDelay(t *testing.T) {
	const delay = 3 * time.Second
	o := Options{InitialDelay: delay}
	t.Run("alone", func(t *testing.T) {
		bubble(t, o, func(b *bed) {
			j := b.foreign("a").join()
			b.after(delay, "generation begins", j.answered)
		})
	})
	t.Run("arrivals", func(t *testing.T) {
		bubble(t, o, func(b *bed) {
			calls := []*call[Joined]{b.foreign("a").join()}
			b.pass(2 * time.Second)
			calls = append(calls, b.foreign("b").join(), b.native("c").join())
			b.pass(3 * time.Second) // in the second step
			calls = append(calls, b.foreign("d").join())
			b.after(4*time.Second, "generation begins", calls[0].answered) // with the third
			for _, c := range calls {
				if j := c.answer(); j.Err != nil || j.Generation != 1 {
					b.Fatalf("%+v", j)
				}
			}
		})
	})
	t.Run("no longer than the rebalance timeout", func(t *testing.T) {
		bubble(t, o, func(b *bed) {
			first := b.foreign("a")
			first.r.RebalanceTimeout = 10 * time.Second
			j := first.join()
			for range 9 {
				b.pass(time.Second)
				b.foreign("more").join()
			}
			j.waits()
			b.after(time.Second, "generation begins", j.answered)
		})
	})
	t.Run("a short rebalance timeout", func(t *testing.T) {
		bubble(t, o, func(b *bed) {
			first := b.foreign("a")
			first.r.RebalanceTimeout = time.Second
			b.after(time.Second, "generation begins", first.join().answered)
		})
	})
	t.Run("not the second time", func(t *testing.T) {
		bubble(t, o, func(b *bed) {
			a := b.foreign("a")
			a.join()
			b.pass(delay)
			check(b, a.sync().answer().Err)
			n := b.foreign("n").join()
			a.join()
			check(b, n.answer().Err)
		})
	})
	t.Run("again when it was empty", func(t *testing.T) {
		bubble(t, o, func(b *bed) {
			a := b.foreign("a")
			a.join()
			b.pass(delay)
			check(b, a.leave())
			j := b.foreign("b").join()
			b.after(delay, "generation begins", j.answered)
		})
	})
	t.Run("not for a native one", func(t *testing.T) {
		bubble(t, o, func(b *bed) {
			check(b, b.native("a").join().answer().Err)
		})
	})
	t.Run("nobody is left", func(t *testing.T) {
		bubble(t, o, func(b *bed) {
			a := b.foreign("a")
			j := a.join()
			check(b, a.leave())
			b.wants(j.answer().Err, kafka.ErrUnknownMember)
			b.is(Empty)
			n := b.native("n")
			check(b, n.join().answer().Err)
		})
	})
}

// A foreign member that has never been in a generation is believed to wait in its Join for five minutes; also when it has asked twice.
func TestNewMemberExpiresInJoin(t *testing.T) {
	for name, twice := range map[string]bool{"once": false, "twice": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(b *bed) {
				slow, n, static := b.native("slow"), b.foreign("n"), b.foreign("static").as("i")
				slow.r.RebalanceTimeout = time.Hour
				b.stable(slow)
				calls := []*call[Joined]{n.join(), static.join()}
				if twice {
					b.pass(time.Minute)
					calls = append(calls, n.join(), static.join())
					b.pass(-time.Minute + newMemberTimeout - moment)
				} else {
					b.pass(newMemberTimeout - moment)
				}
				b.is(PreparingRebalance, slow, n, static)
				b.after(moment, "the new ones are out", func() bool { return !b.has(n) && !b.has(static) })
				for _, c := range calls {
					if err := c.answer().Err; err == nil {
						b.Fatal("no error")
					}
				}
				b.is(PreparingRebalance, slow)
			})
		})
	}
}
