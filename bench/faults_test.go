package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/runnelmq/runnel/stream"
)

// A fault is something wrong with an engine: in what its consumers deliver or commit, in what its producers do with a record, or in what it says of groups.
type fault struct {
	name    string
	deliver func(rs []stream.Record) []stream.Record // changes what a poll has got
	produce func(p *faultyProducer, r *stream.Record) (receipt stream.Receipt, err error)
	more    bool // a producer that is closed writes one more record
	commit  func(c stream.Consumer, o stream.Offsets) error
	listen  func(l stream.RebalanceListener) stream.RebalanceListener
	has     func(tps []stream.TopicPartition) []stream.TopicPartition // changes what a consumer says that it has
	groups  func(infos []stream.GroupInfo)                            // changes what the engine says of groups
}

// victim is the offset of the record that something happens to.
const victim = 3

func at(rs []stream.Record, offset int64) int {
	return slices.IndexFunc(rs, func(r stream.Record) bool { return r.Offset == offset })
}

func deliveries() []fault {
	change := func(name string, f func(rs []stream.Record, i int) []stream.Record) fault {
		return fault{name: name, deliver: func(rs []stream.Record) []stream.Record {
			if i := at(rs, victim); i >= 0 {
				return f(rs, i)
			}
			return rs
		}}
	}
	var mu sync.Mutex // the consumers of a group share a fault
	var last []stream.Record
	return []fault{
		{name: "a record more", deliver: func(rs []stream.Record) []stream.Record {
			mu.Lock()
			defer mu.Unlock()
			if len(rs) == 0 && len(last) > 0 {
				last[0].Offset++
				return slices.Clone(last)
			}
			if len(rs) > 0 {
				last = slices.Clone(rs[len(rs)-1:])
			}
			return rs
		}},
		change("a lost record", func(rs []stream.Record, i int) []stream.Record { return slices.Delete(rs, i, i+1) }),
		change("a lost record, offsets moved up", func(rs []stream.Record, i int) []stream.Record {
			rs = slices.Delete(rs, i, i+1)
			for j := i; j < len(rs); j++ {
				rs[j].Offset--
			}
			return rs
		}),
		change("a doubled record", func(rs []stream.Record, i int) []stream.Record { return slices.Insert(rs, i, rs[i]) }),
		change("two records exchanged", func(rs []stream.Record, i int) []stream.Record {
			rs[i-1], rs[i] = rs[i], rs[i-1]
			return rs
		}),
		change("two records exchanged, offsets not", func(rs []stream.Record, i int) []stream.Record {
			rs[i-1], rs[i] = rs[i], rs[i-1]
			rs[i-1].Offset, rs[i].Offset = rs[i].Offset, rs[i-1].Offset
			return rs
		}),
		change("another value", func(rs []stream.Record, i int) []stream.Record {
			rs[i].Value = slices.Clone(rs[i].Value)
			rs[i].Value[len(rs[i].Value)-1] ^= 1
			return rs
		}),
		change("another key", func(rs []stream.Record, i int) []stream.Record {
			rs[i].Key = slices.Clone(rs[i].Key)
			rs[i].Key[15] ^= 1
			return rs
		}),
		change("no key", func(rs []stream.Record, i int) []stream.Record {
			rs[i].Key = nil
			return rs
		}),
		change("no value", func(rs []stream.Record, i int) []stream.Record {
			rs[i].Value = nil
			return rs
		}),
		change("a header", func(rs []stream.Record, i int) []stream.Record {
			rs[i].Headers = []stream.Header{{Key: "h"}}
			return rs
		}),
		change("another topic", func(rs []stream.Record, i int) []stream.Record {
			rs[i].Topic = "other"
			return rs
		}),
		{name: "a gap in the offsets", deliver: func(rs []stream.Record) []stream.Record {
			for i := range rs {
				if rs[i].Offset >= victim {
					rs[i].Offset++
				}
			}
			return rs
		}},
		{name: "an end too early", deliver: func(rs []stream.Record) []stream.Record {
			return slices.DeleteFunc(rs, func(r stream.Record) bool { return r.Offset >= victim })
		}},
	}
}

func sends() []fault {
	isVictim := func(r *stream.Record) bool {
		_, i, _ := origin(r.Key)
		return i == 1
	}
	return []fault{
		{name: "acknowledged and not written", produce: func(p *faultyProducer, r *stream.Record) (stream.Receipt, error) {
			if isVictim(r) {
				return stream.Receipt{Topic: r.Topic, Offset: p.last.Load() + 1}, nil
			}
			return p.write(r)
		}},
		{name: "a receipt for another offset", produce: func(p *faultyProducer, r *stream.Record) (stream.Receipt, error) {
			receipt, err := p.write(r)
			if isVictim(r) {
				receipt.Offset++
			}
			return receipt, err
		}},
		{name: "written twice", produce: func(p *faultyProducer, r *stream.Record) (stream.Receipt, error) {
			if isVictim(r) {
				if receipt, err := p.write(r); err != nil {
					return receipt, err
				}
			}
			return p.write(r)
		}},
	}
}

// faultyClient is an engine with a fault.
type faultyClient struct {
	stream.Client
	fault  fault
	first  int // so many consumers have it, and those after them do not; 0: all have it
	opened atomic.Int64
}

func (c *faultyClient) NewConsumer(ctx context.Context, cc stream.ConsumerConfig) (stream.Consumer, error) {
	if c.fault.listen != nil && cc.Listener != nil {
		cc.Listener = c.fault.listen(cc.Listener)
	}
	inner, err := c.Client.NewConsumer(ctx, cc)
	if n := c.opened.Add(1); err != nil || c.first > 0 && n > int64(c.first) {
		return inner, err
	}
	return &faultyConsumer{Consumer: inner, fault: c.fault}, nil
}

func (c *faultyClient) Admin() stream.Admin { return &faultyAdmin{c.Client.Admin(), c.fault} }

func (c *faultyClient) NewProducer(ctx context.Context, pc stream.ProducerConfig) (stream.Producer, error) {
	inner, err := c.Client.NewProducer(ctx, pc)
	if err != nil || c.fault.produce == nil && !c.fault.more {
		return inner, err
	}
	p := &faultyProducer{Producer: inner, fault: c.fault}
	p.last.Store(-1)
	return p, nil
}

type faultyConsumer struct {
	stream.Consumer
	fault fault
	queue []stream.Record
}

func (c *faultyConsumer) PollInto(ctx context.Context, dst []stream.Record) (int, error) {
	if c.fault.deliver == nil {
		return c.Consumer.PollInto(ctx, dst)
	}
	if len(c.queue) == 0 {
		rs := make([]stream.Record, 256)
		n, err := c.Consumer.PollInto(ctx, rs)
		if err != nil {
			return 0, err
		}
		c.queue = c.fault.deliver(rs[:n])
	}
	n := copy(dst, c.queue)
	c.queue = c.queue[n:]
	return n, nil
}

func (c *faultyConsumer) CommitOffsets(ctx context.Context, o stream.Offsets) error {
	if c.fault.commit == nil {
		return c.Consumer.CommitOffsets(ctx, o)
	}
	return c.fault.commit(c.Consumer, o)
}

func (c *faultyConsumer) Assignment() []stream.TopicPartition {
	if c.fault.has == nil {
		return c.Consumer.Assignment()
	}
	return c.fault.has(c.Consumer.Assignment())
}

type faultyAdmin struct {
	stream.Admin
	fault fault
}

func (a *faultyAdmin) Groups(ctx context.Context, names ...string) ([]stream.GroupInfo, error) {
	infos, err := a.Admin.Groups(ctx, names...)
	if a.fault.groups != nil {
		a.fault.groups(infos)
	}
	return infos, err
}

// faultyProducer sends every record by itself.
type faultyProducer struct {
	stream.Producer
	fault fault
	last  atomic.Int64 // offset of the latest receipt
}

// write is what a producer without a fault does; no disk has to be waited for.
func (p *faultyProducer) write(r *stream.Record) (stream.Receipt, error) {
	written := *r
	written.Acks = stream.AcksWritten
	return p.Producer.ProduceSync(context.Background(), &written)
}

func (p *faultyProducer) ProduceSync(_ context.Context, r *stream.Record) (stream.Receipt, error) {
	produce := p.fault.produce
	if produce == nil {
		produce = (*faultyProducer).write
	}
	receipt, err := produce(p, r)
	p.last.Store(receipt.Offset)
	return receipt, err
}

func (p *faultyProducer) Close(ctx context.Context) error {
	if p.fault.more {
		if _, err := p.write(&stream.Record{Topic: topic}); err != nil {
			return err
		}
	}
	return p.Producer.Close(ctx)
}

func (p *faultyProducer) Produce(ctx context.Context, r *stream.Record, promise func(stream.Receipt, error)) {
	promise(p.ProduceSync(ctx, r))
}

func (p *faultyProducer) ProduceAll(ctx context.Context, rs []stream.Record, out []stream.Result) ([]stream.Result, error) {
	out = out[:0]
	for i := range rs {
		receipt, err := p.ProduceSync(ctx, &rs[i])
		if err != nil {
			return out, err
		}
		out = append(out, stream.Result{Receipt: receipt})
	}
	return out, nil
}

// A record that is lost, doubled, exchanged or changed in any way is noticed when everything is read back.
func TestFaultIsNoticed(t *testing.T) {
	const n = 1000
	g := newGenerator(100)
	for _, f := range append(deliveries(), fault{name: "no fault", deliver: func(rs []stream.Record) []stream.Record { return rs }}) {
		t.Run(f.name, func(t *testing.T) {
			e := &env{dir: t.TempDir(), open: func(string) (stream.Client, error) {
				eng, err := stream.OpenMemory(nil)
				return &faultyClient{Client: eng, fault: f}, err
			}}
			s, err := e.start(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := fill(t.Context(), s.client, g, 0, n); err != nil {
				t.Fatal(err)
			}
			_, err = s.readBack(t.Context(), 0, false, newChecker(g, 0, 1), n)
			t.Log(err)
			if (err == nil) != (f.name == "no fault") {
				t.Errorf("error %v", err)
			}
			if err := s.close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// faultsOf are faults that a workload has to notice: wherever it reads records, whatever it is told of those it sends, and what it is there for.
func faultsOf(w *workload) (all []fault) {
	kind, _, _ := strings.Cut(w.name, "/")
	if kind == "REBALANCE" {
		return ownerships()
	}
	all = sends()
	if kind == "COMMIT" {
		return append(all, commits()...)
	}
	all = append(all, fault{name: "one more is written in the end", more: true})
	for _, f := range deliveries() {
		switch f.name {
		case "a lost record", "a doubled record", "another value":
			all = append(all, f)
		case "two records exchanged, offsets not":
			if kind != "P9" { // where most polls have one record only
				all = append(all, f)
			}
		}
	}
	if strings.Contains(w.name, "/g") {
		all = append(all, positions()...)
	}
	return all
}

// What is lost, doubled, exchanged or wrong anywhere between those who send, read, commit or share and the log is noticed by every workload: exit status 1, and no result.
func TestFaultIsNoResult(t *testing.T) {
	for _, w := range workloads {
		for _, f := range faultsOf(w) {
			t.Run(w.name+"/"+f.name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				open := func(dir string) (stream.Client, error) {
					eng, err := openEngine(dir)
					return &faultyClient{Client: eng, fault: f}, err
				}
				status, out, _ := bench(t, dir, open, "-run", "^"+w.name+"$", "-n", tiny, "-rounds", "1", "-json")
				if status != exitFailed || out != "" {
					t.Errorf("status %d, output %q", status, out)
				}
				wantEmpty(t, dir)
			})
		}
	}
}

// What a timed pass over records has delivered is compared too, and not only what the pass behind it has.
func TestFaultInTimedPassIsNoResult(t *testing.T) {
	for name, readers := range map[string]int{"P8": 1, "P8/g1": 1, "P8/g4": 4} {
		for _, f := range deliveries() {
			switch {
			case f.name == "another value" || f.name == "another key" || f.name == "a header" || f.name == "another topic":
				continue // only the pass behind it looks at all bytes
			case f.name == "an end too early" && name != "P8":
				continue // a group is given up when it has waited for too long: TestGroupThatStopsIsGivenUp
			}
			t.Run(name+"/"+f.name, func(t *testing.T) {
				t.Parallel()
				open := func(dir string) (stream.Client, error) {
					eng, err := openEngine(dir)
					return &faultyClient{Client: eng, fault: f, first: readers}, err
				}
				status, out, _ := bench(t, t.TempDir(), open, "-run", "^"+name+"$", "-n", tiny, "-rounds", "1", "-json")
				if status != exitFailed || out != "" {
					t.Errorf("status %d, output %q", status, out)
				}
			})
		}
	}
}
