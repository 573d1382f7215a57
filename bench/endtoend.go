package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// P9: one caller of ProduceSync at a steady pace, and a member of a group that waits for its records in PollInto.

func endToEnd(_ context.Context, e *env, w *workload) (*job, error) {
	t := &endToEndWork{e: e, w: w, gen: newGenerator(w.valueSize)}
	return &job{
		sides: []side{
			{runnelLabel, t.runnel},
			{"a Go channel of keys and references to values, whose sender yields to the reader", t.channel},
			{"batches of one record in a mapped log, a channel that wakes the reader, and a sender that yields", t.mapped},
		},
		close: noClose,
	}, nil
}

type endToEndWork struct {
	e   *env
	w   *workload
	gen *generator
}

func (w *endToEndWork) transit() *transit { return newTransit(w.gen, w.w.extra(w.e), w.w.perLane(w.e)) }

func (w *endToEndWork) runnel(ctx context.Context) (_ sample, err error) {
	s, err := w.e.start(ctx, 1)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	producer, err := s.client.NewProducer(ctx, stream.ProducerConfig{Acks: w.w.acks})
	if err != nil {
		return sample{}, err
	}
	consumer, err := s.client.NewConsumer(ctx, stream.ConsumerConfig{Group: "group", Topics: []string{topic}, Reset: stream.ResetEarliest, MaxWait: patience})
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, consumer.Close(ctx)) }()
	r := &stream.Record{Topic: topic}
	taken, err := w.transit().run(ctx, link{
		send: func(key, value []byte) (int64, error) {
			r.Key, r.Value = key, value
			receipt, err := producer.ProduceSync(ctx, r)
			return receipt.Offset, err
		},
		close:   func() {},
		receive: func(ctx context.Context, t *transit) error { return receive(ctx, consumer, t) },
	})
	if err = errors.Join(err, producer.Close(ctx)); err != nil {
		return sample{}, err
	}
	taken.read, err = s.readBack(ctx, 0, false, newChecker(w.gen, 0, 1), w.w.written(w.e))
	return taken, err
}

// receive polls until all records have arrived.
func receive(ctx context.Context, consumer poller, t *transit) error {
	dst := make([]stream.Record, pollSize)
	for !t.all() {
		n, err := consumer.PollInto(ctx, dst)
		now := time.Now()
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("nothing has come for %v behind %d of %d records", patience, len(t.took), len(t.sent))
		}
		for i := range dst[:n] {
			if err := t.arrived(now, dst[i].Key, dst[i].Value, dst[i].Offset); err != nil {
				return err
			}
		}
	}
	return nil
}

// channel has room for all records, so that the sender never waits.
func (w *endToEndWork) channel(ctx context.Context) (sample, error) {
	type message struct {
		key    [keySize]byte
		value  []byte
		offset int64
	}
	n := w.w.written(w.e)
	ch := make(chan message, n)
	next := int64(0)
	taken, err := w.transit().run(ctx, link{
		send: func(key, value []byte) (int64, error) {
			m := message{value: value, offset: next}
			copy(m.key[:], key)
			ch <- m
			runtime.Gosched()
			next++
			return m.offset, nil
		},
		close: func() { close(ch) },
		receive: func(_ context.Context, t *transit) error {
			for m := range ch {
				if err := t.arrived(time.Now(), m.key[:], m.value, m.offset); err != nil {
					return err
				}
			}
			return nil
		},
	})
	taken.read = n
	return taken, err
}

// mapped is what a log does for this at the least: the log of P4's limit, whose reader decodes in place.
func (w *endToEndWork) mapped(ctx context.Context) (_ sample, err error) {
	dir, remove, err := w.e.scratch()
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	n := w.w.written(w.e)
	s, err := newSpace(filepath.Join(dir, "limit"), limitLogSize(n, keySize+w.gen.size, 1))
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	l := newLimitLog(s)
	wake := make(chan struct{}, 1)
	taken, err := w.transit().run(ctx, link{
		send: func(key, value []byte) (int64, error) {
			offset, err := l.AppendOne(key, value)
			select {
			case wake <- struct{}{}:
			default:
			}
			runtime.Gosched()
			return offset, err
		},
		close:   func() { close(wake) },
		receive: func(_ context.Context, t *transit) error { return follow(l, wake, t) },
	})
	if err != nil {
		return sample{}, err
	}
	taken.how = s.how
	check := newChecker(w.gen, 0, 1)
	if err := checkLog(l.published(), check); err != nil {
		return sample{}, err
	}
	taken.read = n
	return taken, check.done(n)
}

// follow reads a log as it grows, until nobody wakes it any more.
func follow(l *limitLog, wake <-chan struct{}, t *transit) error {
	var rs []stream.Record
	at := 0
	for range wake {
		for log := l.published(); at < len(log); {
			b := nextBatch(log[at:])
			if b == nil {
				return fmt.Errorf("there is no batch at %d of %d bytes", at, len(log))
			}
			rs = decode(b, topic, 0, rs)
			now := time.Now()
			for i := range rs {
				if err := t.arrived(now, rs[i].Key, rs[i].Value, rs[i].Offset); err != nil {
					return err
				}
			}
			at += len(b)
		}
	}
	return nil
}
