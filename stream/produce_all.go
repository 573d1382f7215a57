package stream

import (
	"context"
	"fmt"
	"sync"

	rlog "github.com/runnelmq/runnel/log"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
)

// append hands a sealed batch to the partition. The lane is locked.
func (ln *lane) append(p *producer, b batch.Batch, sequence int64) (rlog.Appended, error) {
	if p.name == nil {
		return ln.mu.life.Append(b)
	}
	return p.name.Append(ln.mu.state, p.epoch, b, sequence)
}

// share is the part of a ProduceAll that goes to one partition.
type share struct {
	ln      *lane
	records []int        // indexes, rising
	life    *broker.Life // that the records went to
	upto    int64        // offset in it that has to be durable, 0: none
}

func (p *producer) ProduceAll(ctx context.Context, rs []Record, out []Result) ([]Result, error) {
	out = append(out[:0], make([]Result, len(rs))...)
	shares := p.divide(rs, out)
	var wait sync.WaitGroup
	for i, s := range shares {
		p.sendShare(ctx, s, rs, out)
		if s.upto == 0 {
			continue
		}
		if i == len(shares)-1 {
			s.wait(ctx, out)
			continue
		}
		// The partitions' syncs run beside each other, and beside the appends of the next partition.
		wait.Add(1)
		go func() {
			defer wait.Done()
			s.wait(ctx, out)
		}()
	}
	wait.Wait()
	for i := range out {
		if out[i].Err != nil {
			return out, out[i].Err
		}
	}
	return out, nil
}

// wait waits for the records that asked for it.
func (s *share) wait(ctx context.Context, out []Result) {
	err := s.life.WaitDurable(ctx, s.upto)
	if err == nil {
		return
	}
	err = kafka.OutcomeUnknown(err)
	for _, i := range s.records {
		if out[i].Err == nil && out[i].Receipt.Acks == AcksSynced {
			out[i].Err = err
		}
	}
}

// divide gives each record to its partition, keeping their order.
func (p *producer) divide(rs []Record, out []Result) []*share {
	var shares []*share
	byLane := map[*lane]*share{}
	for i := range rs {
		ln, err := p.lane(&rs[i])
		if err != nil {
			out[i].Err = err
			continue
		}
		s := byLane[ln]
		if s == nil {
			s = &share{ln: ln}
			byLane[ln] = s
			shares = append(shares, s)
		}
		s.records = append(s.records, i)
	}
	return shares
}

// sendShare appends the records of one partition in batches of about BatchSize.
func (p *producer) sendShare(ctx context.Context, s *share, rs []Record, out []Result) {
	ln := s.ln
	ln.mu.Lock()
	defer ln.mu.Unlock()
	for todo := s.records; len(todo) > 0; {
		err := ctx.Err()
		if err == nil {
			err = p.open(ln)
		}
		if err == nil && s.life != nil && s.life != ln.mu.life {
			// The partition failed after the first batches, and has been opened again: what became of those is what waiting for them will tell.
			err = fmt.Errorf("%s: %w", ln.p.TopicPartition(), kafka.ErrPartitionFailed)
			p.done(ln)
		}
		if err != nil {
			p.failRest(ln, todo, rs, out, err)
			return
		}
		s.life = ln.mu.life
		todo, err = p.sendBatch(s, todo, rs, out)
		p.done(ln)
		if err != nil {
			// What follows would stand before what failed if that is sent again.
			p.failRest(ln, todo, rs, out, err)
			return
		}
	}
}

func (p *producer) failRest(ln *lane, todo []int, rs []Record, out []Result, err error) {
	for _, i := range todo {
		out[i].Err = err
		ln.mu.missed.note(rs[i].Sequence, err)
	}
}

// sendBatch fills one batch from todo, appends it, and returns what is left, and the error of the batch.
func (p *producer) sendBatch(s *share, todo []int, rs []Record, out []Result) (left []int, err error) {
	ln := s.ln
	var now, last int64
	if ln.mu.state != nil {
		last = ln.mu.state.Last()
	}
	before, lowest, synced := last, int64(0), false
	full := min(p.c.BatchSize, p.limit, ln.p.Topic().MaxMessageBytes())
	var in, again []int // again: those that are there already if the batch will be
	for len(todo) > 0 {
		i := todo[0]
		r := &rs[i]
		if len(in) > 0 && ln.mu.b.Len()+batch.SizeBound(r.Key, r.Value, r.Headers) > full {
			break
		}
		todo = todo[1:]
		acks := p.acks(r)
		ms, err := p.add(ln, r, &now, last)
		switch {
		case err == errDuplicate && r.Sequence > before:
			again = append(again, i)
			synced = synced || acks == AcksSynced
			out[i].Receipt = p.duplicate(ln, ms, acks)
		case err == errDuplicate:
			out[i].Receipt = p.duplicate(ln, ms, acks)
			s.upto = max(s.upto, durableFor(acks, ln.mu.state.Next()))
		case err != nil:
			out[i].Err = err
			ln.mu.missed.note(r.Sequence, err)
		default:
			in = append(in, i)
			if lowest == 0 {
				lowest = r.Sequence
			}
			last = max(last, r.Sequence)
			synced = synced || acks == AcksSynced
			out[i].Receipt = p.receipt(ln, appended{}, 0, ms, acks)
		}
	}
	if len(in) == 0 {
		return todo, nil
	}
	greatest := last
	if last == before {
		greatest = 0
	}
	a, err := p.send(ln, lowest, greatest)
	for k, i := range in {
		rec := &out[i].Receipt
		ln.mu.missed.note(rs[i].Sequence, err)
		switch {
		case err != nil:
			out[i] = Result{Err: err}
		case rec.Acks == AcksNone:
			rec.Offset, rec.LeaderEpoch = -1, a.epoch
		default:
			rec.Offset, rec.LeaderEpoch = a.base+int64(k), a.epoch
		}
	}
	for _, i := range again {
		if err != nil {
			out[i] = Result{Err: err}
		}
	}
	if err == nil && synced {
		s.upto = max(s.upto, a.base+int64(len(in)))
	}
	return todo, err
}
