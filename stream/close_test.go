package stream_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// call is a call that the tests make after, and during, a Close.
type call struct {
	name string
	fn   func(ctx context.Context) error
}

func consumerCalls(c stream.Consumer) []call {
	p, o := tp("a", 0), stream.Offsets{tp("a", 0): {}}
	return []call{
		{"Poll", func(ctx context.Context) error { _, err := c.Poll(ctx, 3); return err }},
		{"PollInto", func(ctx context.Context) error { _, err := c.PollInto(ctx, make([]stream.Record, 3)); return err }},
		{"PollInto nothing", func(ctx context.Context) error { _, err := c.PollInto(ctx, nil); return err }},
		{"Records", func(ctx context.Context) (last error) {
			for _, err := range c.Records(ctx) {
				if last = err; err == nil {
					break
				}
			}
			return last
		}},
		{"Commit", c.Commit},
		{"CommitRecords", func(ctx context.Context) error { return c.CommitRecords(ctx, stream.Record{Topic: "a", Offset: 0}) }},
		{"CommitOffsets", func(ctx context.Context) error { return c.CommitOffsets(ctx, o) }},
		{"Subscribe", func(context.Context) error { return c.Subscribe("a") }},
		{"SubscribeRegexp", func(context.Context) error { return c.SubscribeRegexp(regexp.MustCompile("a")) }},
		{"Assign", func(context.Context) error { return c.Assign(p) }},
		{"Unsubscribe", func(context.Context) error { return c.Unsubscribe() }},
		{"Seek", func(context.Context) error { return c.Seek(p, 0) }},
		{"SeekToStart", func(context.Context) error { return c.SeekToStart() }},
		{"SeekToEnd", func(context.Context) error { return c.SeekToEnd() }},
		{"SeekToTime", func(ctx context.Context) error { return c.SeekToTime(ctx, time.UnixMilli(1)) }},
		{"Position", func(context.Context) error { _, err := c.Position(p); return err }},
		{"Committed", func(ctx context.Context) error { _, err := c.Committed(ctx, p); return err }},
	}
}

func producerCalls(p stream.Producer) []call {
	calls := []call{{"LastSequence", func(ctx context.Context) error { _, err := p.LastSequence(ctx, tp("a", 0)); return err }}}
	for name, produce := range verbs {
		calls = append(calls, call{name, func(ctx context.Context) error {
			_, err := produce(p, ctx, &stream.Record{Topic: "a"})
			return err
		}})
	}
	return calls
}

func engineCalls(eng *stream.Engine) []call {
	a := eng.Admin()
	return []call{
		{"NewProducer", func(ctx context.Context) error {
			p, err := eng.NewProducer(ctx, stream.ProducerConfig{})
			if err == nil {
				err = p.Close(ctx)
			}
			return err
		}},
		{"NewProducer with a name", func(ctx context.Context) error {
			p, err := eng.NewProducer(ctx, stream.ProducerConfig{Name: "n"})
			if err == nil {
				err = p.Close(ctx)
			}
			return err
		}},
		{"NewConsumer", func(ctx context.Context) error {
			c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Topics: []string{"a"}})
			if err == nil {
				err = c.Close(ctx)
			}
			return err
		}},
		{"CreateTopic", func(ctx context.Context) error {
			err := a.CreateTopic(ctx, "t"+strconv.Itoa(rand.IntN(10)), stream.TopicConfig{})
			if errors.Is(err, stream.ErrTopicExists) {
				return nil
			}
			return err
		}},
		{"Topics", func(ctx context.Context) error { _, err := a.Topics(ctx); return err }},
		{"Topics by name", func(ctx context.Context) error { _, err := a.Topics(ctx, "a"); return err }},
		{"AddPartitions", func(ctx context.Context) error {
			err := a.AddPartitions(ctx, "a", 1)
			if errors.Is(err, stream.ErrInvalidPartitions) {
				return nil
			}
			return err
		}},
		{"DeleteTopic", func(ctx context.Context) error {
			err := a.DeleteTopic(ctx, "none")
			if errors.Is(err, stream.ErrUnknownTopic) {
				return nil
			}
			return err
		}},
		{"StartOffsets", func(ctx context.Context) error { _, err := a.StartOffsets(ctx, tp("a", 0)); return err }},
		{"EndOffsets", func(ctx context.Context) error { _, err := a.EndOffsets(ctx, tp("a", 0)); return err }},
		{"OffsetsForTime", func(ctx context.Context) error {
			_, err := a.OffsetsForTime(ctx, time.UnixMilli(1), tp("a", 0))
			return err
		}},
	}
}

// F1: what is closed says so.
func TestEverythingIsErrClosedAfterClose(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 1)
		fill(t, eng, tp("a", 0), 0, 5)
		open := func() (p stream.Producer, c stream.Consumer) {
			p = newProducer(t, eng, stream.ProducerConfig{Name: "n"})
			must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
			c = newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest})
			poll(t, c, 1)
			return p, c
		}
		closed := func(what string, calls []call) {
			t.Helper()
			for _, f := range calls {
				if err := f.fn(t.Context()); !errors.Is(err, stream.ErrClosed) || !stream.IsFatal(err) || stream.IsRetriable(err) {
					t.Errorf("%s, %s: %v", what, f.name, err)
				}
			}
		}
		p, c := open()
		for range 3 {
			check(t, p.Close(t.Context()))
			check(t, c.Close(t.Context()))
		}
		closed("producer", producerCalls(p))
		closed("consumer", consumerCalls(c))
		eq(t, "assignment", len(c.Assignment()), 0)

		p, c = open()
		for range 3 {
			check(t, eng.Close())
		}
		closed("producer of a closed engine", producerCalls(p))
		closed("consumer of a closed engine", consumerCalls(c))
		closed("engine", engineCalls(eng))
		check(t, p.Close(t.Context()))
		check(t, c.Close(t.Context()))
		check(t, p.Flush(t.Context()))
		goleak.VerifyNone(t)
	})
}

// F1: a poll that waits gets ErrClosed, whether its consumer or its engine is closed, and how often.
func TestCloseEndsAPollThatWaits(t *testing.T) {
	for _, how := range []string{"consumer", "engine", "both"} {
		t.Run(how, func(t *testing.T) {
			onGrounds(t, func(t *testing.T, g *ground) {
				for _, visibility := range []stream.Visibility{stream.Published, stream.Durable} {
					eng := g.reopen()
					if visibility == stream.Published {
						create(t, eng, "a", 2)
					}
					c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, MaxWait: forever, Visibility: visibility})
					ended := make(chan error, 1)
					go func() { _, err := c.Poll(context.Background(), 1); ended <- err }()
					var wg sync.WaitGroup
					for range 3 {
						if how != "engine" {
							wg.Go(func() { report(t, c.Close(context.Background())) })
						}
						if how != "consumer" {
							wg.Go(func() { report(t, eng.Close()) })
						}
					}
					wantErr(t, <-ended, stream.ErrClosed)
					wg.Wait()
				}
			})
		})
	}
}

// F1: a Close that finds another one running waits for it: when it returns, everything has ended.
func TestSecondCloseWaitsForTheFirst(t *testing.T) {
	for name, closer := range map[string]func(eng *stream.Engine, p stream.Producer) error{
		"producer": func(_ *stream.Engine, p stream.Producer) error { return p.Close(context.Background()) },
		"engine":   func(eng *stream.Engine, _ stream.Producer) error { return eng.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			eng := streamtest.New(t)
			create(t, eng, "a", 1)
			p := newProducer(t, eng, stream.ProducerConfig{})
			running, release := make(chan struct{}), make(chan struct{})
			ended := false
			p.Produce(t.Context(), &stream.Record{Topic: "a"}, func(stream.Receipt, error) {
				close(running)
				<-release
				ended = true
			})
			<-running
			first := make(chan error)
			go func() { first <- p.Close(context.Background()) }()
			for { // the first Close has begun when the producer refuses records
				if _, err := p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}); err != nil {
					wantErr(t, err, stream.ErrClosed)
					break
				}
			}
			go releaseSoon(release)
			err := closer(eng, p)
			if !ended {
				t.Errorf("the second Close returned (%v) while the first waited for a promise", err)
			}
			check(t, err)
			check(t, <-first)
		})
	}
}

// releaseSoon closes a channel when everybody who can run has had many turns. A test that is right never depends on how many.
func releaseSoon(release chan struct{}) {
	for range 10_000 {
		runtime.Gosched()
	}
	close(release)
}

// F1: the engine's Close waits for a consumer's Close that is committing, which then succeeds.
func TestEngineCloseWaitsForAConsumersClose(t *testing.T) {
	onSim(t, func(t *testing.T, g *ground) {
		eng := g.open(func(o *stream.Options) { o.SyncInterval = forever })
		create(t, eng, "a", 1)
		fill(t, eng, tp("a", 0), 0, 5)
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest})
		eq(t, "polled", len(poll(t, c, 5)), 5)
		syncing, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		g.sim.Inject(func(op vfs.Op) error {
			if op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, ".log") && strings.Contains(op.Name, "/a-0/") {
				once.Do(func() { close(syncing) })
				<-release
			}
			return nil
		})
		first := make(chan error)
		go func() { first <- c.Close(context.Background()) }()
		<-syncing
		go releaseSoon(release)
		closed := make(chan error)
		go func() { closed <- eng.Close() }()
		if err := <-first; err != nil {
			t.Errorf("the consumer's Close: %v", err)
		}
		check(t, <-closed)
		g.sim.Inject(nil)
		eng = g.reopen()
		eq(t, "committed", committed(t, newConsumer(t, eng, stream.ConsumerConfig{Group: "g"}), tp("a", 0)), 5)
	})
}

// F1: Close, a hundred times over, races with every call: nothing panics, hangs, leaks or fails otherwise than with ErrClosed.
func TestCloseRacesWithAllCalls(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	for range rounds {
		eng := must(stream.OpenMemory(nil))(t)
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{Name: "own", Acks: stream.AcksWritten})
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest, MaxWait: forever, CommitInterval: 1})
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
		var wg sync.WaitGroup
		begin := make(chan struct{})
		all := append(append(engineCalls(eng), producerCalls(p)...), consumerCalls(c)...)
		for _, f := range all {
			wg.Go(func() {
				<-begin
				for {
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					err := f.fn(ctx)
					cancel()
					switch {
					case errors.Is(err, stream.ErrClosed):
						return
					case err == nil, errors.Is(err, stream.ErrNoSubscription), errors.Is(err, stream.ErrNotAssigned), errors.Is(err, stream.ErrUnsupported):
					case errors.Is(err, stream.ErrUnknownMember), errors.Is(err, stream.ErrRebalance), errors.Is(err, stream.ErrIllegalGeneration): // a commit beside Subscribe and Unsubscribe
					default:
						t.Errorf("%s: %v", f.name, err)
						return
					}
					if f.name == "PollInto nothing" || f.name == "Committed" { // see TestEverythingIsErrClosedAfterClose
						return
					}
				}
			})
		}
		for range 3 {
			wg.Go(func() {
				<-begin
				_, _ = p.ProduceSync(context.Background(), &stream.Record{Topic: "a"}) // some work first
				if err := eng.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
		}
		close(begin)
		wg.Wait()
		check(t, eng.Close())
	}
	goleak.VerifyNone(t)
}

// A record whose error does not match ErrOutcomeUnknown is not in the log; one that is acknowledged is.
func TestErrorsDuringCloseTellWhatBecameOfTheRecord(t *testing.T) {
	onSim(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 1)
		for round := range 60 {
			p := newProducer(t, eng, stream.ProducerConfig{})
			type outcome struct {
				value string
				err   error
			}
			var results [6][]outcome
			begun := make(chan struct{})
			var once sync.Once
			var wg sync.WaitGroup
			for k := range results {
				wg.Go(func() {
					for i := 0; ; i++ {
						v := strconv.Itoa(round) + "." + strconv.Itoa(k) + "." + strconv.Itoa(i)
						_, err := p.ProduceSync(context.Background(), &stream.Record{Topic: "a", Value: []byte(v)})
						results[k] = append(results[k], outcome{v, err})
						once.Do(func() { close(begun) })
						if err != nil {
							return
						}
					}
				})
			}
			<-begun
			check(t, eng.Close())
			wg.Wait()
			eng = g.open()
			there := map[string]bool{}
			for _, r := range readAll(t, eng, tp("a", 0)) {
				there[string(r.Value)] = true
			}
			for _, o := range slices.Concat(results[:]...) {
				if o.err == nil && !there[o.value] {
					t.Fatalf("%s was acknowledged and is not there", o.value)
				}
				if o.err != nil && !errors.Is(o.err, stream.ErrOutcomeUnknown) && there[o.value] {
					t.Fatalf("%s failed with %q, which is not ErrOutcomeUnknown, and is there", o.value, o.err)
				}
			}
		}
	})
}
