package stream_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// A live reader sees every last value, and never a key go back, while the topic is compacted under it and written to.
func TestReadersWhileTheTopicIsCompacted(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		seen := &cleanings{}
		total := 3000
		if g.disk {
			total = 600
		}
		passed := make(chan struct{})
		var once sync.Once
		events := seen.events()
		kept := events.Compacted
		events.Compacted = func(tp stream.TopicPartition, from, to, before, after int64) {
			kept(tp, from, to, before, after)
			once.Do(func() { close(passed) })
		}
		eng := g.open(func(o *stream.Options) { o.CleanInterval, o.Events = time.Millisecond, events })
		check(t, eng.Admin().CreateTopic(t.Context(), "a", stream.TopicConfig{SegmentBytes: 1 << 10, Cleanup: stream.CleanupCompact, Config: map[string]string{"min.cleanable.dirty.ratio": "0"}}))
		done := make(chan struct{})
		ends := make(chan error, 5)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			defer close(done)
			p, err := eng.NewProducer(ctx, stream.ProducerConfig{Acks: stream.AcksWritten})
			for n := 0; n < total && err == nil; n += 6 {
				var rs []stream.Record
				for i := n; i < n+6; i++ {
					rs = append(rs, stream.Record{Topic: "a", Key: fmt.Append(nil, i%10), Value: fmt.Appendf(nil, "%06d", i)})
				}
				_, err = p.ProduceAll(ctx, rs, nil)
			}
			<-passed
			ends <- errors.Join(err, p.Close(ctx))
		}()
		for i := range 4 {
			go func() { ends <- readCompacted(ctx, eng, i%2 == 0, done) }()
		}
		for range 5 {
			check(t, <-ends)
		}
		for _, d := range seen.damages() {
			t.Error(d)
		}
	})
}

// readCompacted reads a topic in which the value at each offset is the offset, to its end, again and again until done.
func readCompacted(ctx context.Context, eng *stream.Engine, borrow bool, done <-chan struct{}) error {
	for last := false; ; {
		select {
		case <-done:
			last = true
		default:
		}
		c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest, Borrow: borrow, MaxWait: -1})
		if err != nil {
			return err
		}
		keys := map[string]int64{}
		next := int64(0)
		for {
			rs, err := c.Poll(ctx, 37)
			if err != nil {
				return fmt.Errorf("poll at %d: %w", next, err)
			}
			if len(rs) == 0 {
				break
			}
			for _, r := range rs {
				if r.Offset < next || string(r.Value) != fmt.Sprintf("%06d", r.Offset) || string(r.Key) != fmt.Sprint(r.Offset%10) {
					return fmt.Errorf("offset %d after %d has key %q and value %q", r.Offset, next, r.Key, r.Value)
				}
				next = r.Offset + 1
				keys[string(r.Key)] = r.Offset
			}
		}
		if err := c.Close(ctx); err != nil {
			return err
		}
		if last {
			for o := next - 10; o < next; o++ {
				if is := keys[fmt.Sprint(o%10)]; is != o {
					return fmt.Errorf("key %d was last at %d, not at %d", o%10, is, o)
				}
			}
			return nil
		}
	}
}
