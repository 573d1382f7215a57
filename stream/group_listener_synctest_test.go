package stream_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// The listener hears exactly what comes and goes, within the poll or the call that it is due to, and never what did not change.
func TestListenerHearsWhatComesAndGoes(t *testing.T) {
	for name, tc := range map[string]struct {
		assignor stream.Assignor
		first    [][]string // what the first member hears: alone, when the second joins, when it leaves, at Unsubscribe
		second   [][]string
	}{
		"eager": {stream.RangeAssignor(),
			[][]string{{"assigned [a-0 a-1 a-2 a-3]"}, {"revoked [a-0 a-1 a-2 a-3]", "assigned [a-0 a-1]"}, {"revoked [a-0 a-1]", "assigned [a-0 a-1 a-2 a-3]"}, {"revoked [a-0 a-1 a-2 a-3]"}},
			[][]string{{"assigned [a-2 a-3]"}, {"revoked [a-2 a-3]"}}},
		"cooperative": {stream.CooperativeStickyAssignor(),
			[][]string{{"assigned [a-0 a-1 a-2 a-3]"}, {"revoked [a-2 a-3]"}, {"assigned [a-2 a-3]"}, {"revoked [a-0 a-1 a-2 a-3]"}},
			[][]string{{"assigned [a-2 a-3]"}, {"revoked [a-2 a-3]"}}},
	} {
		t.Run(name, func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
				create(t, eng, "a", 4)
				// Range goes by the ids of members, which static ones can choose.
				c := stream.ConsumerConfig{Assignors: []stream.Assignor{tc.assignor}}
				a := newListener(t, eng, c)
				eq(t, "before the first poll", a.news(), nil)
				settle(t, eng, a)
				eq(t, "alone", a.news(), tc.first[0])
				b := newListener(t, eng, c)
				settle(t, eng, a, b)
				if name == "eager" && a.Group().MemberID > b.Group().MemberID {
					return // the ids, which are random, fell the other way round
				}
				eq(t, "first, with two", a.news(), tc.first[1])
				eq(t, "second, with two", b.news(), tc.second[0])
				check(t, b.Close(t.Context()))
				eq(t, "second, closed", b.news(), tc.second[1])
				eq(t, "first hears of it in its own poll", a.news(), nil)
				settle(t, eng, a)
				eq(t, "first, alone again", a.news(), tc.first[2])
				check(t, a.Unsubscribe())
				eq(t, "first, unsubscribed", a.news(), tc.first[3])
				check(t, a.Close(t.Context()))
				eq(t, "closed without an assignment", a.news(), nil)
			})
		})
	}
}

// The listener is called by the goroutine that polls, at the moment of the poll, and not between.
func TestListenerIsCalledByTheGoroutineThatPolls(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 2)
		polls := false
		a := newListener(t, eng, stream.ConsumerConfig{})
		a.on = func(what string, _ []stream.TopicPartition) {
			if !polls { // no lock: the race detector sees another goroutine
				t.Errorf("%s outside a poll", what)
			}
		}
		turn := func() {
			polls = true
			a.turn(t)
			polls = false
		}
		turn()
		b := newMember(t, eng, stream.ConsumerConfig{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.turn(t)
		}()
		<-done
		for range 3 {
			turn()
			b.turn(t)
		}
		owners(t, []*member{a, b}, 1, 1)
		check(t, b.Close(t.Context()))
		synctest.Wait()
		turn()
		eq(t, "heard", a.news(), []string{"assigned [a-0 a-1]", "revoked [a-1]", "assigned [a-1]"})
	})
}

// E2, E5: a commit inside Revoked works, and who gets the partition goes on exactly there.
func TestCommitInRevokedCoversWhatIsHandedOver(t *testing.T) {
	for name, assignor := range assignors {
		for how, commit := range map[string]func(t *testing.T, m *member) error{
			"Commit":        func(t *testing.T, m *member) error { return m.Commit(t.Context()) },
			"CommitRecords": func(t *testing.T, m *member) error { return m.CommitRecords(t.Context(), mine(m)...) },
			"CommitAsync": func(t *testing.T, m *member) error {
				done := make(chan error, 1)
				m.CommitAsync(nil, func(_ stream.Offsets, err error) { done <- err })
				return <-done
			},
			"automatic": nil,
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
					create(t, eng, "a", 4)
					for _, p := range partitionsOf("a", 0, 4) {
						fill(t, eng, p, 0, 5)
					}
					c := stream.ConsumerConfig{Assignors: []stream.Assignor{assignor()}, ManualCommit: commit != nil}
					var all []stream.Record
					a, b := newListener(t, eng, c), newListener(t, eng, c)
					a.all, b.all = &all, &all
					revoked := 0
					for _, m := range []*member{a, b} {
						m.on = func(what string, tps []stream.TopicPartition) {
							if what != "revoked" {
								return
							}
							revoked += len(tps)
							if commit != nil {
								report(t, commit(t, m))
							}
							for _, p := range tps {
								eq(t, "committed", committed(t, m, p), must(m.Position(p))(t))
							}
						}
					}
					settle(t, eng, a)
					eq(t, "read", len(a.got), 20)
					settle(t, eng, a, b)
					for _, p := range partitionsOf("a", 0, 4) {
						fill(t, eng, p, 5, 8)
					}
					settle(t, eng, a, b)
					check(t, a.Close(t.Context()))
					settle(t, eng, b)
					if revoked == 0 {
						t.Error("nothing was revoked")
					}
					for p, vs := range byPartition(all) {
						eq(t, p.String(), vs, numbers(0, 8))
					}
				})
			})
		}
	}
}

// mine are the records that a member has read of what it has.
func mine(m *member) (rs []stream.Record) {
	for _, r := range m.got {
		if slices.Contains(m.Assignment(), tp(r.Topic, r.Partition)) {
			rs = append(rs, r)
		}
	}
	return rs
}

// Members of a cooperative group read on during a rebalance that waits for a slow one, and commit.
func TestCooperativeMembersReadOnDuringARebalance(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 9)
		slow, a, late := newListener(t, eng, stream.ConsumerConfig{}), newListener(t, eng, stream.ConsumerConfig{}), newListener(t, eng, stream.ConsumerConfig{})
		settle(t, eng, slow, a)
		mine := a.Assignment()[0]
		n := 0
		goesOn := func(state string) {
			t.Helper()
			a.news()
			for range 3 {
				fill(t, eng, mine, n, n+2)
				a.turn(t)
				eq(t, "read while "+state, a.read(), numbers(n, n+2))
				n += 2
				check(t, a.Commit(t.Context()))
				eq(t, "committed", committed(t, a, mine), int64(n))
				eq(t, "heard", a.news(), nil)
			}
			eq(t, "state", groupOf(t, eng).State, state)
		}
		late.turn(t)
		goesOn("PreparingRebalance") // waits for the slow one
		settle(t, eng, slow, a, late)
		later := newListener(t, eng, stream.ConsumerConfig{})
		later.turn(t)
		slow.turn(t) // has joined, as the leader, before the others
		late.turn(t)
		a.turn(t)
		goesOn("CompletingRebalance") // waits for its assignment
		last := newListener(t, eng, stream.ConsumerConfig{})
		last.turn(t)
		goesOn("PreparingRebalance") // of another generation, before anybody has an assignment of the one that had begun
		ms := []*member{slow, a, late, later, last}
		settle(t, eng, ms...)
		owners(t, ms, 1, 2)
		for _, m := range ms {
			for _, s := range m.news() {
				if strings.HasPrefix(s, "lost") {
					t.Errorf("%s", s)
				}
			}
		}
	})
}

// A panic in a listener is contained: the poll goes on, and so does the group.
func TestListenerThatPanics(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 2)
		a, b := newListener(t, eng, stream.ConsumerConfig{}), newListener(t, eng, stream.ConsumerConfig{})
		for _, m := range []*member{a, b} {
			m.on = func(what string, _ []stream.TopicPartition) { panic(what) }
		}
		fill(t, eng, tp("a", 0), 0, 3)
		settle(t, eng, a)
		settle(t, eng, a, b)
		owners(t, []*member{a, b}, 1, 1)
		eq(t, "read", a.read(), numbers(0, 3))
		check(t, a.Unsubscribe())
		check(t, a.Close(t.Context()))
		settle(t, eng, b)
		eq(t, "owned", len(b.Assignment()), 2)
	})
}

// Poll from a listener is an error at once, whichever call the listener is called by, and so are the loops. Other calls work.
func TestListenerDoesNotPoll(t *testing.T) {
	for name, call := range map[string]func(t *testing.T, m *member) error{
		"Unsubscribe": func(t *testing.T, m *member) error { return m.Unsubscribe() },
		"Assign":      func(t *testing.T, m *member) error { return m.Assign(tp("a", 0)) },
		"Close":       func(t *testing.T, m *member) error { return m.Close(t.Context()) },
		"Subscribe":   func(t *testing.T, m *member) error { return m.Subscribe("b") },
	} {
		t.Run(name, func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
				create(t, eng, "a", 2)
				create(t, eng, "b", 1)
				fill(t, eng, tp("a", 0), 0, 3)
				m := newListener(t, eng, stream.ConsumerConfig{MaxWait: time.Second})
				calls := 0
				m.on = func(what string, tps []stream.TopicPartition) {
					calls++
					if rs, err := m.Poll(t.Context(), 1); err == nil {
						t.Errorf("Poll in %s: %d records and no error", what, len(rs))
					}
					if _, err := m.PollInto(t.Context(), make([]stream.Record, 1)); err == nil {
						t.Errorf("PollInto in %s: no error", what)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					for _, err := range m.Records(ctx) {
						if err == nil || ctx.Err() != nil {
							t.Errorf("Records in %s: %v", what, err)
						}
						break
					}
					if what == "assigned" && tps[0] == tp("a", 0) {
						check(t, m.Seek(tp("a", 0), 1))
						m.Pause(tp("a", 1))
						eq(t, "assignment", m.Assignment(), tps)
						eq(t, "lag", must(m.Lag(t.Context(), tp("a", 0)))(t)[tp("a", 0)].Records, 2)
					}
				}
				lasts(t, "first poll", 0, func() { m.turn(t) })
				eq(t, "read", m.read(), numbers(1, 3))
				eq(t, "paused", m.Paused(), []stream.TopicPartition{tp("a", 1)})
				lasts(t, name, 0, func() { check(t, call(t, m)) })
				if name == "Subscribe" {
					_, _ = m.Poll(t.Context(), 1)
				}
				if calls < 2 {
					t.Errorf("the listener was called %d times", calls)
				}
			})
		})
	}
}

// A listener may change the subscription: it is told of a change once, and not of the change that it makes within.
func TestListenerChangesTheSubscription(t *testing.T) {
	for name, call := range map[string]func(m *member) error{
		"Unsubscribe": func(m *member) error { return m.Unsubscribe() },
		"Assign":      func(m *member) error { return m.Assign(tp("a", 0)) },
		"Subscribe":   func(m *member) error { return m.Subscribe("b") },
	} {
		t.Run(name, func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
				create(t, eng, "a", 1)
				create(t, eng, "b", 1)
				m := newListener(t, eng, stream.ConsumerConfig{})
				calls := 0
				m.on = func(what string, _ []stream.TopicPartition) {
					if what == "revoked" {
						if calls++; calls < 5 { // else the stack overflows
							check(t, call(m))
						}
					}
				}
				m.turn(t)
				check(t, m.Unsubscribe())
				eq(t, "calls", calls, 1)
			})
		})
	}
}
