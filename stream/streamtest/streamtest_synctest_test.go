package streamtest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a testing.TB that runs its cleanups when it is told to, and keeps what failed.
type recorder struct {
	testing.TB
	cleanups []func()
	errors   int
}

func (r *recorder) Cleanup(f func())      { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(string, ...any) { r.errors++ }
func (r *recorder) Helper()               {}
func (r *recorder) finish() {
	for _, f := range r.cleanups {
		f()
	}
}

func TestNewClosesTheEngineWithTheTest(t *testing.T) {
	r := &recorder{TB: t}
	eng := streamtest.New(r)
	if err := eng.Admin().CreateTopic(t.Context(), "a", stream.TopicConfig{}); err != nil {
		t.Fatal(err)
	}
	r.finish()
	if err := eng.Admin().CreateTopic(t.Context(), "b", stream.TopicConfig{}); !errors.Is(err, stream.ErrClosed) {
		t.Fatalf("after the test: %v", err)
	}
	goleak.VerifyNone(t)
	if r.errors != 0 {
		t.Fatalf("%d errors", r.errors)
	}
}

func TestNewFailsTheTestWhenCloseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		eng := streamtest.New(r, streamtest.WithOptions(stream.Options{CloseTimeout: time.Second, AutoCreate: &stream.TopicConfig{}}))
		p, err := eng.NewProducer(t.Context(), stream.ProducerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		// Close reports that it gave up waiting for this promise.
		p.Produce(t.Context(), &stream.Record{Topic: "a"}, func(stream.Receipt, error) { time.Sleep(time.Minute) })
		r.finish()
		if r.errors != 1 {
			t.Fatalf("%d errors, want 1", r.errors)
		}
	})
}

// The engine runs in two bubbles of one process, one after the other.
func TestRunTwiceInVirtualTime(t *testing.T) {
	for range 2 {
		begin := time.Now()
		streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
			if virtual := time.Now(); virtual.After(begin) {
				t.Fatalf("%v is not the bubble's clock", virtual)
			}
			if err := eng.Admin().CreateTopic(t.Context(), "a", stream.TopicConfig{}); err != nil {
				t.Fatal(err)
			}
			c, err := eng.NewConsumer(t.Context(), stream.ConsumerConfig{Topics: []string{"a"}, MaxWait: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			before := time.Now()
			if rs, err := c.Poll(t.Context(), 1); len(rs) != 0 || err != nil {
				t.Fatal(rs, err)
			}
			if waited := time.Since(before); waited != time.Hour {
				t.Fatalf("waited %v", waited)
			}
		})
	}
}
