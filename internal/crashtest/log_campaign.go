package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/vfs"
	rlog "github.com/runnelmq/runnel/log"
)

// A LogCampaign runs random histories of one log on a simulated disk. After every operation of disk and checkpoints the
// disk is imaged as a loss of power or the end of the process would leave it; every image is recovered from and checked.
type LogCampaign struct {
	Seed   uint64 // of the first history; the next ones count up
	Cuts   int    // how many images to check
	Images string // directory for the image of a failure; "": the system's
}

// LogStats says what a campaign has done.
type LogStats struct {
	Histories, Ops, Cuts, Lives int
	Batches, Bytes              int
	Tidied                      int // trims, retentions and compactions
}

// Run returns after the wanted number of cuts, or with a *Failure.
func (c LogCampaign) Run() (LogStats, error) {
	var s LogStats
	for seed := c.Seed; s.Cuts < c.Cuts; seed++ {
		h := &logHistory{campaign: c, stats: &s, r: random(seed, 0)}
		h.run()
		s.Histories++
		if h.err == nil {
			continue
		}
		f := where(fmt.Sprintf("history of %d operations", h.ops), seed, h.err)
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

// A logHistory is one run.
type logHistory struct {
	campaign LogCampaign
	stats    *LogStats
	r        *rand.Rand
	shape    shape

	disk  *vfs.Sim
	st    *store
	log   *rlog.Log
	epoch int32
	want  logWant
	ops   int
	step  string

	images bool // taken after each operation
	inside bool // an append inside a sync is running
	nested bool // appends inside the next sync are wanted

	err    error
	failed *logImage
}

func (h *logHistory) run() {
	r := h.r
	h.shape = shape{SegmentBytes: int64(between(r, 2, 16)) << 10, IndexInterval: int64(between(r, 0, 4)) << 9}
	if h.shape.Clean = chance(r, 0.5); !h.shape.Clean && chance(r, 0.4) {
		h.shape.SegmentBytes = 1 << 30
	}
	if chance(r, 0.2) {
		h.shape.IndexBytes = 8 * between(r, 3, 20)
	}
	h.disk = vfs.NewSim(r.Uint64())
	h.disk.SetWriteBack([]float64{0, 0, 0.05, 0.4}[r.IntN(4)])
	if err := errors.Join(h.disk.Mkdir(root), h.disk.SyncDir(".")); err != nil {
		h.err = err
		return
	}
	h.st = &store{}
	h.err = contain(h.lives)
	if h.log != nil {
		h.images = false
		h.log.Abandon()
	}
}

func (h *logHistory) done() bool { return h.err != nil || h.stats.Cuts >= h.campaign.Cuts }

func (h *logHistory) lives() error {
	if err := h.open(); err != nil {
		return err
	}
	steps := between(h.r, 5, 80)
	size := between(h.r, 8, 160) << 10
	for range steps {
		bytes := 0
		for _, b := range h.want.Sent {
			bytes += len(b)
		}
		if h.done() || bytes > size {
			break
		}
		if err := h.act(); err != nil {
			return fmt.Errorf("%s: %w", h.step, err)
		}
		h.want.claim(h.log.DurableEnd())
	}
	if h.err != nil {
		return h.err
	}
	return nil
}

// open opens the log on what the disk and the store hold now.
func (h *logHistory) open() error {
	h.stats.Lives++
	h.disk.OnOp(func(op vfs.Op) { h.reached(op.String()) })
	h.st.reached = h.reached
	h.st.claimed = h.want.claim
	m := h.st.now()
	if m.Dirty {
		m.Epoch++
	}
	h.epoch = m.Epoch
	h.images = true
	var err error
	h.log, err = rlog.Open(h.shape.options(syncFS{h.disk, h.around}, h.st, m))
	if err != nil {
		h.log = nil
		return fmt.Errorf("open (%+v): %w", m, err)
	}
	n, err := h.want.verify(h.log, h.want.Written, h.want.end())
	if err == nil {
		err = checkFiles(h.disk, partitionDir(0), h.want.Start)
	}
	if err != nil {
		return err
	}
	// In place: the store's claimed refers to h.want.
	h.want = h.want.cut(n)
	h.want.claim(h.log.DurableEnd())
	return nil
}

// reached takes and checks images. The disk waits meanwhile.
func (h *logHistory) reached(op string) {
	h.ops++
	if !h.images || h.done() {
		return
	}
	h.stats.Ops++
	place := fmt.Sprintf("%s: operation %d, %s", h.step, h.ops, op)
	h.image(place, []float64{0, 1, -1, -1}[h.r.IntN(4)])
	if chance(h.r, 0.3) {
		h.image(place, 2)
	}
	if h.ops <= firstOps {
		// What happens once in the life of a partition happens here.
		for range 3 {
			h.image(place, drawKeep(h.r))
		}
	}
}

// firstOps is about how many operations it takes to make a partition and its first segment.
const firstOps = 20

func (h *logHistory) image(place string, keep float64) {
	if h.err != nil {
		return
	}
	im := take(h.disk, h.st, &h.want, h.shape, keep, h.r, 0, place)
	// What is checked must stay as it is, should it have to be written to a file.
	unused := *im
	unused.disk = im.disk.Crash()
	if err := im.check(&h.stats.Cuts); err != nil {
		h.err, h.failed = err, &unused
	}
}

// around appends while the disk is writing: such a batch is not covered by the sync that is running.
func (h *logHistory) around(string, bool) {
	if !h.nested || h.inside || !chance(h.r, 0.5) {
		return
	}
	b := h.batch()
	if !h.fits(len(b)) {
		return // it would roll, and wait for the sync that is running
	}
	h.inside = true
	step := h.step
	h.step += ", append while it syncs"
	if err := h.append(b); err != nil && h.err == nil {
		h.err = fmt.Errorf("%s: %w", h.step, err)
	}
	h.step, h.inside = step, false
}

// fits says whether a batch of this size leaves the active segment with room to spare.
func (h *logHistory) fits(size int) bool {
	if h.shape.IndexBytes > 0 {
		return false
	}
	base := activeBase(h.disk, partitionDir(0))
	for i := len(h.want.Sent) - 1; i >= 0 && h.want.Sent[i].BaseOffset() >= base; i-- {
		size += len(h.want.Sent[i])
	}
	return base >= 0 && int64(size) < h.shape.SegmentBytes
}

// act does the next thing.
func (h *logHistory) act() error {
	r := h.r
	ctx := context.Background()
	if h.shape.Clean && chance(r, 0.25) {
		h.step = "tidy"
		return h.tidy()
	}
	switch n := r.IntN(100); {
	case n < 55:
		h.step = "append"
		return h.append(h.batch())
	case n < 70:
		upto := h.want.Written
		if chance(r, 0.3) && upto > 0 {
			upto = 1 + r.Int64N(upto)
		}
		h.step = "wait"
		h.nested = true
		err := h.log.WaitDurable(ctx, upto)
		h.nested = false
		if err != nil {
			return err
		}
		h.want.claim(upto)
	case n < 75:
		h.step = "flush"
		h.nested = true
		upto := h.want.Written
		err := h.log.Flush(ctx)
		h.nested = false
		if err != nil {
			return err
		}
		h.want.claim(upto)
	case n < 82:
		h.step = "retry"
		return h.retry()
	case n < 86:
		h.step = "fencing"
		return h.want.checkProducers(h.log, producerIDs)
	case n < 91:
		h.step = "close and open"
		end, err := h.log.Close()
		if err != nil || end != h.want.Written {
			return fmt.Errorf("A2: closed at %d of %d, error %v", end, h.want.Written, err)
		}
		h.log = nil
		h.want.claim(end)
		if err := h.st.closed(end, chance(r, 0.5)); err != nil {
			return err
		}
		return h.open()
	case n < 96:
		h.step = "kill and open"
		return h.stop(2)
	default:
		h.step = "power cut and open"
		return h.stop(-1)
	}
	return nil
}

// tidy takes away what the log need not keep.
func (h *logHistory) tidy() error {
	h.stats.Tidied++
	if err := h.want.tidy(h.log, h.r, activeBase(h.disk, partitionDir(0))); err != nil {
		return err
	}
	// A segment that was the last one when the log start moved behind it goes with the next retention.
	return checkFiles(h.disk, partitionDir(0), 0)
}

// stop ends the process or the power and goes on with what is left.
func (h *logHistory) stop(keep float64) error {
	h.images = false
	im := take(h.disk, h.st, &h.want, h.shape, keep, h.r, 0, h.step)
	h.log.Abandon()
	h.log = nil
	h.disk = im.disk
	h.disk.SetWriteBack([]float64{0, 0, 0.05, 0.4}[h.r.IntN(4)])
	h.st = &store{Durable: im.Marks}
	if im.Cut {
		h.want.Written = h.want.Synced
	}
	return h.open()
}

// append appends a batch and images every operation of that.
func (h *logHistory) append(b batch.Batch) error {
	h.stats.Batches++
	h.stats.Bytes += len(b)
	return appendTo(h.log, &h.want, b, h.epoch)
}

// batch draws the next batch, of one of the producers or of none.
func (h *logHistory) batch() batch.Batch {
	return h.want.next(h.r, 0, 100, 600, 600, 2000, 6000)
}

// retry sends one of the last batches of a producer again.
func (h *logHistory) retry() error {
	p := h.want.producer(producerIDs[h.r.IntN(len(producerIDs))])
	if p == nil {
		return nil
	}
	b := p.last[max(0, len(p.last)-between(h.r, 1, remembered))]
	if b.LastOffset() < h.want.Start {
		return nil // it may be forgotten
	}
	a, err := h.log.Append(again(b))
	if err != nil || !a.Duplicate || a.Base != b.BaseOffset() || a.Last != b.LastOffset() {
		return fmt.Errorf("C1: the retry of %s was answered %+v, error %v", describe(b), a, err)
	}
	return nil
}
