package stream_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// E3: offsets without a leader epoch are taken as they are, also after a partition has failed; a record that was lost is not committed, however often it has failed since.
func TestCommitOfOffsetsAfterAPartitionFailed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, sim *vfs.Sim, eng *stream.Engine, seen *states) {
		ctx := t.Context()
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{})
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest, MaxWait: -1, ManualCommit: true})
		must(p.ProduceSync(ctx, &stream.Record{Topic: "a"}))(t)
		for range 3 {
			must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Acks: stream.AcksWritten}))(t)
		}
		read := must(c.Poll(ctx, 10))(t)
		for range 2 {
			lose(t, sim, eng)
			for range 5 {
				must(p.ProduceSync(ctx, &stream.Record{Topic: "a"}))(t)
			}
			wantErr(t, c.CommitRecords(ctx, read...), stream.ErrOffsetOutOfRange)
		}
		check(t, c.CommitRecords(ctx, read[0]))
		check(t, c.CommitOffsets(ctx, stream.Offsets{tp("a", 0): {Offset: 9}}))
		check(t, c.CommitRecords(ctx, stream.Record{Topic: "a", Offset: 9}))
		eq(t, "committed", must(c.Committed(ctx, tp("a", 0)))(t)[tp("a", 0)].Offset, 10)
	})
}

// A position that the caller sets after a partition has come back is where reading goes on.
func TestSeekAfterAPartitionFailed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, sim *vfs.Sim, eng *stream.Engine, seen *states) {
		ctx := t.Context()
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{})
		c := newConsumer(t, eng, stream.ConsumerConfig{MaxWait: -1})
		check(t, c.Assign(tp("a", 0)))
		check(t, c.SeekToStart())
		must(p.ProduceSync(ctx, &stream.Record{Topic: "a"}))(t)
		eq(t, "read", len(must(c.Poll(ctx, 10))(t)), 1)
		lose(t, sim, eng)
		for range 5 {
			must(p.ProduceSync(ctx, &stream.Record{Topic: "a"}))(t)
		}
		check(t, c.Seek(tp("a", 0), 4))
		eq(t, "offset", must(c.Poll(ctx, 10))(t)[0].Offset, 4)
	})
}

// C1: what an instance of a named producer knows of an earlier one, and its partition loses, is a gap that it is told of; while the partition has failed nothing is called a duplicate.
func TestLostRecordOfAnEarlierInstance(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, sim *vfs.Sim, eng *stream.Engine, seen *states) {
		ctx := t.Context()
		create(t, eng, "a", 1)
		send := func(p stream.Producer, sequence int64) error {
			_, err := p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: fmt.Append(nil, sequence), Sequence: sequence, Acks: stream.AcksWritten})
			return err
		}
		earlier := newProducer(t, eng, stream.ProducerConfig{Name: "n"})
		for s := int64(1); s <= 5; s++ {
			check(t, send(earlier, s))
		}
		p := newProducer(t, eng, stream.ProducerConfig{Name: "n"})
		eq(t, "last", lastSequence(t, p, tp("a", 0)), 5)
		failing(sim, "topics/a-0", vfs.OpSync)
		_, err := newProducer(t, eng, stream.ProducerConfig{}).ProduceSync(ctx, &stream.Record{Topic: "a"})
		wantErr(t, err, stream.ErrPartitionFailed)
		wantErr(t, send(p, 5), stream.ErrPartitionFailed)
		sim.Inject(nil)
		time.Sleep(11 * time.Second)
		wantErr(t, send(p, 6), stream.ErrPartitionFailed)
		eq(t, "last", lastSequence(t, p, tp("a", 0)), 0)
		check(t, send(p, 1))
	})
}

// F4: while the metadata store is down, a partition that has to be opened first keeps nobody from reading the others, and polls do not spin.
func TestPollWhileTheMetadataStoreIsDown(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, sim *vfs.Sim, eng *stream.Engine, seen *states) {
		ctx := t.Context()
		create(t, eng, "a", 2)
		p := newProducer(t, eng, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
		c := newConsumer(t, eng, stream.ConsumerConfig{MaxWait: time.Second})
		check(t, c.Assign(tp("a", 0), tp("a", 1)))
		check(t, c.Seek(tp("a", 0), 0))
		check(t, c.Seek(tp("a", 1), 0))
		must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Partition: 1}))(t)
		failing(sim, "/meta/", vfs.OpSync, vfs.OpWrite, vfs.OpCreate)
		wantErr(t, eng.Admin().CreateTopic(ctx, "b", stream.TopicConfig{}), stream.ErrMetaFailed)
		synctest.Wait()
		for range 4 {
			eq(t, "read", len(must(c.Poll(ctx, 10))(t)), 1)
			begin := time.Now()
			_, err := c.Poll(ctx, 10)
			wantErr(t, err, stream.ErrMetaFailed)
			eq(t, "waited", time.Since(begin), time.Second)
			must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Partition: 1}))(t)
		}
	})
}
