package stream_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// looped has a topic "a" with ten records and a consumer of group g for the loops of these tests.
func looped(t *testing.T, eng *stream.Engine, c stream.ConsumerConfig) stream.Consumer {
	t.Helper()
	create(t, eng, "a", 1)
	fill(t, eng, tp("a", 0), 0, 10)
	c.Group, c.Topics, c.Reset, c.MaxWait = "g", []string{"a"}, stream.ResetEarliest, forever
	return newConsumer(t, eng, c)
}

// take collects n values from a loop that it leaves by break.
func take(t *testing.T, c stream.Consumer, n int) (got []string) {
	t.Helper()
	for r, err := range c.Records(t.Context()) {
		check(t, err)
		if got = append(got, string(r.Value)); len(got) == n {
			break
		}
	}
	return got
}

func TestLoopThatIsLeftGoesOnWithTheNextRecord(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		c := looped(t, g.open(), stream.ConsumerConfig{})
		eq(t, "first loop", take(t, c, 3), numbers(0, 3))
		eq(t, "position", must(c.Position(tp("a", 0)))(t), 3)
		eq(t, "second loop", take(t, c, 2), numbers(3, 5))
		eq(t, "poll", poll(t, c, 2), numbers(5, 7))
		records := c.Records(t.Context())
		for range 2 { // an iterator can be used again
			for r, err := range records {
				check(t, err)
				eq(t, "position in the body", must(c.Position(tp("a", 0)))(t), r.Offset+1)
				break
			}
		}
		eq(t, "rest", take(t, c, 1), numbers(9, 10))
	})
}

func TestCommitInTheBodyCoversThisRecordAndNoneBehind(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		c := looped(t, g.open(), stream.ConsumerConfig{ManualCommit: true})
		for r, err := range c.Records(t.Context()) {
			check(t, err)
			if r.Offset%2 == 0 {
				check(t, c.Commit(t.Context()))
			}
			eq(t, "committed", committed(t, c, tp("a", 0)), r.Offset/2*2+1)
			if r.Offset == 9 {
				break
			}
		}
	})
}

func TestSeekInTheBodyIsObeyedAtOnce(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		c := looped(t, g.open(), stream.ConsumerConfig{})
		var got []string
		for r, err := range c.Records(t.Context()) {
			check(t, err)
			got = append(got, string(r.Value))
			switch len(got) {
			case 2:
				check(t, c.Seek(tp("a", 0), 8))
			case 4:
				check(t, c.SeekToStart())
				check(t, c.Commit(t.Context()))
				eq(t, "committed", committed(t, c, tp("a", 0)), 0)
			}
			if len(got) == 5 {
				break
			}
		}
		eq(t, "values", got, []string{"0", "1", "8", "9", "0"})
	})
}

// What the caller gives up or pauses in the body is not handed over behind its back, and comes when it is taken up again.
func TestPauseAndAssignInTheBodyAreObeyedAtOnce(t *testing.T) {
	for _, how := range []string{"Pause", "Assign"} {
		t.Run(how, func(t *testing.T) {
			eng := streamtest.New(t)
			c := looped(t, eng, stream.ConsumerConfig{})
			create(t, eng, "b", 1)
			var got []string
			for r, err := range c.Records(t.Context()) {
				check(t, err)
				got = append(got, r.Topic+string(r.Value))
				if len(got) == 1 {
					if how == "Pause" {
						check(t, c.Assign(tp("a", 0), tp("b", 0)))
						c.Pause(tp("a", 0))
					} else {
						check(t, c.Assign(tp("b", 0)))
					}
					fill(t, eng, tp("b", 0), 0, 1)
				}
				if len(got) == 2 {
					break
				}
			}
			eq(t, "values", got, []string{"a0", "b0"})
			if how == "Pause" {
				c.Resume(tp("a", 0))
				eq(t, "resumed", poll(t, c, 1), []string{"1"})
			}
		})
	}
}

func TestLoopEndsWithItsContext(t *testing.T) {
	eng := streamtest.New(t)
	c := looped(t, eng, stream.ConsumerConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	var errs []error
	for r, err := range c.Records(ctx) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if got = append(got, string(r.Value)); len(got) == 10 {
			cancel()
		}
	}
	eq(t, "values", got, numbers(0, 10))
	eq(t, "errors", errs, []error{context.Canceled})
}

func TestLoopEndsWhenTheConsumerCloses(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		c := looped(t, g.open(), stream.ConsumerConfig{})
		var n int
		var last error
		closed := make(chan error, 1)
		for _, err := range c.Records(t.Context()) {
			if last = err; err != nil {
				continue
			}
			if n++; n == 10 {
				go func() { closed <- c.Close(context.Background()) }()
			}
		}
		wantErr(t, last, stream.ErrClosed)
		check(t, <-closed)
		eq(t, "records", n, 10)
	})
}

func TestLoopYieldsPartitionErrorsAndGoesOn(t *testing.T) {
	eng := streamtest.New(t)
	create(t, eng, "a", 2)
	fill(t, eng, tp("a", 0), 0, 3)
	c := newConsumer(t, eng, stream.ConsumerConfig{Reset: stream.ResetNone, MaxWait: forever})
	check(t, c.Assign(tp("a", 0), tp("a", 1)))
	check(t, c.Seek(tp("a", 0), 0))
	var got []string
	failures := 0
	for r, err := range c.Records(t.Context()) {
		var part *stream.PartitionError
		switch {
		case errors.As(err, &part):
			eq(t, "partition", part.TopicPartition, tp("a", 1))
			wantErr(t, err, stream.ErrNoOffset)
			failures++
		case err != nil:
			t.Fatal(err)
		default:
			got = append(got, string(r.Value))
		}
		if len(got) == 3 && failures == 1 {
			break
		}
	}
	eq(t, "values", got, numbers(0, 3))
}

// Close commits what was handed over and dealt with: not records that were fetched and not yielded, and not the one whose body has not
// reached its end, however the loop is left. An explicit Commit covers the latter.
func TestCloseDoesNotCommitAnUnfinishedBody(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, c stream.Consumer){
		"Close in the body": func(t *testing.T, c stream.Consumer) {
			for r, err := range c.Records(t.Context()) {
				if err != nil {
					break
				}
				if r.Offset == 4 {
					check(t, c.Close(t.Context()))
				}
			}
		},
		"Close beside the body": func(t *testing.T, c stream.Consumer) {
			for r, err := range c.Records(t.Context()) {
				if err != nil {
					break
				}
				if r.Offset == 4 {
					done := make(chan error)
					go func() { done <- c.Close(context.Background()) }()
					check(t, <-done)
				}
			}
		},
		"return from the body": func(t *testing.T, c stream.Consumer) {
			_ = func() error {
				for r, err := range c.Records(t.Context()) {
					check(t, err)
					if r.Offset == 4 {
						return errors.New("the handler failed")
					}
				}
				return nil
			}()
		},
		"panic in the body": func(t *testing.T, c stream.Consumer) {
			defer func() { _ = recover() }()
			for r, err := range c.Records(t.Context()) {
				check(t, err)
				if r.Offset == 4 {
					panic("the handler failed")
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			eng := streamtest.New(t)
			c := looped(t, eng, stream.ConsumerConfig{})
			leave(t, c)
			check(t, c.Close(t.Context()))
			next := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest})
			eq(t, "committed", committed(t, next, tp("a", 0)), 4)
			eq(t, "the next member", poll(t, next, 1), []string{"4"})
		})
	}
}

// With a commit in the body the record counts, and Close does not take it back.
func TestCommitInTheBodyThenCloseKeepsIt(t *testing.T) {
	eng := streamtest.New(t)
	c := looped(t, eng, stream.ConsumerConfig{})
	for r, err := range c.Records(t.Context()) {
		check(t, err)
		if r.Offset == 4 {
			check(t, c.Commit(t.Context()))
			break
		}
	}
	check(t, c.Close(t.Context()))
	eq(t, "committed", committed(t, newConsumer(t, eng, stream.ConsumerConfig{Group: "g"}), tp("a", 0)), 5)
}

func TestLoopReadsManyPartitionsInOrderOfEach(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 4)
		for n := range int32(4) {
			fill(t, eng, tp("a", n), 0, 400)
		}
		c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest})
		var next [4]int
		n := 0
		for r, err := range c.Records(t.Context()) {
			check(t, err)
			eq(t, "value", string(r.Value), strconv.Itoa(next[r.Partition]))
			next[r.Partition]++
			if n++; n == 1600 {
				break
			}
		}
	})
}

// The other methods may be called while a loop runs: what it has fetched from a partition that is given up meanwhile is dropped.
func TestLoopSurvivesAnAssignmentThatChangesBesideIt(t *testing.T) {
	eng := streamtest.New(t)
	create(t, eng, "a", 1)
	fill(t, eng, tp("a", 0), 0, 100)
	c := newConsumer(t, eng, stream.ConsumerConfig{Reset: stream.ResetEarliest})
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
			}
			n := 0
			for _, err := range c.Records(t.Context()) {
				if err != nil && !errors.Is(err, stream.ErrNoSubscription) {
					t.Error(err)
				}
				if n++; err != nil || n == 3 {
					break
				}
			}
		}
	}()
	for range 20_000 {
		check(t, c.Assign(tp("a", 0)))
		check(t, c.Unsubscribe())
	}
	close(stop)
	<-ended
}
