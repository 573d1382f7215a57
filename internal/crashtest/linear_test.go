package crashtest

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/runnelmq/runnel/stream"
)

var histories = flag.Int("histories", 100, "histories of concurrent operations that are checked to be linearizable; CI: 1000")

const (
	linearClients = 8
	linearOps     = 100 // of each client
)

type linearKind uint8

const (
	linearAppend linearKind = iota // id is appended at offset
	linearRead                     // at offset there is id, or nothing (0)
	linearEnd                      // the end is offset
	linearKill                     // the process ends; after it there are the records below offset
	linearCut                      // the power goes; after it there are the records below offset
)

type linearInput struct {
	kind   linearKind
	id     uint32 // append
	offset int64  // read
	life   int    // append
}

type linearOutput struct {
	id     uint32 // read
	offset int64  // append, end, kill, cut
	synced bool   // append
	maybe  bool   // an append without an answer: if it has happened, it is at offset
}

// A linearState is what a partition is to those who use it.
type linearState struct {
	ids    []uint32
	synced int64 // what a loss of power cannot take
	life   int
}

// appendOnlyList allows a loss of power to take a suffix that was not acknowledged as synced, and the end of a process nothing. An append
// without an answer has happened if it comes before the stop of its life, and never will if it comes after.
var appendOnlyList = porcupine.Model{
	Init: func() any { return linearState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(linearState), input.(linearInput), output.(linearOutput)
		end := int64(len(s.ids))
		switch in.kind {
		case linearAppend:
			if out.maybe && in.life < s.life {
				return true, s
			}
			if out.offset != end || in.life != s.life {
				return false, s
			}
			s.ids = append(s.ids[:end:end], in.id)
			if out.synced {
				s.synced = end + 1
			}
			return true, s
		case linearRead:
			if in.offset >= end {
				return out.id == 0, s
			}
			return out.id == s.ids[in.offset], s
		case linearEnd:
			return out.offset == end, s
		default:
			if out.offset > end || out.offset < s.synced || in.kind == linearKill && out.offset < end {
				return false, s
			}
			s.ids = s.ids[:out.offset]
			s.life++
			return true, s
		}
	},
	Equal: func(a, b any) bool {
		s, o := a.(linearState), b.(linearState)
		return s.life == o.life && s.synced == o.synced && slices.Equal(s.ids, o.ids)
	},
	DescribeOperation: func(input, output any) string {
		in, out := input.(linearInput), output.(linearOutput)
		switch in.kind {
		case linearAppend:
			return fmt.Sprintf("append(%d) at %d, unanswered %t", in.id, out.offset, out.maybe)
		case linearRead:
			return fmt.Sprintf("read(%d) = %d", in.offset, out.id)
		case linearEnd:
			return fmt.Sprintf("end() = %d", out.offset)
		case linearKill:
			return fmt.Sprintf("kill, end %d", out.offset)
		default:
			return fmt.Sprintf("power cut, end %d", out.offset)
		}
	},
}

// A linearHistory records what the clients of one partition do.
type linearHistory struct {
	eng     *stream.Engine
	tp      stream.TopicPartition
	clock   atomic.Int64
	ids     atomic.Uint32
	end     atomic.Int64 // about where the log ends: where it is worth reading
	life    int
	stopped atomic.Bool // this life is over: what is done from here on does not count
	mu      struct {
		sync.Mutex
		ops []porcupine.Operation
	}
}

func (h *linearHistory) add(client int, call int64, in linearInput, out linearOutput) {
	op := porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: h.clock.Add(1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.ops = append(h.mu.ops, op)
}

// B3, A4: append, read and end offset of a partition are linearizable, and no reader sees half a batch.
func TestPartitionIsLinearizable(t *testing.T) {
	start := startSeed(t)
	ops := 0
	for s := start; s < start+uint64(*histories); s++ {
		h, err := runLinear(t.Context(), s)
		if err != nil {
			t.Fatalf("seed %d: %v", s, err)
		}
		ops += len(h.mu.ops)
		h.check(t, s)
	}
	t.Logf("%d histories, %d operations", *histories, ops)
}

// check looks for an order of the operations that explains them.
func (h *linearHistory) check(t *testing.T, seed uint64) {
	t.Helper()
	if porcupine.CheckOperations(appendOnlyList, h.mu.ops) {
		return
	}
	_, info := porcupine.CheckOperationsVerbose(appendOnlyList, h.mu.ops, 0)
	f, err := os.CreateTemp(*images, "runnel-linear-*.html")
	if err == nil {
		err = errors.Join(porcupine.Visualize(appendOnlyList, info, f), f.Close())
	}
	t.Fatalf("seed %d: B3: the history is not linearizable; drawn in %s (%v)", seed, f.Name(), err)
}

func runLinear(ctx context.Context, seed uint64) (h *linearHistory, err error) {
	r := random(seed, 6)
	eng, err := stream.OpenMemory(nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	h = &linearHistory{eng: eng, tp: stream.TopicPartition{Topic: "t"}}
	if err := eng.Admin().CreateTopic(ctx, "t", stream.TopicConfig{SegmentBytes: int64(between(r, 1, 16)) << 10}); err != nil {
		return nil, err
	}
	return h, h.clients(ctx, seed, linearOps)
}

// clients run until each has done some operations, or until this life is over.
func (h *linearHistory) clients(ctx context.Context, seed uint64, ops int) error {
	shared, err := h.eng.NewProducer(ctx, stream.ProducerConfig{})
	if err != nil {
		return err
	}
	errs := make([]error, linearClients)
	var wg sync.WaitGroup
	for i := range errs {
		r := random(seed, uint64(100+i))
		wg.Go(func() { errs[i] = h.client(ctx, i, r, shared, ops) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (h *linearHistory) client(ctx context.Context, client int, r *rand.Rand, p stream.Producer, ops int) (err error) {
	if client%2 == 1 {
		if p, err = h.eng.NewProducer(ctx, stream.ProducerConfig{}); err != nil {
			return err
		}
	}
	c, err := h.eng.NewConsumer(ctx, stream.ConsumerConfig{Reset: stream.ResetNone, MaxWait: -1, Borrow: client%4 == 0})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	if err := c.Assign(h.tp); err != nil {
		return err
	}
	for n := 0; n < ops && !h.stopped.Load(); n++ {
		switch k := r.IntN(10); {
		case k < 3:
			rec, in := h.record(r)
			call := h.clock.Add(1)
			rc, err := p.ProduceSync(ctx, rec)
			if err != nil {
				return fmt.Errorf("append: %w", err)
			}
			h.appended(client, call, in, rc)
		case k < 4:
			rs := make([]stream.Record, between(r, 2, 4))
			ins := make([]linearInput, len(rs))
			for i := range rs {
				rec, in := h.record(r)
				rs[i], ins[i] = *rec, in
			}
			n += len(rs) - 1
			call := h.clock.Add(1)
			out, err := p.ProduceAll(ctx, rs, nil)
			if err != nil {
				return fmt.Errorf("append all: %w", err)
			}
			for i := range out {
				h.appended(client, call, ins[i], out[i].Receipt)
			}
		case k < 5:
			rec, in := h.record(r)
			done := make(chan error, 1)
			call := h.clock.Add(1)
			p.Produce(ctx, rec, func(rc stream.Receipt, err error) {
				if err == nil {
					h.appended(client, call, in, rc)
				}
				done <- err
			})
			if chance(r, 0.5) {
				err = <-done
			} else if err = p.Flush(ctx); err == nil {
				err = <-done
			}
			if err != nil {
				return fmt.Errorf("append async: %w", err)
			}
		case k < 8:
			if err := h.read(ctx, client, c, max(0, h.end.Load()+int64(between(r, -8, 2)))); err != nil {
				return err
			}
		default:
			call := h.clock.Add(1)
			ends, err := h.eng.Admin().EndOffsets(ctx, h.tp)
			if err != nil {
				return fmt.Errorf("end: %w", err)
			}
			h.add(client, call, linearInput{kind: linearEnd}, linearOutput{offset: ends[h.tp].Offset})
		}
	}
	return nil
}

// record draws a record that carries its id and what follows from it.
func (h *linearHistory) record(r *rand.Rand) (*stream.Record, linearInput) {
	id := h.ids.Add(1)
	acks := stream.AcksWritten
	if chance(r, 0.3) {
		acks = stream.AcksSynced
	}
	return &stream.Record{Topic: h.tp.Topic, Value: linearValue(id), Acks: acks}, linearInput{kind: linearAppend, id: id, life: h.life}
}

func linearValue(id uint32) []byte {
	r := random(uint64(id), 7)
	return append(binary.BigEndian.AppendUint32(nil, id), fill(r, r.IntN(300))...)
}

func (h *linearHistory) appended(client int, call int64, in linearInput, rc stream.Receipt) {
	h.add(client, call, in, linearOutput{offset: rc.Offset, synced: rc.Acks == stream.AcksSynced})
	h.end.Store(rc.Offset + 1)
}

func (h *linearHistory) read(ctx context.Context, client int, c stream.Consumer, offset int64) error {
	in, out := linearInput{kind: linearRead, offset: offset}, linearOutput{}
	if err := c.Seek(h.tp, offset); err != nil {
		return fmt.Errorf("seek: %w", err)
	}
	call := h.clock.Add(1)
	rs, err := c.Poll(ctx, 1)
	switch {
	case errors.Is(err, stream.ErrOffsetOutOfRange): // behind the end
	case err != nil:
		return fmt.Errorf("read at %d: %w", offset, err)
	case len(rs) > 0:
		v := rs[0].Value
		if rs[0].Offset != offset || len(v) < 4 {
			return fmt.Errorf("A4: reading at %d found offset %d with %d bytes", offset, rs[0].Offset, len(v))
		}
		if out.id = binary.BigEndian.Uint32(v); !slices.Equal(v, linearValue(out.id)) {
			return fmt.Errorf("A4: record %d at offset %d is not what was sent", out.id, offset)
		}
	}
	h.add(client, call, in, out)
	return nil
}
