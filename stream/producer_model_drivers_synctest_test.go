package stream_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// A driver is one goroutine with a producer of its own.
type driver struct {
	m     *producerModel
	r     *rand.Rand
	p     stream.Producer
	acks  stream.Acks // of the producer
	name  string      // of its chains
	parts int
	quiet bool // no ctx ends
	life  context.Context

	// Of a named producer, for each partition.
	named  bool
	next   []int
	broken []int // the first that has failed, or -1; guarded by m.mu
	again  []int // how often the failed one was sent again without asking
}

func (d *driver) one(n int) bool { return d.r.IntN(n) == 0 }

// context returns a ctx for an attempt to send these.
func (d *driver) context(its ...*item) context.Context {
	if d.quiet || !d.one(6) {
		return context.Background()
	}
	d.m.mu.Lock()
	d.m.faults["cancel"] = true
	for _, it := range its {
		it.cancels = true
	}
	d.m.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	after := time.Duration(d.r.IntN(40)) * time.Millisecond
	if after == 0 {
		cancel()
		return ctx
	}
	time.AfterFunc(after, cancel)
	return ctx
}

// record takes the next record to send, and says what answers to it are to be noted as.
func (d *driver) record() (*item, stream.Record, stream.Acks) {
	part := d.r.IntN(d.parts)
	padding := d.r.IntN(60)
	if d.one(12) {
		padding = d.r.IntN(900)
	}
	r := stream.Record{Topic: "a", Partition: int32(part), Acks: stream.Acks(d.r.IntN(4))}
	if d.one(2) {
		r.Acks = stream.AcksDefault
	}
	var it *item
	if d.named && !d.one(8) {
		if r.Acks == stream.AcksNone {
			r.Acks = stream.AcksSynced
		}
		chain := fmt.Sprintf("%s:%d", d.name, part)
		if d.m.mu.Lock(); d.m.chains[chain] != nil && d.next[part] < len(d.m.chains[chain].items) {
			it = d.m.chains[chain].items[d.next[part]]
		}
		d.m.mu.Unlock()
		if it == nil {
			it = d.m.add(chain, true, int32(part), padding)
		}
		d.next[part]++
		r.Sequence = int64(it.n + 1)
	} else {
		it = d.m.add(d.name+"-", false, int32(part), padding)
	}
	r.Value = []byte(it.value)
	acks := r.Acks
	if acks == stream.AcksDefault {
		acks = d.acks
	}
	return it, r, acks
}

// answered notes an answer; a sequence that has failed has to be sent again before those behind it.
func (d *driver) answered(it *item, acks stream.Acks, rec stream.Receipt, err error) {
	d.m.answer(it, acks, rec, err)
	if d.named && err != nil && d.m.chainOf(it).named {
		d.m.mu.Lock()
		if b := &d.broken[it.part]; *b < 0 || it.n < *b {
			*b = it.n
		}
		d.m.mu.Unlock()
	}
}

func (m *producerModel) chainOf(it *item) *chain {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.chains[it.chain]
}

// repair goes back to what has failed: it asks for the last sequence, or sends the failed one again and hopes.
func (d *driver) repair(part int) {
	d.m.mu.Lock()
	failed := d.broken[part]
	d.m.mu.Unlock()
	if failed < 0 {
		return
	}
	if d.p.Flush(d.life) != nil {
		return
	}
	d.m.mu.Lock()
	failed = d.broken[part]
	d.m.mu.Unlock()
	if d.again[part]++; d.again[part]%3 == 1 {
		d.next[part] = failed
	} else {
		last, err := d.p.LastSequence(d.life, tp("a", int32(part)))
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			return
		}
		d.next[part] = int(last)
	}
	d.m.mu.Lock()
	d.broken[part] = -1
	d.m.mu.Unlock()
}

// start learns where a named producer stands, which the log shows.
func (d *driver) start(t *testing.T) {
	if !d.named {
		return
	}
	for part := range d.parts {
		last := must(d.p.LastSequence(context.Background(), tp("a", int32(part))))(t)
		if want := int64(d.m.present(fmt.Sprintf("%s:%d", d.name, part))); last != want {
			t.Errorf("seed %d: last sequence of %s in partition %d: %d, the log has %d", d.m.seed, d.name, part, last, want)
		}
		d.next, d.broken, d.again = append(d.next, int(last)), append(d.broken, -1), append(d.again, 0)
	}
}

// run makes calls until there have been n, or until the life ends.
func (d *driver) run(n int) {
	for range n {
		if d.life.Err() != nil {
			return
		}
		if d.named {
			for part := range d.parts {
				d.repair(part)
			}
		}
		switch k := d.r.IntN(100); {
		case k < 60:
			d.produce()
		case k < 70:
			it, r, acks := d.record()
			ctx := d.context(it)
			d.m.send("ProduceSync", ctx, it)
			rec, err := d.p.ProduceSync(ctx, &r)
			d.answered(it, acks, rec, err)
		case k < 77:
			d.produceAll()
		case k < 82:
			d.flush()
		case k < 98:
			time.Sleep(time.Duration(d.r.IntN(20)) * time.Millisecond)
		default:
			time.Sleep(time.Duration(d.r.IntN(1500)) * time.Millisecond)
		}
	}
}

func (d *driver) produce() {
	it, r, acks := d.record()
	inner := d.one(15)
	ctx := d.context(it)
	d.m.send("Produce", ctx, it)
	d.p.Produce(ctx, &r, func(rec stream.Receipt, err error) {
		d.answered(it, acks, rec, err)
		if inner {
			next := d.m.add(d.name+"!", false, it.part, 10)
			d.m.send("Produce in a promise", context.Background(), next)
			d.p.Produce(context.Background(), &stream.Record{Topic: "a", Partition: it.part, Value: []byte(next.value), Acks: stream.AcksSynced}, func(rec stream.Receipt, err error) {
				d.m.answer(next, stream.AcksSynced, rec, err)
			})
		}
	})
}

func (d *driver) produceAll() {
	var its []*item
	var rs []stream.Record
	var acks []stream.Acks
	for range 1 + d.r.IntN(8) {
		it, r, a := d.record()
		its, rs, acks = append(its, it), append(rs, r), append(acks, a)
	}
	ctx := d.context(its...)
	d.m.send("ProduceAll", ctx, its...)
	out, first := d.p.ProduceAll(ctx, rs, nil)
	var want error
	for i, res := range out {
		d.answered(its[i], acks[i], res.Receipt, res.Err)
		if want == nil {
			want = res.Err
		}
	}
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	if len(out) != len(rs) || first != want {
		d.m.fail("ProduceAll of %d records: %d results, error %v, the first is %v", len(rs), len(out), first, want)
	}
}

// flush checks that everything that this goroutine sent before has been answered.
func (d *driver) flush() {
	ctx := context.Background()
	if !d.quiet && d.one(3) {
		c, cancel := context.WithTimeout(ctx, time.Duration(d.r.IntN(30))*time.Millisecond)
		defer cancel()
		ctx = c
	}
	err := d.p.Flush(ctx)
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	switch {
	case d.m.faults["closing"], d.m.dead:
	case err != nil && ctx.Err() == nil:
		d.m.fail("Flush: %v", err)
	case err == nil:
		for name, c := range d.m.chains {
			if !d.owns(name) {
				continue
			}
			for _, it := range c.items {
				if it.inFlight > 0 {
					d.m.fail("no answer after Flush: %v\nnow %s", it, time.Now().Format("4:05.000"))
				}
			}
		}
	}
}

// owns says whether a chain's records are sent by this goroutine, and not by promises.
func (d *driver) owns(chain string) bool {
	return chain == d.name+"-" || len(chain) > len(d.name) && chain[:len(d.name)+1] == d.name+":"
}

// finish sends what a named producer has, until the log has all of it.
func (d *driver) finish(t *testing.T) {
	for part := range d.parts {
		chain := fmt.Sprintf("%s:%d", d.name, part)
		d.m.mu.Lock()
		c := d.m.chains[chain]
		d.m.mu.Unlock()
		if c == nil {
			continue
		}
		for i := d.next[part]; i < len(c.items); i++ {
			it := c.items[i]
			d.m.send("ProduceSync", context.Background(), it)
			rec, err := d.p.ProduceSync(context.Background(), &stream.Record{Topic: "a", Partition: int32(part), Value: []byte(it.value), Sequence: int64(it.n + 1), Acks: stream.AcksSynced})
			d.m.answer(it, stream.AcksSynced, rec, err)
			check(t, err)
		}
	}
}
