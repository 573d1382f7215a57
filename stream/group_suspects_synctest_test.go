package stream_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

func TestXHand(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 2)
		fill(t, eng, tp("a", 0), 0, 3)
		m := newMember(t, eng, stream.ConsumerConfig{MaxPollInterval: 10 * time.Second})
		m.turn(t)
		time.Sleep(20 * time.Second)
		_, err := m.Poll(t.Context(), 1)
		var e *stream.PollTimeoutError
		if !errors.As(err, &e) {
			t.Fatal(err)
		}
		t.Logf("%+v", e)
		eq(t, "hand", e.TopicPartition, tp("a", 0))
		eq(t, "off", e.Offset, 2)
	})
}

func TestXRecordsEighth(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 1)
		fill(t, eng, tp("a", 0), 0, 3)
		m := newMember(t, eng, stream.ConsumerConfig{MaxPollInterval: 8 * time.Second})
		begin := time.Now()
		n := 0
		for r, err := range m.Records(t.Context()) {
			if err != nil {
				t.Logf("%v %+v after %v", err, err, time.Since(begin))
				return
			}
			n++
			if r.Offset == 1 {
				for len(m.Assignment()) > 0 {
					time.Sleep(time.Millisecond)
				}
				t.Logf("out after %v", time.Since(begin))
			}
		}
	})
}

func TestXBatchesError(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 2)
		fill(t, eng, tp("a", 0), 0, 3)
		fill(t, eng, tp("a", 1), 0, 3)
		c := newConsumer(t, eng, stream.ConsumerConfig{Reset: stream.ResetNone, MaxWait: time.Second})
		check(t, c.Assign(tp("a", 0), tp("a", 1)))
		check(t, c.Seek(tp("a", 0), 0))
		check(t, c.Seek(tp("a", 1), 100))
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for rs, err := range c.Batches(ctx, 10, time.Second) {
			t.Log(len(rs), err, time.Since(begin))
			if err != nil {
				break
			}
			if time.Since(begin) > time.Minute {
				t.Fatal("no error")
			}
			time.Sleep(11 * time.Second)
		}
	})
}

func TestXThreeStep(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 6)
		a := newListener(t, eng, stream.ConsumerConfig{})
		b := newListener(t, eng, stream.ConsumerConfig{})
		settle(t, eng, a, b)
		t.Log(a.news(), b.news())
		c := newListener(t, eng, stream.ConsumerConfig{})
		c.turn(t)
		a.turn(t)
		b.turn(t) // completes
		b.turn(t) // sync waits for the leader a
		t.Log(groupOf(t, eng).State)
		d := newListener(t, eng, stream.ConsumerConfig{})
		d.turn(t)
		if err := b.Commit(t.Context()); err != nil {
			t.Error("commit", err)
		}
		b.turn(t)
		a.turn(t)
		settle(t, eng, a, b, c, d)
		t.Log("a", a.news())
		t.Log("b", b.news())
		t.Log("c", c.news())
		t.Log("d", d.news())
	})
}

func TestXLatestZero(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 2)
		a := newMember(t, eng, stream.ConsumerConfig{Reset: fromTheEnd})
		a.turn(t)
		a.turn(t)
		b := newMember(t, eng, stream.ConsumerConfig{Reset: fromTheEnd})
		for range 5 {
			a.turn(t)
			b.turn(t)
			if len(a.Assignment()) == 1 {
				break
			}
		}
		t.Log(a.Assignment(), b.Assignment())
		fill(t, eng, tp("a", 0), 0, 1)
		fill(t, eng, tp("a", 1), 0, 1)
		settle(t, eng, a, b)
		eq(t, "read", sortedValues(a.read(), b.read()), []string{"0", "0"})
	})
}

func TestXInterceptorOffset(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 1)
		fill(t, eng, tp("a", 0), 0, 3)
		m := newMember(t, eng, stream.ConsumerConfig{Interceptors: []stream.ConsumerInterceptor{zeroOffsets{}}})
		n := 0
		for _, err := range m.Records(t.Context()) {
			check(t, err)
			n++
			t.Log(m.Position(tp("a", 0)))
			if n == 3 {
				break
			}
		}
		eq(t, "position", must(m.Position(tp("a", 0)))(t), 3)
	})
}

type zeroOffsets struct{}

func (zeroOffsets) OnConsume(rs []stream.Record) {
	for i := range rs {
		rs[i].Offset = 0
	}
}
func (zeroOffsets) OnCommit(stream.Offsets) {}

func TestXNested(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 1)
		m := newListener(t, eng, stream.ConsumerConfig{})
		n := 0
		m.on = func(what string, _ []stream.TopicPartition) {
			if what == "revoked" {
				n++
				if n < 10 {
					check(t, m.Unsubscribe())
				}
			}
		}
		m.turn(t)
		check(t, m.Unsubscribe())
		t.Log(n, m.news())
		eq(t, "depth", n, 1)
	})
}

func TestXPollInUnsubscribe(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 1)
		m := newListener(t, eng, stream.ConsumerConfig{})
		m.on = func(what string, _ []stream.TopicPartition) {
			_, err := m.Poll(t.Context(), 1)
			t.Log(what, err)
			if err == nil {
				t.Error("no error")
			}
		}
		m.turn(t)
		check(t, m.Unsubscribe())
	})
}

func TestXAsyncBack(t *testing.T) {
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		fill(t, eng, tp("a", 0), 0, 10)
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest, CommitInterval: time.Second})
		eq(t, "polled", len(poll(t, c, 8)), 8)
		release := d.hang()
		defer release()
		c.CommitAsync(nil, nil) // 8, which waits for the disk
		check(t, c.Seek(tp("a", 0), 2))
		poll(t, c, 1)
		time.Sleep(2 * time.Second)
		time.AfterFunc(time.Second, release)
		poll(t, c, 1)
		time.Sleep(2 * time.Second)
		eq(t, "committed", committed(t, c, tp("a", 0)), 8)
	})
}

func TestXAsyncOvertakes(t *testing.T) {
	onSlowDisk(t, 2, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		fill(t, eng, tp("a", 0), 0, 10)
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest, ManualCommit: true})
		check(t, c.CommitOffsets(t.Context(), stream.Offsets{tp("a", 0): {Offset: 10}}))
		fill(t, eng, tp("a", 0), 10, 20)
		release := d.hang()
		defer release()
		done := make(chan error)
		go func() {
			done <- c.CommitOffsets(t.Context(), stream.Offsets{tp("a", 0): {Offset: 15}})
		}()
		time.Sleep(time.Second)
		c.CommitAsync(stream.Offsets{tp("a", 0): {Offset: 3}}, nil)
		time.Sleep(time.Second)
		release()
		check(t, <-done)
		time.Sleep(time.Second)
		eq(t, "committed", committed(t, c, tp("a", 0)), 3)
	})
}
