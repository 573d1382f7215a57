package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// Groups says who has what, and how far behind everybody is.
func TestGroupsSayWhoHasWhat(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		admin := eng.Admin()
		create(t, eng, "a", 2)
		fill(t, eng, tp("a", 0), 0, 5)
		fill(t, eng, tp("a", 1), 0, 4)
		eq(t, "groups", len(must(admin.Groups(t.Context()))(t)), 0)
		_, err := admin.Groups(t.Context(), "g")
		wantErr(t, err, stream.ErrUnknownGroup)
		x := newMember(t, eng, stream.ConsumerConfig{InstanceID: "x"})
		y := newMember(t, eng, stream.ConsumerConfig{})
		time.Sleep(3 * time.Second)
		g := groupOf(t, eng)
		eq(t, "state", []any{g.State, g.Generation, len(g.Members)}, []any{"PreparingRebalance", 1, 2})
		settle(t, eng, x, y)
		check(t, x.CommitOffsets(t.Context(), stream.Offsets{x.Assignment()[0]: {Offset: 1, Metadata: "m"}}))
		g = groupOf(t, eng)
		eq(t, "group", []any{g.Group, g.State, g.Assignor, g.Generation, g.Leader}, []any{"g", "Stable", "cooperative-sticky", x.Group().Generation, x.Group().MemberID})
		eq(t, "members", len(g.Members), 2)
		for _, mi := range g.Members {
			m := y
			if mi.InstanceID == "x" {
				m = x
			}
			eq(t, "member", mi, stream.MemberInfo{MemberID: m.Group().MemberID, InstanceID: m.Group().InstanceID, ClientID: "g", Assignment: m.Assignment()})
		}
		mine, other := x.Assignment()[0], y.Assignment()[0]
		eq(t, "offset", g.Offsets[mine], stream.OffsetMetadata{Offset: 1, Metadata: "m"})
		eq(t, "lag", g.Lag[mine], stream.Lag{Records: endOf(t, eng, mine) - 1, Time: 3 * time.Second})
		eq(t, "lag without an offset", g.Lag[other].Records+g.Offsets[other].Offset, endOf(t, eng, other))
		check(t, x.Close(t.Context()))
		check(t, y.Close(t.Context()))
		time.Sleep(time.Minute) // x was static
		check(t, newConsumer(t, eng, stream.ConsumerConfig{Group: "b"}).CommitOffsets(t.Context(), stream.Offsets{tp("a", 0): {Offset: 2}}))
		all := must(admin.Groups(t.Context()))(t)
		eq(t, "groups", []string{all[0].Group, all[0].State, all[1].Group, all[1].State}, []string{"b", "Empty", "g", "Empty"})
		eq(t, "members", len(all[1].Members), 0)
		eq(t, "named", must(admin.Groups(t.Context(), "g", "b"))(t), []stream.GroupInfo{all[1], all[0]})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = admin.Groups(ended)
		wantErr(t, err, context.Canceled)
	})
}

// The verbs on a group's offsets do what they say, durably, for groups without members; with members they say so, and change nothing.
func TestOffsetsOfAGroupAreSetAndDeleted(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		create(t, g.eng, "a", 2)
		create(t, g.eng, "b", 1)
		ctx := t.Context()
		for i := range 10 {
			fill(t, g.eng, tp("a", 0), i, i+1)
			time.Sleep(time.Second)
		}
		begin := time.Now().Add(-10 * time.Second)
		check(t, g.eng.Admin().DeleteRecords(ctx, map[stream.TopicPartition]int64{tp("a", 0): 2}))
		offsets := func() map[stream.TopicPartition]int64 {
			out := map[stream.TopicPartition]int64{}
			for p, o := range groupOf(t, g.eng).Offsets {
				out[p] = o.Offset
			}
			return out
		}
		p, q := tp("a", 0), tp("a", 1)
		check(t, g.eng.Admin().SetOffsets(ctx, "g", stream.Offsets{p: {Offset: 6}, q: {}, tp("b", 0): {}}))
		check(t, g.eng.Admin().SetOffsets(ctx, "g", stream.Offsets{p: {Offset: 5}})) // back
		for name, tc := range map[string]struct {
			to   stream.OffsetSpec
			want int64
		}{
			"start": {stream.ToStart(), 2}, "zero": {stream.OffsetSpec{}, 2}, "end": {stream.ToEnd(), 10}, "offset": {stream.ToOffset(7), 7}, "below": {stream.ToOffset(0), 2}, "above": {stream.ToOffset(70), 10},
			"negative": {stream.ToOffset(-3), 2}, "time": {stream.ToTime(begin.Add(4 * time.Second)), 4}, "between": {stream.ToTime(begin.Add(4*time.Second + 1)), 4}, "later": {stream.ToTime(begin.Add(time.Hour)), 10},
			"earlier": {stream.ToTime(begin.Add(-time.Hour)), 2}, "shift": {stream.ToShift(3), 8}, "back": {stream.ToShift(-2), 3}, "too far back": {stream.ToShift(-20), 2}, "too far": {stream.ToShift(20), 10},
		} {
			check(t, g.eng.Admin().SetOffsets(ctx, "g", stream.Offsets{p: {Offset: 5}}))
			got := must(g.eng.Admin().ResetOffsets(ctx, "g", tc.to, p))(t)
			eq(t, name, got, stream.Offsets{p: {Offset: tc.want, LeaderEpoch: -1}})
			eq(t, name+", committed", offsets()[p], tc.want)
		}
		got := must(g.eng.Admin().ResetOffsets(ctx, "g", stream.ToEnd()))(t) // all that it has
		eq(t, "all", []int64{int64(len(got)), got[p].Offset, got[q].Offset}, []int64{3, 10, 0})
		eq(t, "of a new group", must(g.eng.Admin().ResetOffsets(ctx, "new", stream.ToShift(3), p))(t)[p].Offset, 5)

		g.reopen()
		admin := g.eng.Admin()
		eq(t, "after a restart", offsets(), map[stream.TopicPartition]int64{p: 10, q: 0, tp("b", 0): 0})
		m := newMember(t, g.eng, stream.ConsumerConfig{})
		before := offsets()
		wantErr(t, admin.SetOffsets(ctx, "g", stream.Offsets{p: {Offset: 3}}), stream.ErrGroupNotEmpty)
		wantErr(t, second(admin.ResetOffsets(ctx, "g", stream.ToStart(), p)), stream.ErrGroupNotEmpty)
		wantErr(t, second(admin.ResetOffsets(ctx, "g", stream.ToStart())), stream.ErrGroupNotEmpty)
		wantErr(t, admin.DeleteGroup(ctx, "g"), stream.ErrGroupNotEmpty)
		wantErr(t, admin.DeleteOffsets(ctx, "g", tp("b", 0), p), stream.ErrGroupSubscribed)
		eq(t, "nothing has changed", offsets(), before)
		check(t, admin.DeleteOffsets(ctx, "g", tp("b", 0))) // nobody subscribes to it
		check(t, m.Close(ctx))
		eq(t, "deleted", offsets(), map[stream.TopicPartition]int64{p: 10, q: 0})

		for what, tc := range map[string]struct {
			err  error
			want error
		}{
			"behind the end":         {admin.SetOffsets(ctx, "g", stream.Offsets{p: {Offset: 11}, q: {}}), stream.ErrOffsetOutOfRange},
			"no such topic":          {admin.SetOffsets(ctx, "g", stream.Offsets{tp("x", 0): {}}), stream.ErrUnknownTopic},
			"no name":                {admin.SetOffsets(ctx, "", stream.Offsets{p: {}}), stream.ErrInvalidGroup},
			"reset, no such topic":   {second(admin.ResetOffsets(ctx, "g", stream.ToEnd(), tp("x", 0))), stream.ErrUnknownTopic},
			"reset, no such group":   {second(admin.ResetOffsets(ctx, "none", stream.ToEnd())), stream.ErrUnknownGroup},
			"delete, no such topic":  {admin.DeleteOffsets(ctx, "g", tp("x", 0)), stream.ErrUnknownTopic},
			"delete, no such group":  {admin.DeleteOffsets(ctx, "none", p), stream.ErrUnknownGroup},
			"delete a group, none":   {admin.DeleteGroup(ctx, "none"), stream.ErrUnknownGroup},
			"explain, no such group": {second(admin.Explain(ctx, "none")), stream.ErrUnknownGroup},
		} {
			if wantErr(t, tc.err, tc.want); tc.err == nil {
				t.Errorf("%s: no error", what)
			}
		}
		eq(t, "nothing has changed", offsets(), map[stream.TopicPartition]int64{p: 10, q: 0})
		check(t, admin.DeleteOffsets(ctx, "g", q, q))
		g.reopen()
		eq(t, "after a restart", offsets(), map[stream.TopicPartition]int64{p: 10})
		check(t, g.eng.Admin().DeleteGroup(ctx, "g"))
		wantErr(t, g.eng.Admin().DeleteGroup(ctx, "g"), stream.ErrUnknownGroup)
		g.reopen()
		eq(t, "groups", len(must(g.eng.Admin().Groups(ctx))(t)), 1)
		_, err := g.eng.Admin().Groups(ctx, "g")
		wantErr(t, err, stream.ErrUnknownGroup)
		m = newMember(t, g.eng, stream.ConsumerConfig{})
		eq(t, "a new group begins anew", len(m.turn(t)), 8)
		check(t, m.Close(ctx))
	})
}

// second is the error of a call that returns a value too.
func second[T any](_ T, err error) error { return err }

// E2: generations rise across restarts, so that nobody of an earlier life can pass for one of this.
func TestGenerationsRiseAcrossRestarts(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		create(t, g.eng, "a", 2)
		last := int32(-1)
		for round := range 6 {
			m := newMember(t, g.eng, stream.ConsumerConfig{})
			settle(t, g.eng, m)
			if n := m.Group().Generation; n <= last {
				t.Fatalf("generation %d after %d", n, last)
			}
			last = m.Group().Generation
			if round%2 == 0 {
				check(t, m.Close(t.Context()))
				g.reopen()
			} else {
				g.crash(round == 3, 1)
			}
		}
	})
}

// Explain has a sentence for each cause that keeps records from being delivered, with who and how much and how long.
func TestExplainSaysWhy(t *testing.T) {
	for name, tc := range map[string]struct {
		act  func(t *testing.T, eng *stream.Engine, m *member) map[string]stream.Consumer // names of members beside "m"
		want string
	}{
		"caught up": {func(t *testing.T, eng *stream.Engine, m *member) map[string]stream.Consumer {
			m.turn(t)
			time.Sleep(time.Second)
			return nil
		}, "member m is caught up at offset 5"},
		"behind": {func(t *testing.T, eng *stream.Engine, m *member) map[string]stream.Consumer {
			_ = must(m.Poll(t.Context(), 2))(t)
			time.Sleep(1500 * time.Millisecond)
			return nil
		}, "member m is at offset 2 and has not asked for more (last poll 1.5s ago, limit 16s); 3 records wait, the first for 1.5s"},
		"never polled": {func(t *testing.T, eng *stream.Engine, m *member) map[string]stream.Consumer {
			time.Sleep(2 * time.Second)
			return nil
		}, "member m is at offset 0 and has not asked for more (last poll 2s ago, limit 16s); 5 records wait, the first for 2s"},
		"given and not taken": {func(t *testing.T, eng *stream.Engine, m *member) map[string]stream.Consumer {
			m.turn(t)
			check(t, m.Close(t.Context()))
			fill(t, eng, tp("a", 0), 5, 7)
			x, y := newMember(t, eng, stream.ConsumerConfig{Topics: []string{"b"}}), newMember(t, eng, stream.ConsumerConfig{MaxPollInterval: time.Minute})
			x.turn(t) // leads
			time.Sleep(3 * time.Second)
			return map[string]stream.Consumer{"x": x, "y": y}
		}, "member y has been given it and has not polled since (last poll 3s ago, limit 1m0s)"},
		"paused": {func(t *testing.T, eng *stream.Engine, m *member) map[string]stream.Consumer {
			_ = must(m.Poll(t.Context(), 1))(t)
			m.Pause(tp("a", 0))
			time.Sleep(3 * time.Second)
			m.Pause(tp("a", 0)) // it was already
			time.Sleep(time.Second)
			return nil
		}, "paused by the application for 4s at offset 1; 4 records wait, the first for 4s"},
		"rebalance": {func(t *testing.T, eng *stream.Engine, m *member) map[string]stream.Consumer {
			m.turn(t)
			x := newMember(t, eng, stream.ConsumerConfig{})
			time.Sleep(2 * time.Second)
			return map[string]stream.Consumer{"x": x}
		}, "a rebalance waits for m (last poll 2s ago, limit 16s) to give up what it has"},
		"leader": {func(t *testing.T, eng *stream.Engine, m *member) map[string]stream.Consumer {
			x := newMember(t, eng, stream.ConsumerConfig{})
			settle(t, eng, m, x)
			y := newMember(t, eng, stream.ConsumerConfig{})
			m.turn(t)
			time.Sleep(time.Second)
			x.turn(t)
			time.Sleep(time.Second)
			return map[string]stream.Consumer{"x": x, "y": y}
		}, "a rebalance waits for the assignment by leader m (last poll 2s ago, limit 16s)"},
		"no member": {func(t *testing.T, eng *stream.Engine, m *member) map[string]stream.Consumer {
			_ = must(m.Poll(t.Context(), 2))(t)
			check(t, m.Close(t.Context()))
			time.Sleep(time.Minute)
			return nil
		}, "the group has no member; 3 records wait, the first for 1m0s"},
		"nobody has it": {func(t *testing.T, eng *stream.Engine, m *member) map[string]stream.Consumer {
			_ = must(m.Poll(t.Context(), 2))(t)
			check(t, m.Commit(t.Context()))
			check(t, m.Subscribe("b"))
			m.turn(t)
			return nil
		}, "no member has it; 3 records wait, the first for 0s"},
		"static": {func(t *testing.T, eng *stream.Engine, m *member) map[string]stream.Consumer {
			check(t, m.Close(t.Context()))
			time.Sleep(time.Second)
			m.Consumer = newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, InstanceID: "s", Reset: stream.ResetEarliest})
			check(t, m.Close(t.Context()))
			time.Sleep(time.Second)
			return nil
		}, "static member * has closed and has not come back; 5 records wait, the first for 2s"},
		"reading": {func(t *testing.T, eng *stream.Engine, m *member) map[string]stream.Consumer {
			ctx, cancel := context.WithCancel(t.Context())
			check(t, m.Close(t.Context()))
			x := newMember(t, eng, stream.ConsumerConfig{MinBytes: 1 << 20, MaxWait: forever})
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = x.Poll(ctx, 1)
			}()
			t.Cleanup(func() { cancel(); <-done })
			time.Sleep(time.Second)
			return map[string]stream.Consumer{"x": x}
		}, "member x is reading at offset 0; 5 records wait, the first for 1s"},
		"stopped": {func(t *testing.T, eng *stream.Engine, m *member) map[string]stream.Consumer {
			check(t, m.Close(t.Context()))
			x := newMember(t, eng, stream.ConsumerConfig{Reset: stream.ResetNone})
			_, err := x.Poll(t.Context(), 1)
			wantErr(t, err, stream.ErrNoOffset)
			return map[string]stream.Consumer{"x": x}
		}, "member x stopped at offset 0 until Seek or Resume: a-0: " + stream.ErrNoOffset.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
				create(t, eng, "a", 1)
				create(t, eng, "b", 1)
				fill(t, eng, tp("a", 0), 0, 5)
				m := newMember(t, eng, stream.ConsumerConfig{MaxPollInterval: limit})
				names := tc.act(t, eng, m)
				if names == nil {
					names = map[string]stream.Consumer{}
				}
				names["m"] = m
				text := explained(t, eng, tp("a", 0), names)
				if name == "static" {
					for _, mi := range groupOf(t, eng).Members {
						text = strings.ReplaceAll(text, mi.MemberID, "*")
					}
				}
				eq(t, "explained", text, tc.want)
			})
		})
	}
}

// Explain tells apart what is not durable yet, and what is offline after a storage error; it names the owner.
func TestExplainWhatIsNotDurableAndWhatHasFailed(t *testing.T) {
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		fill(t, eng, tp("a", 0), 0, 3)
		m := newMember(t, eng, stream.ConsumerConfig{Visibility: stream.Durable, ManualCommit: true})
		m.turn(t)
		names := map[string]stream.Consumer{"m": m}
		eq(t, "explained", explained(t, eng, tp("a", 0), names), "member m has read everything that is durable, up to offset 0; 3 records are not synced yet")
		check(t, newConsumer(t, eng, stream.ConsumerConfig{Group: "other"}).CommitOffsets(t.Context(), stream.Offsets{tp("a", 0): {Offset: 3}}))
		m.turn(t)
		eq(t, "explained", explained(t, eng, tp("a", 0), names), "member m is caught up at offset 3")
		xs := must(eng.Admin().Explain(t.Context(), "g"))(t)
		eq(t, "owner", []any{len(xs), xs[0].TopicPartition, xs[0].Member}, []any{1, tp("a", 0), m.Group().MemberID})

		d.Inject(func(op vfs.Op) error {
			if op.Kind == vfs.OpSync && strings.Contains(op.Name, "/a-0/") {
				return errors.New("injected")
			}
			return nil
		})
		_, err := newProducer(t, eng, stream.ProducerConfig{}).ProduceSync(t.Context(), &stream.Record{Topic: "a"})
		wantErr(t, err, stream.ErrPartitionFailed)
		text := explained(t, eng, tp("a", 0), nil)
		if !strings.HasPrefix(text, "the partition is offline after a storage error: ") || !strings.Contains(text, "injected") {
			t.Errorf("explained: %s", text)
		}
		d.Inject(nil)
		time.Sleep(time.Minute)
		eq(t, "state", must(eng.Admin().Health(t.Context(), tp("a", 0)))(t)[0].State, stream.PartitionOK)
	})
}

// Partitions that a group has offsets in are explained though nobody subscribes to them, those of a subscription though they have no offset, in order.
func TestExplainNamesEveryPartition(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 11)
		create(t, eng, "b", 2)
		check(t, eng.Admin().SetOffsets(t.Context(), "g", stream.Offsets{tp("b", 1): {}}))
		ms := []*member{newMember(t, eng, stream.ConsumerConfig{}), newMember(t, eng, stream.ConsumerConfig{})}
		settle(t, eng, ms...)
		var got []stream.TopicPartition
		owner := owners(t, ms, 5, 6)
		for _, x := range must(eng.Admin().Explain(t.Context(), "g"))(t) {
			got = append(got, x.TopicPartition)
			id := ""
			if m := owner[x.TopicPartition]; m != nil {
				id = m.Group().MemberID
			}
			eq(t, fmt.Sprint(x.TopicPartition), x.Member, id)
		}
		eq(t, "partitions", got, slices.Concat(partitionsOf("a", 0, 11), partitionsOf("b", 1, 2)))
	})
}
