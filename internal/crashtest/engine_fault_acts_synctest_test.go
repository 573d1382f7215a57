package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/runnelmq/runnel/stream"
)

func (x *engineFaultRun) drawAcks(r *rand.Rand) stream.Acks {
	return []stream.Acks{stream.AcksSynced, stream.AcksSynced, stream.AcksWritten, stream.AcksWritten, stream.AcksNone}[r.IntN(5)]
}

func (x *engineFaultRun) producer(ctx context.Context) (stream.Producer, error) {
	if x.plain == nil {
		p, err := x.eng.NewProducer(ctx, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
		if err != nil {
			return nil, err
		}
		x.plain = p
	}
	return x.plain, nil
}

func (x *engineFaultRun) named(ctx context.Context, name string) (stream.Producer, error) {
	if x.names[name] == nil {
		p, err := x.eng.NewProducer(ctx, stream.ProducerConfig{Name: name, Partitioner: stream.ManualPartitioner()})
		if err != nil {
			return nil, err
		}
		x.names[name] = p
	}
	return x.names[name], nil
}

func (x *engineFaultRun) produce(ctx context.Context, client int, r *rand.Rand, tp stream.TopicPartition) error {
	p, err := x.producer(ctx)
	if err != nil {
		return x.told("producer", err)
	}
	return x.send(ctx, p, x.led.sending(client, "", tp, x.drawAcks(r)), 0)
}

// send sends a record, perhaps again, and enters the answer.
func (x *engineFaultRun) send(ctx context.Context, p stream.Producer, rec *ledgerRecord, sequence int64) error {
	acks := rec.acks
	rc, err := p.ProduceSync(ctx, &stream.Record{
		Topic: rec.tp.Topic, Partition: rec.tp.Partition, Value: ledgerValue(rec.id), Sequence: sequence, Acks: acks,
	})
	x.led.answered(rec, rc, err)
	if sequence != 0 && errors.Is(err, stream.ErrPartitionFailed) && !errors.Is(err, stream.ErrOutcomeUnknown) {
		// An earlier record of the name may have been lost with its partition: to ask is to give it up.
		_, err = p.LastSequence(ctx, rec.tp)
		return x.told("last sequence", err)
	}
	return x.told("produce", err)
}

func (x *engineFaultRun) produceAll(ctx context.Context) error {
	p, err := x.producer(ctx)
	if err != nil {
		return x.told("producer", err)
	}
	var recs []*ledgerRecord
	var rs []stream.Record
	for range between(x.r, 2, 12) {
		rec := x.led.sending(0, "", faultParts[x.r.IntN(len(faultParts))], x.drawAcks(x.r))
		recs = append(recs, rec)
		rs = append(rs, stream.Record{Topic: rec.tp.Topic, Partition: rec.tp.Partition, Value: ledgerValue(rec.id), Acks: rec.acks})
	}
	out, err := p.ProduceAll(ctx, rs, nil)
	if len(out) != len(rs) {
		return fmt.Errorf("A1: %d results for %d records, error %w", len(out), len(rs), err)
	}
	for i, res := range out {
		x.led.answered(recs[i], res.Receipt, res.Err)
		if err := x.told("produce all", res.Err); err != nil {
			return err
		}
	}
	return x.told("produce all", err)
}

// produceNamed sends a record with a sequence. One that was not acknowledged has to be sent again before the next of its name, or
// to be given up. (C1)
func (x *engineFaultRun) produceNamed(ctx context.Context, client int, r *rand.Rand, tp stream.TopicPartition, name string) error {
	p, err := x.named(ctx, name)
	if err != nil {
		return x.told("producer by name", err)
	}
	k := ledgerName{name, tp}
	x.mu.Lock()
	s, again := x.mu.missed[k]
	x.mu.Unlock()
	if again && chance(r, 0.3) {
		if _, err := p.LastSequence(ctx, tp); err != nil {
			return x.told("last sequence", err)
		}
		again = false
	}
	if !again {
		acks := stream.AcksWritten
		if chance(r, 0.5) {
			acks = stream.AcksSynced
		}
		s = missedRecord{x.led.sending(client, name, tp, acks), x.led.next(name, tp)}
	}
	for i := range between(r, 1, 3) {
		s.rec.again = again || i > 0
		if err := x.send(ctx, p, s.rec, s.sequence); err != nil {
			return err
		}
		if s.rec.fate == fateKept {
			break
		}
		if chance(r, 0.5) {
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if delete(x.mu.missed, k); s.rec.fate != fateKept {
		x.mu.missed[k] = s
	}
	return nil
}

// consume reads on from the committed offsets and commits. (E3)
func (x *engineFaultRun) consume(ctx context.Context, r *rand.Rand) (err error) {
	c, err := x.eng.NewConsumer(ctx, stream.ConsumerConfig{Group: faultGroup, ManualCommit: true, Reset: stream.ResetEarliest, MaxWait: -1})
	if err != nil {
		return x.told("consumer", err)
	}
	defer func() { err = errors.Join(err, x.told("close of a consumer", c.Close(ctx))) }()
	if err := c.Assign(faultParts...); err != nil {
		return x.told("assign", err)
	}
	for range between(r, 1, 3) {
		if _, err := c.Poll(ctx, between(r, 1, 20)); err != nil {
			return x.told("poll", err)
		}
		o := stream.Offsets{}
		for _, tp := range faultParts {
			if at, err := c.Position(tp); err == nil {
				o[tp] = stream.OffsetMetadata{Offset: at}
			} else if err := x.told("position", err); err != nil && !errors.Is(err, stream.ErrNoOffset) {
				return err
			}
		}
		x.led.committing(o)
		if err := c.Commit(ctx); err != nil {
			return x.told("commit", err)
		}
		x.led.committed(o)
	}
	return nil
}
