package crashtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

var besideFor = flag.Duration("beside", 3*time.Second, "how long engines that are read only look at a writer; NIGHT: 10m")

// besideTopics are what the writer keeps changing: rolled all the time, and expired, compacted, cut by DeleteRecords, or deleted and made again.
var besideTopics = map[string]stream.TopicConfig{
	"kept":      {Partitions: 2, SegmentBytes: 2 << 10},
	"aged":      {Partitions: 2, SegmentBytes: 2 << 10, RetentionBytes: 6 << 10},
	"compacted": {Partitions: 2, SegmentBytes: 2 << 10, Cleanup: stream.CleanupCompact, Config: map[string]string{"min.cleanable.dirty.ratio": "0.1"}},
	"passing":   {Partitions: 2, SegmentBytes: 2 << 10},
}

// F5, B1: engines that are read only beside a writer that rolls, expires, compacts, deletes records and topics and makes topics again: owned and borrowed records are always what was
// written at their offsets, in order, and of one life of their topic. What is gone is ErrOffsetOutOfRange or ErrUnknownTopic; nothing is called damage, and nobody dies.
func TestReadOnlyBesideAWriter(t *testing.T) {
	args := childArgs()
	if args == nil {
		alive(t, fastTempDir(t), besideFor.String())
		return
	}
	d, err := time.ParseDuration(args[1])
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	eng := openAt(t, args[0], stream.Options{MinFree: -1, CleanInterval: 5 * time.Millisecond, CleanRate: -1})
	b := &beside{t: t, dir: args[0], eng: eng}
	for name, c := range besideTopics {
		createTopic(t, eng, name, c)
		if err := b.first(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	start := startSeed(t)
	var writers, readers sync.WaitGroup
	for name := range besideTopics {
		for i := range int32(besideTopics[name].Partitions) {
			if i == 0 || name != "passing" {
				writers.Go(func() { b.write(ctx, name, i) })
			}
		}
	}
	for i := range 4 {
		readers.Go(func() { b.look(ctx, random(start, uint64(i)), i%2 == 1) })
	}
	readers.Wait()
	writers.Wait()
	t.Logf("%d records written, %d read in %d lives of engines; ends: %v", b.written.Load(), b.read.Load(), b.lives.Load(), b.ends())
	if err := eng.Close(); err != nil {
		t.Error(err)
	}
	if b.read.Load() == 0 || b.lives.Load() < 5 {
		t.Error("nobody has looked")
	}
}

// beside is a writer and those who look at its directory.
type beside struct {
	t                    *testing.T
	dir                  string
	eng                  *stream.Engine
	written, read, lives atomic.Int64
	mu                   struct {
		sync.Mutex
		ends map[string]int // how often reading has ended how
	}
}

func (b *beside) ended(how string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.ends == nil {
		b.mu.ends = map[string]int{}
	}
	b.mu.ends[how]++
}

func (b *beside) ends() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.ends
}

// besideValue names the life of its topic and its offset.
func besideValue(tp stream.TopicPartition, life, offset int64) []byte {
	return fmt.Appendf(nil, "%v/%d/%d/%s", tp, life, offset, strings.Repeat("y", 100))
}

func besideKey(offset int64) []byte { return strconv.AppendInt(nil, offset%7, 10) }

// besideLife reads a record's value and reports the life of its topic.
func besideLife(r *stream.Record) (life int64, err error) {
	tp := part(r.Topic, r.Partition)
	if f := strings.Split(string(r.Value), "/"); len(f) == 4 {
		life, err = strconv.ParseInt(f[1], 10, 64)
	}
	if err != nil || string(r.Value) != string(besideValue(tp, life, r.Offset)) || string(r.Key) != string(besideKey(r.Offset)) {
		return 0, fmt.Errorf("A4: %v: the record at offset %d is %q, its key %q", tp, r.Offset, r.Value, r.Key)
	}
	return life, nil
}

// first appends the first records, so that there is something to look at.
func (b *beside) first(ctx context.Context, topic string) error {
	p, err := b.eng.NewProducer(ctx, stream.ProducerConfig{Acks: stream.AcksWritten, Partitioner: stream.ManualPartitioner()})
	if err != nil {
		return err
	}
	for i := range int32(besideTopics[topic].Partitions) {
		_, err := p.ProduceSync(ctx, &stream.Record{Topic: topic, Partition: i, Key: besideKey(0), Value: besideValue(part(topic, i), 0, 0)})
		if err != nil {
			return err
		}
	}
	return p.Close(ctx)
}

// write appends to a partition, and does to its topic what is to be done to it. Offset and life are counted here.
func (b *beside) write(ctx context.Context, topic string, partition int32) {
	p, err := b.eng.NewProducer(ctx, stream.ProducerConfig{Acks: stream.AcksWritten, Partitioner: stream.ManualPartitioner()})
	if err != nil {
		b.t.Error(err)
		return
	}
	life, offset := int64(0), int64(1) // see first
	tp := part(topic, partition)
	again := time.NewTicker(300 * time.Microsecond)
	defer again.Stop()
	for ctx.Err() == nil {
		rc, err := p.ProduceSync(ctx, &stream.Record{Topic: topic, Partition: partition, Key: besideKey(offset), Value: besideValue(tp, life, offset)})
		if ctx.Err() != nil {
			return
		}
		if err != nil || rc.Offset != offset {
			b.t.Errorf("record %d of %v: %+v, %v", offset, tp, rc, err)
			return
		}
		offset++
		b.written.Add(1)
		switch {
		case topic == "kept" && offset%100 == 0:
			err = b.eng.Admin().DeleteRecords(ctx, map[stream.TopicPartition]int64{tp: offset - 30})
		case topic == "passing" && offset%150 == 0:
			life, offset = life+1, 0
			if err = b.eng.Admin().DeleteTopic(ctx, topic); err == nil {
				err = b.eng.Admin().CreateTopic(ctx, topic, besideTopics[topic])
			}
		}
		if err != nil && ctx.Err() == nil {
			b.t.Error(err)
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
}

// look opens an engine that is read only again and again, and reads for a while.
func (b *beside) look(ctx context.Context, r *rand.Rand, borrow bool) {
	for ctx.Err() == nil {
		eng, err := stream.Open(b.dir, &stream.Options{ReadOnly: true, Events: stream.Events{
			Corrupt: func(err *stream.CorruptError) { b.t.Errorf("F5: damage: %v", err) },
		}})
		if err != nil {
			b.t.Errorf("F5: open: %v", err)
			return
		}
		b.lives.Add(1)
		d := time.Duration(between(r, 1, 400)) * time.Millisecond
		life, cancel := context.WithTimeout(ctx, d)
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() { b.readFor(life, eng, borrow) })
		}
		readers.Wait()
		cancel()
		if err := eng.Close(); err != nil {
			b.t.Errorf("F5: close: %v", err)
		}
	}
}

// readFor reads all partitions from their starts, until ctx ends.
func (b *beside) readFor(ctx context.Context, eng *stream.Engine, borrow bool) {
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Borrow: borrow, Reset: stream.ResetNone, MaxWait: time.Millisecond})
	if err != nil {
		b.t.Errorf("F5: consumer: %v", err)
		return
	}
	defer c.Close(context.Background())
	next, lives := map[stream.TopicPartition]int64{}, map[stream.TopicPartition]int64{}
	var tps []stream.TopicPartition
	for name, config := range besideTopics {
		for i := range int32(config.Partitions) {
			if tp := part(name, i); c.Assign(tp) == nil { // a partition that nobody has written to is not known
				tps = append(tps, tp)
			}
		}
	}
	if err := c.Assign(tps...); err != nil {
		b.t.Errorf("F5: assign: %v", err)
		return
	}
	if err := c.SeekToStart(); errors.Is(err, stream.ErrUnknownTopic) {
		b.ended("topic gone at once")
		return
	} else if err != nil {
		b.t.Errorf("F5: seek: %v", err)
		return
	}
	for {
		rs, err := c.Poll(ctx, 50)
		if ctx.Err() != nil {
			return
		}
		var failed *stream.PartitionError
		switch {
		case err == nil:
		case errors.As(err, &failed) && errors.Is(err, stream.ErrOffsetOutOfRange): // its first records have gone meanwhile
			b.ended("out of range")
			if err := c.SeekToStart(failed.TopicPartition); err != nil {
				b.t.Errorf("F5: seek: %v", err)
				return
			}
		case errors.As(err, &failed) && errors.Is(err, stream.ErrUnknownTopic) && failed.TopicPartition.Topic == "passing":
			b.ended("topic gone") // the poll passes it over from now on
		default:
			b.t.Errorf("F5: poll, borrow %t: %v", borrow, err)
			return
		}
		for i := range rs {
			r := &rs[i]
			tp := part(r.Topic, r.Partition)
			life, err := besideLife(r)
			if err == nil && r.Offset < next[tp] {
				err = fmt.Errorf("A5: %v: offset %d follows %d", tp, r.Offset, next[tp]-1)
			}
			if was, ok := lives[tp]; err == nil && ok && was != life {
				err = fmt.Errorf("%v: offset %d is of life %d of the topic, the one before of %d", tp, r.Offset, life, was)
			}
			if err != nil {
				b.t.Errorf("F5: borrow %t: %v", borrow, err)
				return
			}
			next[tp], lives[tp] = r.Offset+1, life
			b.read.Add(1)
		}
	}
}
