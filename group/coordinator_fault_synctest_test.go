package group

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

var (
	errClosed     = kafka.ErrClosed
	errMetaFailed = kafka.ErrMetaFailed
)

// fail makes the disk refuse to write, and has the store find out.
func (b *bed) fail() {
	b.Helper()
	b.disk.Inject(func(op vfs.Op) error {
		if op.Kind == vfs.OpRead || op.Kind == vfs.OpWindow {
			return nil
		}
		return syscall.EIO
	})
	batch := b.store.NewBatch()
	batch.DeleteGroup("another")
	b.wants(batch.Commit(true), errMetaFailed)
}

// heal makes the disk and the store work again.
func (b *bed) heal() {
	b.Helper()
	b.disk.Inject(nil)
	check(b, b.store.Heal())
}

// E2, F4: an assignment that cannot be written is nobody's: every Sync is answered with the reason, and the group rebalances, as often as it takes; when the store works again, so does the
// group, in the same process and the next.
func TestAssignmentCannotBeWritten(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		leader, f, n, s := b.native("leader"), b.foreign("f"), b.native("n"), b.foreign("s").as("i")
		b.stable(leader, f)
		last := leader.joined().Generation
		before := leader.identity()
		joins := []*call[Joined]{n.join(), s.join(), leader.join(), f.join()}
		for _, a := range []*actor{leader, n} {
			a.told.Store(0)
		}
		b.fail()
		for range 3 {
			for _, j := range joins {
				a := j.answer()
				if a.Err != nil || a.Generation <= last {
					b.Fatalf("%+v", a)
				}
			}
			last = leader.joined().Generation
			syncs := []*call[Synced]{f.sync(), n.sync()} // s is late
			syncs[0].waits()
			syncs = append(syncs, leader.sync())
			for _, y := range syncs {
				if a := y.answer(); !errors.Is(a.Err, errMetaFailed) || a.Assignment != nil {
					b.Fatalf("%+v", a)
				}
			}
			b.is(PreparingRebalance, leader, f, n, s)
			b.wants(s.sync().answer().Err, again)
			leader.tells(1)
			n.tells(1)
			for _, m := range b.describe().Members {
				if m.Assignment != nil {
					b.Fatalf("%+v", m)
				}
			}
			b.wants(f.beat(), again)
			joins = []*call[Joined]{n.join(), s.join(), leader.join(), f.join()}
		}
		b.wants(b.fence(before), nil) // nothing has taken its place
		b.heal()
		b.settle(leader, f, n, s)
		if leader.joined().Generation <= last {
			b.Fatalf("%+v", leader.joined())
		}
		last = leader.joined().Generation
		b.wants(b.fence(before), illegal)
		b.restart(power)
		b.is(PreparingRebalance, f, s)
		joins = []*call[Joined]{f.join(), s.join()}
		for _, j := range joins {
			if a := j.answer(); a.Err != nil || a.Generation <= last {
				b.Fatalf("%+v", a)
			}
		}
	})
}

// E6: after an assignment that could not be written, who does not join again is out when the rebalance timeout or its session is over.
func TestAssignmentCannotBeWrittenAndNobodyCares(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		leader, f := b.native("leader"), b.foreign("f")
		b.gather(leader, f)
		waits := f.sync()
		b.fail()
		b.wants(leader.sync().answer().Err, errMetaFailed)
		b.wants(waits.answer().Err, errMetaFailed)
		b.after(session, "f is out", func() bool { return !b.has(f) })
		b.after(rebalance-session, "leader is out", func() bool { return !b.has(leader) })
		b.heal()
		n := b.native("n")
		b.stable(n)
		if n.joined().Generation <= leader.joined().Generation {
			b.Fatalf("%+v", n.joined())
		}
	})
}

// A static member that comes back while the new id cannot be written is told so. It keeps its place, if it tries again within its session timeout, and not for ever.
func TestStaticMemberCannotBeWritten(t *testing.T) {
	comesBack := func(b *bed, member func(string) *actor) (leader, next *actor) {
		leader, s := b.native("leader"), member("s").as("i")
		b.stable(leader, s)
		leader.tells(1)
		s.told.Store(0)
		b.fail()
		next = s.again()
		j := next.join().answer()
		if !errors.Is(j.Err, errMetaFailed) || j.Generation != -1 {
			b.Fatalf("%+v", j)
		}
		return leader, next
	}
	t.Run("tries again", func(t *testing.T) {
		eachKind(t, func(b *bed, member func(string) *actor) {
			leader, next := comesBack(b, member)
			b.pass(session - moment)
			b.heal()
			next.r.MemberID = ""
			check(b, next.join().answer().Err)
			check(b, next.sync().answer().Err)
			b.is(Stable, leader, next)
			leader.tells(0)
			check(b, next.fence())
		})
	})
	t.Run("returns no id", func(t *testing.T) {
		bubble(t, Options{}, func(b *bed) {
			if _, next := comesBack(b, b.native); next.r.MemberID != "" { // who joins with it is taken for a member, and the id is never written
				b.Fatal(next.r.MemberID)
			}
		})
	})
	t.Run("gives up", func(t *testing.T) {
		bubble(t, Options{}, func(b *bed) {
			leader, _ := comesBack(b, b.foreign)
			b.heal()
			b.after(session, "it is out", func() bool { return len(b.describe().Members) == 1 })
			leader.tells(1)
		})
	})
}

// E2: a group whose end could not be written has ended all the same: whatever else fails after that, none of its members is there again when the store works.
func TestEmptinessCannotBeWritten(t *testing.T) {
	for name, then := range map[string]func(b *bed){
		"nothing": func(b *bed) {},
		"a bad Join": func(b *bed) {
			bad := b.foreign("bad")
			bad.r.SessionTimeout = 0
			b.wants(bad.join().answer().Err, kafka.ErrSessionTimeout)
		},
		"a Join that is not followed up": func(b *bed) {
			p := b.foreign("p")
			p.r.RequireMemberID = true
			p.join()
			b.pass(session)
		},
		"a Delete that fails": func(b *bed) {
			b.wants(b.c.Delete(groupName, func() error { return b.store.Err() }), errMetaFailed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(b *bed) {
				a, f := b.native("a"), b.foreign("f")
				b.stable(a, f)
				b.fail()
				check(b, f.leave())
				check(b, a.leave())
				b.is(Empty)
				last := b.describe().Generation
				then(b)
				b.heal()
				if d := b.describe(); d.State != Empty || d.Generation < last || len(d.Members) > 0 {
					b.Fatalf("%+v", d)
				}
				n := b.native("n")
				j := n.join().answer()
				if j.Err != nil || j.Generation <= last || len(j.Members) != 1 {
					b.Fatalf("%+v", j)
				}
				b.wants(f.beat(), unknown)
				b.wants(f.fence(), unknown)
				b.settle(n)
				b.pass(time.Hour)
				b.is(Stable, n)
			})
		})
	}
}

// A group cannot be joined while nobody can tell what it was.
func TestGroupCannotBeRead(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		b.fail()
		j := b.native("a").join().answer()
		if !errors.Is(j.Err, errMetaFailed) || j.Generation != -1 {
			b.Fatalf("%+v", j)
		}
		_, err := b.c.Describe(groupName)
		b.wants(err, errMetaFailed)
		b.heal()
		b.stable(b.native("a"))
	})
}
