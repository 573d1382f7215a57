package stream_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// verbs are the ways to send one record.
var verbs = map[string]func(p stream.Producer, ctx context.Context, r *stream.Record) (stream.Receipt, error){
	"ProduceSync": func(p stream.Producer, ctx context.Context, r *stream.Record) (stream.Receipt, error) {
		return p.ProduceSync(ctx, r)
	},
	"Produce": func(p stream.Producer, ctx context.Context, r *stream.Record) (rec stream.Receipt, err error) {
		done := make(chan struct{})
		p.Produce(ctx, r, func(got stream.Receipt, e error) { rec, err = got, e; close(done) })
		<-done
		return rec, err
	},
	"ProduceAll": func(p stream.Producer, ctx context.Context, r *stream.Record) (stream.Receipt, error) {
		out, err := p.ProduceAll(ctx, []stream.Record{*r}, nil)
		if len(out) != 1 || out[0].Err != err {
			panic(fmt.Sprint(out, err))
		}
		return out[0].Receipt, err
	},
}

func TestReceiptSaysWhereTheRecordWentAndWhatWasWaitedFor(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_123).Add(456 * time.Microsecond)
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open(func(o *stream.Options) { o.WallClock = func() time.Time { return now } })
		create(t, eng, "a", 3)
		next := int64(0)
		for _, level := range []stream.Acks{stream.AcksDefault, stream.AcksNone, stream.AcksWritten, stream.AcksSynced} {
			for _, own := range []stream.Acks{stream.AcksDefault, stream.AcksNone, stream.AcksWritten, stream.AcksSynced} {
				p := newProducer(t, eng, stream.ProducerConfig{Acks: level, Partitioner: stream.ManualPartitioner()})
				want := own
				if want == stream.AcksDefault {
					want = level
				}
				if want == stream.AcksDefault {
					want = stream.AcksSynced
				}
				for name, produce := range verbs {
					rec := must(produce(p, t.Context(), &stream.Record{Topic: "a", Partition: 2, Acks: own}))(t)
					check(t, p.Flush(t.Context())) // AcksNone does not wait for the log
					offset := next
					if want == stream.AcksNone {
						offset = -1
					}
					eq(t, fmt.Sprintf("%s, producer %v, record %v", name, level, own), rec, stream.Receipt{
						Topic: "a", Partition: 2, Offset: offset, Timestamp: now.Truncate(time.Millisecond), Acks: want,
					})
					next++
				}
			}
		}
		eq(t, "records", len(readAll(t, eng, tp("a", 2))), int(next))
	})
}

// Each promise runs once, one at a time, in the order of the offsets of its partition; Flush waits for all.
func TestPromisesRunOnceInOffsetOrder(t *testing.T) {
	const goroutines, each, partitions = 4, 250, 3
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", partitions)
		p := newProducer(t, eng, stream.ProducerConfig{Partitioner: stream.RoundRobinPartitioner()})
		var running atomic.Int32
		var runs [goroutines * each]int
		var last [partitions]int64
		for i := range last {
			last[i] = -1
		}
		var wg sync.WaitGroup
		for k := range goroutines {
			wg.Go(func() {
				for i := range each {
					r := &stream.Record{Topic: "a", Acks: stream.AcksWritten}
					if i%50 == 0 {
						r.Acks = stream.AcksSynced
					}
					p.Produce(t.Context(), r, func(rec stream.Receipt, err error) {
						defer running.Add(-1)
						if n := running.Add(1); n != 1 || err != nil {
							t.Errorf("%d promises at once, error %v", n, err)
						}
						runs[k*each+i]++
						if rec.Offset != last[rec.Partition]+1 {
							t.Errorf("partition %d: offset %d after %d", rec.Partition, rec.Offset, last[rec.Partition])
						}
						last[rec.Partition] = rec.Offset
					})
				}
			})
		}
		wg.Wait()
		check(t, p.Flush(t.Context()))
		for i, n := range runs {
			if n != 1 {
				t.Fatalf("promise %d ran %d times", i, n)
			}
		}
	})
}

func TestFlushWaitsForThePromisesOrItsContext(t *testing.T) {
	eng := streamtest.New(t)
	create(t, eng, "a", 1)
	p := newProducer(t, eng, stream.ProducerConfig{})
	release := make(chan struct{})
	ran := false
	p.Produce(t.Context(), &stream.Record{Topic: "a"}, func(stream.Receipt, error) { <-release; ran = true })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantErr(t, p.Flush(ctx), context.Canceled)
	close(release)
	check(t, p.Flush(t.Context()))
	if !ran {
		t.Fatal("Flush returned before the promise had run")
	}
}

func TestPromiseMayPanicAndMayProduce(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{})
		order := make(chan int64, 2)
		note := func(r stream.Receipt, err error) {
			if err != nil {
				t.Error(err)
			}
			order <- r.Offset
		}
		p.Produce(t.Context(), &stream.Record{Topic: "a"}, func(r stream.Receipt, err error) {
			note(r, err)
			p.Produce(t.Context(), &stream.Record{Topic: "a"}, func(r stream.Receipt, err error) {
				note(r, err)
				p.Produce(t.Context(), &stream.Record{Topic: "a"}, nil)
				panic("in a promise")
			})
			panic(errors.New("in a promise"))
		})
		eq(t, "order", []int64{<-order, <-order}, []int64{0, 1})
		check(t, p.Flush(t.Context()))
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
		eq(t, "end", endOf(t, eng, tp("a", 0)), 4)
	})
}

// What is refused reaches the promise as an error, takes no offset, and disturbs nothing that follows.
func TestRefusedRecordTakesNoOffset(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tc := range []struct {
		name string
		ctx  context.Context
		r    stream.Record
		want error
	}{
		{"ended context", ended, stream.Record{Topic: "a"}, context.Canceled},
		{"unknown topic", context.Background(), stream.Record{Topic: "b"}, stream.ErrUnknownTopic},
		{"no topic", context.Background(), stream.Record{}, stream.ErrUnknownTopic},
		{"unknown partition", context.Background(), stream.Record{Topic: "a", Partition: 1}, stream.ErrUnknownTopic},
		{"negative partition", context.Background(), stream.Record{Topic: "a", Partition: -1}, stream.ErrUnknownTopic},
		{"before 1970", context.Background(), stream.Record{Topic: "a", Timestamp: time.UnixMilli(-1)}, stream.ErrInvalidRecord},
		{"just before 1970", context.Background(), stream.Record{Topic: "a", Timestamp: time.Unix(0, -1)}, stream.ErrInvalidRecord},
		{"year 0", context.Background(), stream.Record{Topic: "a", Timestamp: time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)}, stream.ErrInvalidRecord},
		{"beyond milliseconds", context.Background(), stream.Record{Topic: "a", Timestamp: time.Unix(math.MaxInt64/1000*2, 0)}, stream.ErrInvalidRecord},
		{"too large", context.Background(), stream.Record{Topic: "a", Value: make([]byte, 2<<20)}, stream.ErrRecordTooLarge},
		{"sequence without a name", context.Background(), stream.Record{Topic: "a", Sequence: 1}, stream.ErrInvalidRecord},
		{"negative sequence", context.Background(), stream.Record{Topic: "a", Sequence: -1}, stream.ErrInvalidRecord},
		{"acks that are none", context.Background(), stream.Record{Topic: "a", Acks: 9}, stream.ErrInvalidRecord},
		{"negative acks", context.Background(), stream.Record{Topic: "a", Acks: -1}, stream.ErrInvalidRecord},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eng := streamtest.New(t)
			create(t, eng, "a", 1)
			p := newProducer(t, eng, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
			good := stream.Record{Topic: "a"}
			must(p.ProduceSync(t.Context(), &good))(t)
			for name, produce := range verbs {
				rec, err := produce(p, tc.ctx, &tc.r)
				if !errors.Is(err, tc.want) || errors.Is(err, stream.ErrOutcomeUnknown) {
					t.Errorf("%s: %v, %v", name, rec, err)
				}
			}
			eq(t, "next offset", must(p.ProduceSync(t.Context(), &good))(t).Offset, 1)
		})
	}
}

// A context that ends while the sync runs leaves the outcome open: the record is there.
func TestContextEndsDuringTheSync(t *testing.T) {
	for name, produce := range verbs {
		if name == "Produce" {
			continue // its ctx does not bound the promise
		}
		t.Run(name, func(t *testing.T) {
			onSim(t, func(t *testing.T, g *ground) {
				eng := g.open()
				create(t, eng, "a", 1)
				p := newProducer(t, eng, stream.ProducerConfig{})
				must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Value: []byte("0")}))(t)
				syncing, release := make(chan struct{}, 1), make(chan struct{})
				g.sim.Inject(func(op vfs.Op) error {
					if op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, ".log") {
						syncing <- struct{}{}
						<-release
					}
					return nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				failed := make(chan error, 1)
				go func() {
					_, err := produce(p, ctx, &stream.Record{Topic: "a", Value: []byte("1")})
					failed <- err
				}()
				<-syncing
				cancel()
				err := <-failed
				wantErr(t, err, context.Canceled, stream.ErrOutcomeUnknown)
				if stream.IsRetriable(err) {
					t.Fatalf("%v is retriable", err)
				}
				g.sim.Inject(nil)
				close(release)
				eq(t, "records", values(readAll(t, eng, tp("a", 0))), numbers(0, 2))
			})
		})
	}
}

func TestProduceAllGivesOneResultPerRecord(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 3)
		p := newProducer(t, eng, stream.ProducerConfig{Partitioner: stream.ManualPartitioner(), BatchSize: 300})
		var rs []stream.Record
		for i := range 100 {
			rs = append(rs, stream.Record{Topic: "a", Partition: int32(i % 3), Value: []byte(strconv.Itoa(i))})
		}
		rs[10].Topic = "b"
		rs[20].Value = make([]byte, 2<<20)
		rs[30].Acks = stream.AcksNone

		// What is in out before does not matter, nor how much of it there is.
		stale := make([]stream.Result, 200)
		for i := range stale {
			stale[i] = stream.Result{Receipt: stream.Receipt{Offset: 77, Duplicate: true}, Err: errors.New("stale")}
		}
		out, err := p.ProduceAll(t.Context(), rs, stale)
		if len(out) != len(rs) || &out[0] != &stale[0] {
			t.Fatalf("%d results, in another slice: %v", len(out), &out[0] != &stale[0])
		}
		if err != out[10].Err {
			t.Fatalf("error %v, the first is %v", err, out[10].Err)
		}
		var next [3]int64
		for i, res := range out {
			switch i {
			case 10:
				wantErr(t, res.Err, stream.ErrUnknownTopic)
				continue
			case 20:
				wantErr(t, res.Err, stream.ErrRecordTooLarge)
				continue
			}
			want := next[i%3]
			next[i%3]++
			if i == 30 {
				want = -1
			}
			if res.Err != nil || res.Receipt.Partition != int32(i%3) || res.Receipt.Offset != want || res.Receipt.Duplicate {
				t.Fatalf("record %d: %+v, want offset %d", i, res, want)
			}
		}
		for n := range int32(3) {
			last := -1
			for _, r := range readAll(t, eng, tp("a", n)) {
				v := must(strconv.Atoi(string(r.Value)))(t)
				if v <= last || v%3 != int(n) {
					t.Fatalf("partition %d: %d after %d", n, v, last)
				}
				last = v
			}
		}
		out, err = p.ProduceAll(t.Context(), nil, out)
		eq(t, "results of no records", len(out), 0)
		check(t, err)
		out, err = p.ProduceAll(t.Context(), rs[:1], nil)
		eq(t, "results in a slice that had to grow", len(out), 1)
		check(t, err)
	})
}

func TestRecordIsTheCallersWhenTheCallReturns(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{Acks: stream.AcksWritten})
		key, value, header := []byte("key"), []byte("value"), []byte("header")
		headers := []stream.Header{{Key: "h", Value: header}}
		r := stream.Record{Topic: "a", Key: key, Value: value, Headers: headers}
		overwrite := func() {
			r.Topic, r.Key, r.Timestamp = "z", nil, time.Unix(1, 0)
			clear(key)
			clear(value)
			clear(header)
			headers[0] = stream.Header{}
		}
		restore := func() {
			copy(key, "key")
			copy(value, "value")
			copy(header, "header")
			headers[0] = stream.Header{Key: "h", Value: header}
			r = stream.Record{Topic: "a", Key: key, Value: value, Headers: headers, Timestamp: time.Unix(1000, 0)}
		}
		for range 20 {
			restore()
			p.Produce(t.Context(), &r, func(rec stream.Receipt, err error) {
				if err != nil || rec.Topic != "a" || !rec.Timestamp.Equal(time.Unix(1000, 0)) {
					t.Errorf("%v, %v", rec, err)
				}
			})
			eq(t, "record after Produce", r, stream.Record{Topic: "a", Key: key, Value: value, Headers: headers, Timestamp: time.Unix(1000, 0)})
			overwrite()
			restore()
			must(p.ProduceSync(t.Context(), &r))(t)
			overwrite()
			restore()
			rs := []stream.Record{r, r}
			must(p.ProduceAll(t.Context(), rs, nil))(t)
			clear(rs)
			overwrite()
		}
		check(t, p.Flush(t.Context()))
		got := readAll(t, eng, tp("a", 0))
		eq(t, "records", len(got), 80)
		for _, r := range got {
			if string(r.Key) != "key" || string(r.Value) != "value" || r.Headers[0].Key != "h" || string(r.Headers[0].Value) != "header" {
				t.Fatalf("%+v", r)
			}
		}
	})
}

// Producers close once, flush what they have, and refuse everything afterwards.
func TestProducerCloseFlushes(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{})
		ran := 0
		for range 50 {
			p.Produce(t.Context(), &stream.Record{Topic: "a"}, func(_ stream.Receipt, err error) {
				if ran++; err != nil {
					t.Error(err)
				}
			})
		}
		check(t, p.Close(t.Context()))
		eq(t, "promises", ran, 50)
		check(t, p.Close(t.Context()))
		for name, produce := range verbs {
			if _, err := produce(p, t.Context(), &stream.Record{Topic: "a"}); !errors.Is(err, stream.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		eq(t, "end", endOf(t, eng, tp("a", 0)), 50)
	})
}
