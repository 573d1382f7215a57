package streamtest_test

import (
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

var t *testing.T // what the test function was called with

// An ordinary test: an engine for each test, and nothing to clean up.
func ExampleNew() {
	eng := streamtest.New(t, streamtest.WithOptions(stream.Options{AutoCreate: &stream.TopicConfig{}}))

	p, err := eng.NewProducer(t.Context(), stream.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.ProduceSync(t.Context(), &stream.Record{Topic: "orders", Value: []byte("1")}); err != nil {
		t.Fatal(err)
	}
}

// A test about time: the hour passes at once.
func ExampleRun() {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		if err := eng.Admin().CreateTopic(t.Context(), "orders", stream.TopicConfig{}); err != nil {
			t.Fatal(err)
		}
		c, err := eng.NewConsumer(t.Context(), stream.ConsumerConfig{Topics: []string{"orders"}, MaxWait: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if rs, err := c.Poll(t.Context(), 1); len(rs) != 0 || err != nil {
			t.Fatal(rs, err)
		}
		if waited := time.Since(begin); waited != time.Hour {
			t.Fatalf("waited %v", waited)
		}
	})
}
