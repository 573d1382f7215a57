package stream_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// C1, C2: a topic that is deleted and made again under a producer never makes it begin its sequences twice in one life of the topic: no record
// is acknowledged that is not there, none is refused.
func TestTopicMadeAgainUnderAProducer(t *testing.T) {
	eng := streamtest.New(t, streamtest.WithOptions(stream.Options{AutoCreate: &stream.TopicConfig{}}))
	p := newProducer(t, eng, stream.ProducerConfig{Acks: stream.AcksWritten})
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for !stop.Load() {
				_, err := p.ProduceSync(t.Context(), &stream.Record{Topic: "a"})
				if err != nil && !errors.Is(err, stream.ErrUnknownTopic) {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 500 {
		if err := eng.Admin().DeleteTopic(t.Context(), "a"); err != nil && !errors.Is(err, stream.ErrUnknownTopic) {
			t.Error(err)
		}
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "b"}))(t) // the others have their turn
	}
	stop.Store(true)
	wg.Wait()
}

// Borrowed records of one poll are all good until the next one, over batches, chunks and segments.
func TestBorrowedRecordsOfOnePoll(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		check(t, eng.Admin().CreateTopic(t.Context(), "a", stream.TopicConfig{SegmentBytes: 16 << 10}))
		value := func(i int) []byte { return fmt.Appendf(nil, "%03d%0*d", i, 5000, i) }
		p := newProducer(t, eng, stream.ProducerConfig{Acks: stream.AcksWritten})
		for i := range 60 {
			must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Value: value(i)}))(t)
		}
		c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest, Borrow: true})
		for next := 0; next < 60; {
			rs := must(c.Poll(t.Context(), 40))(t)
			for _, r := range rs {
				if string(r.Value) != string(value(next)) {
					t.Fatalf("record %d is another", next)
				}
				next++
			}
		}
	})
}

// A poll, or another loop, in a loop's body goes on behind the record in the body; nothing is passed over and nothing comes twice.
func TestPollInTheBodyOfALoop(t *testing.T) {
	eng := streamtest.New(t)
	create(t, eng, "a", 1)
	fill(t, eng, tp("a", 0), 0, 600)
	c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest})
	var got []string
	for r, err := range c.Records(t.Context()) {
		check(t, err)
		got = append(got, string(r.Value))
		switch len(got) {
		case 1:
			got = append(got, values(must(c.Poll(t.Context(), 10))(t))...)
			check(t, c.Commit(t.Context()))
			eq(t, "committed", committed(t, c, tp("a", 0)), 11)
		case 20:
			for r, err := range c.Records(t.Context()) {
				check(t, err)
				got = append(got, string(r.Value))
				if len(got) == 30 {
					break
				}
			}
		}
		if len(got) == 600 {
			break
		}
	}
	for i, v := range got {
		eq(t, "record", v, strconv.Itoa(i))
	}
}

// A poll that has to wait for another one gives up when its context ends, and virtual time goes on meanwhile.
func TestPollWaitsForAnotherNoLongerThanItsContext(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 1)
		c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, MaxWait: time.Hour})
		begin := time.Now()
		first := make(chan error)
		go func() {
			_, err := c.Poll(t.Context(), 1)
			first <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Poll(ctx, 1)
		wantErr(t, err, context.DeadlineExceeded)
		eq(t, "the second poll took", time.Since(begin), time.Second)
		check(t, <-first)
		eq(t, "the first poll took", time.Since(begin), time.Hour)
	})
}

func TestPollOfAsManyAsThereAre(t *testing.T) {
	eng := streamtest.New(t)
	create(t, eng, "a", 1)
	fill(t, eng, tp("a", 0), 0, 5)
	c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest})
	eq(t, "records", len(must(c.Poll(t.Context(), math.MaxInt))(t)), 5)
}

// What is given up is committed first, as Close does.
func TestRevocationCommitsTheLatestPoll(t *testing.T) {
	for name, giveUp := range map[string]func(c stream.Consumer) error{
		"Unsubscribe": func(c stream.Consumer) error { return c.Unsubscribe() },
		"Subscribe":   func(c stream.Consumer) error { return c.Subscribe("b") },
		"Assign":      func(c stream.Consumer) error { return c.Assign(tp("b", 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			eng := streamtest.New(t)
			create(t, eng, "a", 1)
			create(t, eng, "b", 1)
			fill(t, eng, tp("a", 0), 0, 5)
			c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest})
			eq(t, "polled", len(poll(t, c, 3)), 3)
			check(t, giveUp(c))
			eq(t, "committed", committed(t, c, tp("a", 0)), 3)
		})
	}
}

// One promise runs at a time, also when the producer has been closed.
func TestPromisesOfAClosedProducerRunOneAtATime(t *testing.T) {
	eng := streamtest.New(t)
	create(t, eng, "a", 1)
	p := newProducer(t, eng, stream.ProducerConfig{})
	check(t, p.Close(t.Context()))
	var running, ran atomic.Int32
	done := make(chan struct{}, 100)
	for range 100 {
		go p.Produce(context.Background(), &stream.Record{Topic: "a"}, func(_ stream.Receipt, err error) {
			if running.Add(1) != 1 {
				t.Error("two promises at once")
			}
			wantErr(t, err, stream.ErrClosed)
			ran.Add(1)
			running.Add(-1)
			done <- struct{}{}
		})
	}
	for range 100 {
		<-done
	}
	eq(t, "promises", ran.Load(), 100)
}
