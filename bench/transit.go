package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Records are sent in bursts, on ticks that are due at fixed times: between them the sender sleeps, and a timer is good for no less than a millisecond.
const (
	pace    = 50_000 // records a second
	tick    = time.Millisecond
	perTick = int(pace * tick / time.Second)
)

// A link is a way from one sender to one reader, who runs beside it.
type link struct {
	send    call
	close   func()                                      // nothing more is sent
	receive func(ctx context.Context, t *transit) error // tells t of all records that arrive; ends when they have, when ctx has ended or when t has an error
}

// A transit is records on their way: the time of each is taken from just before it is sent to when its reader has it in hand.
type transit struct {
	gen    *generator
	warm   int // of the records, which come before the others and whose times do not count
	begin  time.Time
	sent   []atomic.Int64 // when each record was, since begin
	check  *checker
	took   []time.Duration // of those that have arrived
	warmed chan struct{}   // closed when the first warm ones have
}

func newTransit(g *generator, warm, n int) *transit {
	return &transit{
		gen: g, warm: warm, begin: time.Now(), sent: make([]atomic.Int64, warm+n),
		check: newChecker(g, 0, 1), took: make([]time.Duration, 0, warm+n), warmed: make(chan struct{}),
	}
}

// arrived takes a record that its reader had in hand at a moment.
func (t *transit) arrived(now time.Time, key, value []byte, offset int64) error {
	if t.all() {
		return fmt.Errorf("offset %d: there are more records than were sent", offset)
	}
	if err := t.check.add(key, value, offset); err != nil {
		return err
	}
	t.took = append(t.took, now.Sub(t.begin)-time.Duration(t.sent[len(t.took)].Load()))
	if len(t.took) == t.warm {
		close(t.warmed)
	}
	return nil
}

// all says whether every record has arrived.
func (t *transit) all() bool { return len(t.took) == len(t.sent) }

// run sends and receives. The clock runs from when the warm records have arrived to when the last one has.
func (t *transit) run(ctx context.Context, l link) (sample, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var received error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if received = l.receive(ctx, t); received != nil {
			cancel()
		}
	}()
	sent := t.send(ctx, l.send, 0, t.warm)
	if sent == nil {
		select {
		case <-t.warmed:
		case <-ended:
		}
	}
	c := startClock()
	if sent == nil {
		sent = t.send(ctx, l.send, t.warm, len(t.sent))
	}
	if sent != nil {
		cancel()
	}
	l.close()
	<-ended
	taken := c.stop(len(t.sent) - t.warm)
	if err := errors.Join(received, sent); err != nil {
		return sample{}, err
	}
	if !t.all() {
		return sample{}, fmt.Errorf("%d records of %d have arrived", len(t.took), len(t.sent))
	}
	taken.percentiles(t.took[t.warm:])
	return taken, nil
}

// send sends records at the pace.
func (t *transit) send(ctx context.Context, send call, from, to int) error {
	var key [keySize]byte
	due := time.Now()
	for i := from; i < to; due = due.Add(tick) {
		time.Sleep(time.Until(due))
		if err := ctx.Err(); err != nil {
			return err
		}
		for end := min(i+perTick, to); i < end; i++ {
			t.gen.key(&key, 0, i)
			value := t.gen.value(0, i)
			t.sent[i].Store(int64(time.Since(t.begin)))
			offset, err := send(key[:], value)
			if err != nil {
				return err
			}
			if offset != int64(i) {
				return fmt.Errorf("a receipt for offset %d where that for %d has to come", offset, i)
			}
		}
	}
	return nil
}
