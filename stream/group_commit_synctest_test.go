package stream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// answered keeps what the callbacks of asynchronous commits say, in order.
type answered struct {
	mu  sync.Mutex
	all []string
}

func (a *answered) done(name string) func(stream.Offsets, error) {
	return func(o stream.Offsets, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.all = append(a.all, fmt.Sprint(name, " ", o[tp("a", 0)].Offset, " ", err))
	}
}

func (a *answered) said() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all
}

// Asynchronous commits wait for nobody, are made in the order of the calls, though the disk hangs, and answer in that order, once each, with what they committed. A commit that waits comes after those before it.
func TestAsynchronousCommitsAreMadeInOrder(t *testing.T) {
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		fill(t, eng, tp("a", 0), 0, 20)
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest, ManualCommit: true})
		release := d.hang()
		defer release()
		a := &answered{}
		lasts(t, "the calls", 0, func() {
			poll(t, c, 8)
			c.CommitAsync(nil, a.done("1"))
			c.CommitAsync(stream.Offsets{tp("a", 0): {Offset: 99}}, a.done("2"))
			c.CommitAsync(stream.Offsets{tp("a", 0): {Offset: 3}}, a.done("3"))
			c.CommitAsync(stream.Offsets{tp("x", 0): {Offset: 3}}, a.done("4"))
			poll(t, c, 2)
			c.CommitAsync(nil, nil)
			c.CommitAsync(stream.Offsets{tp("a", 0): {Offset: 6}}, func(stream.Offsets, error) { panic("on purpose") })
		})
		synctest.Wait()
		eq(t, "answers while the disk hangs", len(a.said()), 0)
		eq(t, "committed", committed(t, c, tp("a", 0)), -1)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		lasts(t, "a commit with a deadline", time.Second, func() { wantErr(t, c.Commit(short), context.DeadlineExceeded) })
		time.AfterFunc(time.Second, release)
		check(t, c.CommitOffsets(t.Context(), stream.Offsets{tp("a", 0): {Offset: 5}}))
		eq(t, "committed in the end", committed(t, c, tp("a", 0)), 5)
		said := a.said()
		eq(t, "answers", len(said), 4)
		eq(t, "first", said[0], "1 8 <nil>")
		eq(t, "third", said[2], "3 3 <nil>")
		for i, want := range map[int]error{1: stream.ErrOffsetOutOfRange, 3: stream.ErrUnknownTopic} {
			if !strings.HasPrefix(said[i], fmt.Sprint(i+1)) || !strings.Contains(said[i], want.Error()) {
				t.Errorf("answer %d: %s", i+1, said[i])
			}
		}
		check(t, c.Close(t.Context()))
		c.CommitAsync(nil, a.done("5"))
		synctest.Wait()
		if said := a.said(); len(said) != 5 || !strings.Contains(said[4], stream.ErrClosed.Error()) {
			t.Errorf("after Close: %v", said)
		}
	})
}

// An asynchronous commit does not overtake one that waits on another goroutine.
func TestAsynchronousCommitDoesNotOvertake(t *testing.T) {
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		fill(t, eng, tp("a", 0), 0, 10)
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest, ManualCommit: true})
		check(t, c.CommitOffsets(t.Context(), stream.Offsets{tp("a", 0): {Offset: 10}})) // durable up to here
		fill(t, eng, tp("a", 0), 10, 20)
		release := d.hang()
		defer release()
		done := make(chan error)
		go func() { done <- c.CommitOffsets(t.Context(), stream.Offsets{tp("a", 0): {Offset: 15}}) }()
		synctest.Wait()
		c.CommitAsync(stream.Offsets{tp("a", 0): {Offset: 3}}, nil)
		synctest.Wait()
		release()
		check(t, <-done)
		synctest.Wait()
		eq(t, "committed", committed(t, c, tp("a", 0)), 3)
	})
}

// Close waits for asynchronous commits, and their callbacks have run when it returns.
func TestCloseWaitsForAsynchronousCommits(t *testing.T) {
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		fill(t, eng, tp("a", 0), 0, 10)
		m := newMember(t, eng, stream.ConsumerConfig{})
		m.turn(t)
		release := d.hang()
		defer release()
		a := &answered{}
		m.CommitAsync(stream.Offsets{tp("a", 0): {Offset: 4}}, a.done("1"))
		time.AfterFunc(time.Second, release)
		lasts(t, "close", time.Second, func() { check(t, m.Close(t.Context())) })
		eq(t, "answers", a.said(), []string{"1 4 <nil>"})
		eq(t, "committed", groupOf(t, eng).Offsets[tp("a", 0)].Offset, 10)
	})
}

// E4: automatic commits never go back behind a commit that was on its way when they were due.
func TestAutomaticCommitDoesNotGoBackBehindAnAsynchronousOne(t *testing.T) {
	for _, how := range []string{"poll", "close"} {
		t.Run(how, func(t *testing.T) {
			onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
				fill(t, eng, tp("a", 0), 0, 10)
				m := newMember(t, eng, stream.ConsumerConfig{CommitInterval: time.Second})
				eq(t, "polled", poll(t, m, 8), numbers(0, 8))
				release := d.hang()
				defer release()
				m.CommitAsync(nil, nil) // 8, which waits for the disk
				check(t, m.Seek(tp("a", 0), 2))
				eq(t, "polled", poll(t, m, 1), numbers(2, 3))
				time.Sleep(2 * time.Second)
				time.AfterFunc(time.Second, release)
				if how == "poll" {
					poll(t, m, 1)
				} else {
					check(t, m.Close(t.Context()))
				}
				synctest.Wait()
				eq(t, "committed", groupOf(t, eng).Offsets[tp("a", 0)].Offset, 8)
			})
		})
	}
}

// E4, E5: across rebalances automatic commits rise, whoever makes them and wherever members seek; explicit ones may go back.
func TestAutomaticCommitsRiseAcrossRebalances(t *testing.T) {
	for name, assignor := range assignors {
		t.Run(name, func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
				create(t, eng, "a", 4)
				for _, p := range partitionsOf("a", 0, 4) {
					fill(t, eng, p, 0, 50)
				}
				c := stream.ConsumerConfig{Assignors: []stream.Assignor{assignor()}, CommitInterval: time.Second}
				last := map[stream.TopicPartition]int64{}
				rises := func() {
					t.Helper()
					for p, o := range groupOf(t, eng).Offsets {
						if o.Offset < last[p] {
							t.Fatalf("%v went from %d back to %d", p, last[p], o.Offset)
						}
						last[p] = o.Offset
					}
				}
				ms := []*member{newMember(t, eng, c)}
				for round := range 12 {
					for _, m := range ms {
						for range 3 {
							_ = must(m.Poll(t.Context(), 3))(t)
							rises()
							time.Sleep(700 * time.Millisecond)
						}
						if tps := m.Assignment(); len(tps) > 0 && round%2 == 0 {
							check(t, m.Seek(tps[0], int64(round)))
						}
						rises()
					}
					if round%4 == 3 {
						check(t, ms[0].Close(t.Context()))
						ms = ms[1:]
					} else {
						ms = append(ms, newMember(t, eng, c))
					}
					rises()
					settle(t, eng, ms...)
					rises()
				}
				p := tp("a", 0)
				m := owners(t, ms, 0, 4)[p]
				check(t, m.CommitOffsets(t.Context(), stream.Offsets{p: {Offset: 1}}))
				eq(t, "explicitly", committed(t, m, p), 1)
			})
		})
	}
}

// A commit that failed had no effect: the next poll goes on at the position, and a commit covers what that one should have. Who joins again goes on at what was committed.
func TestWhatAFailedCommitLeaves(t *testing.T) {
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		m := newMember(t, eng, stream.ConsumerConfig{ManualCommit: true, MaxPollInterval: limit})
		fill(t, eng, tp("a", 0), 0, 9)
		poll(t, m, 2)
		check(t, m.Commit(t.Context()))
		fill(t, eng, tp("a", 0), 9, 12)
		poll(t, m, 8) // the last one is not durable
		release := d.hang()
		defer release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, m.Commit(ctx), context.DeadlineExceeded)
		eq(t, "committed", committed(t, m, tp("a", 0)), 2)
		eq(t, "position", must(m.Position(tp("a", 0)))(t), 10)
		release()
		eq(t, "polled", poll(t, m, 1), numbers(10, 11))
		time.Sleep(2 * limit)
		wantErr(t, m.Commit(t.Context()), stream.ErrUnknownMember)
		eq(t, "committed", committed(t, m, tp("a", 0)), 2)
		_, err := m.Poll(t.Context(), 1)
		wantErr(t, err, stream.ErrTimeout)
		eq(t, "after it has joined again", poll(t, m, 99), numbers(2, 12))
		check(t, m.Commit(t.Context()))
		eq(t, "committed", committed(t, m, tp("a", 0)), 12)
	})
}

// E2: who is no member commits nothing in a group that has members, whether it assigns itself partitions or names them; what it would have committed by itself costs it no poll, nor Close. Without members, and in
// other groups, it may.
func TestCommitOfNoMember(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 2)
		fill(t, eng, tp("a", 0), 0, 5)
		fill(t, eng, tp("a", 1), 0, 5)
		c := stream.ConsumerConfig{Group: "g", Reset: stream.ResetEarliest, CommitInterval: time.Second}
		simple := newConsumer(t, eng, c)
		check(t, simple.Assign(tp("a", 0)))
		poll(t, simple, 2)
		check(t, simple.Commit(t.Context()))
		eq(t, "generation", simple.Group(), stream.GroupMetadata{Group: "g", Generation: -1})
		m := newMember(t, eng, stream.ConsumerConfig{})
		eq(t, "the member goes on there", len(m.turn(t)), 8)
		check(t, m.Commit(t.Context()))
		poll(t, simple, 1)
		for _, err := range []error{
			simple.Commit(t.Context()), simple.CommitOffsets(t.Context(), stream.Offsets{tp("a", 1): {Offset: 1}}),
			newConsumer(t, eng, c).CommitOffsets(t.Context(), stream.Offsets{tp("a", 1): {Offset: 1}}),
		} {
			wantErr(t, err, stream.ErrUnknownMember)
		}
		done := make(chan error)
		simple.CommitAsync(nil, func(_ stream.Offsets, err error) { done <- err })
		wantErr(t, <-done, stream.ErrUnknownMember)
		time.Sleep(2 * time.Second)
		eq(t, "it reads on", poll(t, simple, 1), numbers(3, 4))
		eq(t, "committed", committed(t, simple, tp("a", 0)), 5)
		check(t, m.Close(t.Context()))
		check(t, simple.Seek(tp("a", 0), 2))
		check(t, simple.Commit(t.Context()))
		eq(t, "committed", committed(t, simple, tp("a", 0)), 2)
		m = newMember(t, eng, stream.ConsumerConfig{})
		eq(t, "the next member", len(m.turn(t)), 3)
		check(t, simple.Close(t.Context()))
		eq(t, "committed", committed(t, m, tp("a", 0)), 2)
	})
}

// A partition that is given up while an asynchronous commit is under way: what the commit covers is there before the next one reads.
func TestRevokeWhileAnAsynchronousCommitIsUnderWay(t *testing.T) {
	for name, assignor := range assignors {
		t.Run(name, func(t *testing.T) {
			onSlowDisk(t, 2, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
				for _, p := range partitionsOf("a", 0, 2) {
					fill(t, eng, p, 0, 6)
				}
				c := stream.ConsumerConfig{Assignors: []stream.Assignor{assignor()}}
				var all []stream.Record
				a := newMember(t, eng, c)
				a.all = &all
				settle(t, eng, a)
				release := d.hang()
				defer release()
				said := &answered{}
				a.CommitAsync(nil, said.done("1"))
				b := newMember(t, eng, c)
				b.all = &all
				time.AfterFunc(time.Second, release)
				settle(t, eng, a, b)
				owners(t, []*member{a, b}, 1, 1)
				synctest.Wait()
				eq(t, "answers", said.said(), []string{"1 6 <nil>"})
				for p, vs := range byPartition(all) {
					eq(t, p.String(), vs, numbers(0, 6))
				}
			})
		})
	}
}

// E3: what a member has committed is durable, and so is the log up to there: after a power cut no committed offset lies behind the log's end, and who goes on misses nothing. Records that were only written and not
// committed may be gone.
func TestCommittedOffsetNeverLeadsItsLog(t *testing.T) {
	rnd := newRand(t)
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	for range rounds {
		seed := rnd.Uint64()
		synctest.Test(t, func(t *testing.T) {
			sim := vfs.NewSim(seed)
			clamped := 0
			o := stream.Options{FS: sim, MinFree: -1, SyncInterval: forever, Events: stream.Events{OffsetClamped: func(string, stream.TopicPartition, int64, int64) { clamped++ }}}
			eng := must(stream.Open("/data", &o))(t)
			create(t, eng, "a", 2)
			ms := []*member{newMember(t, eng, stream.ConsumerConfig{CommitInterval: time.Millisecond}), newMember(t, eng, stream.ConsumerConfig{ManualCommit: true})}
			var cut *vfs.Sim
			known := map[stream.TopicPartition]int64{} // committed before the cut
			at := int(seed % 60)
			for step := range 60 {
				fill(t, eng, tp("a", int32(step%2)), step, step+1)
				m := ms[step/2%2]
				m.turn(t)
				switch step % 5 {
				case 1:
					check(t, m.Commit(t.Context()))
				case 3:
					m.CommitAsync(nil, nil)
				}
				time.Sleep(time.Millisecond)
				synctest.Wait()
				if step == at {
					for p, o := range groupOf(t, eng).Offsets {
						known[p] = o.Offset
					}
					cut = sim.Cut(vfs.Cut{Seed: seed, Keep: -1})
				}
			}
			check(t, eng.Close())
			o.FS = cut
			eng = must(stream.Open("/data", &o))(t)
			defer func() { check(t, eng.Close()) }()
			m := newMember(t, eng, stream.ConsumerConfig{})
			for _, p := range partitionsOf("a", 0, 2) {
				got, end := max(0, committed(t, m, p)), endOf(t, eng, p)
				if got > end || clamped > 0 {
					t.Errorf("seed %d: %v: committed %d, the log ends at %d, %d clamped", seed, p, got, end, clamped)
				}
				if got < known[p] {
					t.Errorf("seed %d: %v: committed %d, which was %d before", seed, p, got, known[p])
				}
			}
			settle(t, eng, m)
		})
	}
}

// E2, E4: a commit waits for the disk, and the group does not: a rebalance goes on meanwhile. What the commit would say of a partition that somebody else has by then does not count.
func TestRebalanceWhileACommitWaitsForTheDisk(t *testing.T) {
	for _, how := range []string{"Commit", "CommitAsync", "Commit behind another one", "CommitAsync behind another one"} {
		t.Run(how, func(t *testing.T) {
			onSlowDisk(t, 2, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
				fill(t, eng, tp("a", 0), 0, 6)
				fill(t, eng, tp("a", 1), 0, 6)
				a := newMember(t, eng, stream.ConsumerConfig{ManualCommit: true})
				a.turn(t)
				release := d.hang()
				defer release()
				ended := make(chan error, 1)
				if strings.HasSuffix(how, "another one") {
					a.CommitAsync(nil, nil)
				}
				if !strings.HasPrefix(how, "CommitAsync") {
					go func() { ended <- a.Commit(t.Context()) }()
				} else {
					a.CommitAsync(nil, func(_ stream.Offsets, err error) { ended <- err })
				}
				synctest.Wait()
				b := newMember(t, eng, stream.ConsumerConfig{ManualCommit: true})
				lasts(t, "rebalance", 0, func() { settle(t, eng, a, b) })
				owners(t, []*member{a, b}, 1, 1)
				p := b.Assignment()[0]
				check(t, b.CommitOffsets(t.Context(), stream.Offsets{p: {}})) // of which nothing has to be durable
				release()
				if err := <-ended; !errors.Is(err, stream.ErrIllegalGeneration) && !errors.Is(err, stream.ErrRebalance) {
					t.Errorf("error %v", err)
				}
				eq(t, "committed", groupOf(t, eng).Offsets[p].Offset, 0)
			})
		})
	}
}
