package crashtest

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// A5, F4: partitions that have failed together are opened again together, each with a greater leader epoch, and after Close and
// Open what they wrote then can be read.
func TestPartitionsThatFailedTogether(t *testing.T) {
	for round := range 300 {
		var err error
		synctest.Test(t, func(t *testing.T) { err = contain(func() error { return failTogether(t.Context(), uint64(round)) }) })
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

func failTogether(ctx context.Context, seed uint64) (err error) {
	const partitions = 8
	disk := vfs.NewSim(seed)
	o := &stream.Options{FS: disk, MinFree: -1}
	eng, err := stream.Open(engineDir, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	if err := eng.Admin().CreateTopic(ctx, "t", stream.TopicConfig{Partitions: partitions}); err != nil {
		return err
	}
	p, err := eng.NewProducer(ctx, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
	if err != nil {
		return err
	}
	var tps []stream.TopicPartition
	rs := make([]stream.Record, partitions)
	for i := range rs {
		rs[i] = stream.Record{Topic: "t", Partition: int32(i), Value: []byte("value"), Acks: stream.AcksSynced}
		tps = append(tps, stream.TopicPartition{Topic: "t", Partition: int32(i)})
	}
	all := func() error {
		out, err := p.ProduceAll(ctx, rs, nil)
		for _, r := range out {
			err = errors.Join(err, r.Err)
		}
		return err
	}
	if err := all(); err != nil {
		return err
	}
	disk.Inject(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && isSegment(op.Name) {
			return syscall.EIO
		}
		return nil
	})
	if err := all(); !errors.Is(err, stream.ErrPartitionFailed) {
		return fmt.Errorf("F4: no sync succeeds: %w", err)
	}
	disk.Inject(nil)
	time.Sleep(faultPatience)
	if err := all(); err != nil {
		return fmt.Errorf("F4: the disk works again: %w", err)
	}
	if err := eng.Close(); err != nil {
		return err
	}
	if eng, err = stream.Open(engineDir, o); err != nil {
		return err
	}
	ends, err := eng.Admin().EndOffsets(ctx, tps...)
	if err != nil {
		return err
	}
	n := 0
	for _, end := range ends {
		n += int(end.Offset)
	}
	_, err = readAll(ctx, eng, tps, n)
	return err
}
