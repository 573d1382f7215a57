package stream

import (
	"context"
	"slices"
)

func (p *producer) ProduceAll(ctx context.Context, rs []Record, out []Result) ([]Result, error) {
	out = append(out[:0], make([]Result, len(rs))...)
	c := newCall(out)
	var lanes []*lane // that the records have gone to
	var seen map[*lane]struct{}
	for i := range rs {
		r := p.intercepted(&rs[i])
		ln, err := p.lane(r)
		if err == nil {
			err = p.buffer(ctx, ln, r, entry{call: c, at: int32(i)})
		}
		if err != nil {
			p.refused.Add(1)
			c.resolve(i, Receipt{}, err)
			continue
		}
		if len(lanes) > 0 && lanes[len(lanes)-1] == ln {
			continue
		}
		if seen == nil {
			seen = map[*lane]struct{}{}
		}
		if _, ok := seen[ln]; !ok {
			seen[ln] = struct{}{}
			lanes = append(lanes, ln)
		}
	}
	for _, ln := range lanes {
		p.flushLane(ln, nil)
	}
	if err := c.wait(ctx); err != nil {
		for _, ln := range lanes {
			p.takeBack(ln, c, err)
		}
		c.abandon(err)
	}
	for i := range out {
		p.acknowledged(out[i].Receipt, out[i].Err)
	}
	if i := slices.IndexFunc(out, func(r Result) bool { return r.Err != nil }); i >= 0 {
		return out, out[i].Err
	}
	return out, nil
}
