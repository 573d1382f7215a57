package crashtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	"github.com/runnelmq/runnel/stream"
)

// A soakSender is a producer over the lives of the engine. Its records are numbered in each partition, from 1 on.
type soakSender struct {
	role string
	last map[stream.TopicPartition]int64 // number of the last record that is kept, or was given to others to keep
	may  map[stream.TopicPartition]int64 // and of the last that was sent
}

// record makes the record with a number.
func (x *soakSender) record(s *soaker, tp stream.TopicPartition, number int64, acks stream.Acks) (killID, *stream.Record) {
	x.may[tp] = number
	id := killID{x.role + ":" + tp.Topic, 1, number, tp.Partition}
	r := soakRecord(id, s.book.kind(tp))
	r.Acks = acks
	return id, r
}

// answered enters what was said of a record, and reports whether its sender goes on.
func (s *soaker) answered(id killID, r *stream.Record, rc stream.Receipt, err error) bool {
	s.did(1)
	switch {
	case err == nil:
		s.counts.sent.Add(1)
		if err := s.book.acked(r, rc); err != nil {
			s.t.Error(err)
		}
	case errors.Is(err, stream.ErrOutcomeUnknown):
		s.book.doubt(part(r.Topic, r.Partition), id)
	case errors.Is(err, stream.ErrDiskFull):
		s.counts.full.Add(1)
		return true
	}
	return s.expected("append", err) && !s.t.Failed()
}

// producer opens a producer; nil: the engine is being closed.
func (s *soaker) producer(ctx context.Context, name string) stream.Producer {
	p, err := s.eng.NewProducer(ctx, stream.ProducerConfig{Name: name, Partitioner: stream.ManualPartitioner()})
	s.expected("producer", err)
	return p
}

func (s *soaker) closeProducer(ctx context.Context, p stream.Producer) {
	s.expected("close of a producer", p.Close(ctx))
}

func (s *soaker) sendWritten(ctx context.Context, r *rand.Rand, n int) {
	s.sendSingly(ctx, r, n, s.written, stream.AcksWritten)
}

func (s *soaker) sendSynced(ctx context.Context, r *rand.Rand, n int) {
	s.sendSingly(ctx, r, n, s.synced, stream.AcksSynced)
}

// sendSingly sends one record after the other; one that was refused is sent again.
func (s *soaker) sendSingly(ctx context.Context, r *rand.Rand, n int, x *soakSender, acks stream.Acks) {
	p := s.producer(ctx, "")
	if p == nil {
		return
	}
	for range n {
		tp := s.partition(r)
		id, rec := x.record(s, tp, x.last[tp]+1, acks)
		rc, err := p.ProduceSync(ctx, rec)
		if err == nil || errors.Is(err, stream.ErrOutcomeUnknown) {
			x.last[tp]++
		}
		if !s.answered(id, rec, rc, err) {
			return
		}
	}
	s.closeProducer(ctx, p)
}

// sendNamed does so by a name, with sequences: in each life it goes on where the log says that it stands. (C1)
func (s *soaker) sendNamed(ctx context.Context, r *rand.Rand, n int) {
	x := s.named
	p := s.producer(ctx, "source")
	if p == nil {
		return
	}
	for _, tp := range s.book.partitions() {
		last, err := p.LastSequence(ctx, tp)
		if !s.expected("last sequence", err) {
			return
		}
		if err == nil && last != x.last[tp] && last != x.may[tp] {
			s.t.Errorf("C1: %v: the last sequence is %d, acknowledged was %d, sent %d", tp, last, x.last[tp], x.may[tp])
		}
		x.last[tp] = last
	}
	for range n {
		tp := s.partition(r)
		id, rec := x.record(s, tp, x.last[tp]+1, stream.AcksWritten)
		rec.Sequence = id.number
		rc, err := p.ProduceSync(ctx, rec)
		if err == nil {
			x.last[tp]++
		}
		if !s.answered(id, rec, rc, err) {
			return
		}
	}
	s.closeProducer(ctx, p)
}

// sendAsync sends without waiting, and now and then waits for all of it.
func (s *soaker) sendAsync(ctx context.Context, r *rand.Rand, n int) {
	p := s.producer(ctx, "")
	if p == nil {
		return
	}
	var promised sync.WaitGroup
	defer promised.Wait() // each promise is kept, also when the engine is closed
	for i := range n {
		tp := s.partition(r)
		acks := stream.AcksWritten
		if chance(r, 0.05) {
			acks = stream.AcksSynced
		}
		s.async.last[tp]++
		id, rec := s.async.record(s, tp, s.async.last[tp], acks)
		promised.Add(1)
		p.Produce(ctx, rec, func(rc stream.Receipt, err error) {
			s.answered(id, rec, rc, err)
			promised.Done()
		})
		if i%50 != 49 && i != n-1 {
			continue
		}
		if !s.expected("flush", p.Flush(ctx)) || s.t.Failed() {
			return
		}
	}
	s.closeProducer(ctx, p)
}

// sendAll sends slices.
func (s *soaker) sendAll(ctx context.Context, r *rand.Rand, n int) {
	p := s.producer(ctx, "")
	if p == nil {
		return
	}
	var out []stream.Result
	for sent := 0; sent < n; {
		var ids []killID
		var rs []stream.Record
		for range between(r, 1, 40) {
			tp := s.partition(r)
			s.all.last[tp]++
			id, rec := s.all.record(s, tp, s.all.last[tp], stream.AcksWritten)
			ids, rs = append(ids, id), append(rs, *rec)
		}
		sent += len(rs)
		out, _ = p.ProduceAll(ctx, rs, out) // each record has its own error
		going := true
		for i := range rs {
			going = s.answered(ids[i], &rs[i], out[i].Receipt, out[i].Err) && going
		}
		if !going {
			return
		}
	}
	s.closeProducer(ctx, p)
}
