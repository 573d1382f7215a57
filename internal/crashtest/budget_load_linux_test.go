package crashtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// A budgetLoad is an engine with more partitions and segments than it may have files open or mapped, and everything that goes on in one: four producers, a consumer of owned
// records that commits and one of borrowed records, both of all partitions, small segments, retention, compaction and deletion of records. Of each partition one
// producer sends all records, one after the other, so that a record's number is its offset.
type budgetLoad struct {
	t   *testing.T
	dir string
	eng *stream.Engine
	tps []stream.TopicPartition
	// sent is how many records each partition has got.
	sent map[stream.TopicPartition]*atomic.Int64

	mostFiles, mostMaps int
}

const (
	budgetKept      = "kept"
	budgetAged      = "aged"
	budgetCompacted = "compacted"

	budgetKeys   = 5
	budgetRounds = 16
)

func newBudgetLoad(t *testing.T, dir string) *budgetLoad {
	b := &budgetLoad{t: t, dir: dir, sent: map[stream.TopicPartition]*atomic.Int64{}}
	b.open()
	config := map[string]string{"min.cleanable.dirty.ratio": "0.2"}
	for _, topic := range []struct {
		name string
		c    stream.TopicConfig
	}{
		{budgetKept, stream.TopicConfig{Partitions: 200, SegmentBytes: 2 << 10}},
		{budgetAged, stream.TopicConfig{Partitions: 150, SegmentBytes: 2 << 10, RetentionBytes: 4 << 10}},
		{budgetCompacted, stream.TopicConfig{Partitions: 150, SegmentBytes: 2 << 10, Cleanup: stream.CleanupCompact, Config: config}},
	} {
		createTopic(t, b.eng, topic.name, topic.c)
		for i := range int32(topic.c.Partitions) {
			b.tps = append(b.tps, part(topic.name, i))
			b.sent[part(topic.name, i)] = new(atomic.Int64)
		}
	}
	return b
}

func (b *budgetLoad) open() {
	b.eng = openAt(b.t, b.dir, stream.Options{MinFree: -1, CleanInterval: 10 * time.Millisecond, CleanRate: -1, Events: stream.Events{
		PartitionState: func(tp stream.TopicPartition, s stream.PartitionState, err error) {
			b.t.Errorf("%v is %v: %v", tp, s, err)
		},
		MetaFailed: func(err error) { b.t.Errorf("metadata: %v", err) },
		Corrupt:    func(err *stream.CorruptError) { b.t.Errorf("damage: %v", err) },
		IndexRebuilt: func(tp stream.TopicPartition, base int64, reason error) {
			b.t.Errorf("%v, segment %d: index rebuilt: %v", tp, base, reason)
		},
	}})
}

// run does it all and returns how many files and mappings of segments there were, at most.
func (b *budgetLoad) run() (files, maps int) {
	ctx, t := atOnce(b.t), b.t
	var producers, consumers sync.WaitGroup
	sent := make(chan struct{})
	for n := range 4 {
		producers.Go(func() { b.produce(ctx, n) })
	}
	for _, c := range []stream.ConsumerConfig{
		{Group: "g", ManualCommit: true, Reset: stream.ResetEarliest, MaxWait: 5 * time.Millisecond},
		{Borrow: true, Reset: stream.ResetEarliest, MaxWait: 5 * time.Millisecond},
	} {
		consumers.Go(func() { b.consume(ctx, c, sent) })
	}
	watched, end := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		b.watch(end)
	}()
	producers.Wait()
	close(sent)
	consumers.Wait()
	close(end)
	<-watched
	b.check(ctx)
	if err := b.eng.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	b.open()
	b.check(ctx)
	b.committed(ctx)
	if err := b.eng.Verify(ctx, func(d *stream.CorruptError) { t.Errorf("damage: %v", d) }); err != nil {
		t.Errorf("verify: %v", err)
	}
	b.look()
	if err := b.eng.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	t.Logf("%d partitions, at most %d files and %d mappings of segments", len(b.tps), b.mostFiles, b.mostMaps)
	return b.mostFiles, b.mostMaps
}

// produce sends records to a quarter of the partitions, one to each in turn.
func (b *budgetLoad) produce(ctx context.Context, quarter int) {
	p, err := b.eng.NewProducer(ctx, stream.ProducerConfig{Acks: stream.AcksWritten, Partitioner: stream.ManualPartitioner()})
	if err != nil {
		b.t.Error(err)
		return
	}
	for round := range int64(budgetRounds) {
		for i, tp := range b.tps {
			if i%4 != quarter {
				continue
			}
			r := stream.Record{Topic: tp.Topic, Partition: tp.Partition, Key: fmt.Appendf(nil, "%d", round%budgetKeys), Value: budgetValue(tp, round)}
			if i%20 == quarter {
				r.Acks = stream.AcksSynced
			}
			rc, err := p.ProduceSync(ctx, &r)
			if err != nil || rc.Offset != round {
				b.t.Errorf("record %d of %v: offset %d, %v", round, tp, rc.Offset, err)
				return
			}
			b.sent[tp].Add(1)
			if tp.Topic == budgetKept && i%10 == quarter && round == budgetRounds/2 {
				if err := b.eng.Admin().DeleteRecords(ctx, map[stream.TopicPartition]int64{tp: round / 2}); err != nil {
					b.t.Errorf("delete records of %v: %v", tp, err)
				}
			}
		}
	}
	if err := p.Close(ctx); err != nil {
		b.t.Error(err)
	}
}

// budgetValue fills a segment in four records.
func budgetValue(tp stream.TopicPartition, n int64) []byte {
	text := fmt.Appendf(nil, "%v/%d/", tp, n)
	return append(text, bytes.Repeat([]byte{byte(n)}, 400)...)
}

// read looks at a record of a partition that has given the one at offset last before, -1: none.
func (b *budgetLoad) read(r *stream.Record, last int64) error {
	tp := part(r.Topic, r.Partition)
	switch {
	case r.Offset <= last:
		return fmt.Errorf("A5: %v: offset %d follows %d", tp, r.Offset, last)
	case !bytes.Equal(r.Value, budgetValue(tp, r.Offset)):
		return fmt.Errorf("A4: %v: the record at offset %d is %.40q", tp, r.Offset, r.Value)
	case tp.Topic == budgetKept && last >= 0 && r.Offset != last+1 && last >= budgetRounds/4:
		return fmt.Errorf("A3: %v: offset %d follows %d", tp, r.Offset, last)
	}
	return nil
}

// consume reads until everything is sent and read.
func (b *budgetLoad) consume(ctx context.Context, config stream.ConsumerConfig, sent chan struct{}) {
	c, err := b.eng.NewConsumer(ctx, config)
	if err == nil {
		err = c.Assign(b.tps...)
	}
	if err != nil {
		b.t.Error(err)
		return
	}
	last := map[stream.TopicPartition]int64{}
	for _, tp := range b.tps {
		last[tp] = -1
	}
	for polls := 0; ; polls++ {
		all := isClosed(sent)
		rs, err := c.Poll(ctx, 500)
		for i := range rs {
			r := &rs[i]
			tp := part(r.Topic, r.Partition)
			err = errors.Join(err, b.read(r, last[tp]))
			last[tp] = r.Offset
		}
		if err == nil && config.Group != "" && polls%8 == 0 {
			err = c.Commit(ctx)
		}
		if err != nil {
			b.t.Errorf("borrow %t: %v", config.Borrow, err)
			return
		}
		if all && len(rs) == 0 {
			break
		}
	}
	for _, tp := range b.tps {
		if n := b.sent[tp].Load(); last[tp] != n-1 {
			b.t.Errorf("A1: borrow %t: the last record of %v that was read is %d, %d were sent", config.Borrow, tp, last[tp], n)
		}
	}
	if config.Group != "" {
		if err := c.Commit(ctx); err != nil {
			b.t.Error(err)
		}
	}
	if err := c.Close(ctx); err != nil {
		b.t.Error(err)
	}
}

// check reads everything from the start.
func (b *budgetLoad) check(ctx context.Context) {
	b.t.Helper()
	starts, err := b.eng.Admin().StartOffsets(ctx, b.tps...)
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := b.eng.NewConsumer(ctx, stream.ConsumerConfig{Reset: stream.ResetEarliest, MaxWait: -1})
	if err == nil {
		err = c.Assign(b.tps...)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	have := map[stream.TopicPartition][]int64{}
	for {
		rs, err := c.Poll(ctx, 0)
		if err != nil {
			b.t.Fatal(err)
		}
		if len(rs) == 0 {
			break
		}
		for i := range rs {
			tp, last := part(rs[i].Topic, rs[i].Partition), int64(-1)
			if h := have[tp]; len(h) > 0 {
				last = h[len(h)-1]
			}
			if err := b.read(&rs[i], last); err != nil {
				b.t.Fatal(err)
			}
			have[tp] = append(have[tp], rs[i].Offset)
		}
	}
	if err := c.Close(ctx); err != nil {
		b.t.Error(err)
	}
	for _, tp := range b.tps {
		h, n := have[tp], b.sent[tp].Load()
		switch {
		case tp.Topic == budgetCompacted: // the last record of each key
			for i := n - budgetKeys; i < n; i++ {
				if len(h) < budgetKeys || h[len(h)-int(n-i)] != i {
					b.t.Fatalf("A12: %v has the offsets %d", tp, h)
				}
			}
		case int64(len(h)) == 0 || h[len(h)-1] != n-1 || h[0] < starts[tp].Offset || h[len(h)-1]-h[0] != int64(len(h))-1:
			b.t.Fatalf("A1/A3: %v of %d records, from %d, has the offsets %d", tp, n, starts[tp].Offset, h)
		case tp.Topic == budgetKept && h[0] != starts[tp].Offset:
			b.t.Fatalf("A11: %v begins at %d, its log start is %d", tp, h[0], starts[tp].Offset)
		}
	}
}

// committed checks what the group has committed.
func (b *budgetLoad) committed(ctx context.Context) {
	c, err := b.eng.NewConsumer(ctx, stream.ConsumerConfig{Group: "g", ManualCommit: true, MaxWait: -1})
	if err != nil {
		b.t.Fatal(err)
	}
	got, err := c.Committed(ctx, b.tps...)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, tp := range b.tps {
		if got[tp].Offset != b.sent[tp].Load() {
			b.t.Errorf("E3: %v: %d is committed, want %d", tp, got[tp].Offset, b.sent[tp].Load())
		}
	}
	if err := c.Close(ctx); err != nil {
		b.t.Error(err)
	}
}

func (b *budgetLoad) watch(end chan struct{}) {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		b.look()
		select {
		case <-again.C:
		case <-end:
			return
		}
	}
}

// look counts what is open now.
func (b *budgetLoad) look() {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		b.t.Error(err)
	}
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		b.t.Error(err)
	}
	b.mostFiles = max(b.mostFiles, len(fds))
	b.mostMaps = max(b.mostMaps, bytes.Count(text, []byte(b.dir)))
}

// fastTempDir is a directory of the test's own, in memory if there is room.
func fastTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(fastDir(), "runnel-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
