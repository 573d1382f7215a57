package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

func TestWhatMayBeDoneAfterAnError(t *testing.T) {
	unknown := kafka.OutcomeUnknown
	for _, tc := range []struct {
		err              error
		retriable, fatal bool
	}{
		{nil, false, false},
		{io.EOF, false, false},
		{context.Canceled, false, false},
		{context.DeadlineExceeded, false, false},
		{stream.ErrClosed, false, true},
		{stream.ErrLocked, true, false},
		{stream.ErrReadOnly, false, false},
		{stream.ErrUnknownTopic, true, false},
		{stream.ErrTopicExists, false, false},
		{stream.ErrInvalidTopic, false, false},
		{stream.ErrInvalidPartitions, false, false},
		{stream.ErrInvalidConfig, false, false},
		{stream.ErrInvalidRecord, false, false},
		{stream.ErrInvalidGroup, false, false},
		{stream.ErrOffsetOutOfRange, false, false},
		{stream.ErrNoOffset, false, false},
		{stream.ErrNotAssigned, false, false},
		{stream.ErrNoSubscription, false, false},
		{stream.ErrFenced, false, true},
		{stream.ErrOutOfOrderSequence, false, true},
		{stream.ErrRebalance, true, false},
		{stream.ErrUnknownMember, false, false},
		{stream.ErrDiskFull, true, false},
		{stream.ErrPartitionFailed, true, false},
		{stream.ErrStorage, true, false},
		{stream.ErrCorrupt, false, false},
		{stream.ErrTimeout, true, false},
		{stream.ErrOutcomeUnknown, false, false},
		{stream.ErrRecordTooLarge, false, false},
		{stream.ErrBufferFull, true, false},
		{stream.ErrNoTxn, false, false},
		{stream.ErrTxnDone, false, false},
		{stream.ErrUnsupported, false, false},
		// An outcome that is unknown is not to be tried again blindly.
		{unknown(stream.ErrTimeout), false, false},
		{unknown(stream.ErrDiskFull), false, false},
		{unknown(stream.ErrClosed), false, true},
		{unknown(context.Canceled), false, false},
		// Wrapped and joined errors are what they are made of; one fatal part is enough, and a fatal error is not retriable.
		{fmt.Errorf("topic a: %w", stream.ErrDiskFull), true, false},
		{&stream.PartitionError{Err: stream.ErrDiskFull}, true, false},
		{&stream.PartitionError{Err: stream.ErrClosed}, false, true},
		{&stream.CorruptError{}, false, false},
		{&stream.PollTimeoutError{}, true, false},
		{errors.Join(io.EOF, stream.ErrFenced), false, true},
		{errors.Join(stream.ErrInvalidRecord, stream.ErrFenced), false, true},
		{errors.Join(stream.ErrDiskFull, stream.ErrFenced), false, true},
	} {
		if stream.IsRetriable(tc.err) != tc.retriable || stream.IsFatal(tc.err) != tc.fatal || stream.NeedsAbort(tc.err) {
			t.Errorf("%v: retriable %v, fatal %v, needs abort %v", tc.err, stream.IsRetriable(tc.err), stream.IsFatal(tc.err), stream.NeedsAbort(tc.err))
		}
	}
}

func TestErrorStructsMatchTheirKindAndTheirReason(t *testing.T) {
	reason := errors.New("reason")
	for _, tc := range []struct {
		err  error
		want []error
	}{
		{&stream.CorruptError{TopicPartition: tp("a", 1), From: 3, To: -1, File: "f"}, []error{stream.ErrCorrupt}},
		{&stream.CorruptError{Reason: reason}, []error{stream.ErrCorrupt, reason}},
		{&stream.PartitionError{TopicPartition: tp("a", 1), Err: stream.ErrCorrupt}, []error{stream.ErrCorrupt}},
		{&stream.PartitionError{Err: &stream.CorruptError{Reason: reason}}, []error{stream.ErrCorrupt, reason}},
		{&stream.PollTimeoutError{Member: "m", Limit: time.Second}, []error{stream.ErrTimeout}},
	} {
		err := fmt.Errorf("wrapped: %w", tc.err)
		wantErr(t, err, tc.want...)
		if tc.err.Error() == "" {
			t.Errorf("%T says nothing", tc.err)
		}
	}
	var corrupt *stream.CorruptError
	err := error(&stream.PartitionError{Err: &stream.CorruptError{TopicPartition: tp("a", 1), From: 3, To: 9}})
	if !errors.As(err, &corrupt) || corrupt.From != 3 || corrupt.To != 9 || corrupt.Topic != "a" || corrupt.Partition != 1 {
		t.Fatalf("%+v", corrupt)
	}
	// Kinds do not match each other.
	kinds := []error{stream.ErrClosed, stream.ErrLocked, stream.ErrDiskFull, stream.ErrPartitionFailed, stream.ErrMetaFailed, stream.ErrNoTxn, stream.ErrTxnDone}
	for i, a := range kinds {
		for k, b := range kinds {
			if errors.Is(a, b) != (i == k) {
				t.Errorf("%q is %q: %v", a, b, i != k)
			}
		}
	}
}

// What a later version delivers says ErrUnsupported: it neither panics nor pretends.
func TestVerbsOfLaterVersionsAreErrUnsupported(t *testing.T) {
	eng := streamtest.New(t)
	ctx := t.Context()
	create(t, eng, "a", 1)
	p := newProducer(t, eng, stream.ProducerConfig{})
	a := eng.Admin()
	second := func(_ any, err error) error { return err }
	newP := func(c stream.ProducerConfig) error { return second(eng.NewProducer(ctx, c)) }
	errs := map[string]error{
		"Process":            eng.Process(ctx, stream.ProcessConfig{}, func(context.Context, stream.Txn, []stream.Record) error { return nil }),
		"Backup":             eng.Backup(ctx, t.TempDir()),
		"Begin":              second(p.Begin(ctx)),
		"Transactions":       second(a.Transactions(ctx)),
		"Producers":          second(a.Producers(ctx)),
		"AbortTransaction":   a.AbortTransaction(ctx, tp("a", 0), 1),
		"TransactionalID":    newP(stream.ProducerConfig{TransactionalID: "t"}),
		"TransactionTimeout": newP(stream.ProducerConfig{TransactionTimeout: 1}),
	}
	eq(t, "verbs", len(errs), 8)
	for name, err := range errs {
		if !errors.Is(err, stream.ErrUnsupported) || stream.IsFatal(err) || stream.IsRetriable(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConfigsReportAllFaultsAtOnce(t *testing.T) {
	eng := streamtest.New(t)
	_, err := eng.NewProducer(t.Context(), stream.ProducerConfig{Acks: 9, BatchSize: -1, MaxInFlight: -1, TransactionalID: "t", Linger: -1})
	wantErr(t, err, stream.ErrInvalidConfig, stream.ErrUnsupported)
	containsAll(t, err, "Acks", "BatchSize", "MaxInFlight", "Linger")
	_, err = eng.NewProducer(t.Context(), stream.ProducerConfig{Compression: 5, BufferMemory: 1, Linger: 2, DeliveryTimeout: 1, Interceptors: []stream.ProducerInterceptor{nil}})
	wantErr(t, err, stream.ErrInvalidConfig)
	containsAll(t, err, "Compression", "BufferMemory", "DeliveryTimeout", "interceptor")
	_, err = eng.NewConsumer(t.Context(), stream.ConsumerConfig{Reset: 9, MaxBytes: -1, CommitInterval: -1, InstanceID: "i"})
	wantErr(t, err, stream.ErrInvalidConfig)
	containsAll(t, err, "Reset", "MaxBytes", "CommitInterval", "InstanceID")
	for _, c := range []stream.ConsumerConfig{{Visibility: 9}, {Visibility: -1}, {Isolation: 9}, {Isolation: -1}} {
		if _, err := eng.NewConsumer(t.Context(), c); !errors.Is(err, stream.ErrInvalidConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	_, err = eng.NewConsumer(t.Context(), stream.ConsumerConfig{Topics: []string{"a/b"}})
	wantErr(t, err, stream.ErrInvalidTopic)
}
