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
		SyncInterval: []time.Duration{0, time.Millisecond}[h.r.IntN(2)],
		SyncBytes:    []int64{0, 4 << 10}[h.r.IntN(2)],
	}
	h.disk = vfs.NewSim(h.r.Uint64())
}

// end closes what is open.
func (h *engineHistory) end(err error) error {
	if h.life != nil {
		err = errors.Join(err, h.life.eng.Close())
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
	case n < 6:
		h.setStep("delete topic")
		return h.delete(ctx, &w)
	case n < 8:
		h.setStep("add partitions")
		return h.grow(ctx, &w)
	case n < 30:
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

func (h *engineHistory) create(ctx context.Context, w *engineWant) error {
	name := fmt.Sprintf("topic-%d", h.r.IntN(4))
	n := between(h.r, 1, 3)
	c := stream.TopicConfig{Partitions: n, SegmentBytes: int64(between(h.r, 1, 8)) << 10}
	if _, there := w.Topics[name]; there {
		if err := h.life.eng.Admin().CreateTopic(ctx, name, c); !errors.Is(err, stream.ErrTopicExists) {
			return fmt.Errorf("A10: %s was made twice: %w", name, err)
		}
		return nil
	}
	h.topics++
	t := topicWant{Life: h.topics, Asked: n, Parts: newParts(n)}
	h.update(func(w *engineWant) { w.Topics[name] = t })
	if err := h.life.eng.Admin().CreateTopic(ctx, name, c); err != nil {
		return err
	}
	t.Partitions, t.Asked = n, 0
	h.update(func(w *engineWant) { w.Topics[name] = t })
	return nil
}

func (h *engineHistory) delete(ctx context.Context, w *engineWant) error {
	names := w.names()
	name := names[h.r.IntN(len(names))]
	h.update(func(w *engineWant) {
		t := w.Topics[name]
		t.Deleting = true
		w.Topics[name] = t
	})
	if err := h.life.eng.Admin().DeleteTopic(ctx, name); err != nil {
		return err
	}
	h.update(func(w *engineWant) { delete(w.Topics, name) })
	return nil
}

func (h *engineHistory) grow(ctx context.Context, w *engineWant) error {
	names := w.names()
	name := names[h.r.IntN(len(names))]
	t := w.Topics[name]
	n := t.Partitions + 1
	if n > 4 {
		return nil
	}
	t.Asked = n
	t.Parts = append(t.Parts, newParts(1)...)
	h.update(func(w *engineWant) { w.Topics[name] = t })
	if err := h.life.eng.Admin().AddPartitions(ctx, name, n); err != nil {
		return err
	}
	t.Partitions, t.Asked = n, 0
	h.update(func(w *engineWant) { w.Topics[name] = t })
	return nil
}

// sending adds records that are about to be sent, and returns the offsets that they have to get.
func (h *engineHistory) sending(tps []stream.TopicPartition, ss []sentRecord) (offsets []int64) {
	h.stats.Records += len(ss)
	h.update(func(w *engineWant) {
		for i, tp := range tps {
			p := w.part(tp)
			offsets = append(offsets, int64(len(p.Sent)))
			p.Sent = append(p.Sent, ss[i])
		}
	})
	return offsets
}

func (h *engineHistory) received(tp stream.TopicPartition, offset int64, acks stream.Acks, rc stream.Receipt) (err error) {
	h.update(func(w *engineWant) {
		if err = w.receipt(tp, offset, acks, rc); err == nil {
			w.ack(tp, rc)
		}
	})
	return err
}

func (h *engineHistory) draw(largest int) sentRecord {
	s := sentRecord{}
	if chance(h.r, 0.95) {
		s.Value = fill(h.r, h.r.IntN(largest))
	}
	if chance(h.r, 0.4) {
		s.Key = fill(h.r, h.r.IntN(16))
	}
	return s
}

func (h *engineHistory) drawAcks() stream.Acks {
	if chance(h.r, 0.4) {
		return stream.AcksSynced
	}
	return stream.AcksWritten
}

// orNone sometimes asks for no acknowledgement instead.
func (h *engineHistory) orNone(a stream.Acks) stream.Acks {
	if chance(h.r, 0.1) {
		return stream.AcksNone
	}
	return a
}

func (h *engineHistory) produce(ctx context.Context, tp stream.TopicPartition) error {
	p, err := h.life.producer(ctx, "")
	if err != nil {
		return err
	}
	s, acks := h.draw(3000), h.orNone(h.drawAcks())
	offset := h.sending([]stream.TopicPartition{tp}, []sentRecord{s})[0]
	rc, err := p.ProduceSync(ctx, s.record(tp, acks))
	if err != nil {
		return err
	}
	return h.received(tp, offset, acks, rc)
}

func (h *engineHistory) several(tps []stream.TopicPartition) (at []stream.TopicPartition, ss []sentRecord, rs []stream.Record, acks []stream.Acks, offsets []int64) {
	for range between(h.r, 1, 30) {
		tp, s, a := tps[h.r.IntN(len(tps))], h.draw(400), h.drawAcks()
		if chance(h.r, 0.7) {
			a = stream.AcksWritten
		}
		a = h.orNone(a)
		at, ss, acks = append(at, tp), append(ss, s), append(acks, a)
		rs = append(rs, *s.record(tp, a))
	}
	return at, ss, rs, acks, h.sending(at, ss)
}

func (h *engineHistory) produceAll(ctx context.Context, tps []stream.TopicPartition) error {
	p, err := h.life.producer(ctx, "")
	if err != nil {
		return err
	}
	at, _, rs, acks, offsets := h.several(tps)
	out, err := p.ProduceAll(ctx, rs, nil)
	if err != nil || len(out) != len(rs) {
		return fmt.Errorf("A1: %d results for %d records, error %v", len(out), len(rs), err)
	}
	for i, res := range out {
		if err := errors.Join(res.Err, h.received(at[i], offsets[i], acks[i], res.Receipt)); err != nil {
			return err
		}
	}
	return nil
}

func (h *engineHistory) produceAsync(ctx context.Context, tps []stream.TopicPartition) error {
	p, err := h.life.producer(ctx, "")
	if err != nil {
		return err
	}
	at, _, rs, acks, offsets := h.several(tps)
	var mu sync.Mutex
	var errs []error
	promised := 0
	for i := range rs {
		p.Produce(ctx, &rs[i], func(rc stream.Receipt, err error) {
			if err == nil {
				err = h.received(at[i], offsets[i], acks[i], rc)
			}
			mu.Lock()
			defer mu.Unlock()
			promised++
			if err != nil {
				errs = append(errs, err)
			}
		})
	}
	err = p.Flush(ctx)
	mu.Lock()
	defer mu.Unlock()
	if err == nil && promised != len(rs) {
		err = fmt.Errorf("A1: %d of %d promises had run when Flush returned", promised, len(rs))
	}
	return errors.Join(append(errs, err)...)
}

// produceNamed sends a few records of a named producer, and some of them again. (C1)
func (h *engineHistory) produceNamed(ctx context.Context, tp stream.TopicPartition) error {
	name := engineNames[h.r.IntN(len(engineNames))]
	p, err := h.life.producer(ctx, name)
	if err != nil {
		return err
	}
	w := h.image()
	last := w.part(tp).last(name, int64(len(w.part(tp).Sent)))
	is, err := p.LastSequence(ctx, tp)
	if err != nil || is != last {
		return fmt.Errorf("C1: last sequence of %s in %v is %d, sent was %d, error %v", name, tp, is, last, err)
	}
	for range between(h.r, 1, 5) {
		acks := h.drawAcks()
		if chance(h.r, 0.2) && last > 0 {
			s := sentRecord{Name: name, Sequence: 1 + h.r.Int64N(last)}
			rc, err := p.ProduceSync(ctx, s.record(tp, acks))
			if err != nil || !rc.Duplicate {
				return fmt.Errorf("C1: sequence %d of %s in %v, which is at %d, got %+v, error %v", s.Sequence, name, tp, last, rc, err)
			}
			if acks == stream.AcksSynced {
				// The answer that it is there already has the strength of an acknowledgement.
				h.update(func(w *engineWant) {
					p := w.part(tp)
					for i, o := range p.Sent {
						if o.Name == name && o.Sequence >= s.Sequence {
							p.Synced = max(p.Synced, int64(i+1))
							break
						}
					}
				})
			}
			continue
		}
		s := h.draw(500)
		s.Name = name
		last += int64(between(h.r, 1, []int{1, 3}[h.r.IntN(2)]))
		s.Sequence = last
		offset := h.sending([]stream.TopicPartition{tp}, []sentRecord{s})[0]
		rc, err := p.ProduceSync(ctx, s.record(tp, acks))
		if err != nil {
			return err
		}
		if err := h.received(tp, offset, acks, rc); err != nil {
			return err
		}
	}
	return nil
}

// consume reads on from the committed offsets and commits. (E3)
func (h *engineHistory) consume(ctx context.Context, tps []stream.TopicPartition) (err error) {
	c, err := h.life.eng.NewConsumer(ctx, stream.ConsumerConfig{Group: engineGroup, ManualCommit: true, Reset: stream.ResetEarliest, MaxWait: -1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	if err := c.Assign(tps...); err != nil {
		return err
	}
	for range between(h.r, 1, 3) {
		o := stream.Offsets{}
		explicit := chance(h.r, 0.2)
		if explicit {
			tp := tps[h.r.IntN(len(tps))]
			w := h.image()
			o[tp] = stream.OffsetMetadata{Offset: h.r.Int64N(int64(len(w.part(tp).Sent)) + 1), LeaderEpoch: -1}
		} else {
			rs, err := c.Poll(ctx, between(h.r, 1, 40))
			if err != nil {
				return fmt.Errorf("A4: poll: %w", err)
			}
			w := h.image()
			for _, r := range rs {
				tp := stream.TopicPartition{Topic: r.Topic, Partition: r.Partition}
				if p := w.part(tp); r.Offset >= int64(len(p.Sent)) {
					return fmt.Errorf("A4: offset %d in %v, where %d records have been sent", r.Offset, tp, len(p.Sent))
				} else if err := p.Sent[r.Offset].matches(&r); err != nil {
					return fmt.Errorf("A4: offset %d of %v: %w", r.Offset, tp, err)
				}
			}
			if len(rs) == 0 {
				continue
			}
			// As in Kafka, a commit covers the position of every assigned partition that has one.
			for _, tp := range tps {
				at, err := c.Position(tp)
				if err != nil {
					return fmt.Errorf("E3: position: %w", err)
				}
				o[tp] = stream.OffsetMetadata{Offset: at}
			}
		}
		h.update(func(w *engineWant) {
			for tp, at := range o {
				w.part(tp).Asked = at.Offset
			}
		})
		if explicit {
			err = c.CommitOffsets(ctx, o)
		} else {
			err = c.Commit(ctx)
		}
		if err != nil {
			return fmt.Errorf("E3: commit: %w", err)
		}
		is, err := c.Committed(ctx, tps...)
		if err != nil {
			return fmt.Errorf("E3: committed: %w", err)
		}
		for tp, at := range o {
			if got, ok := is[tp]; ok && got.Offset != at.Offset || !ok && at.Offset > 0 {
				return fmt.Errorf("E3: %d was committed in %v, committed is %+v (%t)", at.Offset, tp, got, ok)
			} else if !ok {
				delete(o, tp)
			}
		}
		h.update(func(w *engineWant) {
			for tp, at := range o {
				p := w.part(tp)
				p.Commit, p.Asked = at.Offset, -1
				p.Synced = max(p.Synced, at.Offset)
			}
		})
	}
	return nil
}
