package cluster_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/stream"
)

// A named producer is a transactional one. Its last sequence in a partition is the offset that a group of its own has committed there: it becomes
// visible in one transaction with the records, survives retention, compaction and crashes, and goes with the topic. A new producer of the name
// fences the older one, as transactional ids do, and aborts what it had not committed.
const namePrefix = "runnel.name."

const sequenceHeader = "runnel.seq"

type names struct {
	last   map[stream.TopicPartition]int64
	missed map[stream.TopicPartition]missed
}

// missed is the first record of a partition that was not written.
type missed struct {
	sequence int64
	err      error
}

// lastSequence returns the last sequence in a partition; the transaction is held.
func (p *producer) lastSequence(ctx context.Context, tp stream.TopicPartition) (int64, error) {
	if v, ok := p.names.last[tp]; ok {
		return v, nil
	}
	o, err := p.c.committed(ctx, namePrefix+p.cfg.Name, []stream.TopicPartition{tp})
	if err != nil {
		return 0, err
	}
	p.names.last[tp] = o[tp].Offset
	return o[tp].Offset, nil
}

func (p *producer) LastSequence(ctx context.Context, tp stream.TopicPartition) (int64, error) {
	if p.names == nil {
		return 0, fmt.Errorf("LastSequence of a producer without a name: %w", kafka.ErrUnsupported)
	}
	if p.promises.closed() {
		return 0, kafka.ErrClosed
	}
	if err := p.c.known(ctx, tp); err != nil {
		return 0, err
	}
	if err := p.enter(ctx); err != nil {
		return 0, err
	}
	defer p.leave()
	delete(p.names.missed, tp)
	return p.lastSequence(ctx, tp)
}

// sendNamed writes records in one transaction with their sequences.
func (p *producer) sendNamed(ctx context.Context, rs []stream.Record, out []stream.Result) []stream.Result {
	out = failAll(out, len(rs), nil)
	if p.promises.closed() {
		return failAll(out, len(rs), kafka.ErrClosed)
	}
	if err := p.enter(ctx); err != nil {
		return failAll(out, len(rs), err)
	}
	defer p.leave()
	var send []stream.Record
	var index []int // in rs, of those to send
	upto := stream.Offsets{}
	for i := range rs {
		r := rs[i]
		if out[i], r.Partition = p.check(ctx, &r, upto); out[i].Err != nil || out[i].Receipt.Duplicate {
			continue
		}
		if r.Sequence != 0 {
			r.Headers = append(r.Headers[:len(r.Headers):len(r.Headers)], stream.Header{Key: sequenceHeader, Value: binary.BigEndian.AppendUint64(nil, uint64(r.Sequence))})
			upto[tpOf(&r)] = stream.OffsetMetadata{Offset: r.Sequence, LeaderEpoch: -1}
		}
		send, index = append(send, r), append(index, i)
	}
	if len(send) == 0 {
		return out
	}
	res, err := p.writeNamed(ctx, send, upto)
	for k, i := range index {
		out[i] = res[k]
		if err != nil && out[i].Err == nil {
			out[i] = stream.Result{Err: err} // the transaction took it back
		}
		p.note(&send[k], out[i].Err)
	}
	if err == nil {
		for tp, at := range upto {
			p.names.last[tp] = at.Offset
		}
	}
	return out
}

func tpOf(r *stream.Record) stream.TopicPartition {
	return stream.TopicPartition{Topic: r.Topic, Partition: r.Partition}
}

// check places a record and finds out whether it is to be written.
func (p *producer) check(ctx context.Context, r *stream.Record, upto stream.Offsets) (res stream.Result, partition int32) {
	at, err := p.place(ctx, r)
	if err != nil {
		return stream.Result{Err: err}, 0
	}
	tp := stream.TopicPartition{Topic: r.Topic, Partition: at}
	last, err := p.lastSequence(ctx, tp)
	if err != nil {
		return stream.Result{Err: err}, at
	}
	last = max(last, upto[tp].Offset)
	if m, ok := p.names.missed[tp]; ok && r.Sequence > m.sequence {
		return stream.Result{Err: fmt.Errorf("sequence %d before it was not written: %w", m.sequence, m.err)}, at
	}
	if r.Sequence != 0 && r.Sequence <= last {
		return stream.Result{Receipt: stream.Receipt{Topic: r.Topic, Partition: at, LeaderEpoch: -1, Offset: -1, Acks: stream.AcksSynced, Duplicate: true}}, at
	}
	return stream.Result{}, at
}

// note remembers that a record with a sequence was not written, or that the missed one was. One that can never be written holds nothing back.
func (p *producer) note(r *stream.Record, err error) {
	tp := tpOf(r)
	m, has := p.names.missed[tp]
	switch {
	case r.Sequence == 0 || errors.Is(err, kafka.ErrRecordTooLarge) || errors.Is(err, kafka.ErrInvalidRecord):
	case err == nil && has && r.Sequence >= m.sequence:
		delete(p.names.missed, tp)
	case err != nil && (!has || r.Sequence < m.sequence):
		p.names.missed[tp] = missed{r.Sequence, err}
	}
}

// writeNamed writes records and sequences in one transaction. An error means that nothing was kept, unless its outcome is unknown: the sequences are
// asked for again then.
func (p *producer) writeNamed(ctx context.Context, rs []stream.Record, upto stream.Offsets) ([]stream.Result, error) {
	ctx = context.WithoutCancel(ctx) // a transaction that is left open would hold up readers
	t, err := p.begin()
	if err != nil {
		return failAll(nil, len(rs), err), err
	}
	placed := func(ctx context.Context, r *stream.Record, then func(stream.Receipt, error)) {
		p.sendTo(ctx, r, r.Partition, then)
	}
	res := sendAll(ctx, t.counted(placed), rs, nil)
	for _, r := range res {
		if r.Err != nil && !errors.Is(r.Err, kafka.ErrRecordTooLarge) && !errors.Is(r.Err, kafka.ErrInvalidRecord) {
			err = r.Err
		}
	}
	if err == nil && len(upto) > 0 {
		err = t.sendOffsets(ctx, stream.GroupMetadata{Group: namePrefix + p.cfg.Name, Generation: -1}, upto)
	}
	if err != nil {
		return res, errors.Join(err, t.end(ctx, false))
	}
	if err := t.end(ctx, true); err != nil {
		clear(p.names.last)
		return res, kafka.OutcomeUnknown(err)
	}
	return res, nil
}
