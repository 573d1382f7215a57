package stream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// A buffer of these tests: one record of wholeValue bytes needs all of it, and no two of more than half of it fit.
const (
	smallBuffer = 4096
	wholeValue  = smallBuffer - 200
)

// everythingFits proves that the whole buffer is free: a record that needs all of it goes through at once.
func everythingFits(t *testing.T, p stream.Producer) {
	t.Helper()
	check(t, p.Flush(t.Context()))
	for range 3 {
		begin := time.Now()
		must(p.ProduceAll(t.Context(), []stream.Record{{Topic: "a", Value: make([]byte, wholeValue)}}, nil))(t)
		eq(t, "time that it took", time.Since(begin), 0)
	}
}

// F14: MaxBlock bounds the wait for memory to the tick, for every verb; what has waited in vain is not sent.
func TestMaxBlockIsExact(t *testing.T) {
	for name, produce := range verbs {
		for _, block := range []time.Duration{-1, time.Millisecond, 250 * time.Millisecond, 5 * time.Second, 0} {
			t.Run(fmt.Sprintf("%s %v", name, block), func(t *testing.T) {
				onSlowDisk(t, 2, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
					p := newProducer(t, eng, stream.ProducerConfig{BufferMemory: smallBuffer, BatchSize: 512, MaxInFlight: 1, MaxBlock: block, DeliveryTimeout: time.Hour, Partitioner: stream.ManualPartitioner()})
					must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
					release := d.hang()
					defer release()
					a := newAnswers(t)
					// The calls that fill the buffer: the first that waits is the last.
					filled, took := 0, time.Duration(0)
					for ; filled < 1000; filled++ {
						begin := time.Now()
						p.Produce(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 400)}, a.promise(filled))
						synctest.Wait()
						if took = time.Since(begin); took > 0 || len(a.list) > 0 {
							break
						}
					}
					want := block
					if block == 0 {
						want = time.Minute
					}
					eq(t, "Produce waited", took, max(want, 0))
					wantErr(t, a.next().err, stream.ErrBufferFull)
					// In the other partition nothing is on its way, and yet there is no memory. A ProduceSync needs none there.
					for n := range int32(2) {
						if name == "ProduceSync" && n == 1 {
							break
						}
						begin := time.Now()
						_, err := produce(p, t.Context(), &stream.Record{Topic: "a", Partition: n, Value: make([]byte, 400)})
						wantErr(t, err, stream.ErrBufferFull)
						eq(t, "retriable", stream.IsRetriable(err), true)
						eq(t, "unknown", errors.Is(err, stream.ErrOutcomeUnknown), false)
						eq(t, name+" waited", time.Since(begin), max(want, 0))
					}
					release()
					for i, got := range a.some(filled) {
						check(t, got.err)
						eq(t, "order", got.n, i)
					}
					eq(t, "end", endOf(t, eng, tp("a", 0)), int64(1+filled))
					eq(t, "end of the other", endOf(t, eng, tp("a", 1)), 0)
					everythingFits(t, p)
				})
			})
		}
	}
}

// F14: a ctx that ends ends the wait for memory, at once, and the record is not sent.
func TestContextEndsTheWaitForMemory(t *testing.T) {
	for name, produce := range verbs {
		t.Run(name, func(t *testing.T) {
			onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
				p := newProducer(t, eng, stream.ProducerConfig{BufferMemory: smallBuffer, BatchSize: 512, MaxInFlight: 1, MaxBlock: time.Hour, DeliveryTimeout: 3 * time.Hour})
				must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
				release := d.hang()
				defer release()
				a := newAnswers(t)
				filled := 0
				blocked := make(chan struct{}, 1)
				background, stop := context.WithCancel(t.Context())
				defer stop()
				go func() { // fills the buffer and waits for more
					for background.Err() == nil {
						p.Produce(background, &stream.Record{Topic: "a", Value: make([]byte, 400)}, a.promise(filled))
						filled++
					}
					blocked <- struct{}{}
				}()
				synctest.Wait()
				stop() // the records in the buffer too
				<-blocked
				synctest.Wait()
				ended := len(a.list)
				for _, got := range a.some(ended) {
					wantErr(t, got.err, context.Canceled)
				}
				b := newAnswers(t)
				fill, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				n := 0
				for fill.Err() == nil {
					p.Produce(fill, &stream.Record{Topic: "a", Value: make([]byte, 400)}, b.promise(n))
					n++
				}
				eq(t, "Produce ended after", time.Since(b.begin), time.Second)
				begin := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 11*time.Second)
				defer cancel()
				_, err := produce(p, ctx, &stream.Record{Topic: "a", Value: make([]byte, wholeValue)})
				wantErr(t, err, context.DeadlineExceeded)
				eq(t, "unknown", errors.Is(err, stream.ErrOutcomeUnknown), false)
				eq(t, "waited", time.Since(begin), 11*time.Second)
				release()
				everythingFits(t, p)
			})
		})
	}
}

// F14: memory is given in the order in which it was asked for: a record that needs much is not overtaken by those that need little, by whatever verb.
func TestLargeRecordIsNotStarvedBySmallOnes(t *testing.T) {
	for name, produce := range verbs {
		t.Run(name, func(t *testing.T) {
			onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
				p := newProducer(t, eng, stream.ProducerConfig{BufferMemory: smallBuffer, BatchSize: 256, MaxInFlight: 1, MaxBlock: time.Hour, DeliveryTimeout: 3 * time.Hour})
				must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
				release := d.hang()
				defer release()
				var wg sync.WaitGroup
				var mu sync.Mutex
				offsets := map[string]int64{}
				send := func(key string, size int) {
					wg.Go(func() {
						rec, err := produce(p, t.Context(), &stream.Record{Topic: "a", Value: make([]byte, size)})
						report(t, err)
						mu.Lock()
						defer mu.Unlock()
						offsets[key] = rec.Offset
					})
					synctest.Wait()
				}
				for i := range 40 { // more than there is room for
					send(fmt.Sprint("before ", i), 200)
				}
				send("large", wholeValue)
				for i := range 100 {
					send(fmt.Sprint("behind ", i), 1)
				}
				release()
				wg.Wait()
				for key, offset := range offsets {
					if before := strings.HasPrefix(key, "before"); before && offset > offsets["large"] || !before && key != "large" && offset < offsets["large"] {
						t.Errorf("%s has offset %d, the large record %d", key, offset, offsets["large"])
					}
				}
				everythingFits(t, p)
			})
		})
	}
}

// F14: batches that linger do not keep memory from those who wait for it: they go at once, also from other partitions.
func TestFullBufferEndsLingering(t *testing.T) {
	onSlowDisk(t, 20, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		p := newProducer(t, eng, stream.ProducerConfig{BufferMemory: smallBuffer, BatchSize: 1024, Linger: time.Hour, DeliveryTimeout: 2 * time.Hour, Partitioner: stream.RoundRobinPartitioner()})
		a := newAnswers(t)
		for i := range 200 {
			p.Produce(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 100)}, a.promise(i))
		}
		p.Produce(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, wholeValue)}, a.promise(200))
		eq(t, "waited", time.Since(a.begin), 0)
		synctest.Wait()
		if len(a.list) < 180 {
			t.Fatalf("%d of 200 records have gone", len(a.list))
		}
		for _, got := range a.some(201) {
			check(t, got.err)
			if got.at != 0 && got.at != time.Hour {
				t.Fatalf("answered after %v", got.at)
			}
		}
		everythingFits(t, p)
	})
}

// A promise that produces with a full buffer gets ErrBufferFull and does not wait, whatever MaxBlock says.
func TestPromiseThatProducesDoesNotWaitForMemory(t *testing.T) {
	onSlowDisk(t, 2, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		p := newProducer(t, eng, stream.ProducerConfig{BufferMemory: smallBuffer, BatchSize: 512, MaxInFlight: 1, MaxBlock: time.Hour, DeliveryTimeout: 2 * time.Hour, Partitioner: stream.ManualPartitioner()})
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
		release := d.hang()
		defer release()
		inner, outer := newAnswers(t), newAnswers(t)
		// Record 0 is refused as soon as its ctx ends, while the buffer is full.
		ctx, cancel := context.WithCancel(t.Context())
		background, stop := context.WithCancel(t.Context())
		p.Produce(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 400)}, nil) // on its way
		synctest.Wait()
		p.Produce(ctx, &stream.Record{Topic: "a"}, func(rec stream.Receipt, err error) {
			begin := time.Now()
			for i := range 3 {
				p.Produce(context.Background(), &stream.Record{Topic: "a", Partition: 1, Value: make([]byte, wholeValue)}, inner.promise(i))
			}
			if took := time.Since(begin); took != 0 {
				t.Errorf("Produce in a promise took %v", took)
			}
			outer.promise(0)(rec, err)
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			for background.Err() == nil {
				p.Produce(background, &stream.Record{Topic: "a", Value: make([]byte, 400)}, nil)
			}
		})
		time.Sleep(time.Second)
		cancel()
		wantErr(t, outer.next().err, context.Canceled)
		for i, got := range inner.some(3) {
			wantErr(t, got.err, stream.ErrBufferFull)
			eq(t, "order", got.n, i)
			eq(t, "answered after", got.at, time.Second)
		}
		stop()
		wg.Wait()
		release()
		everythingFits(t, p)
	})
}
