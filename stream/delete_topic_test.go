package stream_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// directories returns the names in topics/.
func directories(t testing.TB, g *ground) (names []string) {
	t.Helper()
	for _, i := range must(g.fs.List(path.Join(g.dir, "topics")))(t) {
		names = append(names, i.Name)
	}
	return names
}

// A10: nothing of a topic is left for one that is made with its name at once: no records, no log start, no committed offset, no sequence of a name, no point up to which it was
// compacted, no setting, no file; consumers and producers of the old one are around all the time.
func TestNothingOfTheOldTopicIsSeen(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		ctx := t.Context()
		seen := &cleanings{}
		options := func(o *stream.Options) { o.Events, o.CleanInterval = seen.events(), time.Millisecond }
		eng := g.open(options)
		admin := eng.Admin()
		a := tp("a", 0)
		lives := 4
		var old []stream.Consumer
		for life := range lives {
			check(t, admin.CreateTopic(ctx, "a", stream.TopicConfig{SegmentBytes: 1 << 10, Partitions: 2, Cleanup: stream.CleanupCompact,
				Config: map[string]string{"min.cleanable.dirty.ratio": []string{"0", "1"}[life%2]}}))
			eq(t, "log start", startOf(t, eng, a), 0)
			eq(t, "log end", endOf(t, eng, a), 0)
			p := newProducer(t, eng, stream.ProducerConfig{Name: "n", Partitioner: stream.ManualPartitioner()})
			eq(t, "last sequence", must(p.LastSequence(ctx, a))(t), 0)
			group := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Reset: stream.ResetEarliest, ManualCommit: true})
			check(t, group.Assign(a))
			eq(t, "committed", committed(t, group, a), -1)
			for i := range 40 {
				rc := must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Key: fmt.Append(nil, i%3), Value: fmt.Appendf(nil, "life %d %d", life, i), Sequence: int64(i) + 1, Acks: stream.AcksWritten}))(t)
				eq(t, "offset", rc.Offset, int64(i))
				eq(t, "duplicate", rc.Duplicate, false)
			}
			for _, r := range readAll(t, eng, a) {
				eq(t, "value", string(r.Value), fmt.Sprintf("life %d %d", life, r.Offset))
			}
			check(t, group.CommitOffsets(ctx, stream.Offsets{a: {Offset: 17 + int64(life), LeaderEpoch: -1}}))
			check(t, group.Close(ctx))
			check(t, trim(eng, a, 20+int64(life)))
			for _, borrow := range []bool{false, true} {
				c := newConsumer(t, eng, stream.ConsumerConfig{Reset: stream.ResetEarliest, Borrow: borrow})
				check(t, c.Assign(a))
				must(c.Poll(ctx, 2))(t)
				old = append(old, c)
			}
			if life < lives-1 {
				check(t, admin.DeleteTopic(ctx, "a"))
				for _, name := range directories(t, g) {
					if strings.HasPrefix(name, "a-") {
						t.Errorf("%s is left", name)
					}
				}
				_, err := p.ProduceSync(ctx, &stream.Record{Topic: "a", Key: []byte("k"), Sequence: 999})
				wantErr(t, err, stream.ErrUnknownTopic)
				wantErr(t, trim(eng, a, 0), stream.ErrUnknownTopic)
				wantErr(t, eng.SkipCorrupt(ctx, a, 0, 5), stream.ErrUnknownTopic)
				wantErr(t, admin.AlterTopic(ctx, "a", nil), stream.ErrUnknownTopic)
			}
			check(t, p.Close(ctx))
			if life == 2 {
				for _, c := range old {
					check(t, c.Close(ctx))
				}
				old = nil
				eng = g.reopen(options)
				admin = eng.Admin()
			}
		}
		for _, c := range old { // those of the lives that have ended are told, or read the new one from where its log starts
			for range 20 {
				rs, err := c.Poll(ctx, 10)
				if err != nil && !errors.Is(err, stream.ErrUnknownTopic) {
					t.Error(err)
				}
				for _, r := range rs {
					if want := fmt.Sprintf("life %d %d", lives-1, r.Offset); string(r.Value) != want {
						t.Errorf("%q where %q is due", r.Value, want)
					}
				}
			}
			check(t, c.Close(ctx))
		}
		eq(t, "damage", len(seen.damages()), 0)
		eq(t, "failures", len(seen.failed), 0)
	})
}

// A10, B1: topics are deleted and made again under live producers and consumers while they are compacted and expire: nobody sees a record of an older life, or one twice, or
// an error but ErrUnknownTopic; nothing of them is left at the end.
func TestDeleteTopicUnderLiveReadersAndWriters(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		seen := &cleanings{}
		eng := g.open(func(o *stream.Options) { o.Events, o.CleanInterval = seen.events(), time.Millisecond })
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		lives, each := 12, 80
		if g.disk {
			lives, each = 4, 40
		}
		make := func() {
			check(t, eng.Admin().CreateTopic(ctx, "a", stream.TopicConfig{SegmentBytes: 1 << 10, RetentionBytes: 6000, Cleanup: stream.CleanupCompactDelete, Config: map[string]string{"min.cleanable.dirty.ratio": "0"}}))
		}
		var life, sent atomic.Int64
		make()
		var wg sync.WaitGroup
		var turn sync.RWMutex // held to write while a life ends and the next begins
		for who := range 2 {
			wg.Go(func() {
				p, err := eng.NewProducer(ctx, stream.ProducerConfig{Acks: stream.AcksWritten})
				for i := 0; ctx.Err() == nil && err == nil; i++ {
					// One of them knows the life that its record is of; the other's are on their way while lives end.
					of := int64(999999)
					if who == 0 {
						turn.RLock()
						of = life.Load()
					}
					_, serr := p.ProduceSync(ctx, &stream.Record{Topic: "a", Key: fmt.Append(nil, i%5), Value: fmt.Appendf(nil, "%06d", of)})
					if who == 0 {
						turn.RUnlock()
					}
					if serr == nil {
						sent.Add(1)
					} else if !errors.Is(serr, stream.ErrUnknownTopic) && ctx.Err() == nil {
						err = serr
					}
				}
				report(t, err)
			})
		}
		for i := range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if err := followLives(ctx, eng, i%2 == 0, &life); err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for range lives {
			for from := sent.Load(); sent.Load() < from+int64(each) && !t.Failed(); {
				must(eng.Admin().Topics(ctx))(t)
			}
			turn.Lock()
			check(t, eng.Admin().DeleteTopic(ctx, "a"))
			life.Add(1)
			make()
			turn.Unlock()
		}
		cancel()
		wg.Wait()
		check(t, eng.Admin().DeleteTopic(t.Context(), "a"))
		eq(t, "directories", len(directories(t, g)), 0)
		eq(t, "damage", seen.damages(), nil)
		eq(t, "failures", seen.failed, nil)
		g.reopen()
		eq(t, "directories", len(directories(t, g)), 0)
	})
}

// followLives reads a topic from its start. The value of each record is the life in which it was sent, or an earlier one while it was on its way.
func followLives(ctx context.Context, eng *stream.Engine, borrow bool, life *atomic.Int64) error {
	from := life.Load() - 1 // the life may be about to begin
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Reset: stream.ResetEarliest, Borrow: borrow, MaxWait: -1})
	if err != nil {
		return err
	}
	defer c.Close(context.Background())
	if err := c.Assign(tp("a", 0)); err != nil {
		if errors.Is(err, stream.ErrUnknownTopic) {
			return nil
		}
		return err
	}
	next := int64(0)
	for range 20 {
		rs, err := c.Poll(ctx, 30)
		if errors.Is(err, stream.ErrUnknownTopic) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("poll: %w", err)
		}
		for _, r := range rs {
			var of int64
			if _, err := fmt.Sscanf(string(r.Value), "%06d", &of); err != nil {
				return fmt.Errorf("offset %d has the value %q", r.Offset, r.Value)
			}
			if of < from {
				return fmt.Errorf("offset %d is of life %d, the reader began in life %d", r.Offset, of, from+1)
			}
			if r.Offset < next && of < from+1 {
				return fmt.Errorf("offset %d after %d", r.Offset, next-1)
			}
			next = r.Offset + 1
		}
	}
	return nil
}
