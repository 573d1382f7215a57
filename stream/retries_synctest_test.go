package stream_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// onFullDisk gives fn a partition a-0 whose disk is full, though nothing has been written that a record could still fit into.
func onFullDisk(t *testing.T, fn func(t *testing.T, eng *stream.Engine, space func())) {
	t.Helper()
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		fn(t, eng, full(d.Sim))
	})
}

// Behind a full disk, with retries without end, DeliveryTimeout answers at the exact time that the record was not sent; it is not sent afterwards either.
func TestDeliveryTimeoutBehindAFullDisk(t *testing.T) {
	for _, linger := range []time.Duration{0, time.Second} {
		onFullDisk(t, func(t *testing.T, eng *stream.Engine, space func()) {
			p := newProducer(t, eng, stream.ProducerConfig{Retries: -1, DeliveryTimeout: 10 * time.Second, BatchSize: 200, Linger: linger})
			a := newAnswers(t)
			for i := range 20 {
				p.Produce(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 50)}, a.promise(i))
			}
			time.Sleep(3 * time.Second)
			for i := range 5 {
				p.Produce(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 50)}, a.promise(20+i))
			}
			for i, got := range a.some(25) {
				wantErr(t, got.err, stream.ErrTimeout)
				eq(t, "unknown", errors.Is(got.err, stream.ErrOutcomeUnknown), false)
				eq(t, "retriable", stream.IsRetriable(got.err), true)
				want := 10 * time.Second
				if i >= 20 {
					want = 13 * time.Second
				}
				eq(t, fmt.Sprintf("answer %d, record %d, after", i, got.n), got.at, want)
			}
			space()
			check(t, p.Flush(t.Context()))
			time.Sleep(time.Minute)
			eq(t, "offset", must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t).Offset, 0)
		})
	}
}

// When space comes back in time everything is sent, once and in order.
func TestRetriesSendEverythingInOrderWhenThereIsSpace(t *testing.T) {
	for _, name := range []string{"", "n"} {
		for _, inFlight := range []int{1, 2, 5} {
			onFullDisk(t, func(t *testing.T, eng *stream.Engine, space func()) {
				p := newProducer(t, eng, stream.ProducerConfig{Name: name, Retries: -1, BatchSize: 200, MaxInFlight: inFlight})
				a := newAnswers(t)
				send := func(i int) {
					r := stream.Record{Topic: "a", Value: fmt.Appendf(nil, "%d", i)}
					if name != "" {
						r.Sequence = int64(i + 1)
					}
					p.Produce(t.Context(), &r, a.promise(i))
				}
				for i := range 50 {
					send(i)
					time.Sleep(100 * time.Millisecond)
				}
				a.none("while the disk is full")
				space()
				for i := range 10 {
					send(50 + i)
				}
				for i, got := range a.some(60) {
					check(t, got.err)
					eq(t, "order", got.n, i)
					eq(t, "offset", got.rec.Offset, int64(i))
					if got.at > 6*time.Second+time.Millisecond { // 5 s and the longest pause between two tries
						t.Fatalf("answered after %v", got.at)
					}
				}
				eq(t, "log", values(readAll(t, eng, tp("a", 0))), numbers(0, 60))
			})
		}
	}
}

// Retries counts: with n of them a batch is tried n+1 times, and its records get the reason of the last.
func TestRetriesAreCounted(t *testing.T) {
	var first time.Duration
	for retries := range 4 {
		onFullDisk(t, func(t *testing.T, eng *stream.Engine, space func()) {
			p := newProducer(t, eng, stream.ProducerConfig{Retries: retries})
			a := newAnswers(t)
			p.Produce(t.Context(), &stream.Record{Topic: "a"}, a.promise(0))
			got := a.next()
			wantErr(t, got.err, stream.ErrDiskFull)
			eq(t, "unknown", errors.Is(got.err, stream.ErrOutcomeUnknown), false)
			switch {
			case retries == 0:
				eq(t, "answered after", got.at, 0)
			case retries == 1:
				first = got.at
				if first < 50*time.Millisecond || first > 200*time.Millisecond {
					t.Fatalf("the first retry came after %v", first)
				}
			case got.at <= first || got.at > time.Duration(retries)*time.Second:
				t.Fatalf("%d retries took %v", retries, got.at)
			}
			space()
			eq(t, "offset", must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t).Offset, 0)
		})
	}
}

// Records behind a batch that is tried again wait for it, also those of ProduceSync and ProduceAll, and cancelling one of those behind leaves the others.
func TestRecordsBehindARetryWaitForIt(t *testing.T) {
	onFullDisk(t, func(t *testing.T, eng *stream.Engine, space func()) {
		p := newProducer(t, eng, stream.ProducerConfig{Retries: -1, BatchSize: 1})
		a := newAnswers(t)
		p.Produce(t.Context(), &stream.Record{Topic: "a", Value: []byte("0")}, a.promise(0))
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		p.Produce(ctx, &stream.Record{Topic: "a", Value: []byte("cancelled")}, a.promise(1))
		ends := make(chan error, 2)
		go func() {
			rec, err := p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Value: []byte("1")})
			if err == nil && rec.Offset != 1 {
				err = fmt.Errorf("ProduceSync: offset %d", rec.Offset)
			}
			ends <- err
		}()
		synctest.Wait()
		go func() {
			out, err := p.ProduceAll(t.Context(), []stream.Record{{Topic: "a", Value: []byte("2")}, {Topic: "a", Value: []byte("3")}}, nil)
			if err == nil && out[1].Receipt.Offset != 3 {
				err = fmt.Errorf("ProduceAll: offset %d", out[1].Receipt.Offset)
			}
			ends <- err
		}()
		time.Sleep(2500 * time.Millisecond)
		eq(t, "calls that have ended", len(ends), 0)
		a.none("behind a retry")
		cancel()
		synctest.Wait()
		got := a.next()
		wantErr(t, got.err, context.Canceled)
		eq(t, "unknown", errors.Is(got.err, stream.ErrOutcomeUnknown), false)
		eq(t, "answered after", got.at, 2500*time.Millisecond)
		space()
		check(t, a.next().err)
		check(t, <-ends)
		check(t, <-ends)
		eq(t, "log", values(readAll(t, eng, tp("a", 0))), numbers(0, 4))
	})
}
