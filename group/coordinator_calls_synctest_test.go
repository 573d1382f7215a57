package group

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
)

// No callback runs with a lock held: each may call the coordinator, and does so before the call that has led to it has returned.
func TestCallbacksMayCallBack(t *testing.T) {
	bubble(t, Options{}, func(b *bed) {
		rounds := 0
		a := b.native("a")
		var joined func(Joined)
		synced := func(s Synced) {
			b.wants(s.Err, nil)
			if rounds++; rounds < 5 {
				b.c.Join(a.r, joined)
			}
		}
		joined = func(j Joined) {
			b.wants(j.Err, nil)
			a.r.MemberID = j.MemberID
			id := Identity{Group: groupName, MemberID: j.MemberID, Generation: j.Generation}
			b.wants(b.c.Heartbeat(id), nil)
			if _, err := b.c.Describe(groupName); err != nil {
				b.Error(err)
			}
			b.c.Sync(SyncRequest{Identity: id, Assignments: map[string][]byte{}}, synced)
		}
		b.c.Join(a.r, joined)
		if rounds != 5 {
			b.Fatal(rounds)
		}
		told := 0
		a.r.Notify = func() {
			told++
			_, _ = b.c.Describe(groupName)
			_ = b.c.Heartbeat(Identity{Group: groupName, MemberID: a.r.MemberID})
		}
		b.c.Join(a.r, func(Joined) {})
		f := b.foreign("f")
		f.join()
		if told != 1 {
			b.Fatal(told)
		}
	})
}

// Of a coordinator that is closed nobody waits for an answer, and every later call is refused.
func TestClose(t *testing.T) {
	for _, sc := range scenes {
		onScene(t, sc.state, func(s *scene) {
			more := s.native("more")
			waits := more.join()
			s.foreign.sync()
			id := s.of(s.foreign)
			s.c.Close()
			s.c.Close()
			if sc.state != Dead && sc.state != Empty {
				s.wants(waits.answer().Err, kafka.ErrClosed)
				if more.told.Load() == 0 {
					s.Fatal("not told")
				}
			}
			s.wants(s.foreign.join().answer().Err, kafka.ErrClosed)
			c := newCall[Synced](s.bed, nil)
			s.c.Sync(SyncRequest{Identity: id}, c.done)
			s.wants(c.answer().Err, kafka.ErrClosed)
			s.wants(s.c.Heartbeat(id), kafka.ErrClosed)
			s.wants(s.fence(id), kafka.ErrClosed)
			s.wants(s.fence(Identity{Group: groupName, Generation: -1}), kafka.ErrClosed)
			s.wants(s.c.Leave(groupName, id.MemberID, ""), kafka.ErrClosed)
			s.wants(s.c.Delete(groupName, func() error { s.Fatal("called"); return nil }), kafka.ErrClosed)
			s.c.Detach(groupName, s.static.r.MemberID)
			_, err := s.c.Describe(groupName)
			s.wants(err, kafka.ErrClosed)
			_, err = s.c.Names()
			s.wants(err, kafka.ErrClosed)
			s.pass(time.Hour) // no timer is left
		})
	}
}

// A group is deleted only while it has no members and nobody is about to join.
func TestDelete(t *testing.T) {
	for _, sc := range scenes {
		onScene(t, sc.state, func(s *scene) {
			ran := 0
			err := s.c.Delete(groupName, func() error {
				ran++
				b := s.store.NewBatch()
				b.DeleteGroup(groupName)
				return b.Commit(true)
			})
			if sc.state != Dead && sc.state != Empty {
				if s.wants(err, kafka.ErrGroupNotEmpty); ran != 0 {
					s.Fatal("called")
				}
				return
			}
			if check(s, err); ran != 1 {
				s.Fatal(ran)
			}
			if d := s.describe(); d.State != Dead {
				s.Fatalf("%+v", d)
			}
			p := s.foreign
			p.r.MemberID, p.r.RequireMemberID = "", true
			p.r.MemberID = p.join().answer().MemberID
			s.wants(s.c.Delete(groupName, func() error { return nil }), kafka.ErrGroupNotEmpty)
			check(s, p.join().answer().Err)
		})
	}
}

// Until what Fence guards has returned nothing else happens in the group, also when it has no members.
func TestNothingHappensWhileFenceRuns(t *testing.T) {
	for _, sc := range scenes {
		if sc.state != Dead && sc.state != Empty && sc.state != Stable {
			continue
		}
		t.Run(sc.state.String(), func(t *testing.T) {
			onScene(t, sc.state, func(s *scene) {
				id := s.of(s.foreign)
				if sc.state != Stable {
					id = Identity{Group: groupName, Generation: -1}
				}
				entered := make(chan struct{})
				n := s.native("n")
				joins := newCall[Joined](s.bed, nil)
				err := s.c.Fence(id, func() error {
					go func() {
						s.c.Join(n.r, joins.done)
						close(entered)
					}()
					for range 1000 {
						runtime.Gosched()
						select {
						case <-entered:
							s.Error("somebody has joined")
							return nil
						default:
						}
					}
					return nil
				})
				check(s, err)
				<-entered
				synctest.Wait()
			})
		})
	}
}
