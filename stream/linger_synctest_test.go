package stream_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// A batch goes when its first record has waited for Linger: neither earlier, nor later because records come after it.
func TestLingerIsCountedFromTheFirstRecordOfABatch(t *testing.T) {
	for _, linger := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 7 * time.Second, time.Hour} {
		onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
			p := newProducer(t, eng, stream.ProducerConfig{Linger: linger, DeliveryTimeout: 2*linger + time.Minute})
			must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
			a := newAnswers(t)
			for i := range 4 {
				p.Produce(t.Context(), &stream.Record{Topic: "a"}, a.promise(i))
				time.Sleep(linger / 5)
			}
			synctest.Wait()
			a.none("before Linger has passed")
			eq(t, "end", endOf(t, eng, tp("a", 0)), 1)
			for i, got := range a.some(4) {
				check(t, got.err)
				eq(t, "order", got.n, i)
				eq(t, "offset", got.rec.Offset, int64(1+i))
				eq(t, "answered after", got.at, linger)
			}
			// The next batch has its own time.
			time.Sleep(3 * linger)
			a = newAnswers(t)
			p.Produce(t.Context(), &stream.Record{Topic: "a"}, a.promise(0))
			eq(t, "answered after", a.next().at, linger)
		})
	}
}

// Linger alone makes no record fail, however long it is.
func TestLingerAboveTheDefaultDeliveryTimeout(t *testing.T) {
	for _, linger := range []time.Duration{119 * time.Second, 120 * time.Second, 121 * time.Second, time.Hour, 1000 * time.Hour} {
		onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
			p := newProducer(t, eng, stream.ProducerConfig{Linger: linger})
			a := newAnswers(t)
			p.Produce(t.Context(), &stream.Record{Topic: "a"}, a.promise(0))
			got := a.next()
			check(t, got.err)
			eq(t, "answered after", got.at, linger)
		})
	}
}

// What does not have to linger goes at once, and takes with it what lingers in its partition: Flush, ProduceSync, ProduceAll, Close.
func TestLingeringBatchGoesWithWhoeverWaits(t *testing.T) {
	for name, hurry := range map[string]func(p stream.Producer, ctx context.Context) error{
		"Flush": func(p stream.Producer, ctx context.Context) error { return p.Flush(ctx) },
		"Close": func(p stream.Producer, ctx context.Context) error { return p.Close(ctx) },
		"ProduceSync": func(p stream.Producer, ctx context.Context) error {
			rec, err := p.ProduceSync(ctx, &stream.Record{Topic: "a"})
			if err == nil && rec.Offset != 10 {
				err = fmt.Errorf("offset %d", rec.Offset)
			}
			return err
		},
		"ProduceAll": func(p stream.Producer, ctx context.Context) error {
			out, err := p.ProduceAll(ctx, []stream.Record{{Topic: "a"}}, nil)
			if err == nil && out[0].Receipt.Offset != 10 {
				err = fmt.Errorf("offset %d", out[0].Receipt.Offset)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
				p := newProducer(t, eng, stream.ProducerConfig{Linger: time.Hour})
				a := newAnswers(t)
				for i := range 10 {
					p.Produce(t.Context(), &stream.Record{Topic: "a"}, a.promise(i))
				}
				time.Sleep(time.Minute)
				a.none("lingering")
				check(t, hurry(p, t.Context()))
				eq(t, "waited", time.Since(a.begin), time.Minute)
				for i, got := range a.some(10) {
					check(t, got.err)
					eq(t, "order", got.n, i)
					eq(t, "answered after", got.at, time.Minute)
				}
			})
		})
	}
}

// A batch that is full goes at once; what does not fit into it lingers on.
func TestFullBatchDoesNotLinger(t *testing.T) {
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		p := newProducer(t, eng, stream.ProducerConfig{Linger: time.Hour, BatchSize: 1000, DeliveryTimeout: 2 * time.Hour})
		a := newAnswers(t)
		const n = 25
		for i := range n {
			p.Produce(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 90)}, a.promise(i)) // about 100 bytes each
		}
		synctest.Wait()
		went := len(a.list)
		if went < 16 || went >= n {
			t.Fatalf("%d of %d records went at once", went, n)
		}
		for i, got := range a.some(n) {
			check(t, got.err)
			eq(t, "order", got.n, i)
			want := time.Duration(0)
			if i >= went {
				want = time.Hour
			}
			eq(t, "answered after", got.at, want)
		}
	})
}

// A record that is larger than a batch fills one by itself: it does not linger, and takes what lingers before it along.
func TestRecordLargerThanABatchDoesNotLinger(t *testing.T) {
	for _, size := range []int{950, 999, 1000, 1001, 5000, 100_000} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
				p := newProducer(t, eng, stream.ProducerConfig{Linger: time.Hour, BatchSize: 1000, DeliveryTimeout: 2 * time.Hour})
				a := newAnswers(t)
				p.Produce(t.Context(), &stream.Record{Topic: "a"}, a.promise(0))
				p.Produce(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, size)}, a.promise(1))
				for i, got := range a.some(2) {
					check(t, got.err)
					eq(t, "order", got.n, i)
					eq(t, fmt.Sprintf("record %d, %d bytes, answered after", i, size), got.at, 0)
				}
			})
		})
	}
}

// A record whose ctx ends while it lingers is answered at once and not sent; its neighbours are, when their time has come.
func TestCancelledRecordOfALingeringBatch(t *testing.T) {
	cause := errors.New("the cause")
	onSlowDisk(t, 2, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		p := newProducer(t, eng, stream.ProducerConfig{Linger: time.Hour, DeliveryTimeout: 2 * time.Hour, Partitioner: stream.ManualPartitioner()})
		for _, which := range [][]int{{0}, {4}, {9}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {3, 5}} {
			a := newAnswers(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			end := endOf(t, eng, tp("a", 0))
			for i := range 10 {
				c := t.Context()
				for _, w := range which {
					if w == i {
						c = ctx
					}
				}
				p.Produce(c, &stream.Record{Topic: "a", Value: fmt.Append(nil, i)}, a.promise(i))
			}
			time.Sleep(time.Minute)
			a.none("lingering")
			cancel(cause)
			synctest.Wait()
			eq(t, "answers at once", len(a.list), len(which))
			for _, got := range a.some(len(which)) {
				wantErr(t, got.err, context.Canceled)
				if errors.Is(got.err, stream.ErrOutcomeUnknown) {
					t.Fatal(got.err)
				}
				eq(t, "answered after", got.at, time.Minute)
			}
			for i, got := range a.some(10 - len(which)) {
				check(t, got.err)
				eq(t, "answered after", got.at, time.Hour)
				eq(t, "offset", got.rec.Offset, end+int64(i))
			}
			check(t, p.Flush(t.Context()))
			eq(t, "end", endOf(t, eng, tp("a", 0)), end+int64(10-len(which)))
			must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t) // nothing is left behind
		}
	})
}

// A deadline ends a lingering record like a cancellation does, at its exact time.
func TestDeadlineOfALingeringRecord(t *testing.T) {
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		p := newProducer(t, eng, stream.ProducerConfig{Linger: time.Hour})
		a := newAnswers(t)
		ctx, cancel := context.WithTimeout(t.Context(), 17*time.Second)
		defer cancel()
		p.Produce(ctx, &stream.Record{Topic: "a"}, a.promise(0))
		got := a.next()
		wantErr(t, got.err, context.DeadlineExceeded)
		eq(t, "unknown", errors.Is(got.err, stream.ErrOutcomeUnknown), false)
		eq(t, "answered after", got.at, 17*time.Second)
		time.Sleep(2 * time.Hour)
		eq(t, "end", endOf(t, eng, tp("a", 0)), 0)
	})
}

// DeliveryTimeout bounds a sync that hangs, for every verb: the record is in the log, so the outcome is unknown, at the exact time.
func TestDeliveryTimeoutBehindASyncThatHangs(t *testing.T) {
	for name, produce := range verbs {
		t.Run(name, func(t *testing.T) {
			onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
				p := newProducer(t, eng, stream.ProducerConfig{DeliveryTimeout: 3 * time.Second})
				must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
				release := d.hang()
				defer release()
				begin := time.Now()
				_, err := produce(p, t.Context(), &stream.Record{Topic: "a", Value: []byte("late")})
				wantErr(t, err, stream.ErrTimeout, stream.ErrOutcomeUnknown)
				eq(t, "retriable", stream.IsRetriable(err), false)
				eq(t, "answered after", time.Since(begin), 3*time.Second)
				release()
				rec := must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
				eq(t, "offset", rec.Offset, 2)
			})
		})
	}
}

// DeliveryTimeout of what is in the log is unknown; of what waits behind it, because MaxInFlight batches are on their way, it is not, and that is never sent.
func TestDeliveryTimeoutKnowsWhatHasBeenHandedOver(t *testing.T) {
	for inFlight := 1; inFlight <= 3; inFlight++ {
		onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
			p := newProducer(t, eng, stream.ProducerConfig{DeliveryTimeout: 3 * time.Second, BatchSize: 1, MaxInFlight: inFlight})
			must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Value: []byte("first")}))(t)
			release := d.hang()
			defer release()
			a := newAnswers(t)
			for i := range 6 {
				p.Produce(t.Context(), &stream.Record{Topic: "a", Value: fmt.Append(nil, i)}, a.promise(i))
				synctest.Wait()
			}
			eq(t, "handed over", endOf(t, eng, tp("a", 0)), int64(1+inFlight))
			unknown := 0
			for _, got := range a.some(6) {
				wantErr(t, got.err, stream.ErrTimeout)
				eq(t, "unknown", errors.Is(got.err, stream.ErrOutcomeUnknown), got.n < inFlight)
				if got.n < inFlight {
					unknown++
				}
				eq(t, "answered after", got.at, 3*time.Second)
			}
			eq(t, "unknown", unknown, inFlight)
			release()
			eq(t, "offset", must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t).Offset, int64(1+inFlight))
		})
	}
}

// full makes every growth of a log file fail for want of space, until the returned function is called.
func full(sim *vfs.Sim) (space func()) {
	sim.Inject(func(op vfs.Op) error {
		if op.Kind == vfs.OpReserve && strings.HasSuffix(op.Name, ".log") || op.Kind == vfs.OpCreate && strings.Contains(op.Name, "topics/") {
			return vfs.ErrNoSpace
		}
		return nil
	})
	return func() { sim.Inject(nil) }
}
