package stream_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

var producerHistories = flag.Int("producerhistories", 300, "random histories of TestProducersAsAModel, a quarter with -short; NIGHT: 100000")

// A1, A2, C1, F2, F4: whatever producers are asked for, and whatever fails and ends meanwhile: nothing is lost that was acknowledged, at the level asked; nothing is there that was refused; nothing is
// there twice; order is kept; receipts say where records are; and a named client that sends again what it has no answer for, or what LastSequence says, has each record once in the end.
func TestProducersAsAModel(t *testing.T) {
	first := newRand(t).Uint64() >> 1
	if *seedFlag != 0 {
		first = *seedFlag
	}
	n := *producerHistories
	if testing.Short() {
		n = (n + 3) / 4
	}
	for i := range n {
		seed := first + uint64(i)
		synctest.Test(t, func(t *testing.T) {
			(&producerHistory{t: t, r: rand.New(rand.NewPCG(seed, 7)), m: newProducerModel(t, seed)}).run()
		})
		if t.Failed() {
			t.Fatalf("history %d of %d; repeat with -args -producerhistories=1 -seed=%d", i, n, seed)
		}
	}
}

// A producerHistory is some lives of a directory.
type producerHistory struct {
	t     *testing.T
	r     *rand.Rand
	m     *producerModel
	d     *slowDisk
	eng   *stream.Engine
	parts int
	names int
	rolls bool // segments are small
}

func (h *producerHistory) run() {
	h.d = &slowDisk{Sim: vfs.NewSim(h.r.Uint64())}
	defer func() {
		h.heal()
		_ = h.eng.Close()
	}()
	h.parts, h.names, h.rolls = 1+h.r.IntN(3), h.r.IntN(3), h.r.IntN(2) == 0
	h.m.check(h.open(), 0)
	c := stream.TopicConfig{Partitions: h.parts}
	if h.rolls {
		c.SegmentBytes = 4096
	}
	check(h.t, h.eng.Admin().CreateTopic(context.Background(), "a", c))
	lives := 1 + h.r.IntN(4)
	for life := range lives {
		h.life(life)
		h.m.check(h.open(), h.parts)
	}
	for _, d := range h.drivers(lives) {
		if d.named {
			d.finish(h.t)
		}
		check(h.t, d.p.Close(context.Background()))
	}
	h.m.closed()
	h.m.check(h.eng, h.parts)
	check(h.t, h.eng.Close())
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	for name, c := range h.m.chains {
		for _, it := range c.items {
			if c.named && it.at < 0 {
				h.t.Fatalf("seed %d: %s/%d is missing in the end", h.m.seed, name, it.n)
			}
		}
	}
}

func (h *producerHistory) open() *stream.Engine {
	h.d.SetWriteBack(0.2)
	h.eng = must(stream.Open("/data", &stream.Options{FS: h.d, MinFree: -1, SyncInterval: time.Duration(50+h.r.IntN(2000)) * time.Millisecond, Events: stream.Events{
		PartitionState: func(tp stream.TopicPartition, s stream.PartitionState, _ error) {
			if s == stream.PartitionOK {
				h.m.mu.Lock()
				defer h.m.mu.Unlock()
				if h.m.tainted[tp.Partition] && !h.m.dead {
					h.m.lost(tp.Partition)
				}
			}
		},
	}}))(h.t)
	return h.eng
}

// drivers makes the producers of a life: plain ones, and one for each name.
func (h *producerHistory) drivers(life int) (ds []*driver) {
	for i := range h.names + 1 + h.r.IntN(2) {
		r := rand.New(rand.NewPCG(h.r.Uint64(), 0))
		c := stream.ProducerConfig{
			Acks: stream.Acks(r.IntN(4)), Partitioner: stream.ManualPartitioner(),
			Linger:    []time.Duration{0, 0, time.Millisecond, 7 * time.Millisecond, 100 * time.Millisecond}[r.IntN(5)],
			BatchSize: []int{1, 150, 400, 0}[r.IntN(4)], MaxInFlight: 1 + r.IntN(5), MaxBlock: []time.Duration{-1, 10 * time.Millisecond, time.Second, 0}[r.IntN(4)],
			DeliveryTimeout: []time.Duration{0, 0, 150 * time.Millisecond, 2 * time.Second}[r.IntN(4)], Retries: []int{0, 2, -1}[r.IntN(3)],
			Compression: stream.Compression(r.IntN(5)),
		}
		if c.BatchSize != 0 && r.IntN(2) == 0 {
			c.BufferMemory = int64(1200 + r.IntN(2000))
		}
		d := &driver{m: h.m, r: r, acks: c.Acks, name: fmt.Sprintf("%d.%d", life, i), parts: h.parts, quiet: r.IntN(3) == 0}
		if d.acks == stream.AcksDefault {
			d.acks = stream.AcksSynced
		}
		if i < h.names {
			c.Name, d.name, d.named = fmt.Sprint("n", i), fmt.Sprint("n", i), true
			if c.Acks == stream.AcksNone {
				c.Acks, d.acks = stream.AcksWritten, stream.AcksWritten
			}
		}
		d.p = must(h.eng.NewProducer(context.Background(), c))(h.t)
		d.start(h.t)
		ds = append(ds, d)
	}
	return ds
}

// life is one process: producers at work, faults, and an end: in order, or by a crash, or by a loss of power.
func (h *producerHistory) life(number int) {
	ds := h.drivers(number)
	ctx, end := context.WithCancel(context.Background())
	defer end()
	var working, trouble sync.WaitGroup
	calls := 10 + h.r.IntN(60)
	for _, d := range ds {
		d.life = ctx
		working.Go(func() { d.run(calls) })
	}
	r := rand.New(rand.NewPCG(h.r.Uint64(), 0))
	trouble.Go(func() { h.trouble(ctx, r) })

	how := h.r.IntN(4)
	if how < 2 { // the process, or the power, goes in the middle of it
		time.Sleep(time.Duration(h.r.IntN(1+calls*15)) * time.Millisecond)
		var image *vfs.Sim
		h.m.die(how == 0, func() {
			if image = h.d.Crash(); how == 0 {
				image = h.d.Cut(vfs.Cut{Seed: h.r.Uint64(), Keep: -1})
			}
		})
		end()
		trouble.Wait()
		working.Wait()
		h.heal()
		_ = h.eng.Close() // of a process that is no more: its goroutines have to end
		image.SetFree(-1)
		h.d = &slowDisk{Sim: image}
		return
	}
	if how == 2 {
		working.Wait()
		end()
		trouble.Wait()
		h.heal()
		time.Sleep(15 * time.Second) // partitions that failed are opened again
	}
	h.note("closing")
	for _, d := range ds {
		c, cancel := context.WithTimeout(context.Background(), time.Duration(h.r.IntN(200))*time.Millisecond)
		if h.r.IntN(2) == 0 {
			c = context.Background()
		}
		_ = d.p.Close(c)
		cancel()
	}
	end()
	trouble.Wait()
	working.Wait()
	h.heal()
	time.Sleep(15 * time.Second)
	check(h.t, h.eng.Close())
	synctest.Wait()
	h.m.closed()
}

func (h *producerHistory) note(fault string) {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	h.m.faults[fault] = true
}

func (h *producerHistory) heal() {
	h.d.onSync(nil)
	h.d.Inject(nil)
}

// trouble is what the disk does meanwhile: nothing, or syncs that fail, no space, or slow syncs, which come and go.
func (h *producerHistory) trouble(ctx context.Context, r *rand.Rand) {
	kind := []string{"", "sync", "full", "slow"}[r.IntN(4)]
	if h.rolls && kind == "slow" {
		return // the sync of a segment that is full holds a lock: no bubble goes on then
	}
	d := h.d
	for ctx.Err() == nil && kind != "" {
		if wait(ctx, time.Duration(r.IntN(300))*time.Millisecond); ctx.Err() != nil {
			return
		}
		part := r.IntN(h.parts)
		dir := fmt.Sprintf("topics/a-%d/", part)
		h.note(kind)
		switch kind {
		case "sync":
			d.Inject(func(op vfs.Op) error {
				if op.Kind == vfs.OpSync && strings.Contains(op.Name, dir) {
					h.m.mu.Lock()
					h.m.tainted[int32(part)] = true
					h.m.mu.Unlock()
					return syscall.EIO
				}
				return nil
			})
		case "full":
			d.Inject(func(op vfs.Op) error {
				if strings.Contains(op.Name, dir) && (op.Kind == vfs.OpReserve || op.Kind == vfs.OpCreate) {
					return vfs.ErrNoSpace
				}
				return nil
			})
		case "slow":
			most := 1 + r.IntN(400)
			seed := r.Uint64()
			d.onSync(func(name string) {
				seed := seed + uint64(time.Now().UnixNano())
				time.Sleep(time.Duration(seed%uint64(most)) * time.Millisecond)
			})
		}
		wait(ctx, time.Duration(r.IntN(600))*time.Millisecond)
		h.heal()
	}
}

// wait sleeps for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
