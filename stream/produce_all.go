package stream

import (
	"context"

	rlog "github.com/runnelmq/runnel/log"

	"github.com/runnelmq/runnel/internal/batch"
)

// append hands a sealed batch to the partition. The lane is locked.
func (ln *lane) append(p *producer, b batch.Batch, sequence int64) (rlog.Appended, error) {
	if p.name == nil {
		return ln.p.Append(b)
	}
	return p.name.Append(ln.mu.state, p.epoch, b, sequence)
}

// share is the part of a ProduceAll that goes to one partition.
type share struct {
	ln      *lane
	records []int // indexes, rising
	upto    int64 // offset that has to be durable, 0: none
}

func (p *producer) ProduceAll(ctx context.Context, rs []Record, out []Result) ([]Result, error) {
	out = append(out[:0], make([]Result, len(rs))...)
	if err := ctx.Err(); err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out, err
	}
	for _, s := range p.divide(rs, out) {
		p.sendShare(s, rs, out)
		if s.upto == 0 {
			continue
		}
		if err := s.ln.p.WaitDurable(ctx, s.upto); err != nil {
			for _, i := range s.records {
				if out[i].Err == nil && out[i].Receipt.Acks == AcksSynced {
					out[i].Err = err
				}
			}
		}
	}
	for i := range out {
		if out[i].Err != nil {
			return out, out[i].Err
		}
	}
	return out, nil
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
func (p *producer) sendShare(s *share, rs []Record, out []Result) {
	ln := s.ln
	ln.mu.Lock()
	defer ln.mu.Unlock()
	for todo := s.records; len(todo) > 0; {
		if err := p.open(ln); err != nil {
			for _, i := range todo {
				out[i].Err = err
			}
			return
		}
		todo = p.sendBatch(s, todo, rs, out)
		p.done(ln)
	}
}

// sendBatch fills one batch from todo, appends it, and returns what is left.
func (p *producer) sendBatch(s *share, todo []int, rs []Record, out []Result) (left []int) {
	ln := s.ln
	now := p.e.b.Now().UnixMilli()
	var last int64
	if ln.mu.state != nil {
		last = ln.mu.state.Last()
	}
	before, synced := last, false
	var in []int
	for len(todo) > 0 {
		i := todo[0]
		r := &rs[i]
		if len(in) > 0 && ln.mu.b.Len()+batch.SizeBound(r.Key, r.Value, r.Headers) > p.c.BatchSize {
			break
		}
		todo = todo[1:]
		acks := p.acks(r)
		ms, err := p.add(ln, r, now, last)
		switch {
		case err == errDuplicate:
			out[i].Receipt = p.duplicate(ln, ms, acks)
			s.upto = max(s.upto, durableFor(acks, ln.mu.state.Next()))
		case err != nil:
			out[i].Err = err
		default:
			in = append(in, i)
			last = max(last, r.Sequence)
			synced = synced || acks == AcksSynced
			out[i].Receipt = p.receipt(ln, appended{}, 0, ms, acks)
		}
	}
	if len(in) == 0 {
		return todo
	}
	sequence := last
	if last == before {
		sequence = 0
	}
	a, err := p.send(ln, sequence)
	for k, i := range in {
		rec := &out[i].Receipt
		switch {
		case err != nil:
			out[i] = Result{Err: err}
		case rec.Acks == AcksNone:
			rec.Offset, rec.LeaderEpoch = -1, a.epoch
		default:
			rec.Offset, rec.LeaderEpoch = a.base+int64(k), a.epoch
		}
	}
	if err == nil && synced {
		s.upto = max(s.upto, a.base+int64(len(in)))
	}
	return todo
}
