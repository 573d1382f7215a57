package crashtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

var crashHistories = flag.Int("crashhistories", 100, "histories of concurrent operations with stops and recoveries in them; CI: 1000")

// linearLives is how often the engine is opened in a history with stops.
const linearLives = 4

// B3, A1 to A4: append, read and end offset of a partition are linearizable also if the process ends or the power goes in between: an operation
// without an answer may have happened, and a loss of power may take a suffix of what was not acknowledged as synced.
func TestPartitionIsLinearizableAcrossStops(t *testing.T) {
	start := startSeed(t)
	begin := time.Now()
	ops, open := 0, 0
	for s := start; s < start+uint64(*crashHistories); s++ {
		h := &linearHistory{tp: stream.TopicPartition{Topic: "t"}}
		if err := contain(func() error { return h.lives(t.Context(), s) }); err != nil {
			t.Fatalf("seed %d: %v", s, err)
		}
		ops += len(h.mu.ops)
		for _, op := range h.mu.ops {
			if in := op.Input.(linearInput); in.kind == linearAppend && op.Output.(linearOutput).maybe {
				open++
			}
		}
		h.check(t, s)
	}
	t.Logf("%d histories, %d operations, %d of them appends without an answer, in %.1f s", *crashHistories, ops, open, time.Since(begin).Seconds())
}

// A linearStop is how a life ends.
type linearStop struct {
	kind        linearKind
	disk        *vfs.Sim
	call, until int64 // of the image
}

// lives runs the clients on a disk, stops it after one of its operations, and goes on with what is left.
func (h *linearHistory) lives(ctx context.Context, seed uint64) (err error) {
	r := random(seed, 13)
	disk := vfs.NewSim(seed)
	segment := int64(between(r, 1, 16)) << 10
	o := &stream.Options{MinFree: -1, SyncInterval: time.Millisecond}
	for h.life = range linearLives {
		disk.SetWriteBack([]float64{0, 0.1, 0.4}[r.IntN(3)])
		// Others get to run when a sync is done and has not returned: what they do then it does not cover.
		var syncing atomic.Bool
		o.FS = syncFS{disk, func(name string, done bool) {
			syncing.Store(isSegment(name))
			for range 4 {
				runtime.Gosched()
			}
			syncing.Store(syncing.Load() && !done)
		}}
		if h.eng, err = stream.Open(engineDir, o); err != nil {
			return fmt.Errorf("A1/A2: open: %w", err)
		}
		if h.life == 0 {
			err = h.eng.Admin().CreateTopic(ctx, h.tp.Topic, stream.TopicConfig{SegmentBytes: segment})
		} else {
			err = h.recovered(ctx)
		}
		if err != nil {
			return errors.Join(err, h.eng.Close())
		}
		if h.life == linearLives-1 {
			return errors.Join(h.readEverything(ctx), h.eng.Close())
		}
		// About as many operations of the disk as the clients do, metadata included.
		after, keep, cut := between(r, 1, 250), r.Float64()*1.4-0.2, r.Uint64()
		kind := []linearKind{linearKill, linearCut}[r.IntN(2)]
		h.stopped.Store(false)
		var stop linearStop
		image := func() {
			stop = linearStop{kind: kind, call: h.clock.Add(1)}
			if kind == linearKill {
				stop.disk = disk.Crash()
			} else {
				stop.disk = disk.Cut(vfs.Cut{Seed: cut, Keep: min(max(keep, 0), 1)})
			}
			stop.until = h.clock.Add(1)
			h.stopped.Store(true)
		}
		// Or soon after a write that a sync may seem to have covered and has not.
		late, soon := chance(r, 0.5), between(r, 1, 4)
		disk.OnOp(func(op vfs.Op) {
			after--
			switch {
			case after > 0 || h.stopped.Load():
			case late && !(op.Kind == vfs.OpWrite && isSegment(op.Name) && syncing.Load()):
			case late:
				late, after = false, soon
			default:
				image()
			}
		})
		err = h.clients(ctx, seed+uint64(h.life)<<32, linearOps/(linearLives-1))
		disk.OnOp(nil)
		if stop.disk == nil && err == nil {
			image()
		}
		if err = errors.Join(err, h.eng.Close()); err != nil {
			return err
		}
		h.cut(stop)
		disk = stop.disk
	}
	return nil
}

// cut takes back what was done after a stop. What was running has no answer any more.
func (h *linearHistory) cut(stop linearStop) {
	var kept []porcupine.Operation
	for _, op := range h.mu.ops {
		in := op.Input.(linearInput)
		switch {
		case op.Return < stop.call:
			kept = append(kept, op)
		case op.Call < stop.until && in.kind == linearAppend:
			// The engine that lived on has told where it is, if it is.
			op.Output = linearOutput{offset: op.Output.(linearOutput).offset, maybe: true}
			op.Return = stop.until + 1
			kept = append(kept, op)
		}
	}
	h.mu.ops = append(kept, porcupine.Operation{
		ClientId: linearClients, Input: linearInput{kind: stop.kind}, Call: stop.call, Return: stop.until,
	})
	h.clock.Store(stop.until + 1)
}

// recovered completes the stop before this life with what it has left.
func (h *linearHistory) recovered(ctx context.Context) error {
	ends, err := h.eng.Admin().EndOffsets(ctx, h.tp)
	if errors.Is(err, stream.ErrUnknownTopic) {
		return h.eng.Admin().CreateTopic(ctx, h.tp.Topic, stream.TopicConfig{})
	}
	if err != nil {
		return fmt.Errorf("A1/A2: end: %w", err)
	}
	h.mu.ops[len(h.mu.ops)-1].Output = linearOutput{offset: ends[h.tp].Offset}
	h.end.Store(ends[h.tp].Offset)
	return nil
}

// readEverything reads all offsets one by one.
func (h *linearHistory) readEverything(ctx context.Context) error {
	c, err := h.eng.NewConsumer(ctx, stream.ConsumerConfig{Reset: stream.ResetNone, MaxWait: -1})
	if err != nil {
		return err
	}
	err = c.Assign(h.tp)
	for at := int64(0); at <= h.end.Load() && err == nil; at++ {
		err = h.read(ctx, linearClients, c, at)
	}
	return errors.Join(err, c.Close(ctx))
}
