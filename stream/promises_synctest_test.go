package stream_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// Promises run in the order of the offsets of each partition, whatever order the partitions' syncs end in, and one at a time; a record that a fast partition has does not wait for a slow one.
func TestPromisesOfASlowPartitionHoldBackNoOther(t *testing.T) {
	onSlowDisk(t, 2, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		p := newProducer(t, eng, stream.ProducerConfig{BatchSize: 1, Partitioner: stream.ManualPartitioner(), MaxInFlight: 5})
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Partition: 1}))(t)
		d.onSync(func(name string) {
			if name == "/data/topics/a-0/00000000000000000000.log" {
				time.Sleep(time.Second)
			}
		})
		a := newAnswers(t)
		for i := range 8 {
			p.Produce(t.Context(), &stream.Record{Topic: "a", Partition: int32(i % 2)}, a.promise(i))
		}
		synctest.Wait()
		eq(t, "answers of the fast one at once", len(a.list), 4)
		next := [2]int64{1, 1}
		for _, got := range a.some(8) {
			check(t, got.err)
			eq(t, "offset", got.rec.Offset, next[got.rec.Partition])
			next[got.rec.Partition]++
			if got.n%2 == 1 {
				eq(t, "answered after", got.at, 0)
			}
		}
	})
}

// AcksNone is answered when it is buffered, whatever the log does, with offset -1, and is in the log later.
func TestAcksNoneIsAnsweredWhenItIsBuffered(t *testing.T) {
	for name, produce := range verbs {
		t.Run(name, func(t *testing.T) {
			onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
				p := newProducer(t, eng, stream.ProducerConfig{Linger: time.Hour, DeliveryTimeout: 2 * time.Hour})
				begin := time.Now()
				p.Produce(t.Context(), &stream.Record{Topic: "a", Value: []byte("0")}, nil) // a batch that lingers
				rec := must(produce(p, t.Context(), &stream.Record{Topic: "a", Value: []byte("1"), Acks: stream.AcksNone}))(t)
				eq(t, "waited", time.Since(begin), 0)
				eq(t, "receipt", []any{rec.Offset, rec.Acks, rec.Partition, rec.Topic}, []any{-1, stream.AcksNone, 0, "a"})
				check(t, p.Flush(t.Context()))
				eq(t, "log", values(readAll(t, eng, tp("a", 0))), numbers(0, 2))
			})
		})
	}
}

// However promises end, all run, once, in order.
func TestPromisesThatPanicAndExit(t *testing.T) {
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		p := newProducer(t, eng, stream.ProducerConfig{BatchSize: 200})
		var order []int
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 200 {
			c := t.Context()
			if i%10 == 9 {
				c = ctx
			}
			p.Produce(c, &stream.Record{Topic: "a", Acks: stream.AcksWritten + stream.Acks(i%2)}, func(_ stream.Receipt, err error) {
				if err == nil {
					order = append(order, i)
				}
				switch i % 4 {
				case 0:
					panic(fmt.Sprint(i))
				case 1:
					runtime.Goexit()
				case 2:
					panic(errors.New("in a promise"))
				}
			})
		}
		cancel()
		check(t, p.Flush(t.Context()))
		last := -1
		for _, i := range order {
			if i <= last {
				t.Fatalf("promise %d after %d", i, last)
			}
			last = i
		}
		eq(t, "records", endOf(t, eng, tp("a", 0)), int64(len(order)))
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
		check(t, p.Close(t.Context()))
	})
}

// Flush waits for what was sent before it, also in the midst of others that go on sending, and ends though they do.
func TestFlushAmongManyThatProduce(t *testing.T) {
	onSlowDisk(t, 3, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		d.onSync(func(string) { time.Sleep(3 * time.Millisecond) })
		p := newProducer(t, eng, stream.ProducerConfig{BatchSize: 300, BufferMemory: smallBuffer, Linger: 2 * time.Millisecond, Partitioner: stream.RoundRobinPartitioner()})
		var wg sync.WaitGroup
		var stop atomic.Bool
		for range 4 {
			wg.Go(func() {
				for !stop.Load() {
					p.Produce(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 30)}, nil)
					time.Sleep(100 * time.Microsecond)
				}
			})
		}
		var flushers sync.WaitGroup
		for range 4 {
			flushers.Go(func() {
				for range 40 {
					var ran atomic.Int32
					for range 5 {
						p.Produce(t.Context(), &stream.Record{Topic: "a"}, func(_ stream.Receipt, err error) { report(t, err); ran.Add(1) })
					}
					report(t, p.Flush(t.Context()))
					if ran.Load() != 5 {
						t.Errorf("%d of 5 promises had run when Flush returned", ran.Load())
					}
				}
			})
		}
		flushers.Wait()
		stop.Store(true)
		wg.Wait()
		check(t, p.Close(t.Context()))
	})
}

// Flush of a closed producer waits for promises as before.
func TestFlushAfterClose(t *testing.T) {
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		p := newProducer(t, eng, stream.ProducerConfig{})
		check(t, p.Close(t.Context()))
		ran := false
		p.Produce(t.Context(), &stream.Record{Topic: "a"}, func(_ stream.Receipt, err error) {
			time.Sleep(time.Second)
			wantErr(t, err, stream.ErrClosed)
			ran = true
		})
		check(t, p.Flush(t.Context()))
		early := !ran
		time.Sleep(time.Minute)
		eq(t, "Flush returned before the promise had run", early, false)
	})
}

// Close without time answers everything: what is in the log is unknown, what is not was not sent. It does not wait for the disk.
func TestCloseWithoutTime(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, timeout := range []time.Duration{0, 1500 * time.Millisecond} {
		onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
			p := newProducer(t, eng, stream.ProducerConfig{BatchSize: 1, MaxInFlight: 2})
			must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
			release := d.hang()
			defer release()
			a := newAnswers(t)
			for i := range 5 {
				p.Produce(t.Context(), &stream.Record{Topic: "a", Value: fmt.Append(nil, i)}, a.promise(i))
				synctest.Wait()
			}
			call := make(chan error, 1)
			go func() {
				_, err := p.ProduceAll(t.Context(), []stream.Record{{Topic: "a", Value: []byte("5")}}, nil)
				call <- err
			}()
			synctest.Wait()
			ctx := ended
			if timeout > 0 {
				c, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				ctx = c
			}
			_ = p.Close(ctx)
			eq(t, "Close took", time.Since(a.begin), timeout)
			synctest.Wait()
			eq(t, "answers when Close has returned", len(a.list), 5)
			for i, got := range a.some(5) {
				eq(t, "order", got.n, i)
				wantErr(t, got.err, stream.ErrClosed)
				eq(t, fmt.Sprintf("record %d: unknown", i), errors.Is(got.err, stream.ErrOutcomeUnknown), i < 2)
				eq(t, "answered after", got.at, timeout)
			}
			err := <-call
			wantErr(t, err, stream.ErrClosed)
			eq(t, "unknown", errors.Is(err, stream.ErrOutcomeUnknown), false)
			release()
			eq(t, "end", endOf(t, eng, tp("a", 0)), 3)
		})
	}
}

// Close with time waits for what is on its way, also behind a linger of an hour and retries, and then nothing is left.
func TestCloseWithTimeSendsEverything(t *testing.T) {
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		space := full(d.Sim)
		p := newProducer(t, eng, stream.ProducerConfig{BatchSize: 100, Linger: time.Hour, DeliveryTimeout: 2 * time.Hour, Retries: -1})
		a := newAnswers(t)
		for i := range 20 {
			p.Produce(t.Context(), &stream.Record{Topic: "a", Value: fmt.Append(nil, i)}, a.promise(i))
		}
		time.AfterFunc(10*time.Second, space)
		check(t, p.Close(t.Context()))
		if took := time.Since(a.begin); took < 10*time.Second || took > 12*time.Second {
			t.Fatalf("Close took %v", took)
		}
		for i, got := range a.some(20) {
			check(t, got.err)
			eq(t, "offset", got.rec.Offset, int64(i))
		}
		eq(t, "log", values(readAll(t, eng, tp("a", 0))), numbers(0, 20))
	})
}
