package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/stream"
)

func (a admin) Transactions(ctx context.Context) ([]stream.TxnInfo, error) {
	var out []stream.TxnInfo
	for _, s := range a.c.raw.RequestSharded(ctx, kmsg.NewPtrListTransactionsRequest()) {
		if s.Err != nil {
			return nil, fault(s.Err)
		}
		for _, t := range s.Resp.(*kmsg.ListTransactionsResponse).TransactionStates {
			out = append(out, stream.TxnInfo{TransactionalID: t.TransactionalID, State: t.TransactionState, ProducerID: t.ProducerID})
		}
	}
	// Each broker of a cluster answers for the transactions that it coordinates; each of the in-process fake, for all.
	slices.SortFunc(out, func(x, y stream.TxnInfo) int { return strings.Compare(x.TransactionalID, y.TransactionalID) })
	return slices.CompactFunc(out, func(x, y stream.TxnInfo) bool { return x.TransactionalID == y.TransactionalID }), nil
}

func (a admin) Producers(ctx context.Context, tps ...stream.TopicPartition) ([]stream.ProducerInfo, error) {
	active, err := a.active(ctx, tps)
	if err != nil {
		return nil, err
	}
	var out []stream.ProducerInfo
	for tp, ps := range active {
		for _, p := range ps {
			out = append(out, stream.ProducerInfo{TopicPartition: tp, ProducerID: p.ProducerID})
		}
	}
	return out, nil
}

// active asks for the producers of partitions.
func (a admin) active(ctx context.Context, tps []stream.TopicPartition) (map[stream.TopicPartition][]kmsg.DescribeProducersResponseTopicPartitionActiveProducer, error) {
	req := kmsg.NewPtrDescribeProducersRequest()
	for topic, ps := range byTopic(tps) {
		t := kmsg.NewDescribeProducersRequestTopic()
		t.Topic, t.Partitions = topic, ps
		req.Topics = append(req.Topics, t)
	}
	out := map[stream.TopicPartition][]kmsg.DescribeProducersResponseTopicPartitionActiveProducer{}
	for _, s := range a.c.raw.RequestSharded(ctx, req) {
		if s.Err != nil {
			return nil, fault(s.Err)
		}
		for _, t := range s.Resp.(*kmsg.DescribeProducersResponse).Topics {
			for _, p := range t.Partitions {
				if err := codeFault(p.ErrorCode, t.Topic); err != nil {
					return nil, err
				}
				out[stream.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = p.ActiveProducers
			}
		}
	}
	return out, nil
}

// AbortTransaction ends a transaction in one partition. One that has a transactional id is ended as a whole, by fencing its producer; a hanging one,
// which no coordinator knows any more, by a marker.
func (a admin) AbortTransaction(ctx context.Context, tp stream.TopicPartition, producerID int64) error {
	if err := a.c.known(ctx, tp); err != nil {
		return err
	}
	active, err := a.active(ctx, []stream.TopicPartition{tp})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(active[tp], func(p kmsg.DescribeProducersResponseTopicPartitionActiveProducer) bool {
		return p.ProducerID == producerID
	})
	if i < 0 || active[tp][i].CurrentTxnStartOffset < 0 {
		return fmt.Errorf("%w: of producer %d in %s", kafka.ErrNoTxn, producerID, tp)
	}
	ts, err := a.Transactions(ctx)
	if err != nil {
		return err
	}
	for _, t := range ts {
		if t.ProducerID == producerID {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.TransactionalID, req.TransactionTimeoutMillis = kmsg.StringPtr(t.TransactionalID), 60_000
			resp, err := req.RequestWith(ctx, a.c.raw)
			if err != nil {
				return fault(err)
			}
			return codeFault(resp.ErrorCode, t.TransactionalID)
		}
	}
	return a.mark(ctx, tp, active[tp][i])
}

// mark writes an abort marker.
func (a admin) mark(ctx context.Context, tp stream.TopicPartition, p kmsg.DescribeProducersResponseTopicPartitionActiveProducer) error {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch = p.ProducerID, int16(p.ProducerEpoch), p.CoordinatorEpoch
	t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	t.Topic, t.Partitions = tp.Topic, []int32{tp.Partition}
	m.Topics = append(m.Topics, t)
	req.Markers = append(req.Markers, m)
	for _, s := range a.c.raw.RequestSharded(ctx, req) {
		if s.Err != nil {
			return fault(s.Err)
		}
		for _, m := range s.Resp.(*kmsg.WriteTxnMarkersResponse).Markers {
			for _, t := range m.Topics {
				for _, p := range t.Partitions {
					if err := codeFault(p.ErrorCode, t.Topic); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// Explain says what the cluster knows: the group's state, and how far each partition is behind. Who is late with a poll, only that member knows.
func (a admin) Explain(ctx context.Context, group string) ([]stream.Explanation, error) {
	gs, err := a.Groups(ctx, group)
	if err != nil || len(gs) == 0 {
		return nil, err
	}
	tps := slices.Collect(maps.Keys(gs[0].Offsets))
	ends, err := a.c.list(ctx, atEnd, stream.ReadUncommitted, tps)
	if err != nil {
		return nil, err
	}
	stable, err := a.c.list(ctx, atEnd, stream.ReadCommitted, tps)
	if err != nil {
		return nil, err
	}
	var out []stream.Explanation
	for _, tp := range tps {
		text := fmt.Sprintf("group is %s, %d records behind the end", gs[0].State, ends[tp].Offset-gs[0].Offsets[tp].Offset)
		if stable[tp].Offset < ends[tp].Offset {
			text += fmt.Sprintf(", an open transaction holds readers of committed records at %d", stable[tp].Offset)
		}
		out = append(out, stream.Explanation{TopicPartition: tp, Text: text})
	}
	return out, nil
}
