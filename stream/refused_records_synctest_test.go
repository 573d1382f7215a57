package stream_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// A refusal is a way in which Produce refuses a record before it is buffered.
type refusal struct {
	name string
	ctx  context.Context
	size int // of the value
	want error
}

func refusals() []refusal {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return []refusal{
		{"ended ctx", ended, 10, context.Canceled},
		{"too large", context.Background(), 50_000, stream.ErrRecordTooLarge},
		{"full buffer", context.Background(), wholeValue, stream.ErrBufferFull},
	}
}

// onFullBuffer gives fn a producer whose buffer has no room for a record that needs all of it, because a sync hangs.
func onFullBuffer(t *testing.T, name string, fn func(t *testing.T, eng *stream.Engine, p stream.Producer, release func())) {
	t.Helper()
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		p := newProducer(t, eng, stream.ProducerConfig{Name: name, BufferMemory: smallBuffer, BatchSize: 1000, MaxBlock: -1, MaxInFlight: 1, MaxMessageBytes: 20_000})
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
		release := d.hang()
		defer release()
		for range 4 { // one batch is on its way, one is open
			p.Produce(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 500)}, nil)
			time.Sleep(time.Millisecond)
		}
		fn(t, eng, p, release)
	})
}

// C1: a record with a Sequence that is refused by the call itself holds back those behind it as any other that fails: what is sent again later is no duplicate.
func TestRefusedSequenceHoldsBackThoseBehindIt(t *testing.T) {
	for _, how := range refusals() {
		if how.want == stream.ErrRecordTooLarge {
			continue // it can never be written, and is a gap
		}
		t.Run(how.name, func(t *testing.T) {
			onFullBuffer(t, "n", func(t *testing.T, eng *stream.Engine, p stream.Producer, release func()) {
				if how.want != stream.ErrBufferFull {
					release()
					check(t, p.Flush(t.Context()))
				}
				a := newAnswers(t)
				p.Produce(how.ctx, &stream.Record{Topic: "a", Sequence: 1, Value: make([]byte, how.size)}, a.promise(1))
				p.Produce(t.Context(), &stream.Record{Topic: "a", Sequence: 2, Value: []byte("2")}, a.promise(2))
				release()
				check(t, p.Flush(t.Context()))
				for i, got := range a.some(2) {
					wantErr(t, got.err, how.want)
					eq(t, "order", got.n, i+1)
				}
				eq(t, "last", lastSequence(t, p, tp("a", 0)), 0)
				for s := range int64(2) {
					eq(t, "duplicate", must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: s + 1, Value: fmt.Append(nil, s+1)}))(t).Duplicate, false)
				}
			})
		})
	}
}

// C1: a sequence that is sent again lets through those behind it, but not behind another that has failed meanwhile.
func TestSequenceThatFailsBehindOneThatIsSentAgain(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, linger := range []time.Duration{0, time.Second} {
		for name, produce := range verbs {
			t.Run(fmt.Sprint(name, linger), func(t *testing.T) {
				onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
					p := newProducer(t, eng, stream.ProducerConfig{Name: "n", Linger: linger})
					a := newAnswers(t)
					send := func(ctx context.Context, s int) {
						p.Produce(ctx, &stream.Record{Topic: "a", Sequence: int64(s), Value: fmt.Append(nil, s)}, a.promise(s))
					}
					send(ended, 1)
					send(t.Context(), 2)
					wantErr(t, a.next().err, context.Canceled)
					wantErr(t, a.next().err, context.Canceled)
					send(t.Context(), 1)
					send(ended, 2)
					_, err := produce(p, t.Context(), &stream.Record{Topic: "a", Sequence: 3, Value: []byte("3")})
					check(t, p.Flush(t.Context()))
					for _, got := range a.some(2) {
						if got.n == 1 {
							check(t, got.err)
						} else {
							wantErr(t, got.err, context.Canceled)
						}
					}
					wantErr(t, err, context.Canceled)
					eq(t, "log", values(readAll(t, eng, tp("a", 0))), []string{"1"})
					must(produce(p, t.Context(), &stream.Record{Topic: "a", Sequence: 2, Value: []byte("2")}))(t)
					must(produce(p, t.Context(), &stream.Record{Topic: "a", Sequence: 3, Value: []byte("3")}))(t)
					eq(t, "log", values(readAll(t, eng, tp("a", 0))), numbers(1, 4))
				})
			})
		}
	}
}

// Flush returns after the promises of records that were refused too.
func TestFlushWaitsForThePromisesOfRefusedRecords(t *testing.T) {
	for _, how := range refusals() {
		for _, name := range []string{"", "n"} {
			t.Run(how.name+" "+name, func(t *testing.T) {
				onFullBuffer(t, name, func(t *testing.T, eng *stream.Engine, p stream.Producer, release func()) {
					release()
					if how.want == stream.ErrBufferFull {
						how.ctx, how.want = refusals()[0].ctx, context.Canceled // there is room now
					}
					check(t, p.Flush(t.Context()))
					begin := time.Now()
					ran := false
					p.Produce(how.ctx, &stream.Record{Topic: "a", Value: make([]byte, how.size)}, func(_ stream.Receipt, err error) {
						time.Sleep(time.Second)
						ran = true
						wantErr(t, err, how.want)
					})
					check(t, p.Flush(t.Context()))
					eq(t, "Flush waited", time.Since(begin), time.Second)
					eq(t, "ran", ran, true)
				})
			})
		}
	}
}

// Flush returns after the promises of records whose ctx has ended while they were buffered, and of those that a failed sequence holds back.
func TestFlushWaitsForThePromisesOfCancelledRecords(t *testing.T) {
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		p := newProducer(t, eng, stream.ProducerConfig{Name: "n", Linger: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		ran := 0
		slow := func(stream.Receipt, error) { time.Sleep(time.Second); ran++ }
		p.Produce(ctx, &stream.Record{Topic: "a", Sequence: 1}, slow)
		p.Produce(t.Context(), &stream.Record{Topic: "a", Sequence: 2}, slow)
		time.Sleep(time.Second)
		cancel()
		p.Produce(t.Context(), &stream.Record{Topic: "a", Sequence: 3}, slow)
		p.Produce(t.Context(), &stream.Record{Topic: "a"}, slow)
		check(t, p.Flush(t.Context()))
		eq(t, "promises", ran, 4)
		p.Produce(t.Context(), &stream.Record{Topic: "a", Sequence: 4}, slow)
		check(t, p.Flush(t.Context()))
		eq(t, "promises", ran, 5)
		eq(t, "end", endOf(t, eng, tp("a", 0)), 1)
	})
}
