package stream_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

var assignors = map[string]func() stream.Assignor{
	"range": stream.RangeAssignor, "round robin": stream.RoundRobinAssignor, "sticky": stream.StickyAssignor, "cooperative sticky": stream.CooperativeStickyAssignor,
}

// E1, E6: each partition has exactly one owner, and everybody an equal share, whatever the number of members and through joins, leaves, pauses and evictions; all of it without any time passing.
func TestMembersSharePartitions(t *testing.T) {
	for name, assignor := range assignors {
		for _, n := range []int{2, 5, 10, 100} {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
					create(t, eng, "a", 100)
					c := stream.ConsumerConfig{Assignors: []stream.Assignor{assignor()}, MaxPollInterval: time.Minute}
					begin := time.Now()
					var ms []*member
					shared := func() {
						t.Helper()
						settle(t, eng, ms...)
						eq(t, "owned", len(owners(t, ms, 100/len(ms), (99+len(ms))/len(ms))), 100)
						eq(t, "members", len(groupOf(t, eng).Members), len(ms))
					}
					for range n {
						ms = append(ms, newMember(t, eng, c))
					}
					shared()
					ms[0].Pause(ms[0].Assignment()...)
					ms = append(ms, newMember(t, eng, c), newListener(t, eng, c))
					shared()
					check(t, ms[1].Close(t.Context()))
					check(t, ms[n].Unsubscribe())
					ms = append(ms[:1], append(ms[2:n], ms[n+1:]...)...)
					shared()
					for _, p := range partitionsOf("a", 0, 100) {
						fill(t, eng, p, 0, 1)
					}
					ms[0].Resume(ms[0].Paused()...)
					settle(t, eng, ms...)
					read := []string{}
					for _, m := range ms {
						read = append(read, m.read()...)
					}
					eq(t, "records, once each", len(read), 100)
					eq(t, "time that has passed", time.Since(begin), 0)
				})
			})
		}
	}
}

// E1: members that know only eager assignors and such that know both agree on one that is shared.
func TestMembersWithDifferentAssignorsAgree(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 12)
		both := []stream.Assignor{stream.CooperativeStickyAssignor(), stream.RoundRobinAssignor(), stream.RangeAssignor()}
		ms := []*member{
			newMember(t, eng, stream.ConsumerConfig{Assignors: both}),
			newMember(t, eng, stream.ConsumerConfig{Assignors: both[:2]}),
			newMember(t, eng, stream.ConsumerConfig{Assignors: both}),
		}
		settle(t, eng, ms...)
		eq(t, "assignor", groupOf(t, eng).Assignor, "cooperative-sticky")
		owners(t, ms, 4, 4)
		late := newMember(t, eng, stream.ConsumerConfig{Assignors: both[1:2]})
		ms = append(ms, late)
		settle(t, eng, ms...)
		eq(t, "assignor", groupOf(t, eng).Assignor, "roundrobin")
		eq(t, "owned", len(owners(t, ms, 3, 3)), 12)

		stranger := newMember(t, eng, stream.ConsumerConfig{Assignors: both[2:], MaxWait: time.Minute})
		for range 2 {
			_, err := stranger.Poll(t.Context(), 1)
			wantErr(t, err, stream.ErrInconsistentProtocol)
			settle(t, eng, ms...)
			owners(t, ms, 3, 3)
		}
		check(t, ms[1].Close(t.Context()))
		check(t, late.Close(t.Context()))
		ms = []*member{ms[0], ms[2]}
		settle(t, eng, ms...)
		ms = append(ms, stranger) // now there is one that all know
		settle(t, eng, ms...)
		eq(t, "assignor", groupOf(t, eng).Assignor, "range")
		eq(t, "owned", len(owners(t, ms, 4, 4)), 12)
	})
}

// E6: members that wait in polls take part in a rebalance at once, and get records the moment they are there.
func TestWaitingMembersRebalanceAtOnce(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 100)
		var wg sync.WaitGroup
		run := func(m *member) {
			wg.Go(func() {
				for {
					rs, err := m.Poll(t.Context(), 0)
					if err != nil {
						wantClosed(t, err)
						return
					}
					m.mu.Lock()
					m.got = append(m.got, rs...)
					m.mu.Unlock()
				}
			})
		}
		begin := time.Now()
		var ms []*member
		for range 100 {
			m := newMember(t, eng, stream.ConsumerConfig{MaxWait: forever})
			ms = append(ms, m)
			run(m)
		}
		synctest.Wait()
		eq(t, "owned", len(owners(t, ms, 1, 1)), 100)
		for i, m := range ms[:90] { // frees its partition at once
			check(t, m.Close(t.Context()))
			if i%30 == 29 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		ms = ms[90:]
		eq(t, "owned", len(owners(t, ms, 10, 10)), 100)
		for _, p := range partitionsOf("a", 0, 100) {
			fill(t, eng, p, 0, 2)
		}
		synctest.Wait()
		for _, m := range ms {
			eq(t, "read", len(m.read()), 20)
		}
		eq(t, "time that has passed", time.Since(begin), 0)
		for _, m := range ms {
			check(t, m.Close(t.Context()))
		}
		wg.Wait()
	})
}

// wantClosed is wantErr for ErrClosed on goroutines other than the test's own.
func wantClosed(t testing.TB, err error) {
	t.Helper()
	if !isClosed(err) {
		t.Errorf("error %v, want ErrClosed", err)
	}
}

// E5: a group is brought from an eager to a cooperative assignor member by member: nothing is lost, nobody stands still, and each partition has one owner all the time.
func TestRollingRestartFromEagerToCooperative(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 12)
		steps := [][]stream.Assignor{
			{stream.RangeAssignor()},
			{stream.CooperativeStickyAssignor(), stream.RangeAssignor()},
			{stream.CooperativeStickyAssignor()},
		}
		var all []stream.Record
		ms := make([]*member, 4)
		start := func(i int, as []stream.Assignor) {
			ms[i] = newMember(t, eng, stream.ConsumerConfig{Assignors: as})
			ms[i].all = &all
		}
		for i := range ms {
			start(i, steps[0])
		}
		settle(t, eng, ms...)
		begin, n := time.Now(), 0
		write := func() {
			for _, p := range partitionsOf("a", 0, 12) {
				fill(t, eng, p, n, n+3)
			}
			n += 3
		}
		for _, to := range steps[1:] {
			for i := range ms {
				write()
				for _, m := range ms {
					m.turn(t) // all have records in hand when one goes
				}
				check(t, ms[i].Close(t.Context()))
				start(i, to)
				write()
				settle(t, eng, ms...)
				owners(t, ms, 3, 3)
				for p, vs := range byPartition(all) {
					eq(t, p.String(), vs, numbers(0, n))
				}
			}
		}
		eq(t, "assignor", groupOf(t, eng).Assignor, "cooperative-sticky")
		eq(t, "time that has passed", time.Since(begin), 0)
		// And now nobody gives up what stays.
		late := newMember(t, eng, stream.ConsumerConfig{Assignors: steps[2]})
		before := ms[0].Assignment()
		late.turn(t)
		ms[0].turn(t)
		eq(t, "kept while the rebalance goes on", ms[0].Assignment(), before)
	})
}

// A partition that an assignor of the user's own gives to several members is read by all of them.
func TestOwnAssignorGivesAPartitionToSeveralMembers(t *testing.T) {
	for _, cooperative := range []bool{false, true} {
		t.Run(fmt.Sprint("cooperative ", cooperative), func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
				create(t, eng, "a", 2)
				all := ownAssignor{cooperative, func(ms []stream.GroupMember, partitions map[string]int32) map[string][]stream.TopicPartition {
					out := map[string][]stream.TopicPartition{}
					for _, m := range ms {
						out[m.ID] = partitionsOf("a", 0, partitions["a"])
					}
					return out
				}}
				var ms []*member
				for i := range 3 {
					ms = append(ms, newListener(t, eng, stream.ConsumerConfig{Assignors: []stream.Assignor{all}, ManualCommit: true}))
					settle(t, eng, ms...)
					fill(t, eng, tp("a", 0), i, i+1)
					settle(t, eng, ms...)
					for _, m := range ms {
						eq(t, "assignment", m.Assignment(), partitionsOf("a", 0, 2))
					}
				}
				if cooperative {
					// Nobody has given anything up, so nobody has read anything twice.
					for i, m := range ms {
						eq(t, fmt.Sprint("heard by ", i), m.news(), []string{"assigned [a-0 a-1]"})
						eq(t, fmt.Sprint("read by ", i), m.read(), numbers(0, 3))
					}
				}
			})
		})
	}
}

// An assignor may answer with nonsense: unknown members, topics and partitions are passed over, what nobody is given nobody has, and the group goes on.
func TestOwnAssignorThatAnswersNonsense(t *testing.T) {
	for name, answer := range map[string]func(id string) map[string][]stream.TopicPartition{
		"nothing": func(string) map[string][]stream.TopicPartition { return nil },
		"somebody else": func(string) map[string][]stream.TopicPartition {
			return map[string][]stream.TopicPartition{"x": {tp("a", 0)}}
		},
		"strange partitions": func(id string) map[string][]stream.TopicPartition {
			return map[string][]stream.TopicPartition{id: {tp("b", 0), tp("a", 7), tp("a", -1)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
				create(t, eng, "a", 2)
				own := ownAssignor{true, func(ms []stream.GroupMember, _ map[string]int32) map[string][]stream.TopicPartition {
					return answer(ms[0].ID)
				}}
				m := newMember(t, eng, stream.ConsumerConfig{Assignors: []stream.Assignor{own, stream.RangeAssignor()}})
				settle(t, eng, m)
				eq(t, "assignment", len(m.Assignment()), 0)
				eq(t, "explained", explained(t, eng, tp("a", 0), nil), "no member has it; caught up")
				better := newMember(t, eng, stream.ConsumerConfig{Assignors: []stream.Assignor{stream.RangeAssignor()}})
				settle(t, eng, m, better)
				owners(t, []*member{m, better}, 1, 1)
			})
		})
	}
}

// A panic in an assignor is an error of the leader's poll. Nothing crashes, and the group recovers when the assignor does.
func TestAssignorThatPanics(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 4)
		fill(t, eng, tp("a", 0), 0, 3)
		bad := true
		own := ownAssignor{true, func(ms []stream.GroupMember, partitions map[string]int32) map[string][]stream.TopicPartition {
			if bad {
				panic("on purpose")
			}
			return stream.CooperativeStickyAssignor().Assign(ms, partitions)
		}}
		c := stream.ConsumerConfig{Assignors: []stream.Assignor{own}}
		ms := []*member{newMember(t, eng, c), newMember(t, eng, c)}
		failed := 0
		for range 4 {
			for _, m := range ms {
				if _, err := m.Poll(t.Context(), 0); err != nil {
					wantErr(t, err, stream.ErrInconsistentProtocol)
					containsAll(t, err, "on purpose", "own")
					failed++
				}
			}
		}
		if failed < 2 {
			t.Errorf("%d polls failed", failed)
		}
		bad = false
		settle(t, eng, ms...)
		owners(t, ms, 2, 2)
		eq(t, "read", sortedValues(ms[0].read(), ms[1].read()), numbers(0, 3))
		// A group that works goes on when the leader's assignor panics later.
		bad = true
		third := newMember(t, eng, stream.ConsumerConfig{Assignors: []stream.Assignor{own}})
		ms = append(ms, third)
		for range 3 {
			for _, m := range ms {
				_, _ = m.Poll(t.Context(), 0)
			}
		}
		bad = false
		settle(t, eng, ms...)
		eq(t, "owned", len(owners(t, ms, 1, 2)), 4)
	})
}

type ownAssignor struct {
	cooperative bool
	assign      func(ms []stream.GroupMember, partitions map[string]int32) map[string][]stream.TopicPartition
}

func (ownAssignor) Name() string        { return "own" }
func (a ownAssignor) Cooperative() bool { return a.cooperative }
func (a ownAssignor) Assign(ms []stream.GroupMember, partitions map[string]int32) map[string][]stream.TopicPartition {
	return a.assign(ms, partitions)
}
