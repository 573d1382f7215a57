package stream_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

func TestSeekMovesThePosition(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 2)
		p := newProducer(t, eng, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
		for i, v := range numbers(0, 9) {
			must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Value: []byte(v), Timestamp: time.UnixMilli(int64(i) * 10)}))(t)
		}
		c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}})
		zero, one := tp("a", 0), tp("a", 1)
		pos := func(want0, want1 int64) {
			t.Helper()
			eq(t, "positions", []int64{must(c.Position(zero))(t), must(c.Position(one))(t)}, []int64{want0, want1})
		}
		pos(9, 0) // ResetLatest
		check(t, c.SeekToStart())
		pos(0, 0)
		eq(t, "polled", poll(t, c, 2), numbers(0, 2))
		pos(2, 0)
		check(t, c.Seek(zero, 7))
		pos(7, 0)
		eq(t, "polled", poll(t, c, 1), numbers(7, 8))
		check(t, c.Seek(zero, 7)) // within the batch in hand
		eq(t, "polled", poll(t, c, 9), numbers(7, 9))
		check(t, c.SeekToEnd(one))
		pos(9, 0)
		check(t, c.SeekToStart(zero))
		check(t, c.SeekToEnd(zero))
		pos(9, 0)
		wantErr(t, c.Seek(zero, -1), stream.ErrOffsetOutOfRange)
		pos(9, 0)

		for at, want := range map[int64]int64{-5: 0, 0: 0, 1: 1, 10: 1, 79: 8, 80: 8, 81: 9} {
			check(t, c.SeekToTime(t.Context(), time.UnixMilli(at)))
			pos(want, 0) // the other partition has no such record: its end
		}
		check(t, c.SeekToStart(zero))
		check(t, c.SeekToTime(t.Context(), time.UnixMilli(30), one))
		pos(0, 0)
		// A batch's records are found one by one.
		var rs []stream.Record
		for i := range 5 {
			rs = append(rs, stream.Record{Topic: "a", Partition: 1, Timestamp: time.UnixMilli(int64(i) * 10)})
		}
		must(p.ProduceAll(t.Context(), rs, nil))(t)
		check(t, c.SeekToTime(t.Context(), time.UnixMilli(25)))
		pos(3, 3)
	})
}

func TestSeekEndsAtTheDurableEndForWhoReadsDurable(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open(func(o *stream.Options) { o.SyncInterval = forever })
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{})
		send := func(acks stream.Acks) {
			must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Acks: acks, Timestamp: time.UnixMilli(5)}))(t)
		}
		send(stream.AcksSynced)
		send(stream.AcksWritten)
		send(stream.AcksNone)
		durable := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Visibility: stream.Durable})
		published := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}})
		for _, c := range []stream.Consumer{durable, published} {
			check(t, c.SeekToEnd())
		}
		eq(t, "ends", []int64{must(durable.Position(tp("a", 0)))(t), must(published.Position(tp("a", 0)))(t)}, []int64{1, 3})
		check(t, durable.SeekToTime(t.Context(), time.UnixMilli(6)))
		eq(t, "no such time", must(durable.Position(tp("a", 0)))(t), 1)
		check(t, durable.SeekToStart())
		eq(t, "durable", len(poll(t, durable, 9)), 1)
		check(t, durable.Seek(tp("a", 0), 2)) // published, not durable: to be waited for
		eq(t, "not durable", len(poll(t, durable, 9)), 0)
		eq(t, "position", must(durable.Position(tp("a", 0)))(t), 2)
		eq(t, "end", endOf(t, eng, tp("a", 0)), 3)
		send(stream.AcksSynced)
		eq(t, "durable", len(poll(t, durable, 9)), 2)
	})
}

// Where a poll goes on, by reset policy and position. The log holds offsets 0 to 4. No log loses its start in this version, so no position
// can lie before it.
func TestResetPolicyAppliesWhereTheLogHasNoSuchOffset(t *testing.T) {
	const none = -1
	for _, tc := range []struct {
		reset  stream.Reset
		seek   int64 // none: no position and no committed offset
		want   int64 // position after one poll of one record; none: the error
		err    error
		record bool
	}{
		{stream.ResetEarliest, none, 1, nil, true},
		{stream.ResetEarliest, 0, 1, nil, true},
		{stream.ResetEarliest, 4, 5, nil, true},
		{stream.ResetEarliest, 5, 5, nil, false}, // at the end
		{stream.ResetEarliest, 6, 1, nil, true},  // past the end
		{stream.ResetEarliest, 1 << 62, 1, nil, true},
		{stream.ResetLatest, none, 5, nil, false},
		{stream.ResetLatest, 0, 1, nil, true},
		{stream.ResetLatest, 5, 5, nil, false},
		{stream.ResetLatest, 6, 5, nil, false},
		{stream.ResetLatest, 1 << 62, 5, nil, false},
		{stream.ResetNone, none, none, stream.ErrNoOffset, false},
		{stream.ResetNone, 0, 1, nil, true},
		{stream.ResetNone, 5, 5, nil, false},
		{stream.ResetNone, 6, none, stream.ErrOffsetOutOfRange, false},
	} {
		t.Run(fmt.Sprintf("policy %d at %d", tc.reset, tc.seek), func(t *testing.T) {
			onGrounds(t, func(t *testing.T, g *ground) {
				eng := g.open()
				create(t, eng, "a", 1)
				fill(t, eng, tp("a", 0), 0, 5)
				for _, visibility := range []stream.Visibility{stream.Published, stream.Durable} {
					c := newConsumer(t, eng, stream.ConsumerConfig{Reset: tc.reset, Group: "g", ManualCommit: true, Visibility: visibility})
					check(t, c.CommitOffsets(t.Context(), nil))
					check(t, c.Assign(tp("a", 0)))
					if tc.seek != none {
						check(t, c.Seek(tp("a", 0), tc.seek))
						eq(t, "Seek takes any offset", must(c.Position(tp("a", 0)))(t), tc.seek)
					}
					if visibility == stream.Durable {
						p := newProducer(t, eng, stream.ProducerConfig{}) // makes all durable, takes no offset
						must(p.ProduceAll(t.Context(), nil, nil))(t)
						other := newConsumer(t, eng, stream.ConsumerConfig{Group: "h"})
						check(t, other.CommitOffsets(t.Context(), stream.Offsets{tp("a", 0): {Offset: 5}}))
					}
					rs, err := c.Poll(t.Context(), 1)
					if tc.err != nil {
						wantErr(t, err, tc.err)
						continue
					}
					check(t, err)
					if tc.record {
						eq(t, "records", len(rs), 1)
						eq(t, "offset", rs[0].Offset, tc.want-1)
					} else {
						eq(t, "records", len(rs), 0)
					}
					eq(t, "position", must(c.Position(tp("a", 0)))(t), tc.want)
				}
			})
		})
	}
}

func TestCommittedOffsetComesBeforeTheResetPolicy(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 1)
		fill(t, eng, tp("a", 0), 0, 5)
		for _, reset := range []stream.Reset{stream.ResetEarliest, stream.ResetLatest, stream.ResetNone} {
			c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Reset: reset, ManualCommit: true})
			check(t, c.CommitOffsets(t.Context(), stream.Offsets{tp("a", 0): {Offset: 3}}))
			check(t, c.Assign(tp("a", 0)))
			eq(t, "position", must(c.Position(tp("a", 0)))(t), 3)
			eq(t, "polled", poll(t, c, 9), numbers(3, 5))
		}
	})
}
