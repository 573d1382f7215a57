package cluster_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/stream"
)

// Health says of a partition without a leader that it has failed. That a disk is full, or that a replica is damaged, a cluster does not tell its clients.
func (a admin) Health(ctx context.Context, tps ...stream.TopicPartition) ([]stream.PartitionHealth, error) {
	if err := a.c.known(ctx, tps...); err != nil {
		return nil, err
	}
	var names []string
	for topic := range byTopic(tps) {
		names = append(names, topic)
	}
	ts, err := a.c.metadata(ctx, 0, names...)
	if err != nil {
		return nil, err
	}
	var out []stream.PartitionHealth
	for _, t := range ts {
		for _, p := range t.Partitions {
			h := stream.PartitionHealth{TopicPartition: stream.TopicPartition{Topic: *t.Topic, Partition: p.Partition}}
			if len(tps) > 0 && !slices.Contains(tps, h.TopicPartition) || t.IsInternal {
				continue
			}
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil || p.Leader < 0 {
				h.State, h.Err = stream.PartitionFailed, fmt.Errorf("%w: leader %d: %w", kafka.ErrPartitionFailed, p.Leader, cmp.Or(err, error(kerr.LeaderNotAvailable)))
			}
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(x, y stream.PartitionHealth) int {
		return cmp.Or(strings.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
	})
	return out, nil
}
