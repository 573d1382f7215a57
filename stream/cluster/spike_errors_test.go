package cluster_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/runnelmq/runnel/internal/kafka"
)

// kinds says what a program is told for an error of the cluster or of kgo.
var kinds = []struct {
	from error
	kind error
}{
	{kerr.UnknownTopicOrPartition, kafka.ErrUnknownTopic},
	{kerr.UnknownTopicID, kafka.ErrUnknownTopic},
	{kerr.TopicAlreadyExists, kafka.ErrTopicExists},
	{kerr.InvalidTopicException, kafka.ErrInvalidTopic},
	{kerr.InvalidPartitions, kafka.ErrInvalidPartitions},
	{kerr.InvalidConfig, kafka.ErrInvalidConfig},
	{kerr.InvalidReplicationFactor, kafka.ErrInvalidConfig},
	{kerr.InvalidTransactionTimeout, kafka.ErrInvalidConfig},
	{kerr.InvalidRecord, kafka.ErrInvalidRecord},
	{kerr.InvalidTimestamp, kafka.ErrInvalidRecord},
	{kerr.InvalidGroupID, kafka.ErrInvalidGroup},
	{kerr.OffsetOutOfRange, kafka.ErrOffsetOutOfRange},
	{kerr.ProducerFenced, kafka.ErrFenced},
	{kerr.InvalidProducerEpoch, kafka.ErrFenced},
	{kerr.FencedInstanceID, kafka.ErrFenced},
	{kerr.OutOfOrderSequenceNumber, kafka.ErrOutOfOrderSequence},
	{kerr.RebalanceInProgress, kafka.ErrRebalance},
	{kerr.IllegalGeneration, kafka.ErrRebalance},
	{kerr.StaleMemberEpoch, kafka.ErrRebalance},
	{kerr.UnknownMemberID, kafka.ErrUnknownMember},
	{kerr.KafkaStorageError, kafka.ErrPartitionFailed},
	{kerr.CorruptMessage, kafka.ErrCorrupt},
	{kerr.RequestTimedOut, kafka.ErrTimeout},
	{kerr.MessageTooLarge, kafka.ErrRecordTooLarge},
	{kerr.RecordListTooLarge, kafka.ErrRecordTooLarge},
	{kerr.InvalidTxnState, kafka.ErrNoTxn},
	{kerr.UnsupportedVersion, kafka.ErrUnsupported},
	{kgo.ErrClientClosed, kafka.ErrClosed},
	{kgo.ErrMaxBuffered, kafka.ErrBufferFull},
	{kgo.ErrRecordTimeout, kafka.ErrTimeout},
	{kgo.ErrRecordRetries, kafka.ErrTimeout},
	{kgo.ErrAborting, kafka.ErrTxnDone},
}

// fault gives an error of the cluster its kind. Both match.
func fault(err error) error {
	for _, k := range kinds {
		if errors.Is(err, k.from) {
			return fmt.Errorf("%w: %w", k.kind, err)
		}
	}
	return err
}

// produceFault is fault for a record that was handed to kgo. An idempotent kgo producer gives up a record by itself only if it is certain that no
// broker has kept it; what is left when the client closes may be on its way.
func produceFault(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, kgo.ErrClientClosed) {
		return kafka.OutcomeUnknown(fault(err))
	}
	return fault(err)
}

// cut is the error of a call that ends before its record's outcome is known.
func cut(ctx context.Context) error { return kafka.OutcomeUnknown(kafka.ContextError(ctx)) }
