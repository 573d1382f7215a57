package group

import (
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
)

// A foreign member that is new gets an id to join with, which is good for its session timeout. A rebalance waits for it as for a member; a group that is stable does not care.
func TestPendingMember(t *testing.T) {
	pend := func(b *bed) *actor {
		b.Helper()
		p := b.foreign("p")
		p.r.RequireMemberID = true
		j := p.join().answer()
		b.wants(j.Err, kafka.ErrMemberIDRequired)
		if j.MemberID == "" || j.Generation != -1 {
			b.Fatalf("%+v", j)
		}
		p.r.MemberID = j.MemberID
		return p
	}
	t.Run("joins", func(t *testing.T) {
		bubble(t, Options{}, func(b *bed) {
			p := pend(b)
			b.pass(session - moment)
			id := p.r.MemberID
			j := p.join().answer()
			if check(b, j.Err); j.MemberID != id {
				b.Fatalf("%+v, want %s", j, id)
			}
			b.pass(session - moment)
			b.is(CompletingRebalance, p)
		})
	})
	t.Run("too late", func(t *testing.T) {
		bubble(t, Options{}, func(b *bed) {
			p := pend(b)
			b.pass(session)
			b.wants(p.join().answer().Err, kafka.ErrUnknownMember)
			if d := b.describe(); d.State != Dead {
				b.Fatalf("%+v", d) // nothing is left of it
			}
		})
	})
	t.Run("stable", func(t *testing.T) {
		bubble(t, Options{}, func(b *bed) {
			a := b.native("a")
			b.stable(a)
			pend(b)
			b.pass(2 * session)
			b.is(Stable, a)
			a.tells(0)
		})
	})
	t.Run("leaves a stable group", func(t *testing.T) {
		bubble(t, Options{}, func(b *bed) {
			a := b.native("a")
			b.stable(a)
			check(b, pend(b).leave())
			b.is(Stable, a)
			a.tells(0)
		})
	})
	t.Run("while the assignment is made", func(t *testing.T) {
		bubble(t, Options{}, func(b *bed) {
			a := b.native("a")
			b.gather(a)
			pend(b)
			b.pass(2 * session)
			b.is(CompletingRebalance, a)
		})
	})
	t.Run("a rebalance waits", func(t *testing.T) {
		bubble(t, Options{}, func(b *bed) {
			a, n := b.native("a"), b.native("n")
			b.stable(a)
			p := pend(b)
			b.pass(time.Second)
			calls := []*call[Joined]{n.join(), a.join()}
			calls[0].waits()
			b.after(session-time.Second, "generation begins", calls[0].answered)
			b.is(CompletingRebalance, a, n)
			b.wants(p.join().answer().Err, kafka.ErrUnknownMember)
		})
	})
	t.Run("a rebalance goes on when it leaves", func(t *testing.T) {
		bubble(t, Options{}, func(b *bed) {
			a, n := b.native("a"), b.native("n")
			b.stable(a)
			p := pend(b)
			calls := []*call[Joined]{n.join(), a.join()}
			calls[0].waits()
			check(b, p.leave())
			check(b, calls[0].answer().Err)
			b.is(CompletingRebalance, a, n)
		})
	})
	t.Run("no longer than the rebalance timeout", func(t *testing.T) {
		bubble(t, Options{}, func(b *bed) {
			a, p := b.native("a"), b.foreign("p")
			b.stable(a)
			p.r.RequireMemberID, p.r.SessionTimeout = true, 10*rebalance
			p.r.MemberID = p.join().answer().MemberID
			n := b.native("n")
			calls := []*call[Joined]{n.join(), a.join()}
			b.after(rebalance, "generation begins", calls[0].answered)
			b.is(CompletingRebalance, a, n)
			p.join().waits() // its id is still good
			b.is(PreparingRebalance, a, n, p)
		})
	})
	t.Run("a static one needs none", func(t *testing.T) {
		bubble(t, Options{}, func(b *bed) {
			s := b.foreign("s").as("i")
			s.r.RequireMemberID = true
			check(b, s.join().answer().Err)
		})
	})
}
