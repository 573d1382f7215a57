package stream_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// A Seek beside a loop is obeyed, also if it comes while the loop fetches: what was fetched from the old place is dropped.
func TestSeekBesideALoopIsNotLost(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 1)
		c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest, MaxWait: forever})
		p := newProducer(t, eng, stream.ProducerConfig{Acks: stream.AcksWritten})
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		firsts := 0 // how often the loop has yielded the first record
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for r, err := range c.Records(ctx) {
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if err == nil && r.Offset == 0 {
					mu.Lock()
					firsts++
					mu.Unlock()
				}
			}
		}()
		for round := range 500 {
			synctest.Wait()
			mu.Lock()
			before := firsts
			mu.Unlock()
			// The record wakes the loop, so that the Seek meets its fetch.
			must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
			check(t, c.Seek(tp("a", 0), 0))
			synctest.Wait()
			mu.Lock()
			if firsts == before {
				t.Errorf("round %d: the Seek was lost", round)
			}
			mu.Unlock()
			if t.Failed() {
				break
			}
		}
		cancel()
		<-ended
	})
}
