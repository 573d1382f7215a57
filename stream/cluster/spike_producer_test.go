package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/stream"
)

// producer implements stream.Producer. Every record is sent idempotently with acks=all, whatever it asks for: a weaker level is waited for less, or
// got more than it asked for. So one kgo client keeps the order of all levels, and a batch is in the log once.
type producer struct {
	c   *client
	cfg stream.ProducerConfig
	cl  *kgo.Client
	// txns has room for the one transaction that is open.
	txns  chan struct{}
	names *names // of a named producer
	meter meter
	promises
}

func (c *client) NewProducer(ctx context.Context, cfg stream.ProducerConfig) (stream.Producer, error) {
	if cfg.Name != "" && cfg.TransactionalID != "" {
		return nil, fmt.Errorf("%w: a named producer has a transactional id of its own", kafka.ErrUnsupported)
	}
	if cfg.Acks == stream.AcksDefault {
		cfg.Acks = stream.AcksSynced
	}
	if cfg.Partitioner == nil {
		cfg.Partitioner = stream.KeyPartitioner()
	}
	if cfg.MaxMessageBytes == 0 {
		cfg.MaxMessageBytes = 1<<20 + 12
	}
	p := &producer{c: c, cfg: cfg, txns: make(chan struct{}, 1)}
	p.promises.mu.open = &pending{done: make(chan struct{})}
	id := cfg.TransactionalID
	if cfg.Name != "" {
		id = namePrefix + cfg.Name
		p.names = &names{last: map[stream.TopicPartition]int64{}, missed: map[stream.TopicPartition]missed{}}
	}
	opts := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(cfg.Linger),
		kgo.ProducerBatchMaxBytesFn(p.batchLimit), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.WithHooks(&p.meter),
	}
	if cfg.DeliveryTimeout > 0 {
		opts = append(opts, kgo.RecordDeliveryTimeout(cfg.DeliveryTimeout))
	}
	if id != "" {
		opts = append(opts, kgo.TransactionalID(id))
		if cfg.TransactionTimeout > 0 {
			opts = append(opts, kgo.TransactionTimeout(cfg.TransactionTimeout))
		}
	}
	var err error
	if p.cl, err = c.dial(opts...); err != nil {
		return nil, err
	}
	if id != "" {
		if _, _, err := p.cl.ProducerID(ctx); err != nil { // fences the older self
			p.cl.Close()
			return nil, fault(err)
		}
	}
	if err := c.register(p); err != nil {
		p.cl.Close()
		return nil, err
	}
	return p, nil
}

// batchLimit is the greatest size of a batch for a topic: with the topic's own limit known, one record that is too large fails alone, and not
// with the others of its batch.
func (p *producer) batchLimit(topic string) int32 {
	limit := int32(p.cfg.MaxMessageBytes)
	if v, ok := p.c.limits.Load(topic); ok {
		limit = min(limit, v.(int32))
	}
	return max(limit, 512) // kgo's least
}

// place chooses the partition of a record.
func (p *producer) place(ctx context.Context, r *stream.Record) (int32, error) {
	n, err := p.c.partitions(ctx, r.Topic)
	if err != nil {
		return 0, err
	}
	if _, ok := p.c.limits.Load(r.Topic); !ok {
		limit, err := p.c.messageLimit(ctx, r.Topic)
		if err != nil {
			return 0, err
		}
		p.c.limits.Store(r.Topic, limit)
	}
	at := p.cfg.Partitioner.Partition(r, n)
	if at < 0 || int(at) >= n {
		return 0, fmt.Errorf("%w: %s-%d, the topic has %d partitions", kafka.ErrUnknownTopic, r.Topic, at, n)
	}
	return at, nil
}

// copyOf is r as kgo keeps it.
func copyOf(r *stream.Record, partition int32) *kgo.Record {
	k := &kgo.Record{Topic: r.Topic, Partition: partition, Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value), Timestamp: r.Timestamp}
	for _, h := range r.Headers {
		k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: bytes.Clone(h.Value)})
	}
	return k
}

// receipt says where a record went. Produce responses do not name the leader epoch.
func receipt(k *kgo.Record, acks stream.Acks) stream.Receipt {
	rec := stream.Receipt{Topic: k.Topic, Partition: k.Partition, LeaderEpoch: -1, Offset: k.Offset, Timestamp: k.Timestamp, Acks: stream.AcksSynced}
	if acks == stream.AcksNone {
		rec.Offset, rec.Acks = -1, stream.AcksNone
	}
	return rec
}

// send places a record and hands it to kgo; see sendTo.
func (p *producer) send(ctx context.Context, r *stream.Record, then func(stream.Receipt, error)) {
	at, err := p.place(ctx, r)
	if err != nil {
		then(stream.Receipt{}, err)
		return
	}
	p.sendTo(ctx, r, at, then)
}

// sendTo hands a record to kgo. then is called once, by kgo's goroutine or this one; for AcksNone before the record is sent.
func (p *producer) sendTo(ctx context.Context, r *stream.Record, at int32, then func(stream.Receipt, error)) {
	acks := r.Acks
	if acks == stream.AcksDefault {
		acks = p.cfg.Acks
	}
	err := ctx.Err()
	if err == nil && !r.Timestamp.IsZero() && r.Timestamp.UnixMilli() < 0 {
		err = fmt.Errorf("%w: timestamp %v is before 1970", kafka.ErrInvalidRecord, r.Timestamp)
	}
	if err != nil {
		then(stream.Receipt{}, err)
		return
	}
	k := copyOf(r, at)
	tell := then
	if acks == stream.AcksNone {
		if k.Timestamp.IsZero() {
			k.Timestamp = time.Now().Truncate(time.Millisecond)
		}
		then(receipt(k, acks), nil)
		tell = func(stream.Receipt, error) {}
	}
	// A ctx that ends later must not take back a record that Produce has accepted.
	p.cl.Produce(context.WithoutCancel(ctx), k, func(k *kgo.Record, err error) {
		if err != nil {
			tell(stream.Receipt{}, produceFault(err))
			return
		}
		tell(receipt(k, acks), nil)
	})
}

// transactional reports whether records need a Txn.
func (p *producer) transactional() bool { return p.cfg.TransactionalID != "" }

func (p *producer) Produce(ctx context.Context, r *stream.Record, promise func(stream.Receipt, error)) {
	if p.names != nil {
		res := p.sendNamed(ctx, []stream.Record{*r}, nil)[0]
		p.promises.accept(promise)(res.Receipt, res.Err)
		return
	}
	done := p.promises.accept(promise)
	switch {
	case p.promises.closed():
		done(stream.Receipt{}, kafka.ErrClosed)
	case p.transactional():
		done(stream.Receipt{}, kafka.ErrNoTxn)
	default:
		p.send(ctx, r, done)
	}
}

func (p *producer) ProduceSync(ctx context.Context, r *stream.Record) (stream.Receipt, error) {
	out, _ := p.ProduceAll(ctx, []stream.Record{*r}, nil)
	return out[0].Receipt, out[0].Err
}

func (p *producer) ProduceAll(ctx context.Context, rs []stream.Record, out []stream.Result) ([]stream.Result, error) {
	switch {
	case p.promises.closed():
		out = failAll(out, len(rs), kafka.ErrClosed)
	case p.transactional():
		out = failAll(out, len(rs), kafka.ErrNoTxn)
	case p.names != nil:
		out = p.sendNamed(ctx, rs, out)
	default:
		out = sendAll(ctx, p.send, rs, out)
	}
	return out, firstError(out)
}

func failAll(out []stream.Result, n int, err error) []stream.Result {
	out = slices.Grow(out[:0], n)
	for range n {
		out = append(out, stream.Result{Err: err})
	}
	return out
}

func firstError(out []stream.Result) error {
	for _, r := range out {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

// sendAll sends records and waits for all of them. When ctx ends first the rest goes on, its outcome unknown.
func sendAll(ctx context.Context, send func(context.Context, *stream.Record, func(stream.Receipt, error)), rs []stream.Record, out []stream.Result) []stream.Result {
	type outcome struct {
		i   int
		res stream.Result
	}
	outcomes := make(chan outcome, len(rs))
	out = failAll(out, len(rs), nil)
	for i := range rs {
		send(ctx, &rs[i], func(rec stream.Receipt, err error) { outcomes <- outcome{i, stream.Result{Receipt: rec, Err: err}} })
	}
	heard := make([]bool, len(rs))
	for range rs {
		select {
		case o := <-outcomes:
			out[o.i], heard[o.i] = o.res, true
		case <-ctx.Done():
			for i := range out {
				if !heard[i] {
					out[i].Err = cut(ctx)
				}
			}
			return out
		}
	}
	return out
}

func (p *producer) Flush(ctx context.Context) error { return p.promises.flush(ctx) }

func (p *producer) Close(ctx context.Context) error {
	if !p.promises.close() {
		return p.promises.flush(ctx)
	}
	p.c.unregister(p)
	err := p.promises.flush(ctx)
	p.cl.Close() // fails what is left
	if err != nil {
		err = errors.Join(kafka.ErrClosed, err)
	}
	return errors.Join(err, p.promises.flush(context.Background()))
}

// messageLimit asks for a topic's max.message.bytes.
func (c *client) messageLimit(ctx context.Context, topic string) (int32, error) {
	cfg, err := c.topicConfig(ctx, topic)
	if err != nil {
		return 0, err
	}
	limit := int32(1<<20 + 12)
	if e, ok := cfg["max.message.bytes"]; ok && e.Value != nil {
		if _, err := fmt.Sscan(*e.Value, &limit); err != nil {
			return 0, fmt.Errorf("max.message.bytes of %s: %w", topic, err)
		}
	}
	return limit, nil
}

// topicConfig returns a topic's settings.
func (c *client) topicConfig(ctx context.Context, topic string) (map[string]kmsg.DescribeConfigsResponseResourceConfig, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	req.Resources = append(req.Resources, res)
	out := map[string]kmsg.DescribeConfigsResponseResourceConfig{}
	for _, s := range c.raw.RequestSharded(ctx, req) {
		if s.Err != nil {
			return nil, fault(s.Err)
		}
		for _, r := range s.Resp.(*kmsg.DescribeConfigsResponse).Resources {
			if err := codeFault(r.ErrorCode, topic); err != nil {
				return nil, err
			}
			for _, e := range r.Configs {
				out[e.Name] = e
			}
		}
	}
	return out, nil
}
