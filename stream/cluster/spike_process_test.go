package cluster_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/stream"
)

// Process is one kgo client that is the group's member and the transactional producer: kgo's own loop knows what a rebalance means to a transaction.
// It goes on until ctx ends, the client is closed, or fn fails; then its last transaction has been aborted and the inputs come again.
func (c *client) Process(ctx context.Context, pc stream.ProcessConfig, fn func(ctx context.Context, tx stream.Txn, rs []stream.Record) error) error {
	if pc.Consumer.Group == "" {
		return fmt.Errorf("%w: Process needs one", kafka.ErrInvalidGroup)
	}
	if pc.Producer.TransactionalID == "" {
		return fmt.Errorf("%w: Process needs a transactional id", kafka.ErrInvalidConfig)
	}
	if pc.Producer.Partitioner == nil {
		pc.Producer.Partitioner = stream.KeyPartitioner()
	}
	if pc.Producer.MaxMessageBytes == 0 {
		pc.Producer.MaxMessageBytes = 1<<20 + 12
	}
	p := &producer{c: c, cfg: pc.Producer, txns: make(chan struct{}, 1)}
	start := resetOffset(pc.Consumer.Reset)
	s, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(c.seeds...), kgo.DisableClientMetrics(),
		kgo.TransactionalID(pc.Producer.TransactionalID), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytesFn(p.batchLimit), kgo.ProducerLinger(pc.Producer.Linger), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ConsumerGroup(pc.Consumer.Group), kgo.ConsumeTopics(pc.Consumer.Topics...), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeStartOffset(start), kgo.ConsumeResetOffset(start), kgo.FetchMaxWait(fetchWait),
	)
	if err != nil {
		return err
	}
	p.cl = s.Client()
	if _, _, err := p.cl.ProducerID(ctx); err != nil { // ends what an older self left open
		s.Close()
		return fault(err)
	}
	session := closeFunc(func(context.Context) error { s.Close(); return nil })
	if err := c.register(&session); err != nil {
		s.Close()
		return err
	}
	defer s.Close()
	defer c.unregister(&session)
	max := pc.MaxRecords
	if max < 1 {
		max = 500
	}
	for {
		rs, err := inputs(ctx, s.PollRecords(ctx, max))
		if err != nil {
			return err
		}
		if len(rs) == 0 {
			continue
		}
		if err := p.processed(ctx, s, fn, rs); err != nil {
			return err
		}
	}
}

type closeFunc func(context.Context) error

func (f *closeFunc) Close(ctx context.Context) error { return (*f)(ctx) }

// inputs are the records of a poll.
func inputs(ctx context.Context, fs kgo.Fetches) (rs []stream.Record, err error) {
	if errs := fs.Errors(); len(errs) > 0 {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, partitionFault(errs[0], -1)
	}
	fs.EachRecord(func(k *kgo.Record) { rs = append(rs, delivered(k)) })
	return rs, nil
}

// processed runs fn in a transaction that holds the offsets of its inputs. A transaction that a rebalance has undone is no error: the inputs come again,
// to whoever has the partitions then.
func (p *producer) processed(ctx context.Context, s *kgo.GroupTransactSession, fn func(ctx context.Context, tx stream.Txn, rs []stream.Record) error, rs []stream.Record) error {
	if err := s.Begin(); err != nil {
		return fault(err)
	}
	t := &txn{p: p}
	t.promises.mu.open = &pending{done: make(chan struct{})}
	err := fn(ctx, processTxn{t}, rs)
	t.mu.Lock()
	t.mu.done = true
	t.mu.Unlock()
	end := context.WithoutCancel(ctx)
	if err == nil {
		err = t.promises.flush(ctx)
	}
	if err == nil {
		t.mu.Lock()
		err = t.mu.failed
		t.mu.Unlock()
	}
	if err != nil {
		_, aborted := s.End(end, kgo.TryAbort)
		return errors.Join(err, fault(aborted))
	}
	_, err = s.End(end, kgo.TryCommit)
	return fault(err)
}

// processTxn is the Txn of fn: Process ends it.
type processTxn struct{ *txn }

func (processTxn) Commit(context.Context) error { return kafka.ErrUnsupported }
func (processTxn) Abort(context.Context) error  { return kafka.ErrUnsupported }
func (processTxn) SendOffsets(context.Context, stream.GroupMetadata, stream.Offsets) error {
	return kafka.ErrUnsupported
}
