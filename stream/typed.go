package stream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Codec turns values into bytes and back. It is used by several goroutines.
type Codec[T any] interface {
	// Append appends the encoded v to dst.
	Append(dst []byte, v T) ([]byte, error)
	// Decode decodes src, which belongs to the record: a codec that keeps bytes of it copies them.
	Decode(src []byte) (T, error)
}

// TypedRecord is a Record whose key and value have types.
type TypedRecord[K, V any] struct {
	Topic       string
	Partition   int32
	Key         K
	Value       V
	Tombstone   bool // there is no value: producing, Value is not encoded; delivery, Value is zero
	Headers     []Header
	Timestamp   time.Time
	Acks        Acks
	Sequence    int64
	Offset      int64
	LeaderEpoch int32
}

// TypedProducer sends typed records through a Sender. It is as safe for concurrent use as the Sender and the codecs are.
type TypedProducer[K, V any] struct {
	s Sender
	k Codec[K]
	v Codec[V]
}

// NewTypedProducer returns a typed producer over a producer or a transaction, which stays the caller's to close.
func NewTypedProducer[K, V any](s Sender, k Codec[K], v Codec[V]) *TypedProducer[K, V] {
	return &TypedProducer[K, V]{s, k, v}
}

// encode makes the Record. A key or value that encodes to no bytes is empty, not nil: nil means that there is none.
func (p *TypedProducer[K, V]) encode(r *TypedRecord[K, V]) (Record, error) {
	out := Record{
		Topic: r.Topic, Partition: r.Partition, Headers: r.Headers, Timestamp: r.Timestamp,
		Acks: r.Acks, Sequence: r.Sequence,
	}
	b, err := p.k.Append([]byte{}, r.Key)
	if err != nil {
		return Record{}, fmt.Errorf("encode key: %w", err)
	}
	out.Key = notNil(b)
	if r.Tombstone {
		return out, nil
	}
	if b, err = p.v.Append([]byte{}, r.Value); err != nil {
		return Record{}, fmt.Errorf("encode value: %w", err)
	}
	out.Value = notNil(b)
	return out, nil
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Produce is Sender.Produce. An encoding error reaches the promise as any other.
func (p *TypedProducer[K, V]) Produce(ctx context.Context, r *TypedRecord[K, V], promise func(Receipt, error)) {
	rec, err := p.encode(r)
	if err == nil {
		p.s.Produce(ctx, &rec, promise)
		return
	}
	// The promise takes its turn among the producer's others: nothing is sent with a context that has ended.
	ended, cancel := context.WithCancel(ctx)
	cancel()
	p.s.Produce(ended, &Record{Topic: r.Topic, Partition: r.Partition}, func(Receipt, error) {
		if promise != nil {
			promise(Receipt{}, err)
		}
	})
}

// ProduceSync is Sender.ProduceSync.
func (p *TypedProducer[K, V]) ProduceSync(ctx context.Context, r *TypedRecord[K, V]) (Receipt, error) {
	rec, err := p.encode(r)
	if err != nil {
		return Receipt{}, err
	}
	return p.s.ProduceSync(ctx, &rec)
}

// ProduceAll is Sender.ProduceAll. If a record cannot be encoded, none is sent.
func (p *TypedProducer[K, V]) ProduceAll(ctx context.Context, rs []TypedRecord[K, V], out []Result) ([]Result, error) {
	recs := make([]Record, len(rs))
	for i := range rs {
		var err error
		if recs[i], err = p.encode(&rs[i]); err != nil {
			out = append(out[:0], make([]Result, len(rs))...)
			for k := range out {
				out[k].Err = fmt.Errorf("record %d: %w", i, err)
			}
			return out, out[i].Err
		}
	}
	return p.s.ProduceAll(ctx, recs, out)
}

// Tombstone deletes a key of a compacted topic: it sends a record without a value and waits for it.
func (p *TypedProducer[K, V]) Tombstone(ctx context.Context, topic string, key K) (Receipt, error) {
	return p.ProduceSync(ctx, &TypedRecord[K, V]{Topic: topic, Key: key, Tombstone: true})
}

// TypedConsumer reads typed records through a Consumer.
type TypedConsumer[K, V any] struct {
	// Consumer has the verbs that do not touch records: Subscribe, Seek, Commit, Close and the like.
	Consumer
	k Codec[K]
	v Codec[V]
}

// NewTypedConsumer returns a typed consumer over c, which stays the caller's to close.
func NewTypedConsumer[K, V any](c Consumer, k Codec[K], v Codec[V]) *TypedConsumer[K, V] {
	return &TypedConsumer[K, V]{c, k, v}
}

// DecodeError is a record that the codecs do not take. The position lies behind it.
type DecodeError struct {
	Record Record
	Err    error
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("%s-%d offset %d: decode: %v", e.Record.Topic, e.Record.Partition, e.Record.Offset, e.Err)
}

// Unwrap returns the codec's error.
func (e *DecodeError) Unwrap() error { return e.Err }

// decode makes the typed record. A record without a key has the zero key.
func (c *TypedConsumer[K, V]) decode(r Record) (TypedRecord[K, V], error) {
	out := TypedRecord[K, V]{
		Topic: r.Topic, Partition: r.Partition, Headers: r.Headers, Timestamp: r.Timestamp,
		Offset: r.Offset, LeaderEpoch: r.LeaderEpoch, Tombstone: r.Value == nil,
	}
	var err error
	if r.Key != nil {
		if out.Key, err = c.k.Decode(r.Key); err != nil {
			return out, &DecodeError{r, fmt.Errorf("key: %w", err)}
		}
	}
	if !out.Tombstone {
		if out.Value, err = c.v.Decode(r.Value); err != nil {
			return out, &DecodeError{r, fmt.Errorf("value: %w", err)}
		}
	}
	return out, nil
}

// Poll is Consumer.Poll. If a record cannot be decoded, the records before it are returned with its *DecodeError; the next poll goes on behind it.
func (c *TypedConsumer[K, V]) Poll(ctx context.Context, max int) ([]TypedRecord[K, V], error) {
	rs, err := c.Consumer.Poll(ctx, max)
	if err != nil {
		return nil, err
	}
	out := make([]TypedRecord[K, V], 0, len(rs))
	for i, r := range rs {
		t, err := c.decode(r)
		if err != nil {
			return out, errors.Join(err, c.putBack(rs[i+1:]))
		}
		out = append(out, t)
	}
	return out, nil
}

// putBack moves the positions back to the first of these records in each partition.
func (c *TypedConsumer[K, V]) putBack(rs []Record) error {
	seen := map[TopicPartition]bool{}
	for _, r := range rs {
		tp := TopicPartition{Topic: r.Topic, Partition: r.Partition}
		if seen[tp] {
			continue
		}
		seen[tp] = true
		if err := c.Consumer.Seek(tp, r.Offset); err != nil {
			return err
		}
	}
	return nil
}

// PollInto is Poll into dst, whose length is the limit.
func (c *TypedConsumer[K, V]) PollInto(ctx context.Context, dst []TypedRecord[K, V]) (int, error) {
	if len(dst) == 0 {
		return c.Consumer.PollInto(ctx, nil)
	}
	rs, err := c.Poll(ctx, len(dst))
	return copy(dst, rs), err
}

// CommitRecords is Consumer.CommitRecords.
func (c *TypedConsumer[K, V]) CommitRecords(ctx context.Context, rs ...TypedRecord[K, V]) error {
	raw := make([]Record, len(rs))
	for i := range rs {
		raw[i] = Record{Topic: rs[i].Topic, Partition: rs[i].Partition, Offset: rs[i].Offset, LeaderEpoch: rs[i].LeaderEpoch}
	}
	return c.Consumer.CommitRecords(ctx, raw...)
}

// Batches is Consumer.Batches. What cannot be decoded is left out of its slice, and yielded after it, each as a *DecodeError.
func (c *TypedConsumer[K, V]) Batches(ctx context.Context, max int, wait time.Duration) iter.Seq2[[]TypedRecord[K, V], error] {
	return func(yield func([]TypedRecord[K, V], error) bool) {
		for rs, err := range c.Consumer.Batches(ctx, max, wait) {
			if err != nil {
				if !yield(nil, err) {
					return
				}
				continue
			}
			ts := make([]TypedRecord[K, V], 0, len(rs))
			var bad []error
			for _, r := range rs {
				t, err := c.decode(r)
				if err != nil {
					bad = append(bad, err)
					continue
				}
				ts = append(ts, t)
			}
			if len(ts) > 0 && !yield(ts, nil) {
				return
			}
			for _, err := range bad {
				if !yield(nil, err) {
					return
				}
			}
		}
	}
}

// Records is Consumer.Records. A *DecodeError is yielded in the place of its record, and the loop goes on.
func (c *TypedConsumer[K, V]) Records(ctx context.Context) iter.Seq2[TypedRecord[K, V], error] {
	return func(yield func(TypedRecord[K, V], error) bool) {
		for r, err := range c.Consumer.Records(ctx) {
			var t TypedRecord[K, V]
			if err == nil {
				t, err = c.decode(r)
			}
			if !yield(t, err) {
				return
			}
		}
	}
}
