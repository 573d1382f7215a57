package stream_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

const limit = 16 * time.Second // of the members of these tests

// A handler takes the first two records of a-0 in hand, and works on them. It returns how much later than at its limit the group may find out.
type handler func(t *testing.T, m *member, work func(rs []stream.Record)) (late time.Duration)

var handlers = map[string]handler{
	"Poll": func(t *testing.T, m *member, work func([]stream.Record)) time.Duration {
		work(must(m.Poll(t.Context(), 2))(t))
		return 0
	},
	"PollInto": func(t *testing.T, m *member, work func([]stream.Record)) time.Duration {
		rs := make([]stream.Record, 2)
		eq(t, "polled", must(m.PollInto(t.Context(), rs))(t), 2)
		work(rs)
		return 0
	},
	"Records": func(t *testing.T, m *member, work func([]stream.Record)) time.Duration {
		for r, err := range m.Records(t.Context()) {
			check(t, err)
			if r.Offset == 1 { // the first one has been dealt with in no time
				work([]stream.Record{r})
				break
			}
		}
		return limit / 8
	},
	"Batches": func(t *testing.T, m *member, work func([]stream.Record)) time.Duration {
		for rs, err := range m.Batches(t.Context(), 2, 0) {
			check(t, err)
			work(rs)
			break
		}
		return limit / 8
	},
}

// A member that takes longer than MaxPollInterval over what it has in hand is out at that moment, no sooner: others have its partitions at once and read from the committed offset, and nothing that it commits
// counts (E2). It hears of it exactly: from Lost, and as an error that says what it had in hand. Then it joins again, and goes on at the committed offset.
func TestMemberThatDoesNotPollIsOut(t *testing.T) {
	for name, handle := range handlers {
		for _, borrow := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " borrowed"}[borrow], func(t *testing.T) {
				streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
					create(t, eng, "a", 2)
					fill(t, eng, tp("a", 0), 0, 6) // all in one partition, so that the member has the other one too
					c := stream.ConsumerConfig{MaxPollInterval: limit, Borrow: borrow, CommitInterval: forever}
					slow := newListener(t, eng, c)
					_ = must(slow.Poll(t.Context(), 1))(t)
					check(t, slow.Seek(tp("a", 0), 0))
					slow.news()
					id := slow.Group().MemberID
					c.MaxWait = forever
					var other *member
					defer func() { check(t, other.Close(context.Background())) }()
					// The other one waits for what the slow one has to give up, and gets nothing before it is out.
					var out time.Duration
					begin := time.Now()
					late := handle(t, slow, func(rs []stream.Record) {
						other = newMember(t, eng, c)
						go other.pollAll(t)
						time.Sleep(limit - 1)
						eq(t, "has", slow.Assignment(), partitionsOf("a", 0, 2))
						for len(slow.Assignment()) > 0 && time.Since(begin) < 3*limit {
							time.Sleep(time.Millisecond)
						}
						out = time.Since(begin).Truncate(time.Millisecond)
						time.Sleep(time.Nanosecond)
						eq(t, "the other one has", other.Assignment(), partitionsOf("a", 0, 2))
						eq(t, "and has read", other.read(), numbers(0, 6)) // nothing was committed
						eq(t, "what is in hand", string(rs[len(rs)-1].Value), "1")
						for _, err := range []error{slow.Commit(t.Context()), slow.CommitRecords(t.Context(), rs...)} {
							wantErr(t, err, stream.ErrUnknownMember)
						}
						eq(t, "committed", committed(t, other, tp("a", 0)), -1)
						eq(t, "heard while it does not poll", slow.news(), nil)
					})
					if out < limit || out > limit+late {
						t.Fatalf("out after %v, want %v and up to %v more", out, limit, late)
					}
					_, err := slow.Poll(t.Context(), 1)
					var e *stream.PollTimeoutError
					if !errors.As(err, &e) || !errors.Is(err, stream.ErrTimeout) || stream.IsFatal(err) {
						t.Fatalf("%v", err)
					}
					eq(t, "error", *e, stream.PollTimeoutError{Member: id, TopicPartition: tp("a", 0), Offset: 1, Elapsed: e.Elapsed, Limit: limit})
					if e.Elapsed < limit || e.Elapsed > limit+late {
						t.Errorf("elapsed %v", e.Elapsed)
					}
					eq(t, "heard", slow.news(), []string{"lost [a-0 a-1]"})
					eq(t, "group", slow.Group().Generation, -1)

					for range 5 { // the other one gives up one of the two
						slow.turn(t)
						time.Sleep(time.Nanosecond)
					}
					eq(t, "joined again", len(slow.Assignment()), 1)
					if slow.Group().MemberID == id {
						t.Errorf("%s is back", id)
					}
					fill(t, eng, tp("a", 0), 6, 7)
					fill(t, eng, tp("a", 1), 6, 7)
					time.Sleep(time.Nanosecond)
					slow.turn(t)
					eq(t, "read", sortedValues(slow.read(), other.read()), []string{"6", "6"})
				})
			})
		}
	}
}

// pollAll polls until the member is closed.
func (m *member) pollAll(t *testing.T) {
	for {
		rs, err := m.Poll(context.Background(), 0)
		if err != nil {
			wantClosed(t, err)
			return
		}
		m.mu.Lock()
		m.got = append(m.got, rs...)
		m.mu.Unlock()
	}
}

// A loop that is out of its group yields nothing more of what it has fetched.
func TestLoopThatIsOutStopsDelivering(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 1)
		fill(t, eng, tp("a", 0), 0, 100)
		m := newListener(t, eng, stream.ConsumerConfig{MaxPollInterval: limit})
		var got []string
		for r, err := range m.Records(t.Context()) {
			if err != nil {
				got = append(got, "error")
				wantErr(t, err, stream.ErrTimeout)
				continue
			}
			got = append(got, string(r.Value))
			if len(got) == 3 {
				time.Sleep(3 * limit)
			}
			if len(got) == 8 {
				break
			}
		}
		eq(t, "yielded", got, []string{"0", "1", "2", "error", "0", "1", "2", "3"})
		eq(t, "heard", m.news(), []string{"assigned [a-0]", "lost [a-0]", "assigned [a-0]"})
	})
}

// A loop that is slow on the whole, but with every record within the interval, is never out; neither is a poll that waits longer than the interval, nor a listener.
func TestSlowLoopWithFastRecordsStaysIn(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 1)
		fill(t, eng, tp("a", 0), 0, 100)
		m := newMember(t, eng, stream.ConsumerConfig{MaxPollInterval: limit, MaxWait: 10 * limit})
		begin, n := time.Now(), 0
		for _, err := range m.Records(t.Context()) {
			check(t, err)
			time.Sleep(limit - time.Millisecond)
			if n++; n == 50 {
				break
			}
		}
		eq(t, "time", time.Since(begin), 50*(limit-time.Millisecond))
		for _, err := range m.Batches(t.Context(), 10, 0) {
			check(t, err)
			time.Sleep(limit - time.Millisecond)
			if n += 10; n >= 90 {
				break
			}
		}
		for len(m.turn(t)) > 0 {
		}
		lasts(t, "poll", 10*limit, func() { m.turn(t) })
		eq(t, "generation", m.Group().Generation, 1)
		l := newListener(t, eng, stream.ConsumerConfig{MaxPollInterval: limit})
		check(t, m.Close(t.Context()))
		l.on = func(string, []stream.TopicPartition) { time.Sleep(2 * limit) }
		l.turn(t)
		time.Sleep(limit - 1)
		l.turn(t)
		eq(t, "has", len(l.Assignment()), 1)
	})
}

// What the error says was in hand is the record that was handed over last: not one of a partition that had none, nor where somebody has sought since.
func TestPollTimeoutNamesTheLastRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(t *testing.T, eng *stream.Engine, m *member)
		want    stream.PollTimeoutError
	}{
		"nothing": {func(t *testing.T, eng *stream.Engine, m *member) { m.turn(t) }, stream.PollTimeoutError{Offset: -1}},
		"an empty partition": {func(t *testing.T, eng *stream.Engine, m *member) {
			fill(t, eng, tp("a", 1), 0, 3)
			m.turn(t)
		}, stream.PollTimeoutError{TopicPartition: tp("a", 1), Offset: 2}},
		"an empty poll later": {func(t *testing.T, eng *stream.Engine, m *member) {
			fill(t, eng, tp("a", 2), 0, 3)
			m.turn(t)
			m.turn(t)
		}, stream.PollTimeoutError{TopicPartition: tp("a", 2), Offset: 2}},
		"Seek": {func(t *testing.T, eng *stream.Engine, m *member) {
			fill(t, eng, tp("a", 2), 0, 3)
			m.turn(t)
			check(t, m.Seek(tp("a", 2), 0))
		}, stream.PollTimeoutError{TopicPartition: tp("a", 2), Offset: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
				create(t, eng, "a", 3)
				m := newMember(t, eng, stream.ConsumerConfig{MaxPollInterval: limit})
				tc.prepare(t, eng, m)
				tc.want.Member, tc.want.Elapsed, tc.want.Limit = m.Group().MemberID, limit, limit
				time.Sleep(2 * limit)
				_, err := m.Poll(t.Context(), 1)
				var e *stream.PollTimeoutError
				if !errors.As(err, &e) {
					t.Fatalf("%v", err)
				}
				eq(t, "error", *e, tc.want)
				containsAll(t, err, e.Member, "16s")
				m.turn(t)
				eq(t, "is in again", len(m.Assignment()), 3)
			})
		})
	}
}

// E6: who joins while another one is at work waits for it, but no longer than that one's interval.
func TestJoinWaitsForAMemberAtWorkAtMostItsInterval(t *testing.T) {
	for name, assignor := range assignors {
		for _, work := range []time.Duration{limit / 2, limit - 1, limit, 10 * limit} {
			t.Run(name+" "+work.String(), func(t *testing.T) {
				streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
					create(t, eng, "a", 2)
					c := stream.ConsumerConfig{MaxPollInterval: limit, Assignors: []stream.Assignor{assignor()}}
					a := newMember(t, eng, c)
					settle(t, eng, a)
					begin := time.Now()
					done := make(chan struct{})
					go func() {
						defer close(done)
						time.Sleep(work)
						c := context.Background()
						for range 3 { // with the error, if it is out
							_, _ = a.Poll(c, 1)
							time.Sleep(time.Nanosecond)
						}
					}()
					c.MaxWait = 1
					c.MaxPollInterval = forever // its own does not matter
					b := newMember(t, eng, c)
					for len(b.Assignment()) == 0 && time.Since(begin) < 3*limit {
						b.turn(t)
					}
					if waited := time.Since(begin).Truncate(time.Millisecond); waited > min(work, limit)+2*time.Millisecond { // one tick of the timer, one of the poll

						t.Errorf("waited %v", waited)
					}
					<-done
					settle(t, eng, a, b)
					owners(t, []*member{a, b}, 1, 1)
				})
			})
		}
	}
}

// E6: a member that neither polls nor is watched by anybody else's poll is found out by the group too: a leader that leaves its group without an assignment holds it up for its interval and no longer.
func TestLeaderThatStopsHoldsTheGroupUpForItsInterval(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 4)
		c := stream.ConsumerConfig{MaxPollInterval: limit}
		leader, a := newMember(t, eng, c), newMember(t, eng, c)
		settle(t, eng, leader, a)
		late := newMember(t, eng, c)
		late.turn(t)
		leader.turn(t)
		a.turn(t) // now all have joined: the leader would make the assignment with its next poll
		eq(t, "state", groupOf(t, eng).State, "CompletingRebalance")
		begin := time.Now()
		for len(late.Assignment()) == 0 && time.Since(begin) < 3*limit {
			time.Sleep(time.Millisecond)
			a.turn(t)
			late.turn(t)
		}
		eq(t, "waited", time.Since(begin).Truncate(10*time.Millisecond), limit)
		settle(t, eng, a, late)
		owners(t, []*member{a, late}, 2, 2)
		_, err := leader.Poll(t.Context(), 1)
		wantErr(t, err, stream.ErrTimeout)
		settle(t, eng, leader, a, late)
		owners(t, []*member{leader, a, late}, 1, 2)
	})
}

// What was borrowed is the caller's until its next poll, also when the member is out meanwhile, and when others have its partitions.
func TestBorrowedRecordsOutliveAnEviction(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) *stream.Engine{
		"memory": func(t *testing.T) *stream.Engine { return must(stream.OpenMemory(nil))(t) },
		"disk": func(t *testing.T) *stream.Engine {
			return must(stream.Open(t.TempDir(), &stream.Options{MinFree: -1}))(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				eng := open(t)
				defer func() { check(t, eng.Close()) }()
				create(t, eng, "a", 1)
				fill(t, eng, tp("a", 0), 0, 3)
				m := newListener(t, eng, stream.ConsumerConfig{MaxPollInterval: limit, Borrow: true})
				rs := must(m.Poll(t.Context(), 0))(t)
				other := newMember(t, eng, stream.ConsumerConfig{})
				time.Sleep(2 * limit)
				settle(t, eng, other)
				eq(t, "read by the other", other.read(), numbers(0, 3))
				check(t, other.Commit(t.Context()))
				check(t, eng.Admin().DeleteTopic(t.Context(), "a")) // and its files
				settle(t, eng, other)
				eq(t, "borrowed", values(rs), numbers(0, 3))
				_, err := m.Poll(t.Context(), 0)
				wantErr(t, err, stream.ErrTimeout)
				eq(t, "heard", m.news(), []string{"assigned [a-0]", "lost [a-0]"})
			})
		})
	}
}

// Of a loop the group may find out first that a record takes too long: when somebody waits for the member. It hears of it no less.
func TestLoopThatTheGroupFindsOutFirst(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 2)
		fill(t, eng, tp("a", 0), 0, 100)
		m := newListener(t, eng, stream.ConsumerConfig{MaxPollInterval: limit, MaxWait: time.Second})
		other := &member{}
		n := 0
		ctx, cancel := context.WithTimeout(t.Context(), 10*limit)
		defer cancel()
		for _, err := range m.Records(ctx) {
			if err != nil {
				wantErr(t, err, stream.ErrTimeout)
				break
			}
			if n++; n < 40 {
				time.Sleep(time.Second)
				continue
			}
			if n > 40 {
				t.Fatal("no error")
			}
			other.open(t, eng, stream.ConsumerConfig{MaxWait: time.Millisecond, MaxPollInterval: limit})
			begin := time.Now()
			for len(other.Assignment()) < 2 && time.Since(begin) < 2*limit {
				other.turn(t)
			}
			eq(t, "the other one has them after", time.Since(begin).Truncate(10*time.Millisecond), limit)
		}
		eq(t, "heard", m.news(), []string{"assigned [a-0 a-1]", "lost [a-0 a-1]"})
	})
}
