package stream_test

import (
	"runtime"
	"testing"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// A promise that ends its goroutine, as t.FailNow does, holds back none behind it.
func TestPromiseThatEndsItsGoroutine(t *testing.T) {
	eng := streamtest.New(t)
	create(t, eng, "a", 1)
	p := newProducer(t, eng, stream.ProducerConfig{})
	var got []int
	for i := range 20 {
		p.Produce(t.Context(), &stream.Record{Topic: "a"}, func(stream.Receipt, error) {
			got = append(got, i)
			if i%3 == 0 {
				runtime.Goexit()
			}
		})
	}
	check(t, p.Flush(t.Context()))
	eq(t, "promises", len(got), 20)
	for i, n := range got {
		eq(t, "order", n, i)
	}
}
