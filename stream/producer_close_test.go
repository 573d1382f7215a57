package stream_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// F1: Close while everybody produces: everything has its answer, and nothing goes on afterwards.
func TestCloseWhileEverybodyProduces(t *testing.T) {
	late := 0
	for round := range 300 {
		d := &slowDisk{Sim: vfs.NewSim(1)}
		eng := must(stream.Open("/data", &stream.Options{FS: d, MinFree: -1}))(t)
		create(t, eng, "a", 3)
		d.onSync(func(string) { time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond) })
		p := newProducer(t, eng, stream.ProducerConfig{BatchSize: 300, MaxInFlight: 1 + round%3, Linger: time.Duration(round%4) * 300 * time.Microsecond, Partitioner: stream.RoundRobinPartitioner()})
		var sent, answered, twice, after atomic.Int64
		var closed atomic.Bool
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 300 {
					var runs atomic.Int64
					sent.Add(1)
					p.Produce(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 100)}, func(_ stream.Receipt, err error) {
						if runs.Add(1) > 1 {
							twice.Add(1)
						}
						if err == nil && closed.Load() {
							after.Add(1)
						}
						answered.Add(1)
					})
				}
			})
		}
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(500))*time.Microsecond)
		_ = p.Close(ctx)
		closed.Store(true)
		cancel()
		wg.Wait()
		for i := 0; answered.Load() < sent.Load(); i++ {
			time.Sleep(time.Millisecond)
			if i > 3000 {
				t.Fatalf("round %d: %d of %d", round, answered.Load(), sent.Load())
			}
		}
		if twice.Load() > 0 {
			t.Fatal("twice")
		}
		if after.Load() > 0 {
			late++
		}
		check(t, eng.Close())
	}
	t.Logf("rounds with successes after Close: %d", late)
}
