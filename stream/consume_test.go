package stream_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

func TestAssignReadsThesePartitionsAndKeepsPositionsOfThoseThatStay(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 2)
		create(t, eng, "b", 1)
		for _, p := range []stream.TopicPartition{tp("a", 0), tp("a", 1), tp("b", 0)} {
			fill(t, eng, p, 0, 5)
		}
		c := newConsumer(t, eng, stream.ConsumerConfig{Reset: stream.ResetEarliest})
		_, err := c.Poll(t.Context(), 1)
		wantErr(t, err, stream.ErrNoSubscription)
		wantErr(t, c.Assign(tp("a", 0), tp("a", 2)), stream.ErrUnknownTopic)
		wantErr(t, c.Assign(tp("a", -1)), stream.ErrUnknownTopic)
		wantErr(t, c.Assign(tp("c", 0)), stream.ErrUnknownTopic)

		check(t, c.Assign(tp("b", 0), tp("a", 1), tp("b", 0)))
		eq(t, "assignment, by topic and number", c.Assignment(), []stream.TopicPartition{tp("a", 1), tp("b", 0)})
		eq(t, "polled", len(poll(t, c, 20)), 10)
		fill(t, eng, tp("b", 0), 5, 6)
		check(t, c.Assign(tp("a", 0), tp("b", 0)))
		got := values(must(c.Poll(t.Context(), 20))(t))
		slices.Sort(got)
		eq(t, "polled", got, numbers(0, 6))
		_, err = c.Position(tp("a", 1))
		wantErr(t, err, stream.ErrNotAssigned)
		wantErr(t, c.Seek(tp("a", 1), 0), stream.ErrNotAssigned)
		wantErr(t, c.SeekToStart(tp("a", 1)), stream.ErrNotAssigned)
		wantErr(t, c.SeekToEnd(tp("a", 1)), stream.ErrNotAssigned)
		wantErr(t, c.SeekToTime(t.Context(), time.Unix(0, 0), tp("a", 1)), stream.ErrNotAssigned)

		check(t, c.Unsubscribe())
		_, err = c.Poll(t.Context(), 1)
		wantErr(t, err, stream.ErrNoSubscription)
	})
}

func TestGroupOfOne(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		ctx := t.Context()
		create(t, eng, "a", 2)
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}})
		eq(t, "assignment", c.Assignment(), []stream.TopicPartition{tp("a", 0), tp("a", 1)})
		if m := c.Group(); m.Group != "g" || m.MemberID == "" || m.Generation < 0 {
			t.Fatalf("%+v", m)
		}
		second := newConsumer(t, eng, stream.ConsumerConfig{Group: "g"})
		eq(t, "group without a subscription", second.Group().MemberID, "")
		check(t, second.Assign(tp("a", 0))) // as in Kafka: no membership
		eq(t, "group after Assign", second.Group().MemberID, "")
		check(t, second.Unsubscribe())
		newConsumer(t, eng, stream.ConsumerConfig{Group: "h", Topics: []string{"a"}})
		eq(t, "generation", c.Group().Generation, 1)

		// The next member gets everything at once after Unsubscribe, Assign and Close.
		check(t, c.Unsubscribe())
		check(t, second.Subscribe("a"))
		eq(t, "assignment after Unsubscribe", len(second.Assignment()), 2)
		check(t, second.Assign(tp("a", 0)))
		check(t, c.Subscribe("a"))
		eq(t, "assignment after Assign", len(c.Assignment()), 2)
		check(t, c.Close(ctx))
		check(t, second.Subscribe("a"))
		eq(t, "assignment after Close", len(second.Assignment()), 2)
		eq(t, "group without a group", newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}}).Group(), stream.GroupMetadata{Generation: -1})
	})
}

// Topics and partitions that are made after the subscription are read from their first record, whatever the reset policy: nothing falls
// between their making and the poll that finds them.
func TestSubscriptionTakesInWhatIsMadeLater(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		for _, reset := range []stream.Reset{stream.ResetLatest, stream.ResetEarliest, stream.ResetNone} {
			suffix := strconv.Itoa(int(reset))
			create(t, eng, "there"+suffix, 1)
			create(t, eng, "grows"+suffix, 1)
			group := ""
			if reset == stream.ResetNone {
				group = "g" // gives the partitions that are there an offset
				c := newConsumer(t, eng, stream.ConsumerConfig{Group: group})
				check(t, c.CommitOffsets(t.Context(), stream.Offsets{tp("there2", 0): {}, tp("grows2", 0): {}}))
			}
			named := newConsumer(t, eng, stream.ConsumerConfig{Group: group, Reset: reset, Topics: []string{"there" + suffix, "grows" + suffix, "later" + suffix}})
			pattern := newConsumer(t, eng, stream.ConsumerConfig{Reset: reset})
			if reset == stream.ResetNone {
				pattern = newConsumer(t, eng, stream.ConsumerConfig{Group: "g2", Reset: reset})
				check(t, pattern.CommitOffsets(t.Context(), stream.Offsets{tp("there2", 0): {}, tp("grows2", 0): {}}))
			}
			check(t, pattern.SubscribeRegexp(regexp.MustCompile("[a-z]+"+suffix)))
			for _, c := range []stream.Consumer{named, pattern} {
				eq(t, "nothing yet", poll(t, c, 10), []string{})
			}
			check(t, eng.Admin().AddPartitions(t.Context(), "grows"+suffix, 2))
			create(t, eng, "later"+suffix, 1)
			fill(t, eng, tp("grows"+suffix, 1), 0, 1)
			fill(t, eng, tp("later"+suffix, 0), 1, 2)
			for _, c := range []stream.Consumer{named, pattern} {
				got := poll(t, c, 10)
				slices.Sort(got)
				eq(t, "what was made later", got, numbers(0, 2))
			}
		}
	})
}

func TestSubscribeRegexpMatchesWholeNames(t *testing.T) {
	eng := streamtest.New(t)
	all := []string{"a", "ab", "abc", "b", "orders", "orders-eu"}
	for _, name := range all {
		create(t, eng, name, 1)
	}
	c := newConsumer(t, eng, stream.ConsumerConfig{})
	for _, tc := range []struct {
		re   string
		want []string
	}{
		{"a", []string{"a"}},
		{"ab?", []string{"a", "ab"}},
		{"b", []string{"b"}},
		{"^a.*$", []string{"a", "ab", "abc"}},
		{".*", all},
		{"", nil},
		{"a|ab", []string{"a", "ab"}},
		{"orders|orders-eu", []string{"orders", "orders-eu"}},
		{"(a|ab)(c|bcd|b)?", []string{"a", "ab", "abc"}},
		{"a.*?", []string{"a", "ab", "abc"}},
	} {
		check(t, c.SubscribeRegexp(regexp.MustCompile(tc.re)))
		var got []string
		for _, a := range c.Assignment() {
			got = append(got, a.Topic)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%q: %v, want %v", tc.re, got, tc.want)
		}
	}
}

func TestPollTakesUpToItsLimit(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 1)
		fill(t, eng, tp("a", 0), 0, 1200)
		for _, borrow := range []bool{false, true} {
			c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest, Borrow: borrow})
			eq(t, "one", poll(t, c, 1), numbers(0, 1))
			eq(t, "two", poll(t, c, 2), numbers(1, 3))
			eq(t, "max 0 is 500", poll(t, c, 0), numbers(3, 503))
			eq(t, "max -1 is 500", poll(t, c, -1), numbers(503, 1003))
			buf := make([]stream.Record, 100)
			n := must(c.PollInto(t.Context(), buf))(t)
			eq(t, "PollInto", values(buf[:n]), numbers(1003, 1103))
			eq(t, "into nothing", must(c.PollInto(t.Context(), nil))(t), 0)
			eq(t, "rest", poll(t, c, 1000), numbers(1103, 1200))
			eq(t, "no more", poll(t, c, 1000), []string{})
		}
	})
}

func TestPollBoundsBytesButReturnsARecordOfAnySize(t *testing.T) {
	eng := streamtest.New(t)
	create(t, eng, "a", 1)
	p := newProducer(t, eng, stream.ProducerConfig{})
	for range 6 {
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Key: make([]byte, 400), Value: make([]byte, 600)}))(t)
	}
	for maxBytes, want := range map[int]int{1: 1, 1000: 1, 1001: 2, 2000: 2, 2001: 3} {
		c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest, MaxBytes: maxBytes})
		// The bound is not exceeded by more than one record.
		if got := len(must(c.Poll(t.Context(), 10))(t)); got < 1 || got > want {
			t.Errorf("MaxBytes %d: %d records", maxBytes, got)
		}
	}
}

// No partition starves: with more to read than a poll takes, all get their turn.
func TestPollTakesPartitionsInTurn(t *testing.T) {
	eng := streamtest.New(t)
	create(t, eng, "a", 3)
	for n := range int32(3) {
		fill(t, eng, tp("a", n), 0, 100)
	}
	c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest})
	seen := map[int32]int{}
	for range 3 {
		for _, r := range must(c.Poll(t.Context(), 10))(t) {
			seen[r.Partition]++
		}
	}
	eq(t, "records", seen, map[int32]int{0: 10, 1: 10, 2: 10})
}

func TestPollEndsWithItsContext(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 1)
		c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest, MaxWait: forever})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { _, err := c.Poll(ctx, 1); ended <- err }()
		cancel()
		wantErr(t, <-ended, context.Canceled)
		fill(t, eng, tp("a", 0), 0, 1)
		_, err := c.Poll(ctx, 1)
		wantErr(t, err, context.Canceled) // although there is a record
		eq(t, "a failed poll moved no position", must(c.Position(tp("a", 0)))(t), 0)
		eq(t, "the record", poll(t, c, 1), numbers(0, 1))
	})
}

func TestPollIsWokenByARecord(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 2)
		c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest, MaxWait: forever})
		p := newProducer(t, eng, stream.ProducerConfig{Acks: stream.AcksWritten, Partitioner: stream.RoundRobinPartitioner()})
		for i := range 200 {
			got := make(chan []stream.Record)
			go func() { rs, err := c.Poll(t.Context(), 1); report(t, err); got <- rs }()
			must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Value: []byte(strconv.Itoa(i))}))(t)
			eq(t, "polled", values(<-got), numbers(i, i+1))
		}
	})
}

func TestPauseKeepsRecordsBackAndResumeGivesThem(t *testing.T) {
	eng := streamtest.New(t)
	create(t, eng, "a", 3)
	for n := range int32(3) {
		fill(t, eng, tp("a", n), int(n), int(n)+1)
	}
	c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest})
	eq(t, "paused", c.Paused(), []stream.TopicPartition(nil))
	c.Pause(tp("a", 2), tp("a", 0), tp("a", 2), tp("b", 0))
	eq(t, "paused", c.Paused(), []stream.TopicPartition{tp("a", 0), tp("a", 2)})
	eq(t, "polled", poll(t, c, 10), []string{"1"})
	eq(t, "position of a paused one", must(c.Position(tp("a", 0)))(t), 0)
	check(t, c.Seek(tp("a", 2), 0)) // Seek does not resume what the caller paused
	eq(t, "polled", poll(t, c, 10), []string{})
	c.Resume(tp("a", 2))
	eq(t, "paused", c.Paused(), []stream.TopicPartition{tp("a", 0)})
	eq(t, "polled", poll(t, c, 10), []string{"2"})

	// A poll that waits is woken by Resume.
	blocked := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest, MaxWait: forever})
	blocked.Pause(blocked.Assignment()...)
	got := make(chan []stream.Record)
	go func() { rs, err := blocked.Poll(t.Context(), 1); report(t, err); got <- rs }()
	blocked.Resume(tp("a", 1))
	eq(t, "resumed", values(<-got), []string{"1"})
}

// One partition that cannot be read does not stop the others; it is passed over until Seek or Resume.
func TestPartitionErrorStopsOnePartition(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 2)
		fill(t, eng, tp("a", 0), 0, 1)
		fill(t, eng, tp("a", 1), 1, 2)
		for _, way := range []string{"Seek", "Resume"} {
			c := newConsumer(t, eng, stream.ConsumerConfig{Reset: stream.ResetNone})
			check(t, c.Assign(tp("a", 0), tp("a", 1)))
			check(t, c.Seek(tp("a", 0), 9))
			check(t, c.Seek(tp("a", 1), 0))
			var got []string
			var part *stream.PartitionError
			for range 2 {
				rs, err := c.Poll(t.Context(), 10)
				if err == nil {
					got = append(got, values(rs)...)
					continue
				}
				if !errors.As(err, &part) || !errors.Is(err, stream.ErrOffsetOutOfRange) || len(rs) != 0 {
					t.Fatalf("%v, %v", rs, err)
				}
			}
			eq(t, "the good partition", got, []string{"1"})
			eq(t, "facts", []any{part.TopicPartition, part.Offset}, []any{tp("a", 0), 9})
			eq(t, "paused", c.Paused(), []stream.TopicPartition{tp("a", 0)})
			eq(t, "passed over", poll(t, c, 10), []string{})
			if way == "Seek" {
				check(t, c.Seek(tp("a", 0), 0))
				eq(t, "after Seek", poll(t, c, 10), []string{"0"})
			} else {
				c.Resume(tp("a", 0))
				_, err := c.Poll(t.Context(), 10)
				wantErr(t, err, stream.ErrOffsetOutOfRange)
			}
		}
	})
}
