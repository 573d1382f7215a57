package kafka

import (
	"context"
	"errors"
	"fmt"
)

// Error is a kind of failure that a program can decide on: compare with errors.Is. Code is Kafka's protocol
// error code for it, UnknownServerError where Kafka has none.
type Error struct {
	Code  int16
	class class
	text  string
}

func (e *Error) Error() string { return e.text }

type class uint8

const (
	retriable  class = 1 << iota // the same call may succeed later
	fatal                        // the producer, consumer or engine that returned it is finished
	needsAbort                   // the open transaction must be aborted
)

// UnknownServerError is Kafka's code for failures that it has no name for.
const UnknownServerError int16 = -1

// The kinds. Those that users meet have their doc comments in package stream, which re-exports them.
var (
	ErrClosed               = &Error{UnknownServerError, fatal, "closed"}
	ErrLocked               = &Error{UnknownServerError, retriable, "directory is locked by another engine"}
	ErrReadOnly             = &Error{UnknownServerError, 0, "engine is read-only"}
	ErrUnknownTopic         = &Error{3, retriable, "unknown topic or partition"}
	ErrTopicExists          = &Error{36, 0, "topic already exists"}
	ErrInvalidTopic         = &Error{17, 0, "invalid topic name"}
	ErrInvalidPartitions    = &Error{37, 0, "invalid number of partitions"}
	ErrInvalidConfig        = &Error{40, 0, "invalid configuration"}
	ErrInvalidRecord        = &Error{87, 0, "invalid record"}
	ErrUnsupportedCodec     = &Error{76, 0, "unsupported compression"}
	ErrInvalidGroup         = &Error{24, 0, "invalid group id"}
	ErrOffsetOutOfRange     = &Error{1, 0, "offset out of range"}
	ErrNoOffset             = &Error{UnknownServerError, 0, "no committed offset and no reset policy"}
	ErrNotAssigned          = &Error{UnknownServerError, 0, "partition is not assigned to this consumer"}
	ErrNoSubscription       = &Error{UnknownServerError, 0, "consumer has no subscription and no assignment"}
	ErrFenced               = &Error{47, fatal, "fenced by a newer instance"}
	ErrOutOfOrderSequence   = &Error{45, fatal, "out of order sequence number"}
	ErrRebalance            = &Error{27, retriable, "group is rebalancing"}
	ErrUnknownMember        = &Error{25, 0, "unknown member"}
	ErrIllegalGeneration    = &Error{22, 0, "not the group's generation"}
	ErrInconsistentProtocol = &Error{23, 0, "group protocol that does not fit the other members'"}
	ErrSessionTimeout       = &Error{26, 0, "invalid session timeout"}
	ErrMemberIDRequired     = &Error{79, retriable, "join again with this member id"}
	ErrGroupFull            = &Error{81, 0, "group has as many members as it may have"}
	ErrFencedInstance       = &Error{82, fatal, "fenced by a newer member with the same instance id"}
	ErrGroupNotEmpty        = &Error{68, 0, "group has members"}
	ErrUnknownGroup         = &Error{69, 0, "unknown group"}
	ErrGroupSubscribed      = &Error{86, 0, "group subscribes to the topic"}
	ErrMetadataTooLarge     = &Error{12, 0, "metadata of an offset is too large"}
	ErrDiskFull             = &Error{56, retriable, "disk is full"}
	ErrPartitionFailed      = &Error{56, retriable, "partition is offline after a storage error"}
	ErrMetaFailed           = &Error{56, retriable, "metadata store failed"}
	ErrStorage              = &Error{56, retriable, "storage error"}
	ErrCorrupt              = &Error{2, 0, "data is corrupt"}
	ErrTimeout              = &Error{7, retriable, "timed out"}
	ErrOutcomeUnknown       = &Error{UnknownServerError, 0, "outcome is unknown: the record may or may not be kept"}
	ErrRecordTooLarge       = &Error{10, 0, "record is too large"}
	ErrBufferFull           = &Error{UnknownServerError, retriable, "producer buffer is full"}
	ErrNoTxn                = &Error{48, 0, "no transaction is open"}
	ErrTxnDone              = &Error{48, 0, "transaction has ended"}
	ErrUnsupported          = &Error{35, 0, "not supported"}
)

// has reports whether any kind in err's tree is of the class.
func has(err error, c class) bool {
	switch e := err.(type) {
	case nil:
		return false
	case *Error:
		return e.class&c != 0
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if has(err, c) {
				return true
			}
		}
		return false
	default:
		return has(errors.Unwrap(err), c)
	}
}

// IsRetriable reports whether the same call may succeed later without any other change. An error whose outcome is
// unknown is not retriable: the record may already be there. Nor is one that is fatal for another reason.
func IsRetriable(err error) bool {
	return has(err, retriable) && !has(err, fatal) && !errors.Is(err, ErrOutcomeUnknown)
}

// IsFatal reports whether the value that returned err is finished and has to be closed and made anew.
func IsFatal(err error) bool { return has(err, fatal) }

// NeedsAbort reports whether err leaves the open transaction fit for nothing but Abort.
func NeedsAbort(err error) bool { return has(err, needsAbort) }

// ContextError is why ctx has ended: its error and, if one was given, its cause.
func ContextError(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); cause != nil && cause != err {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// Storage gives an error that has no kind, one of the file system, the kind ErrStorage.
func Storage(err error) error {
	if err == nil {
		return nil
	}
	var kind *Error
	if errors.As(err, &kind) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrStorage, err)
}

// OutcomeUnknown marks err as one after which a record may or may not be kept. Both err and ErrOutcomeUnknown match.
func OutcomeUnknown(err error) error { return &outcomeUnknown{err} }

type outcomeUnknown struct{ err error }

func (e *outcomeUnknown) Error() string { return e.err.Error() + " (" + ErrOutcomeUnknown.text + ")" }
func (e *outcomeUnknown) Unwrap() []error {
	return []error{e.err, ErrOutcomeUnknown}
}

// CorruptError says which offsets of a partition cannot be read, and where their bytes lie. It matches ErrCorrupt.
type CorruptError struct {
	TopicPartition
	From, To int64  // offsets [From, To) are affected; To is -1 if nobody can tell
	File     string // path of the damaged file
	Pos      int64  // byte position in it
	Reason   error
}

func (e *CorruptError) Error() string {
	to := "?"
	if e.To >= 0 {
		to = fmt.Sprint(e.To)
	}
	s := fmt.Sprintf("%s: offsets [%d,%s) are corrupt at byte %d of %s", e.TopicPartition, e.From, to, e.Pos, e.File)
	if e.Reason != nil {
		s += ": " + e.Reason.Error()
	}
	return s
}

// Unwrap lets both ErrCorrupt and the reason match.
func (e *CorruptError) Unwrap() []error {
	if e.Reason == nil {
		return []error{ErrCorrupt}
	}
	return []error{ErrCorrupt, e.Reason}
}
