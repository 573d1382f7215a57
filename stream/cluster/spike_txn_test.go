package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/stream"
)

// txn implements stream.Txn on a producer of its own.
type txn struct {
	p        *producer
	promises // of this transaction
	mu       struct {
		sync.Mutex
		done    bool
		failed  error // of a record: the transaction cannot be committed
		written int   // records that are in the transaction
		groups  map[string]bool
	}
}

// enter waits until no transaction of the producer is open.
func (p *producer) enter(ctx context.Context) error {
	select {
	case p.txns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return kafka.ContextError(ctx)
	}
}

func (p *producer) leave() { <-p.txns }

func (p *producer) Begin(ctx context.Context) (stream.Txn, error) {
	if p.promises.closed() {
		return nil, kafka.ErrClosed
	}
	if !p.transactional() {
		return nil, fmt.Errorf("a producer without a transactional id: %w", kafka.ErrUnsupported)
	}
	select {
	case p.txns <- struct{}{}:
	default:
		return nil, fmt.Errorf("a transaction of this producer is open already: %w", kafka.ErrUnsupported)
	}
	t, err := p.begin()
	if err != nil {
		p.leave()
		return nil, err
	}
	return t, nil
}

// begin opens a transaction; p.txns is held.
func (p *producer) begin() (*txn, error) {
	if err := p.cl.BeginTransaction(); err != nil {
		return nil, fault(err)
	}
	t := &txn{p: p}
	t.promises.mu.open = &pending{done: make(chan struct{})}
	t.mu.groups = map[string]bool{}
	return t, nil
}

// counted is send that remembers what the transaction holds.
func (t *txn) counted(send func(context.Context, *stream.Record, func(stream.Receipt, error))) func(context.Context, *stream.Record, func(stream.Receipt, error)) {
	return func(ctx context.Context, r *stream.Record, then func(stream.Receipt, error)) {
		t.mu.Lock()
		if t.mu.done {
			t.mu.Unlock()
			then(stream.Receipt{}, kafka.ErrTxnDone)
			return
		}
		t.mu.Unlock()
		send(ctx, r, func(rec stream.Receipt, err error) {
			t.mu.Lock()
			if err == nil {
				t.mu.written++
			}
			if err != nil && t.mu.failed == nil && !errors.Is(err, kafka.ErrRecordTooLarge) && !errors.Is(err, kafka.ErrInvalidRecord) {
				t.mu.failed = err
			}
			t.mu.Unlock()
			then(rec, err)
		})
	}
}

func (t *txn) Produce(ctx context.Context, r *stream.Record, promise func(stream.Receipt, error)) {
	t.counted(t.p.send)(ctx, r, t.promises.accept(promise))
}

func (t *txn) ProduceSync(ctx context.Context, r *stream.Record) (stream.Receipt, error) {
	out, err := t.ProduceAll(ctx, []stream.Record{*r}, nil)
	return out[0].Receipt, err
}

func (t *txn) ProduceAll(ctx context.Context, rs []stream.Record, out []stream.Result) ([]stream.Result, error) {
	out = sendAll(ctx, t.counted(t.p.send), rs, out)
	return out, firstError(out)
}

func (t *txn) SendOffsets(ctx context.Context, g stream.GroupMetadata, o stream.Offsets) error {
	t.mu.Lock()
	done := t.mu.done
	t.mu.Unlock()
	if done {
		return kafka.ErrTxnDone
	}
	return t.sendOffsets(ctx, g, o)
}

// sendOffsets adds offsets to the transaction with requests of its own: kgo does so only for the group that the same kgo client is a member of.
func (t *txn) sendOffsets(ctx context.Context, g stream.GroupMetadata, o stream.Offsets) error {
	id, epoch, err := t.p.cl.ProducerID(ctx)
	if err != nil {
		return fault(err)
	}
	t.mu.Lock()
	added := t.mu.groups[g.Group]
	t.mu.groups[g.Group] = true
	t.mu.Unlock()
	if !added {
		req := kmsg.NewPtrAddOffsetsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = t.p.txnID(), id, epoch, g.Group
		resp, err := req.RequestWith(ctx, t.p.c.raw)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err != nil {
			return fault(err)
		}
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = t.p.txnID(), id, epoch
	req.Group, req.MemberID, req.Generation = g.Group, g.MemberID, g.Generation
	if g.InstanceID != "" {
		req.InstanceID = kmsg.StringPtr(g.InstanceID)
	}
	for topic, ps := range offsetsByTopic(o) {
		rt := kmsg.NewTxnOffsetCommitRequestTopic()
		rt.Topic = topic
		for n, at := range ps {
			rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = n, at.Offset, at.LeaderEpoch, kmsg.StringPtr(at.Metadata)
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, t.p.c.raw)
	if err != nil {
		return fault(err)
	}
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				t.mu.Lock()
				t.mu.failed = fault(fmt.Errorf("offset of %s-%d: %w", rt.Topic, rp.Partition, err))
				t.mu.Unlock()
				return t.mu.failed
			}
		}
	}
	return nil
}

func (p *producer) txnID() string {
	if p.names != nil {
		return namePrefix + p.cfg.Name
	}
	return p.cfg.TransactionalID
}

func (t *txn) Commit(ctx context.Context) error { return t.finish(ctx, true) }
func (t *txn) Abort(ctx context.Context) error  { return t.finish(ctx, false) }

func (t *txn) finish(ctx context.Context, commit bool) error {
	t.mu.Lock()
	if t.mu.done {
		t.mu.Unlock()
		return kafka.ErrTxnDone
	}
	t.mu.Unlock()
	if commit {
		if err := t.promises.flush(ctx); err != nil {
			return err // nothing has been decided
		}
		t.mu.Lock()
		failed := t.mu.failed
		t.mu.Unlock()
		if failed != nil {
			return fmt.Errorf("the transaction can only be aborted: %w", failed)
		}
	} else if err := t.p.cl.AbortBufferedRecords(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	t.mu.done = true
	t.mu.Unlock()
	defer t.p.leave()
	err := t.end(ctx, commit)
	if err != nil && commit {
		return kafka.OutcomeUnknown(err)
	}
	return err
}

// end ends the transaction. kgo sends no EndTxn if it knows of nothing in the transaction, and it does not know of offsets that other clients have
// added: that EndTxn is sent from here, in the version that leaves the epoch as kgo has it.
func (t *txn) end(ctx context.Context, commit bool) error {
	ctx = context.WithoutCancel(ctx) // kgo: a canceled EndTxn leaves the client in an undesirable state
	t.mu.Lock()
	alone := t.mu.written == 0 && len(t.mu.groups) > 0
	t.mu.Unlock()
	if !alone {
		return endFault(t.p.cl.EndTransaction(ctx, kgo.TransactionEndTry(commit)))
	}
	id, epoch, err := t.p.cl.ProducerID(ctx)
	if err != nil {
		return fault(err)
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = t.p.txnID(), id, epoch, commit
	resp, err := req.RequestWith(ctx, t.p.c.raw)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err := endFault(err); err != nil {
		return err
	}
	return fault(t.p.cl.EndTransaction(ctx, kgo.TryAbort)) // sends nothing: kgo is told that the transaction is over
}

// endFault is fault for EndTxn. A newer instance has aborted the transaction if the coordinator says that it is not there: with epochs that rise with
// every transaction it takes the older instance's EndTxn for one that is sent again.
func endFault(err error) error {
	if errors.Is(err, kerr.InvalidTxnState) {
		return fmt.Errorf("%w: %w", kafka.ErrFenced, err)
	}
	return fault(err)
}
