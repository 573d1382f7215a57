package stream_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// lasts fails the test unless f takes exactly d of virtual time.
func lasts(t *testing.T, what string, d time.Duration, f func()) {
	t.Helper()
	begin := time.Now()
	f()
	if took := time.Since(begin); took != d {
		t.Fatalf("%s took %v, want %v", what, took, d)
	}
}

// B4: a poll that finds nothing lasts MaxWait, to the millisecond, whatever it waits for.
func TestPollWaitsMaxWait(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, eng *stream.Engine, c stream.Consumer){
		"at the end": func(t *testing.T, _ *stream.Engine, c stream.Consumer) { check(t, c.Subscribe("a")) },
		"for a topic that is missing": func(t *testing.T, _ *stream.Engine, c stream.Consumer) {
			check(t, c.Subscribe("b"))
		},
		"with every partition paused": func(t *testing.T, eng *stream.Engine, c stream.Consumer) {
			check(t, c.Assign(tp("a", 0), tp("a", 1)))
			fill(t, eng, tp("a", 0), 0, 1)
			check(t, c.SeekToStart())
			c.Pause(tp("a", 0), tp("a", 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
				create(t, eng, "a", 2)
				for set, want := range map[time.Duration]time.Duration{
					0: 500 * time.Millisecond, -1: 0, time.Millisecond: time.Millisecond, 499 * time.Millisecond: 499 * time.Millisecond, time.Hour: time.Hour,
				} {
					c := must(eng.NewConsumer(t.Context(), stream.ConsumerConfig{MaxWait: set}))(t)
					prepare(t, eng, c)
					for range 3 {
						lasts(t, "poll", want, func() { eq(t, "records", len(poll(t, c, 9)), 0) })
					}
				}
			})
		})
	}
}

// B4: data ends the wait at once.
func TestPollReturnsWhenTheRecordComes(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 2)
		c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest, MaxWait: time.Minute})
		for i := range 20 {
			after := time.Duration(i*7) * time.Millisecond
			begin, done := time.Now(), make(chan struct{})
			go func() {
				defer close(done)
				time.Sleep(after)
				fill(t, eng, tp("a", int32(i%2)), i, i+1)
			}()
			got := poll(t, c, 9)
			took := time.Since(begin)
			<-done
			eq(t, "records", got, numbers(i, i+1))
			eq(t, "time", took, after)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		lasts(t, "poll with a deadline", 3*time.Second, func() {
			_, err := c.Poll(ctx, 1)
			wantErr(t, err, context.DeadlineExceeded)
		})
	})
}

// A poll that waits takes in topics and partitions that are made meanwhile: "blocks until there is a record".
func TestPollThatWaitsTakesInWhatIsMade(t *testing.T) {
	for name, add := range map[string]func(t *testing.T, eng *stream.Engine) stream.TopicPartition{
		"topic": func(t *testing.T, eng *stream.Engine) stream.TopicPartition {
			create(t, eng, "b", 1)
			return tp("b", 0)
		},
		"partition": func(t *testing.T, eng *stream.Engine) stream.TopicPartition {
			check(t, eng.Admin().AddPartitions(t.Context(), "a", 2))
			return tp("a", 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
				create(t, eng, "a", 1)
				c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a", "b"}, MaxWait: time.Hour})
				begin, done := time.Now(), make(chan struct{})
				go func() {
					defer close(done)
					time.Sleep(time.Second)
					fill(t, eng, add(t, eng), 0, 1)
				}()
				got := poll(t, c, 9)
				took := time.Since(begin)
				<-done
				eq(t, "records", got, numbers(0, 1))
				eq(t, "time", took, time.Second)
			})
		})
	}
}

// A timeout that fires while the record arrives belongs to that poll, and does not end the next one early.
func TestTimeoutOfOnePollDoesNotEndTheNext(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 1)
		const wait = 10 * time.Millisecond
		c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest, MaxWait: wait})
		p := newProducer(t, eng, stream.ProducerConfig{Acks: stream.AcksWritten})
		for range 3000 {
			produced := time.NewTimer(wait)
			done := make(chan struct{})
			go func() {
				defer close(done)
				<-produced.C
				must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
			}()
			poll(t, c, 9) // with or without the record
			for {
				begin := time.Now()
				if rs := poll(t, c, 9); len(rs) == 0 {
					if took := time.Since(begin); took != wait {
						t.Fatalf("an empty poll lasted %v", took)
					}
					break
				}
			}
			<-done
		}
	})
}

// Records that are only written become durable SyncInterval after the first of them, and then those see them who read what is durable.
func TestDurableReaderSeesWrittenRecordsAfterSyncInterval(t *testing.T) {
	for _, interval := range []time.Duration{0, 50 * time.Millisecond, time.Minute} {
		t.Run(interval.String(), func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
				want := interval
				if want == 0 {
					want = time.Second
				}
				create(t, eng, "a", 2)
				c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest, Visibility: stream.Durable, MaxWait: time.Hour})
				for round := range 3 {
					fill(t, eng, tp("a", 0), round, round+1)
					time.Sleep(want / 2)
					fill(t, eng, tp("a", 0), round, round+1)
					var got []string
					lasts(t, "poll", want-want/2, func() { got = poll(t, c, 9) })
					eq(t, "records", len(got), 2)
					time.Sleep(want * 3 / 2)
				}
				// A sync that somebody waits for covers what was written before.
				fill(t, eng, tp("a", 0), 0, 5)
				p := newProducer(t, eng, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
				must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
				lasts(t, "poll", 0, func() { eq(t, "records", len(poll(t, c, 9)), 6) })
			}, streamtest.WithOptions(stream.Options{SyncInterval: interval}))
		})
	}
}

func TestManyUnsyncedBytesAreSyncedEarlier(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 1)
		c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest, Visibility: stream.Durable, MaxWait: time.Hour})
		p := newProducer(t, eng, stream.ProducerConfig{Acks: stream.AcksWritten})
		send := func(n int) {
			must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, n)}))(t)
		}
		for range 3 {
			send(9000)
			send(9000)
			lasts(t, "poll", 0, func() { eq(t, "records", len(poll(t, c, 9)), 2) })
			synctest.Wait()
		}
		send(9000)
		lasts(t, "poll", time.Minute, func() { eq(t, "records", len(poll(t, c, 9)), 1) })
	}, streamtest.WithOptions(stream.Options{SyncInterval: time.Minute, SyncBytes: 10_000}))
}

// E4: automatic commits come with the first poll that finds their interval over, and cover what earlier polls returned.
func TestAutomaticCommitsByInterval(t *testing.T) {
	for _, interval := range []time.Duration{0, 300 * time.Millisecond} {
		t.Run(interval.String(), func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
				want := interval
				if want == 0 {
					want = 5 * time.Second
				}
				create(t, eng, "a", 1)
				fill(t, eng, tp("a", 0), 0, 100)
				c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest, CommitInterval: interval})
				step := func(d time.Duration, wantCommitted int64) {
					t.Helper()
					time.Sleep(d)
					poll(t, c, 10)
					eq(t, "committed", committed(t, c, tp("a", 0)), wantCommitted)
				}
				step(0, -1)
				step(want-1, -1)
				step(1, 20) // what the first two polls returned
				step(0, 20)
				step(want-1, 20)
				step(1, 50)
				// A long pause makes one commit, not several; going back makes none.
				check(t, c.Seek(tp("a", 0), 5))
				step(10*want, 50)
				step(want, 50)
				check(t, c.Close(t.Context()))
			})
		})
	}
}

// The loop commits too, and what it commits never covers the record in hand.
func TestLoopCommitsByInterval(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 1)
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest, MaxWait: time.Second, CommitInterval: 10 * time.Second})
		fill(t, eng, tp("a", 0), 0, 1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			time.Sleep(time.Minute)
			fill(t, eng, tp("a", 0), 1, 2)
		}()
		for r, err := range c.Records(t.Context()) {
			check(t, err)
			if r.Offset == 1 {
				eq(t, "committed in the body", committed(t, c, tp("a", 0)), 1)
				break
			}
			eq(t, "committed in the body", committed(t, c, tp("a", 0)), -1)
		}
		<-done
	})
}

// A producer whose Close has no time left gives up the records that are waited for, at once.
func TestProducerCloseGivesUpAtOnceWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := vfs.NewSim(1)
		eng := must(stream.Open("/data", &stream.Options{FS: sim, MinFree: -1, SyncInterval: forever}))(t)
		t.Cleanup(func() { check(t, eng.Close()) })
		create(t, eng, "a", 1)
		must(newProducer(t, eng, stream.ProducerConfig{}).ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for round := range 200 {
			p := newProducer(t, eng, stream.ProducerConfig{})
			if round%2 == 1 { // the second goroutine that runs promises
				p.Produce(t.Context(), &stream.Record{Topic: "a"}, nil)
				check(t, p.Flush(t.Context()))
				synctest.Wait()
			}
			sim.Inject(func(op vfs.Op) error {
				if op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, ".log") && strings.Contains(op.Name, "/a-0/") {
					time.Sleep(time.Minute) // a disk that hangs
				}
				return nil
			})
			var got error
			p.Produce(t.Context(), &stream.Record{Topic: "a"}, func(_ stream.Receipt, err error) { got = err })
			lasts(t, "close", 0, func() { wantErr(t, p.Close(ended), stream.ErrClosed) })
			wantErr(t, got, stream.ErrClosed, stream.ErrOutcomeUnknown)
			sim.Inject(nil)
			time.Sleep(2 * time.Minute)
		}
	})
}

// The engine runs in two bubbles of one process, one after the other.
func TestEngineInTwoBubbles(t *testing.T) {
	for range 2 {
		streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
			create(t, eng, "a", 2)
			c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest, MaxWait: time.Minute})
			begin := time.Now()
			p := newProducer(t, eng, stream.ProducerConfig{Name: "n"})
			for i := range 100 {
				p.Produce(t.Context(), &stream.Record{Topic: "a", Sequence: int64(i + 1)}, func(r stream.Receipt, err error) {
					if err != nil || !r.Timestamp.Equal(begin) {
						t.Errorf("%v, which is not the bubble's clock; error %v", r.Timestamp, err)
					}
				})
			}
			check(t, p.Flush(t.Context()))
			n := 0
			for n < 100 {
				n += len(poll(t, c, 7))
			}
			check(t, c.Commit(t.Context()))
			lasts(t, "poll", time.Minute, func() { eq(t, "records", len(poll(t, c, 7)), 0) })
		})
	}
}
