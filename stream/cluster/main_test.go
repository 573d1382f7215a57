// Package cluster_test shows that one program runs on an engine in this process and on a Kafka cluster: scenarios are written against stream.Client
// and run on both. The client of the cluster (spike_*_test.go) is a spike, over franz-go; the cluster is franz-go's in-process fake.
package cluster_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/runnelmq/runnel/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0 takes a new one")

func newRand(t testing.TB) *rand.Rand {
	s := *seedFlag
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("seed %d (repeat with -args -seed=%d)", s, s)
	return rand.New(rand.NewPCG(s, 0))
}

// A scenario is a program. More clients of the same data come from dial; the engine is its own only client.
type scenario func(t *testing.T, c stream.Client, dial func() stream.Client)

// onBoth runs a scenario on the engine and on the cluster.
func onBoth(t *testing.T, s scenario) {
	t.Helper()
	t.Run("engine", func(t *testing.T) { onEngine(t, s) })
	t.Run("cluster", func(t *testing.T) { onCluster(t, s) })
}

// onClusterYet runs a scenario on the cluster, and sees that the engine answers its verb with ErrUnsupported: once it does not, the scenario can run on both.
func onClusterYet(t *testing.T, verb func(ctx context.Context, c stream.Client) error, s scenario) {
	t.Helper()
	t.Run("engine", func(t *testing.T) {
		onEngine(t, func(t *testing.T, c stream.Client, _ func() stream.Client) {
			if err := verb(t.Context(), c); !errors.Is(err, stream.ErrUnsupported) {
				t.Fatalf("the engine answers %v, not ErrUnsupported: run this scenario on both", err)
			}
		})
	})
	t.Run("cluster", func(t *testing.T) { onCluster(t, s) })
}

func onEngine(t *testing.T, s scenario) {
	t.Helper()
	e := must(stream.OpenMemory(nil))(t)
	defer func() { check(t, e.Close()) }()
	s(t, e, func() stream.Client { return e })
}

func onCluster(t *testing.T, s scenario) {
	t.Helper()
	onFake(t, func(t *testing.T, k *kfake.Cluster) {
		dial := func() stream.Client {
			c := must(connect(k.ListenAddrs()...))(t)
			t.Cleanup(func() { check(t, c.Close()) })
			return c
		}
		s(t, dial(), dial)
	})
}

// onFake runs fn beside a cluster of three brokers, which outlives every cleanup of t.
func onFake(t *testing.T, fn func(t *testing.T, k *kfake.Cluster)) {
	t.Helper()
	k := must(kfake.NewCluster(kfake.NumBrokers(3)))(t)
	t.Cleanup(k.Close)
	fn(t, k)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must returns a function that returns v, or fails the test: must(f())(t).
func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// eq fails the test if got is not want.
func eq[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Fatalf("%s: got %s, want %s", what, g, w)
	}
}

// is fails the test unless err matches want.
func is(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got %v, want %v", what, err, want)
	}
}

func tp(topic string, partition int32) stream.TopicPartition {
	return stream.TopicPartition{Topic: topic, Partition: partition}
}

func create(t testing.TB, c stream.Client, topic string, partitions int) {
	t.Helper()
	check(t, c.Admin().CreateTopic(t.Context(), topic, stream.TopicConfig{Partitions: partitions}))
}

func newProducer(t testing.TB, c stream.Client, cfg stream.ProducerConfig) stream.Producer {
	t.Helper()
	return must(c.NewProducer(t.Context(), cfg))(t)
}

func newConsumer(t testing.TB, c stream.Client, cfg stream.ConsumerConfig) stream.Consumer {
	t.Helper()
	return must(c.NewConsumer(t.Context(), cfg))(t)
}

// fill appends records with the values first, first+1, … end-1 to a partition.
func fill(t testing.TB, c stream.Client, to stream.TopicPartition, first, end int) {
	t.Helper()
	p := newProducer(t, c, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
	var rs []stream.Record
	for i := first; i < end; i++ {
		rs = append(rs, stream.Record{Topic: to.Topic, Partition: to.Partition, Value: []byte(strconv.Itoa(i))})
	}
	must(p.ProduceAll(t.Context(), rs, nil))(t)
	check(t, p.Close(t.Context()))
}

// hang is when a wait that should have ended is reported.
const hang = time.Minute

// gather polls until it has n records, and not one more.
func gather(t testing.TB, c stream.Consumer, n int) (rs []stream.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	for len(rs) < n {
		got, err := c.Poll(ctx, n-len(rs))
		if err != nil {
			t.Fatalf("after %d of %d records: %v", len(rs), n, err)
		}
		rs = append(rs, got...)
	}
	return rs
}

// drain polls until the consumer is at the end of every partition that it has.
func drain(t testing.TB, cl stream.Client, iso stream.Isolation, tps ...stream.TopicPartition) []stream.Record {
	t.Helper()
	c := newConsumer(t, cl, stream.ConsumerConfig{Reset: stream.ResetEarliest, Isolation: iso, MaxWait: 50 * time.Millisecond})
	check(t, c.Assign(tps...))
	var rs []stream.Record
	for quiet := 0; quiet < 4; quiet++ { // markers at the end of a log move no position: quiet is the only sign
		got := must(c.Poll(t.Context(), 0))(t)
		if len(got) > 0 {
			quiet = -1
		}
		rs = append(rs, got...)
	}
	check(t, c.Close(t.Context()))
	return rs
}

func values(rs []stream.Record) []string {
	vs := []string{}
	for _, r := range rs {
		vs = append(vs, string(r.Value))
	}
	return vs
}

// numbers returns the decimal forms of first, first+1, … end-1.
func numbers(first, end int) []string {
	vs := []string{}
	for i := first; i < end; i++ {
		vs = append(vs, strconv.Itoa(i))
	}
	return vs
}
