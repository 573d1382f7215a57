package stream_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// A partition that a member has paused, lost and got back is read by it again, from the committed offset; one that it has kept stays paused.
func TestPausedPartitionThatIsLostAndComesBack(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 2)
		fill(t, eng, tp("a", 0), 0, 4)
		fill(t, eng, tp("a", 1), 0, 4)
		a := newMember(t, eng, stream.ConsumerConfig{})
		settle(t, eng, a)
		a.Pause(partitionsOf("a", 0, 2)...)
		b := newMember(t, eng, stream.ConsumerConfig{})
		settle(t, eng, a, b)
		kept, gone := a.Assignment()[0], b.Assignment()[0]
		eq(t, "paused", a.Paused(), []stream.TopicPartition{kept})
		a.Resume(gone) // not its own: ignored
		fill(t, eng, kept, 4, 6)
		fill(t, eng, gone, 4, 6)
		settle(t, eng, a, b)
		eq(t, "read by the other", b.read(), numbers(4, 6))
		check(t, b.Close(t.Context()))
		a.read()
		fill(t, eng, gone, 6, 8)
		settle(t, eng, a)
		eq(t, "read of what came back", a.read(), numbers(6, 8))
		eq(t, "paused", a.Paused(), []stream.TopicPartition{kept})
		a.Resume(kept)
		settle(t, eng, a)
		eq(t, "read of what stayed", a.read(), numbers(4, 6))
	})
}

// E5: records in hand whose commit did not come about, since its context had ended, are read again by the next member, and by nobody else.
func TestContextThatEndsBetweenPollAndCommit(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 1)
		fill(t, eng, tp("a", 0), 0, 6)
		m := newMember(t, eng, stream.ConsumerConfig{ManualCommit: true})
		ctx, cancel := context.WithCancel(t.Context())
		eq(t, "polled", len(must(m.Poll(ctx, 2))(t)), 2)
		check(t, m.Commit(ctx))
		rs := must(m.Poll(ctx, 2))(t)
		cancel()
		for _, err := range []error{m.Commit(ctx), m.CommitRecords(ctx, rs...), m.CommitOffsets(ctx, stream.Offsets{tp("a", 0): {Offset: 4}})} {
			wantErr(t, err, context.Canceled)
		}
		eq(t, "committed", committed(t, m, tp("a", 0)), 2)
		eq(t, "the position stays", poll(t, m, 2), numbers(4, 6))
		check(t, m.Close(t.Context()))
		eq(t, "next member", poll(t, newMember(t, eng, stream.ConsumerConfig{}), 9), numbers(2, 6))
	})
}

// An automatic commit that has nothing to say writes nothing, and costs neither an error nor the place in the group; one after it works.
func TestEmptyAutomaticCommit(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 1)
		commits := &commitLog{}
		m := newMember(t, eng, stream.ConsumerConfig{CommitInterval: time.Second, Interceptors: []stream.ConsumerInterceptor{commits}})
		check(t, m.Commit(t.Context())) // of nothing
		for range 5 {
			m.turn(t)
			time.Sleep(2 * time.Second)
		}
		eq(t, "commits", len(commits.all), 0)
		fill(t, eng, tp("a", 0), 0, 3)
		m.turn(t)
		for range 5 {
			time.Sleep(2 * time.Second)
			m.turn(t)
		}
		eq(t, "commits", len(commits.all), 1)
		eq(t, "committed", commits.all[0][tp("a", 0)].Offset, 3)
	})
}

// commitLog keeps the commits of consumers, in order.
type commitLog struct{ all []stream.Offsets }

func (*commitLog) OnConsume([]stream.Record)   {}
func (l *commitLog) OnCommit(o stream.Offsets) { l.all = append(l.all, o) }

// E1: a member that comes back with a claim to what it had in an old generation does not get it while its owner has it.
func TestLateMemberHasNoClaim(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 4)
		c := stream.ConsumerConfig{MaxPollInterval: limit, CommitInterval: forever}
		late, a, b := newListener(t, eng, c), newListener(t, eng, c), newListener(t, eng, c)
		for _, p := range partitionsOf("a", 0, 4) {
			fill(t, eng, p, 0, 2)
		}
		settle(t, eng, late, a, b)
		late.read()
		for range 2 * int(limit/time.Second) {
			time.Sleep(time.Second)
			a.turn(t)
			b.turn(t)
		}
		eq(t, "owned by the others", len(owners(t, []*member{a, b}, 2, 2)), 4)
		_, err := late.Poll(t.Context(), 1)
		wantErr(t, err, stream.ErrTimeout)
		for range 4 {
			late.turn(t)
			eq(t, "assignment while the others have it", len(late.Assignment()), 0)
		}
		a.news()
		b.news()
		settle(t, eng, late, a, b)
		owners(t, []*member{late, a, b}, 1, 2)
		eq(t, "revoked partitions", len(a.news())+len(b.news()), 1)
	})
}

// A partition that is added to a topic is read from its first record, whoever of the group gets it and whatever the reset policy.
func TestAddedPartitionIsReadFromItsFirstRecord(t *testing.T) {
	for name, reset := range map[string]stream.Reset{"earliest": stream.ResetEarliest, "latest": fromTheEnd} {
		t.Run(name, func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
				create(t, eng, "a", 1)
				fill(t, eng, tp("a", 0), 0, 1)
				ms := []*member{}
				for n := int32(1); n < 8; n++ {
					if n < 5 {
						ms = append(ms, newMember(t, eng, stream.ConsumerConfig{Reset: reset}))
					}
					settle(t, eng, ms...)
					for _, m := range ms {
						m.read()
					}
					check(t, eng.Admin().AddPartitions(t.Context(), "a", int(n)+1))
					fill(t, eng, tp("a", n), 0, 3)
					settle(t, eng, ms...)
					eq(t, "owned", len(owners(t, ms, 0, 8)), int(n)+1)
					var got []string
					for _, m := range ms {
						got = append(got, m.read()...)
					}
					eq(t, fmt.Sprint("read of partition ", n), got, numbers(0, 3))
				}
			})
		})
	}
}

// E5: with automatic commits no record that is written while a group reads is passed over because its partition moves, though nothing of the partition was read before.
func TestNothingIsPassedOverWhenAnEmptyPartitionMoves(t *testing.T) {
	for name, before := range map[string]int{"empty": 0, "read from its end": 3} {
		t.Run(name, func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
				create(t, eng, "a", 2)
				for _, p := range partitionsOf("a", 0, 2) {
					fill(t, eng, p, 0, before)
				}
				a := newMember(t, eng, stream.ConsumerConfig{Reset: fromTheEnd})
				settle(t, eng, a)
				b := newMember(t, eng, stream.ConsumerConfig{Reset: fromTheEnd})
				for len(a.Assignment()) == 2 {
					a.turn(t)
				}
				// Now nobody has one of them.
				for _, p := range partitionsOf("a", 0, 2) {
					fill(t, eng, p, before, before+1)
				}
				settle(t, eng, a, b)
				want := numbers(before, before+1)
				eq(t, "read", append(a.read(), b.read()...), append(want, want...))
			})
		})
	}
}

// Topics that match the pattern of a subscription join by themselves, and are read from their first record.
func TestMatchingTopicsJoin(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a1", 2)
		create(t, eng, "b1", 2)
		var ms []*member
		for range 2 {
			c := newMember(t, eng, stream.ConsumerConfig{Topics: []string{}, Reset: fromTheEnd})
			check(t, c.SubscribeRegexp(regexp.MustCompile("a.")))
			ms = append(ms, c)
		}
		settle(t, eng, ms...)
		owners(t, ms, 1, 1)
		create(t, eng, "a2", 4)
		create(t, eng, "b2", 4)
		create(t, eng, "aa3", 4)
		fill(t, eng, tp("a2", 0), 0, 3)
		settle(t, eng, ms...)
		eq(t, "owned", len(owners(t, ms, 3, 3)), 6)
		eq(t, "read", append(ms[0].read(), ms[1].read()...), numbers(0, 3))
		check(t, eng.Admin().DeleteTopic(t.Context(), "a1"))
		settle(t, eng, ms...)
		eq(t, "owned", len(owners(t, ms, 2, 2)), 4)
	})
}

// A topic that is deleted under a group, and made again under the same name, is another one: its records are read from the first, and nothing of the old offsets is left. The group recovers.
func TestTopicDeletedAndMadeAgainUnderAGroup(t *testing.T) {
	for name, reset := range map[string]stream.Reset{"earliest": stream.ResetEarliest, "latest": fromTheEnd} {
		for _, seen := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " polls between ", seen), func(t *testing.T) {
				streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
					create(t, eng, "a", 2)
					create(t, eng, "b", 2)
					c := stream.ConsumerConfig{Topics: []string{"a", "b"}, Reset: reset}
					ms := []*member{newListener(t, eng, c), newListener(t, eng, c)}
					settle(t, eng, ms...)
					for _, p := range append(partitionsOf("a", 0, 2), partitionsOf("b", 0, 2)...) {
						fill(t, eng, p, 0, 5)
					}
					settle(t, eng, ms...)
					for _, m := range ms {
						check(t, m.Commit(t.Context()))
						m.read()
						m.news()
					}
					check(t, eng.Admin().DeleteTopic(t.Context(), "a"))
					if seen {
						settle(t, eng, ms...)
						eq(t, "owned", len(owners(t, ms, 1, 1)), 2)
					}
					create(t, eng, "a", 2)
					fill(t, eng, tp("a", 0), 10, 13)
					fill(t, eng, tp("a", 1), 20, 23)
					settle(t, eng, ms...)
					eq(t, "owned", len(owners(t, ms, 2, 2)), 4)
					eq(t, "read", sortedValues(ms[0].read(), ms[1].read()), append(numbers(10, 13), numbers(20, 23)...))
					for _, m := range ms {
						check(t, m.Commit(t.Context()))
					}
					o := groupOf(t, eng).Offsets
					eq(t, "offsets", []int64{o[tp("a", 0)].Offset, o[tp("a", 1)].Offset, o[tp("b", 0)].Offset}, []int64{3, 3, 5})
					lost := 0
					for _, m := range ms {
						for _, s := range m.news() {
							if s == "lost [a-0]" || s == "lost [a-1]" || s == "lost [a-0 a-1]" {
								lost++
							}
						}
					}
					if lost == 0 {
						t.Error("nobody hears that partitions were lost")
					}
				})
			})
		}
	}
}

// A committed offset at the log end is a good one. One that the log does not reach any more is dealt with by the reset policy; so is a position there.
func TestPositionAtAndPastTheEnd(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 1)
		fill(t, eng, tp("a", 0), 0, 5)
		check(t, eng.Admin().SetOffsets(t.Context(), "g", stream.Offsets{tp("a", 0): {Offset: 5}}))
		m := newMember(t, eng, stream.ConsumerConfig{})
		eq(t, "at the end", poll(t, m, 9), []string{})
		eq(t, "position", must(m.Position(tp("a", 0)))(t), 5)
		eq(t, "lag", must(m.Lag(t.Context()))(t)[tp("a", 0)].Records, 0)
		fill(t, eng, tp("a", 0), 5, 6)
		eq(t, "then", poll(t, m, 9), numbers(5, 6))
		check(t, m.Seek(tp("a", 0), 6))
		check(t, m.Commit(t.Context()))
		check(t, m.Seek(tp("a", 0), 7))
		wantErr(t, m.Commit(t.Context()), stream.ErrOffsetOutOfRange)
		eq(t, "committed", committed(t, m, tp("a", 0)), 6)
		b := newMember(t, eng, stream.ConsumerConfig{})
		settle(t, eng, b, m) // the position past the end keeps nobody from going on
		check(t, m.Close(t.Context()))
		check(t, b.Close(t.Context()))
		eq(t, "committed", groupOf(t, eng).Offsets[tp("a", 0)].Offset, 6)
		// Records that are deleted, and the offset with them.
		check(t, eng.Admin().SetOffsets(t.Context(), "g", stream.Offsets{tp("a", 0): {Offset: 1}}))
		check(t, eng.Admin().DeleteRecords(t.Context(), map[stream.TopicPartition]int64{tp("a", 0): 3}))
		for reset, want := range map[stream.Reset][]string{stream.ResetEarliest: numbers(3, 6), fromTheEnd: {}} {
			m := newMember(t, eng, stream.ConsumerConfig{Reset: reset, ManualCommit: true})
			eq(t, "before the start", poll(t, m, 9), want)
			check(t, m.Close(t.Context()))
		}
	})
}
