package stream_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// F1: Close ends, wherever it is called: from the listener, from the body of a loop, twice, from many goroutines, during a rebalance. Afterwards everybody else has the partitions.
func TestCloseFromAnywhere(t *testing.T) {
	loop := func(t *testing.T, m *member) {
		var errs []error
		for _, err := range m.Records(t.Context()) {
			if err != nil {
				errs = append(errs, err)
				continue
			}
			check(t, m.Close(t.Context()))
			check(t, m.Close(t.Context()))
		}
		eq(t, "errors", errs, []error{stream.ErrClosed})
	}
	batches := func(t *testing.T, m *member) {
		var errs []error
		for _, err := range m.Batches(t.Context(), 2, time.Second) {
			if err != nil {
				errs = append(errs, err)
				continue
			}
			check(t, m.Close(t.Context()))
		}
		eq(t, "errors", errs, []error{stream.ErrClosed})
	}
	from := func(when string) func(t *testing.T, m *member) {
		return func(t *testing.T, m *member) {
			closed := 0
			m.on = func(what string, _ []stream.TopicPartition) {
				if what == when {
					closed++
					check(t, m.Close(t.Context()))
				}
			}
			for range 10 {
				if _, err := m.Poll(t.Context(), 0); err != nil {
					wantErr(t, err, stream.ErrClosed)
				}
				if when == "revoked" && len(m.Assignment()) > 0 {
					if err := m.Unsubscribe(); err != nil {
						wantErr(t, err, stream.ErrClosed)
					}
					break
				}
			}
			if closed == 0 {
				t.Errorf("%s was not called", when)
			}
		}
	}
	many := func(t *testing.T, m *member) {
		m.turn(t)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { report(t, m.Close(t.Context())) })
		}
		wg.Wait()
	}
	for name, closing := range map[string]func(t *testing.T, m *member){
		"loop": loop, "batches": batches, "Assigned": from("assigned"), "Revoked": from("revoked"), "many": many,
	} {
		for _, rebalance := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " rebalance ", rebalance), func(t *testing.T) {
				streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
					create(t, eng, "a", 2)
					other := newMember(t, eng, stream.ConsumerConfig{MaxWait: time.Second})
					m := newListener(t, eng, stream.ConsumerConfig{MaxWait: time.Second})
					p := newProducer(t, eng, stream.ProducerConfig{Partitioner: stream.RoundRobinPartitioner()})
					stop := make(chan struct{})
					var wg sync.WaitGroup
					wg.Go(func() { other.pollAll(t) })
					wg.Go(func() { // a record for everybody and, if asked for, a rebalance all the time
						for {
							select {
							case <-stop:
								return
							case <-time.After(100 * time.Millisecond):
							}
							_, _ = p.ProduceAll(context.Background(), []stream.Record{{Topic: "a"}, {Topic: "a"}}, nil)
							if !rebalance {
								continue
							}
							c, err := eng.NewConsumer(context.Background(), stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, MaxWait: -1})
							if err != nil {
								return // the test has failed
							}
							_, _ = c.Poll(context.Background(), 1)
							report(t, c.Close(context.Background()))
						}
					})
					closing(t, m)
					check(t, m.Close(t.Context()))
					close(stop)
					time.Sleep(time.Second)
					eq(t, "the other one has", len(other.Assignment()), 2)
					check(t, other.Close(t.Context()))
					wg.Wait()
				})
			})
		}
	}
}

// Close of the engine ends members wherever they are.
func TestEngineCloseEndsMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := must(stream.OpenMemory(nil))(t)
		create(t, eng, "a", 10)
		var wg sync.WaitGroup
		for i := range 20 {
			m := newMember(t, eng, stream.ConsumerConfig{MaxWait: forever})
			wg.Go(func() {
				var last error
				if i%2 == 0 {
					for _, err := range m.Records(t.Context()) {
						last = err
					}
				} else {
					for last == nil {
						_, last = m.Poll(t.Context(), 0)
					}
				}
				if !errors.Is(last, stream.ErrClosed) {
					t.Errorf("%v", last)
				}
			})
			if i == 10 {
				synctest.Wait()
			}
		}
		check(t, eng.Close())
		wg.Wait()
	})
}
