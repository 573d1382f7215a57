package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// An EngineCampaign runs random histories of a whole engine, its metadata store included, on a simulated disk. One
// goroutine drives the engine; the engine's own write beside it, so that a seed repeats what is done, but not always in
// which order the disk sees it: an image of a failure repeats that.
type EngineCampaign struct {
	Seed   uint64 // of the first history; the next ones count up
	Cuts   int    // how many images to check
	Images string // directory for the image of a failure; "": the system's
}

// EngineStats says what a campaign has done.
type EngineStats struct {
	Histories, Ops, Cuts, Lives int
	Records                     int
	Removals, Passes            int64 // of retention and of compaction
}

// Run returns after the wanted number of cuts, or with a *Failure.
func (c EngineCampaign) Run() (EngineStats, error) {
	var s EngineStats
	for seed := c.Seed; s.Cuts < c.Cuts; seed++ {
		h := &engineHistory{campaign: c, stats: &s, r: random(seed, 2)}
		err := contain(h.run)
		s.Histories++
		s.Ops += h.mu.ops
		if err == nil {
			continue
		}
		f := where(fmt.Sprintf("history of %d operations", h.mu.ops), seed, err)
		if h.failed != nil {
			name, err := h.failed.save(c.Images)
			f.Image = name
			if err != nil {
				f.Image = "not written: " + err.Error()
			}
		}
		return s, f
	}
	return s, nil
}

type engineHistory struct {
	campaign EngineCampaign
	stats    *EngineStats
	r        *rand.Rand
	shape    engineShape
	disk     *vfs.Sim
	topics   int      // lives of topics so far
	keep     *float64 // of all images; nil: drawn for each
	depth    int      // of images

	life *engineLife
	ev   *events

	failed *engineImage

	// What the goroutines of the engine see when they reach the disk. The lock of the disk is taken before this one.
	mu struct {
		sync.Mutex
		want   engineWant
		step   string
		r      *rand.Rand // for images
		rate   float64
		ops    int
		images []*engineImage
	}
}

func (h *engineHistory) run() (err error) {
	h.start()
	defer func() { err = h.end(err) }()
	rate := []float64{0.1, 0.3, 1}[h.r.IntN(3)]
	if err := h.open(rate); err != nil {
		return err
	}
	for range between(h.r, 20, 150) {
		if h.stats.Cuts >= h.campaign.Cuts {
			break
		}
		if err := h.act(rate); err != nil {
			return fmt.Errorf("%s: %w", h.mu.step, err)
		}
		if err := h.settle(); err != nil {
			return fmt.Errorf("%s: %w", h.mu.step, err)
		}
	}
	return nil
}

// start makes an empty disk.
func (h *engineHistory) start() {
	h.mu.r = random(h.r.Uint64(), 3)
	h.mu.want.Topics = map[string]topicWant{}
	h.shape = engineShape{
		SyncInterval:  []time.Duration{0, time.Millisecond}[h.r.IntN(2)],
		SyncBytes:     []int64{0, 4 << 10}[h.r.IntN(2)],
		CleanInterval: []time.Duration{0, time.Millisecond, 20 * time.Millisecond}[h.r.IntN(3)],
		CleanMemory:   []int64{0, 24 * 8}[h.r.IntN(2)],
	}
	h.disk = vfs.NewSim(h.r.Uint64())
}

// end closes what is open.
func (h *engineHistory) end(err error) error {
	if h.life != nil {
		err = errors.Join(err, h.life.eng.Close())
		h.ev.count(h.stats)
	}
	return err
}

// settle says what has gone wrong since the last call.
func (h *engineHistory) settle() error { return errors.Join(h.ev.err(), h.drain()) }

// update changes what has to be there, or what may be.
func (h *engineHistory) update(f func(w *engineWant)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(&h.mu.want)
}

func (h *engineHistory) image() engineWant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.want.image()
}

func (h *engineHistory) setStep(step string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.step = step
}

// open opens the engine on the disk and checks it.
func (h *engineHistory) open(rate float64) error {
	h.stats.Lives++
	h.disk.SetWriteBack([]float64{0, 0, 0.05, 0.3}[h.r.IntN(4)])
	h.mu.Lock()
	h.mu.rate = rate
	h.mu.Unlock()
	disk := h.disk
	disk.OnOp(func(op vfs.Op) { h.reached(disk, op) })
	eng, ev, err := h.shape.open(h.disk)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	h.life = &engineLife{eng: eng, names: map[string]stream.Producer{}}
	h.ev = ev
	// A copy, since what is wanted shrinks to what is there, and images are taken meanwhile.
	w := h.image()
	if err := w.verify(context.Background(), eng, false); err != nil {
		return err
	}
	h.update(func(old *engineWant) { *old = w })
	return nil
}

// reached is called by whoever has just changed the disk, which waits.
func (h *engineHistory) reached(disk *vfs.Sim, op vfs.Op) {
	h.mu.Lock()
	h.mu.ops++
	r := h.mu.r
	now := chance(r, h.mu.rate)
	place := fmt.Sprintf("%s: operation %d, %v", h.mu.step, h.mu.ops, op)
	h.mu.Unlock()
	if !now {
		return
	}
	keep := drawKeep(r)
	if h.keep != nil {
		keep = *h.keep
	}
	im := takeEngine(disk, h.image, h.shape, keep, r, h.depth, place)
	h.mu.Lock()
	h.mu.images = append(h.mu.images, im)
	h.mu.Unlock()
}

// drain checks the images that have been taken, as many at a time as there are processors: each is a disk and an engine of its own.
func (h *engineHistory) drain() error {
	h.mu.Lock()
	ims := h.mu.images
	h.mu.images = nil
	h.mu.Unlock()
	if left := max(0, h.campaign.Cuts-h.stats.Cuts); len(ims) > left {
		ims = ims[:left]
	}
	errs := make([]error, len(ims))
	var next, cuts atomic.Int64
	var wg sync.WaitGroup
	for range min(len(ims), runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(ims)); i = next.Add(1) - 1 {
				n := 0
				unused := *ims[i]
				unused.disk = ims[i].disk.Crash()
				unused.Want = ims[i].Want.image()
				if errs[i] = ims[i].check(&n); errs[i] != nil {
					next.Store(int64(len(ims))) // no others
				}
				cuts.Add(int64(n))
				ims[i] = &unused
			}
		})
	}
	wg.Wait()
	h.stats.Cuts += int(cuts.Load())
	for i, err := range errs {
		if err != nil {
			h.failed = ims[i]
			return err
		}
	}
	return nil
}

func (h *engineHistory) act(rate float64) error {
	ctx := context.Background()
	r := h.r
	w := h.image() // the driver is the only one to change it
	tps := w.partitions()
	n := r.IntN(100)
	switch {
	case len(w.Topics) == 0 || n < 4 && len(w.Topics) < 3:
		h.setStep("create topic")
		return h.create(ctx, &w)
	case n < 5:
		h.setStep("delete topic")
		return h.delete(ctx, &w)
	case n < 6:
		h.setStep("delete topic and make it again")
		return h.again(ctx, &w)
	case n < 8:
		h.setStep("add partitions")
		return h.grow(ctx, &w)
	case n < 11:
		h.setStep("alter topic")
		return h.alter(ctx, &w)
	case n < 15:
		h.setStep("delete records")
		return h.trim(ctx, tps)
	case n < 16:
		h.setStep("start offsets")
		return h.look(ctx, tps)
	case n < 32:
		h.setStep("produce")
		return h.produce(ctx, tps[r.IntN(len(tps))])
	case n < 45:
		h.setStep("produce all")
		return h.produceAll(ctx, tps)
	case n < 55:
		h.setStep("produce async")
		return h.produceAsync(ctx, tps)
	case n < 75:
		h.setStep("produce by name")
		return h.produceNamed(ctx, tps[r.IntN(len(tps))])
	case n < 90:
		h.setStep("consume")
		return h.consume(ctx, tps)
	case n < 94:
		h.setStep("close and open")
		return h.reopen(rate)
	case n < 97:
		h.setStep("kill and open")
		return h.stop(2, rate)
	default:
		h.setStep("power cut and open")
		return h.stop(-1, rate)
	}
}

// reopen closes the engine in order and opens it again.
func (h *engineHistory) reopen(rate float64) error {
	h.update(func(w *engineWant) { w.Used = false }) // a stop while it closes may come after the clean mark
	err := h.life.eng.Close()
	h.life = nil
	h.ev.count(h.stats)
	if err != nil {
		return fmt.Errorf("F1: close: %w", err)
	}
	h.update((*engineWant).closed)
	return h.open(rate)
}

func (h *engineHistory) partitions() []stream.TopicPartition {
	w := h.image()
	return w.partitions()
}

// stop goes on with an image.
func (h *engineHistory) stop(keep float64, rate float64) error {
	h.mu.Lock()
	h.mu.rate = 0
	h.mu.Unlock()
	im := takeEngine(h.disk, h.image, h.shape, keep, h.r, h.depth, h.mu.step)
	err := h.life.eng.Close()
	h.life = nil
	h.ev.count(h.stats)
	if err != nil {
		return fmt.Errorf("F1: close: %w", err)
	}
	if err := h.drain(); err != nil {
		return err
	}
	h.disk = im.disk
	h.update(func(w *engineWant) {
		*w = im.Want
		if im.Cut {
			for _, tp := range w.partitions() {
				w.part(tp).Written = w.part(tp).Synced
			}
		}
	})
	return h.open(rate)
}
