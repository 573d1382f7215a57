package stream_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// A static member that comes back within its session timeout has its partitions at once, and nobody notices: not the others, not the generation. So it is when the engine was closed meanwhile.
func TestStaticMemberComesBack(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("engine restarted ", restart), func(t *testing.T) {
			inTime(t, func(t *testing.T, g *timed) {
				create(t, g.eng, "a", 4)
				static := func(id string) *member {
					return newListener(t, g.eng, stream.ConsumerConfig{InstanceID: id, SessionTimeout: time.Minute})
				}
				ms := []*member{static("x"), static("y")}
				settle(t, g.eng, ms...)
				for round := range 3 {
					for i, id := range []string{"x", "y"} {
						before := groupOf(t, g.eng)
						mine := ms[i].Assignment()
						oldID := ms[i].Group().MemberID
						ms[1-i].news()
						if restart {
							g.reopen()
							time.Sleep(59 * time.Second)
							ms[1-i] = static([]string{"y", "x"}[i])
							ms[1-i].turn(t)
						} else {
							check(t, ms[i].Close(t.Context()))
							time.Sleep(59 * time.Second)
						}
						for _, p := range mine {
							fill(t, g.eng, p, round, round+1)
						}
						ms[i] = static(id)
						ms[i].turn(t)
						eq(t, "assignment", ms[i].Assignment(), mine)
						eq(t, "read", len(ms[i].read()), len(mine))
						eq(t, "heard", ms[i].news(), []string{fmt.Sprint("assigned ", mine)})
						ms[1-i].turn(t)
						if !restart {
							eq(t, "the other one hears", ms[1-i].news(), nil)
						}
						after := groupOf(t, g.eng)
						eq(t, "generation", after.Generation, before.Generation)
						eq(t, "state", after.State, "Stable")
						if ms[i].Group().MemberID == oldID {
							t.Error("the id has not changed")
						}
						eq(t, "instance", ms[i].Group().InstanceID, id)
						if restart {
							settle(t, g.eng, ms...)
						}
					}
				}
			})
		})
	}
}

// A static member that does not come back within its session timeout loses its partitions to the others, then and not before.
func TestStaticMemberThatStaysAway(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("engine restarted ", restart), func(t *testing.T) {
			inTime(t, func(t *testing.T, g *timed) {
				create(t, g.eng, "a", 4)
				static := func(id string) *member {
					return newMember(t, g.eng, stream.ConsumerConfig{InstanceID: id, SessionTimeout: time.Minute})
				}
				x, y := static("x"), static("y")
				settle(t, g.eng, x, y)
				if restart {
					g.reopen()
					x = static("x")
				} else {
					check(t, y.Close(t.Context()))
				}
				g.wait(time.Minute - time.Millisecond)
				x.turn(t)
				x.turn(t)
				eq(t, "before", len(x.Assignment()), 2)
				g.wait(2 * time.Millisecond)
				settle(t, g.eng, x)
				eq(t, "after", len(x.Assignment()), 4)
				y = static("y")
				settle(t, g.eng, x, y)
				owners(t, []*member{x, y}, 2, 2)
			})
		})
	}
}

// E2: a second instance with the same name fences the first, which says so for ever; it loses its partitions and can commit nothing.
func TestSecondStaticMemberFencesTheFirst(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 2)
		fill(t, eng, tp("a", 0), 0, 3)
		c := stream.ConsumerConfig{InstanceID: "x", ManualCommit: true}
		other := newMember(t, eng, stream.ConsumerConfig{InstanceID: "y"})
		first := newListener(t, eng, c)
		settle(t, eng, other, first)
		other.read()
		mine := first.Assignment()
		fill(t, eng, mine[0], 3, 6)
		rs := must(first.Poll(t.Context(), 0))(t)
		first.news()
		second := newListener(t, eng, c)
		second.turn(t)
		eq(t, "the second has", second.Assignment(), mine)
		wantErr(t, first.Commit(t.Context()), stream.ErrFenced)
		wantErr(t, first.CommitRecords(t.Context(), rs...), stream.ErrFenced)
		for range 3 {
			_, err := first.Poll(t.Context(), 1)
			wantErr(t, err, stream.ErrFenced)
			if !stream.IsFatal(err) || stream.IsRetriable(err) {
				t.Errorf("%v is not fatal", err)
			}
		}
		eq(t, "heard", first.news(), []string{fmt.Sprint("lost ", mine)})
		for _, err := range first.Records(t.Context()) { // ends with it
			wantErr(t, err, stream.ErrFenced)
		}
		check(t, first.Close(t.Context()))
		second.turn(t)
		other.turn(t)
		eq(t, "the second keeps", second.Assignment(), mine)
		check(t, second.Commit(t.Context()))
	})
}

// A poll that waits hears at once that it is fenced.
func TestFencedPollEndsAtOnce(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 1)
		c := stream.ConsumerConfig{InstanceID: "x", MaxWait: forever}
		first := newMember(t, eng, c)
		ended := make(chan error, 1)
		go func() { _, err := first.Poll(t.Context(), 1); ended <- err }()
		time.Sleep(time.Second)
		lasts(t, "fencing", 0, func() {
			second := newMember(t, eng, c)
			wantErr(t, <-ended, stream.ErrFenced)
			eq(t, "second", len(second.Assignment()), 1)
		})
	})
}
