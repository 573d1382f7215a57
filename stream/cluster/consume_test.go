package cluster_test

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// A second consumer of a group goes on behind what the first one has committed: nothing is left out, and what was polled but not committed comes again.
func TestCommitAndResume(t *testing.T) { onBoth(t, scenarioCommitAndResume) }

func scenarioCommitAndResume(t *testing.T, c stream.Client, dial func() stream.Client) {
	create(t, c, "t", 1)
	fill(t, c, tp("t", 0), 0, 30)
	cfg := stream.ConsumerConfig{Group: "g", Topics: []string{"t"}, Reset: stream.ResetEarliest, ManualCommit: true}
	first := newConsumer(t, c, cfg)
	eq(t, "first poll", values(gather(t, first, 10)), numbers(0, 10))
	check(t, first.Commit(t.Context()))
	eq(t, "second poll", values(gather(t, first, 5)), numbers(10, 15)) // not committed
	at := must(first.Committed(t.Context()))(t)
	eq(t, "committed", at[tp("t", 0)].Offset, 10)
	g := first.Group()
	if g.Group != "g" || g.MemberID == "" || g.Generation < 0 {
		t.Fatalf("not a member: %+v", g)
	}
	check(t, first.Close(t.Context()))
	eq(t, "generation after Close", first.Group().Generation >= 0 && first.Assignment() != nil, false)

	second := newConsumer(t, dial(), cfg)
	eq(t, "second consumer", values(gather(t, second, 20)), numbers(10, 30))
	rs := gather(t, newResumed(t, second), 0)
	eq(t, "nothing more", len(rs), 0)
	check(t, second.CommitOffsets(t.Context(), stream.Offsets{tp("t", 0): {Offset: 17, LeaderEpoch: -1, Metadata: "by hand"}}))
	at = must(second.Committed(t.Context(), tp("t", 0)))(t)
	eq(t, "offset and metadata", [2]any{at[tp("t", 0)].Offset, at[tp("t", 0)].Metadata}, [2]any{17, "by hand"})
	check(t, second.Close(t.Context()))

	third := newConsumer(t, c, cfg)
	got := gather(t, third, 13)
	eq(t, "third consumer", values(got), numbers(17, 30))
	check(t, third.CommitRecords(t.Context(), got[3], got[1]))
	eq(t, "CommitRecords", must(third.Committed(t.Context()))(t)[tp("t", 0)].Offset, 21)
	check(t, third.Close(t.Context()))
	_, err := third.Poll(t.Context(), 1)
	is(t, "closed", err, stream.ErrClosed)
}

// newResumed returns c; a pause that is undone changes nothing.
func newResumed(t testing.TB, c stream.Consumer) stream.Consumer {
	t.Helper()
	c.Pause(c.Assignment()...)
	eq(t, "paused", c.Paused(), c.Assignment())
	c.Resume(c.Assignment()...)
	eq(t, "resumed", len(c.Paused()), 0)
	return c
}

// Automatic commits cover what was polled when the consumer closes, and never the record whose loop body was left; Commit in the body covers it.
func TestAutomaticCommits(t *testing.T) { onBoth(t, scenarioAutomaticCommits) }

func scenarioAutomaticCommits(t *testing.T, c stream.Client, _ func() stream.Client) {
	create(t, c, "t", 1)
	fill(t, c, tp("t", 0), 0, 20)
	cfg := stream.ConsumerConfig{Group: "g", Topics: []string{"t"}, Reset: stream.ResetEarliest}
	leave := func(at string, commit bool) []string {
		co := newConsumer(t, c, cfg)
		var got []string
		for r, err := range co.Records(t.Context()) {
			check(t, err)
			got = append(got, string(r.Value))
			if string(r.Value) == at {
				if commit {
					check(t, co.Commit(t.Context()))
				}
				break
			}
		}
		check(t, co.Close(t.Context()))
		return got
	}
	eq(t, "first loop", leave("4", false), numbers(0, 5))
	eq(t, "second loop", leave("9", true), numbers(4, 10))
	co := newConsumer(t, c, cfg)
	eq(t, "polled", values(gather(t, co, 5)), numbers(10, 15))
	check(t, co.Close(t.Context()))
	co = newConsumer(t, c, cfg)
	eq(t, "the rest", values(gather(t, co, 5)), numbers(15, 20))
	check(t, co.Close(t.Context()))
}

// Records that a loop has fetched and not yielded come again from the next call, whichever it is.
func TestLoopLeavesNothingBehind(t *testing.T) { onBoth(t, scenarioLoop) }

func scenarioLoop(t *testing.T, c stream.Client, _ func() stream.Client) {
	create(t, c, "t", 1)
	fill(t, c, tp("t", 0), 0, 20)
	co := newConsumer(t, c, stream.ConsumerConfig{Reset: stream.ResetEarliest})
	check(t, co.Assign(tp("t", 0)))
	var got []string
	for range 2 {
		for r, err := range co.Records(t.Context()) {
			check(t, err)
			got = append(got, string(r.Value))
			if len(got)%5 == 0 {
				break
			}
		}
		eq(t, "position", must(co.Position(tp("t", 0)))(t), int64(len(got)))
	}
	got = append(got, values(gather(t, co, 10))...)
	eq(t, "records", got, numbers(0, 20))
	check(t, co.Close(t.Context()))
}

// Positions are set by offset, by time and to the ends; a paused partition gives nothing and loses nothing.
func TestSeek(t *testing.T) { onBoth(t, scenarioSeek) }

func scenarioSeek(t *testing.T, c stream.Client, _ func() stream.Client) {
	create(t, c, "t", 2)
	p := newProducer(t, c, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
	for i := range 20 {
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "t", Partition: int32(i % 2), Value: []byte(strconv.Itoa(i)), Timestamp: time.UnixMilli(int64(1000 + i))}))(t)
	}
	check(t, p.Close(t.Context()))
	even, odd := tp("t", 0), tp("t", 1)
	co := newConsumer(t, c, stream.ConsumerConfig{Reset: stream.ResetEarliest})
	is(t, "not assigned", co.Seek(even, 0), stream.ErrNotAssigned)
	_, err := co.Poll(t.Context(), 1)
	is(t, "no subscription", err, stream.ErrNoSubscription)
	is(t, "unknown partition", co.Assign(tp("t", 2)), stream.ErrUnknownTopic)
	check(t, co.Assign(even))
	eq(t, "position at first", must(co.Position(even))(t), int64(0))
	check(t, co.Seek(even, 7))
	eq(t, "after Seek", values(gather(t, co, 3)), []string{"14", "16", "18"})
	check(t, co.SeekToTime(t.Context(), time.UnixMilli(1009)))
	eq(t, "after SeekToTime", values(gather(t, co, 2)), []string{"10", "12"})
	check(t, co.SeekToStart())
	eq(t, "after SeekToStart", values(gather(t, co, 1)), []string{"0"})
	check(t, co.Assign(even, odd)) // even keeps its position
	eq(t, "kept position", must(co.Position(even))(t), int64(1))
	co.Pause(even)
	eq(t, "odd alone", values(gather(t, co, 10)), []string{"1", "3", "5", "7", "9", "11", "13", "15", "17", "19"})
	co.Resume(even)
	eq(t, "even again", values(gather(t, co, 2)), []string{"2", "4"})
	check(t, co.SeekToEnd(even))
	eq(t, "end", must(co.Position(even))(t), int64(10))
	check(t, co.Seek(odd, 9))
	eq(t, "last", values(gather(t, co, 1)), []string{"19"})
	check(t, co.SeekToTime(t.Context(), time.UnixMilli(5000), odd)) // later than every record: the end
	eq(t, "no such time", must(co.Position(odd))(t), int64(10))
	check(t, co.Seek(odd, 1000)) // behind the end: the reset policy applies
	eq(t, "reset", values(gather(t, co, 1)), []string{"1"})
	check(t, co.Close(t.Context()))
}

// A loop body that pauses a partition gets no more of it, and Resume brings what was fetched of it already.
func TestPauseInLoop(t *testing.T) { onBoth(t, scenarioPauseInLoop) }

func scenarioPauseInLoop(t *testing.T, c stream.Client, _ func() stream.Client) {
	create(t, c, "t", 2)
	fill(t, c, tp("t", 0), 0, 50)
	fill(t, c, tp("t", 1), 50, 60)
	co := newConsumer(t, c, stream.ConsumerConfig{Reset: stream.ResetEarliest})
	check(t, co.Assign(tp("t", 0), tp("t", 1)))
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	var zero, one []string
	for r, err := range co.Records(ctx) {
		check(t, err)
		if r.Partition == 1 {
			one = append(one, string(r.Value))
		} else {
			zero = append(zero, string(r.Value))
		}
		if len(zero) == 5 {
			co.Pause(tp("t", 0))
		}
		if len(zero) >= 5 && len(one) == 10 {
			break
		}
	}
	eq(t, "before the pause", zero, numbers(0, 5))
	co.Resume(tp("t", 0))
	eq(t, "after Resume", values(gather(t, co, 45)), numbers(5, 50))
	check(t, co.Close(t.Context()))
}

// A poll waits no longer than MaxWait and says so with no error; a context that ends is an error, and neither moves a position.
func TestPollWaits(t *testing.T) { onBoth(t, scenarioPollWaits) }

func scenarioPollWaits(t *testing.T, c stream.Client, _ func() stream.Client) {
	create(t, c, "t", 1)
	co := newConsumer(t, c, stream.ConsumerConfig{Reset: stream.ResetEarliest, MaxWait: 20 * time.Millisecond})
	check(t, co.Assign(tp("t", 0)))
	for range 3 {
		rs, err := co.Poll(t.Context(), 1)
		check(t, err)
		eq(t, "records of an empty topic", len(rs), 0)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := co.Poll(ctx, 1)
	is(t, "ended context", err, context.Canceled)
	fill(t, c, tp("t", 0), 0, 1)
	eq(t, "records", values(gather(t, co, 1)), []string{"0"})
	check(t, co.Close(t.Context()))
}

// ResetNone refuses to begin where nothing is committed, with the partition's name.
func TestResetNone(t *testing.T) { onBoth(t, scenarioResetNone) }

func scenarioResetNone(t *testing.T, c stream.Client, _ func() stream.Client) {
	create(t, c, "t", 1)
	fill(t, c, tp("t", 0), 0, 5)
	co := newConsumer(t, c, stream.ConsumerConfig{Group: "g", Reset: stream.ResetNone, ManualCommit: true})
	check(t, co.Assign(tp("t", 0)))
	_, err := co.Poll(t.Context(), 1)
	is(t, "nothing committed", err, stream.ErrNoOffset)
	check(t, co.Seek(tp("t", 0), 3))
	eq(t, "after Seek", values(gather(t, co, 1)), []string{"3"})
	check(t, co.Commit(t.Context())) // as nobody: the group has no members
	check(t, co.Close(t.Context()))
	co = newConsumer(t, c, stream.ConsumerConfig{Group: "g", Topics: []string{"t"}, Reset: stream.ResetNone})
	eq(t, "a member goes on there", values(gather(t, co, 1)), []string{"4"})
	check(t, co.Close(t.Context()))
	co = newConsumer(t, c, stream.ConsumerConfig{Group: "new", Topics: []string{"t"}, Reset: stream.ResetNone, MaxWait: hang})
	_, err = co.Poll(t.Context(), 1)
	is(t, "nothing committed by the group", err, stream.ErrNoOffset)
	check(t, co.Close(t.Context()))
}

// A pattern subscribes to every topic whose whole name matches, and to no other.
func TestSubscribeRegexp(t *testing.T) { onBoth(t, scenarioSubscribeRegexp) }

func scenarioSubscribeRegexp(t *testing.T, c stream.Client, _ func() stream.Client) {
	for i, topic := range []string{"in-1", "in-2", "in-1-other", "not-in-1"} {
		create(t, c, topic, 1)
		fill(t, c, tp(topic, 0), i, i+1)
	}
	co := newConsumer(t, c, stream.ConsumerConfig{Group: "g", Reset: stream.ResetEarliest})
	check(t, co.SubscribeRegexp(regexp.MustCompile(`in-\d`)))
	vs := values(gather(t, co, 2))
	slices.Sort(vs)
	eq(t, "records", vs, []string{"0", "1"})
	eq(t, "assignment", co.Assignment(), []stream.TopicPartition{tp("in-1", 0), tp("in-2", 0)})
	check(t, co.Unsubscribe())
	eq(t, "assignment after Unsubscribe", len(co.Assignment()), 0)
	check(t, co.Close(t.Context()))
}

// Topics are made, described, widened and deleted; the errors say which of it cannot be.
func TestTopics(t *testing.T) { onBoth(t, scenarioTopics) }

func scenarioTopics(t *testing.T, c stream.Client, _ func() stream.Client) {
	a := c.Admin()
	is(t, "name", a.CreateTopic(t.Context(), "no/name", stream.TopicConfig{}), stream.ErrInvalidTopic)
	is(t, "partitions", a.CreateTopic(t.Context(), "t", stream.TopicConfig{Partitions: -1}), stream.ErrInvalidPartitions)
	create(t, c, "t", 2)
	is(t, "again", a.CreateTopic(t.Context(), "t", stream.TopicConfig{}), stream.ErrTopicExists)
	create(t, c, "a", 1)
	var names []string
	for _, i := range must(a.Topics(t.Context()))(t) {
		names = append(names, i.Name)
	}
	eq(t, "topics", names, []string{"a", "t"})
	before := must(a.Topics(t.Context(), "t"))(t)[0]
	eq(t, "partitions", before.Partitions, 2)
	check(t, a.AddPartitions(t.Context(), "t", 4))
	eq(t, "partitions", must(a.Topics(t.Context(), "t"))(t)[0].Partitions, 4)
	is(t, "fewer", a.AddPartitions(t.Context(), "t", 1), stream.ErrInvalidPartitions)
	fill(t, c, tp("t", 3), 0, 3)
	fill(t, c, tp("t", 3), 3, 4)
	start, end := must(a.StartOffsets(t.Context(), tp("t", 3)))(t), must(a.EndOffsets(t.Context(), tp("t", 3), tp("t", 0)))(t)
	eq(t, "start, ends", []int64{start[tp("t", 3)].Offset, end[tp("t", 3)].Offset, end[tp("t", 0)].Offset}, []int64{0, 4, 0})
	late := must(a.OffsetsForTime(t.Context(), time.Now().Add(time.Hour), tp("t", 3)))(t)
	eq(t, "offsets of the future", len(late), 0)
	early := must(a.OffsetsForTime(t.Context(), time.UnixMilli(1), tp("t", 3), tp("t", 0)))(t)
	eq(t, "offsets of the past", slices.Collect(maps.Keys(early)), []stream.TopicPartition{tp("t", 3)})
	_, err := a.EndOffsets(t.Context(), tp("missing", 0))
	is(t, "missing", err, stream.ErrUnknownTopic)

	check(t, a.DeleteTopic(t.Context(), "t"))
	is(t, "deleted already", a.DeleteTopic(t.Context(), "t"), stream.ErrUnknownTopic)
	_, err = a.Topics(t.Context(), "t")
	is(t, "deleted", err, stream.ErrUnknownTopic)
	create(t, c, "t", 1)
	if must(a.Topics(t.Context(), "t"))(t)[0].ID == before.ID {
		t.Fatal("a topic's second life has the ID of the first")
	}
}
