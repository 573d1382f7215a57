package stream_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

func TestCommitCoversWhatPollReturned(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		ctx := t.Context()
		create(t, eng, "a", 2)
		fill(t, eng, tp("a", 0), 0, 5)
		fill(t, eng, tp("a", 1), 0, 5)
		conf := stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest, ManualCommit: true}
		c := newConsumer(t, eng, conf)
		eq(t, "nothing committed", len(must(c.Committed(ctx))(t)), 0)
		eq(t, "polled", len(poll(t, c, 7)), 7)
		eq(t, "polling commits nothing", len(must(c.Committed(ctx))(t)), 0)
		check(t, c.Commit(ctx))
		before := must(c.Committed(ctx))(t)
		eq(t, "records covered", before[tp("a", 0)].Offset+before[tp("a", 1)].Offset, 7)
		eq(t, "named partition", must(c.Committed(ctx, tp("a", 1)))(t)[tp("a", 1)], before[tp("a", 1)])
		_, err := c.Committed(ctx, tp("a", 2))
		wantErr(t, err, stream.ErrUnknownTopic)
		eq(t, "polled", len(poll(t, c, 2)), 2)
		check(t, c.Close(ctx)) // ManualCommit: commits nothing

		eng = g.reopen()
		c = newConsumer(t, eng, conf)
		eq(t, "committed after reopening", must(c.Committed(ctx))(t), before)
		for p, o := range before {
			eq(t, "position", must(c.Position(p))(t), o.Offset)
		}
		eq(t, "rest", len(poll(t, c, 10)), 3)
	})
}

func TestCommitRecordsTakesTheGreatestOfEachPartition(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 2)
		fill(t, eng, tp("a", 0), 0, 5)
		fill(t, eng, tp("a", 1), 0, 5)
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest, ManualCommit: true})
		rs := must(c.Poll(t.Context(), 10))(t)
		want := map[stream.TopicPartition]int64{tp("a", 0): -1, tp("a", 1): -1}
		// The order in which they are handed in does not matter.
		check(t, c.CommitRecords(t.Context(), rs[6], rs[5], rs[1], rs[3], rs[2]))
		for _, r := range []stream.Record{rs[6], rs[5], rs[1], rs[3], rs[2]} {
			p := tp(r.Topic, r.Partition)
			want[p] = max(want[p], r.Offset+1)
		}
		for p, o := range want {
			eq(t, p.String(), committed(t, c, p), o)
		}
		check(t, c.CommitRecords(t.Context()))
		check(t, c.CommitRecords(t.Context(), rs[0])) // explicit commits may go back
		eq(t, "after going back", committed(t, c, tp(rs[0].Topic, rs[0].Partition)), rs[0].Offset+1)
		wantErr(t, c.CommitRecords(t.Context(), stream.Record{Topic: "a", Offset: 5}), stream.ErrOffsetOutOfRange)
		wantErr(t, c.CommitRecords(t.Context(), stream.Record{Topic: "b"}), stream.ErrUnknownTopic)
	})
}

// CommitOffsets is all or nothing, keeps metadata, and takes any place in the log, the end included, and none behind it (E3).
func TestCommitOffsetsAnywhereInTheLog(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		ctx := t.Context()
		create(t, eng, "a", 2)
		fill(t, eng, tp("a", 0), 0, 5)
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g"})
		longest := strings.Repeat("m", 4096)
		for _, o := range []stream.OffsetMetadata{{Offset: 5, LeaderEpoch: 3, Metadata: longest}, {Offset: 0, LeaderEpoch: -1}, {Offset: 3, Metadata: "ä\x00"}} {
			check(t, c.CommitOffsets(ctx, stream.Offsets{tp("a", 0): o}))
			eq(t, "committed", must(c.Committed(ctx, tp("a", 0)))(t)[tp("a", 0)], o)
		}
		for name, tc := range map[string]struct {
			o    stream.Offsets
			want error
		}{
			"behind the end":    {stream.Offsets{tp("a", 0): {Offset: 6}, tp("a", 1): {}}, stream.ErrOffsetOutOfRange},
			"negative":          {stream.Offsets{tp("a", 0): {Offset: -1}, tp("a", 1): {}}, stream.ErrOffsetOutOfRange},
			"empty log":         {stream.Offsets{tp("a", 0): {}, tp("a", 1): {Offset: 1}}, stream.ErrOffsetOutOfRange},
			"metadata too long": {stream.Offsets{tp("a", 0): {Metadata: longest + "m"}, tp("a", 1): {}}, stream.ErrMetadataTooLarge},
			"unknown partition": {stream.Offsets{tp("a", 0): {}, tp("a", 2): {}}, stream.ErrUnknownTopic},
		} {
			if err := c.CommitOffsets(ctx, tc.o); !errors.Is(err, tc.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		wantErr(t, c.CommitOffsets(ended, stream.Offsets{tp("a", 1): {}}), context.Canceled)
		check(t, c.CommitOffsets(ctx, nil))
		eng = g.reopen()
		c = newConsumer(t, eng, stream.ConsumerConfig{Group: "g"})
		eq(t, "committed", must(c.Committed(ctx, tp("a", 0), tp("a", 1)))(t), stream.Offsets{tp("a", 0): {Offset: 3, Metadata: "ä\x00"}})
		eq(t, "another group", committed(t, newConsumer(t, eng, stream.ConsumerConfig{Group: "h"}), tp("a", 0)), -1)
	})
}

// E3: a commit waits until the log is durable up to it.
func TestCommitMakesTheLogDurableFirst(t *testing.T) {
	onSim(t, func(t *testing.T, g *ground) {
		eng := g.open(func(o *stream.Options) { o.SyncInterval = forever })
		create(t, eng, "a", 1)
		fill(t, eng, tp("a", 0), 0, 5)
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest})
		durable := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest, Visibility: stream.Durable})
		eq(t, "polled", poll(t, c, 5), numbers(0, 5))
		eq(t, "not durable yet", poll(t, durable, 5), []string{})
		check(t, c.Commit(t.Context()))
		eq(t, "durable", poll(t, durable, 5), numbers(0, 5))
	})
}

func TestCommitNeedsAGroup(t *testing.T) {
	eng := streamtest.New(t)
	create(t, eng, "a", 1)
	c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}})
	wantErr(t, c.Commit(t.Context()), stream.ErrInvalidGroup)
	wantErr(t, c.CommitRecords(t.Context(), stream.Record{Topic: "a"}), stream.ErrInvalidGroup)
	wantErr(t, c.CommitOffsets(t.Context(), stream.Offsets{tp("a", 0): {}}), stream.ErrInvalidGroup)
	_, err := c.Committed(t.Context())
	wantErr(t, err, stream.ErrInvalidGroup)
}

// Close commits what polls returned, the latest included.
func TestCloseCommitsWhatPollsReturned(t *testing.T) {
	for _, how := range []string{"consumer", "engine"} {
		t.Run(how, func(t *testing.T) {
			onGrounds(t, func(t *testing.T, g *ground) {
				eng := g.open()
				create(t, eng, "a", 1)
				fill(t, eng, tp("a", 0), 0, 9)
				conf := stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest}
				c := newConsumer(t, eng, conf)
				poll(t, c, 3)
				poll(t, c, 1)
				if how == "consumer" {
					check(t, c.Close(t.Context()))
				}
				eng = g.reopen()
				c = newConsumer(t, eng, conf)
				eq(t, "committed", committed(t, c, tp("a", 0)), 4)
				eq(t, "next", poll(t, c, 1), numbers(4, 5))
			})
		})
	}
}

// E4: automatic commits never move a group back, not by Seek, and not by another consumer that begins further back.
func TestAutomaticCommitsNeverGoBack(t *testing.T) {
	for name, rewind := range map[string]func(t *testing.T, eng *stream.Engine, c stream.Consumer) stream.Consumer{
		"Seek by the same consumer": func(t *testing.T, eng *stream.Engine, c stream.Consumer) stream.Consumer {
			check(t, c.Seek(tp("a", 0), 2))
			return c
		},
		"Seek by the next consumer": func(t *testing.T, eng *stream.Engine, c stream.Consumer) stream.Consumer {
			check(t, c.Close(t.Context()))
			c = newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}})
			check(t, c.Seek(tp("a", 0), 2))
			return c
		},
		"Seek after Assign": func(t *testing.T, eng *stream.Engine, c stream.Consumer) stream.Consumer {
			check(t, c.Unsubscribe())
			check(t, c.Assign(tp("a", 0)))
			check(t, c.SeekToStart())
			return c
		},
		"Position, then Seek": func(t *testing.T, eng *stream.Engine, c stream.Consumer) stream.Consumer {
			check(t, c.Unsubscribe())
			check(t, c.Assign(tp("a", 0)))
			eq(t, "position", must(c.Position(tp("a", 0)))(t), 6)
			check(t, c.SeekToStart())
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			eng := streamtest.New(t)
			create(t, eng, "a", 1)
			fill(t, eng, tp("a", 0), 0, 9)
			c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest})
			poll(t, c, 6)
			check(t, c.Commit(t.Context()))
			c = rewind(t, eng, c)
			if got := poll(t, c, 2); len(got) != 2 || got[0] > "2" {
				t.Fatalf("after going back: %v", got)
			}
			check(t, c.Close(t.Context()))
			look := newConsumer(t, eng, stream.ConsumerConfig{Group: "g"})
			eq(t, "committed", committed(t, look, tp("a", 0)), 6)
		})
	}
}

// Explicit commits do go back.
func TestSeekAndCommitGoesBack(t *testing.T) {
	eng := streamtest.New(t)
	create(t, eng, "a", 1)
	fill(t, eng, tp("a", 0), 0, 9)
	c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest})
	poll(t, c, 6)
	check(t, c.Commit(t.Context()))
	check(t, c.Seek(tp("a", 0), 2))
	check(t, c.Commit(t.Context()))
	eq(t, "committed", committed(t, c, tp("a", 0)), 2)
	check(t, c.CommitOffsets(t.Context(), stream.Offsets{tp("a", 0): {Offset: 1}}))
	eq(t, "committed", committed(t, c, tp("a", 0)), 1)
}

// A position behind the log end is the reset policy's to deal with at the next poll. It is no reason for Poll or Close to fail.
func TestSeekBehindTheEndDoesNotBreakAutomaticCommits(t *testing.T) {
	for _, then := range []string{"poll", "close"} {
		t.Run(then, func(t *testing.T) {
			eng := streamtest.New(t)
			create(t, eng, "a", 2)
			fill(t, eng, tp("a", 0), 0, 5)
			fill(t, eng, tp("a", 1), 0, 5)
			c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest, CommitInterval: 1})
			eq(t, "polled", len(poll(t, c, 10)), 10)
			check(t, c.Seek(tp("a", 0), 100))
			if then == "poll" {
				eq(t, "polled", poll(t, c, 10), numbers(0, 5))
			}
			check(t, c.Close(t.Context()))
			look := newConsumer(t, eng, stream.ConsumerConfig{Group: "g"})
			eq(t, "committed in the other partition", committed(t, look, tp("a", 1)), 5)
		})
	}
}

// A partition that has failed does not keep the offsets of the others from being committed, nor their records from being read.
func TestFailedPartitionDoesNotStopTheOthers(t *testing.T) {
	onSim(t, func(t *testing.T, g *ground) {
		eng := g.open(func(o *stream.Options) { o.SyncInterval = forever })
		g.eng = nil
		defer func() { _ = eng.Close() }() // which says that a partition has failed
		create(t, eng, "a", 2)
		fill(t, eng, tp("a", 0), 0, 5)
		fill(t, eng, tp("a", 1), 0, 5)
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest, CommitInterval: 1})
		eq(t, "polled", len(poll(t, c, 10)), 10)
		g.sim.Inject(func(op vfs.Op) error {
			if op.Kind == vfs.OpSync && strings.Contains(op.Name, "/a-0/") {
				return errors.New("injected")
			}
			return nil
		})
		fill(t, eng, tp("a", 1), 5, 6)
		var got []string
		for range 3 { // the failed partition may be reported once, as *PartitionError
			rs, err := c.Poll(t.Context(), 10)
			var part *stream.PartitionError
			if err != nil && !errors.As(err, &part) {
				t.Errorf("%v", err)
			}
			got = append(got, values(rs)...)
		}
		eq(t, "the other partition", got, numbers(5, 6))
		eq(t, "its commit", committed(t, c, tp("a", 1)) >= 5, true)
	})
}
