package stream_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// F1: Close while everybody produces, with and without time: every record has one answer, and none is told of a success after Close has returned.
func TestCloseWhileEverybodyProduces(t *testing.T) {
	r := newRand(t)
	for round := range 200 {
		onSlowDisk(t, 3, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
			var slow sync.Mutex
			some := func(most time.Duration) time.Duration {
				slow.Lock()
				defer slow.Unlock()
				return time.Duration(r.Int64N(int64(most)))
			}
			p := newProducer(t, eng, stream.ProducerConfig{BatchSize: 300, MaxInFlight: 1 + round%3, Linger: time.Duration(round%4) * time.Millisecond, Partitioner: stream.RoundRobinPartitioner()})
			for range 3 { // their first files
				must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
			}
			d.onSync(func(string) { time.Sleep(some(3 * time.Millisecond)) })
			var closed atomic.Bool
			var sent, answered, late atomic.Int64
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for range 100 {
						sent.Add(1)
						p.Produce(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 100)}, func(_ stream.Receipt, err error) {
							if err == nil && closed.Load() {
								late.Add(1)
							}
							answered.Add(1)
						})
						time.Sleep(some(100 * time.Microsecond))
					}
				})
			}
			time.Sleep(some(10 * time.Millisecond))
			ctx, cancel := context.WithTimeout(t.Context(), some(10*time.Millisecond))
			_ = p.Close(ctx)
			closed.Store(true)
			cancel()
			wg.Wait()
			synctest.Wait()
			eq(t, "answers", answered.Load(), sent.Load())
			eq(t, "successes after Close", late.Load(), 0)
		})
	}
}
