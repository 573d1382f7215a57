package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

const (
	engineDir   = "data"
	engineGroup = "g"
)

// engineNames are the names of the named producers that histories use.
var engineNames = []string{"source-a", "source-b"}

// An engineShape is what a history has drawn once for the whole of it.
type engineShape struct {
	SyncInterval, CleanInterval time.Duration
	SyncBytes, CleanMemory      int64
}

// events collects what the engine must not report after a mere crash.
type events struct {
	mu struct {
		sync.Mutex
		bad              []error
		removals, passes int64
	}
}

// count adds what retention and compaction have done.
func (e *events) count(s *EngineStats) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.Removals += e.mu.removals
	s.Passes += e.mu.passes
}

func (e *events) add(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.bad = append(e.mu.bad, err)
}

func (e *events) err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return errors.Join(e.mu.bad...)
}

func (s *engineShape) open(disk *vfs.Sim) (*stream.Engine, *events, error) {
	ev := &events{}
	eng, err := stream.Open(engineDir, &stream.Options{
		FS: disk, SyncInterval: s.SyncInterval, SyncBytes: s.SyncBytes, MinFree: -1,
		CleanInterval: s.CleanInterval, CleanMemory: s.CleanMemory, CleanRate: -1,
		Events: stream.Events{
			PartitionState: func(tp stream.TopicPartition, s stream.PartitionState, err error) {
				ev.add(fmt.Errorf("A1/A2: partition %v is %v: %w", tp, s, err))
			},
			StrayDirectory: func(from, to string) { ev.add(fmt.Errorf("A10: directory %s is a stray, now %s", from, to)) },
			OffsetClamped: func(group string, tp stream.TopicPartition, from, to int64) {
				ev.add(fmt.Errorf("E3: offset of %s in %v clamped from %d to %d", group, tp, from, to))
			},
			Expired: func(stream.TopicPartition, int, int64, int64) {
				ev.mu.Lock()
				defer ev.mu.Unlock()
				ev.mu.removals++
			},
			Compacted: func(stream.TopicPartition, int64, int64, int64, int64) {
				ev.mu.Lock()
				defer ev.mu.Unlock()
				ev.mu.passes++
			},
			Corrupt: func(err *stream.CorruptError) { ev.add(fmt.Errorf("A10/A12: %w", err)) },
			Quarantined: func(tp stream.TopicPartition, file, _ string, reason error) {
				ev.add(fmt.Errorf("A10/A12: %s of %v cannot be used: %w", file, tp, reason))
			},
		},
	})
	return eng, ev, err
}

// An engineImage is a disk after a stop and what the engine on it has to hold.
type engineImage struct {
	Shape engineShape
	Want  engineWant
	Cut   bool
	Clean bool // the engine had been closed
	Depth int
	Seed  uint64

	disk  *vfs.Sim
	place string
}

// takeEngine makes an image; want is called before and after, and keep is as for take.
func takeEngine(disk *vfs.Sim, want func() engineWant, s engineShape, keep float64, r *rand.Rand, depth int, place string) *engineImage {
	im := &engineImage{Shape: s, Depth: depth, Seed: r.Uint64()}
	before := want()
	if keep > 1 {
		im.disk = disk.Crash()
		im.place = place + ", kill"
	} else {
		im.disk = disk.Cut(vfs.Cut{Seed: r.Uint64(), Keep: keep})
		im.Cut = true
		im.place = fmt.Sprintf("%s, power cut keeping %.2g", place, keep)
	}
	after := want()
	im.Want = merge(&before, &after)
	return im
}

func (im *engineImage) check(count *int) error {
	*count++
	var inner []*engineImage
	err := contain(func() error { return im.recover(&inner) })
	for _, in := range inner {
		if err != nil {
			break
		}
		err = in.check(count)
	}
	if err != nil {
		return where(im.place, im.Seed, err)
	}
	return nil
}

// recover opens the engine, checks it, lets it live on, and leaves the images taken meanwhile in inner.
func (im *engineImage) recover(inner *[]*engineImage) (err error) {
	ctx := context.Background()
	r := random(im.Seed, 1)
	eng, ev, err := im.Shape.open(im.disk)
	if err != nil {
		return fmt.Errorf("A1/A2: open: %w", err)
	}
	w := im.Want.image()
	defer func() {
		err = errors.Join(err, eng.Close(), ev.err())
	}()
	if err := w.verify(ctx, eng, im.Cut); err != nil {
		return err
	}
	if im.Depth >= 2 || chance(r, 0.3) {
		return nil
	}

	// The engine lives on, and stops again. Everything is the driver's own here: no image is taken in the middle of a call.
	e := &engineLife{eng: eng, w: &w, names: map[string]stream.Producer{}}
	if err := e.resend(ctx, im.Want.image(), r); err != nil {
		return err
	}
	if chance(r, 0.5) {
		if err := e.commit(ctx, r); err != nil {
			return err
		}
	}
	for _, tp := range w.partitions() {
		if chance(r, 0.5) {
			continue
		}
		acks := stream.AcksWritten
		if chance(r, 0.3) {
			acks = stream.AcksSynced
		}
		if err := e.produce(ctx, tp, acks, r); err != nil {
			return err
		}
	}
	*inner = append(*inner, takeEngine(im.disk, w.image, im.Shape, drawKeep(r), r, im.Depth+1, "after recovery"))
	if chance(r, 0.3) {
		if err := eng.Close(); err != nil {
			return fmt.Errorf("F1: close: %w", err)
		}
		w.closed()
		in := takeEngine(im.disk, w.image, im.Shape, drawKeep(r), r, im.Depth+1, "after close")
		*inner = append(*inner, in)
	}
	return nil
}

// opened records a new life: after one that had written and was not closed in order the epoch rises. (A5, A9)
func (w *engineWant) opened() {
	w.Must = w.Epoch
	if w.Used {
		w.Must++
	}
	w.Used = false
}

// closed records that the engine was closed in order: everything is durable, and the epoch need not rise.
func (w *engineWant) closed() {
	w.Used = false
	for _, tp := range w.partitions() {
		p := w.part(tp)
		p.Written = int64(len(p.Sent))
		p.Synced = p.Written
	}
}

// An engineLife is an engine that is driven by one goroutine with nothing in flight between calls.
type engineLife struct {
	eng   *stream.Engine
	w     *engineWant
	names map[string]stream.Producer
}

func (e *engineLife) producer(ctx context.Context, name string) (stream.Producer, error) {
	p := e.names[name]
	if p != nil {
		return p, nil
	}
	p, err := e.eng.NewProducer(ctx, stream.ProducerConfig{Name: name, Partitioner: stream.ManualPartitioner()})
	if err != nil {
		return nil, fmt.Errorf("C1: producer %q: %w", name, err)
	}
	e.names[name] = p
	return p, nil
}

// receipt checks a receipt for a record that was expected at an offset.
func (w *engineWant) receipt(tp stream.TopicPartition, offset int64, acks stream.Acks, rc stream.Receipt) error {
	if acks == stream.AcksNone {
		// Nothing is promised, but it is in its place if it is there.
		if rc.Topic != tp.Topic || rc.Partition != tp.Partition || rc.Offset != -1 || rc.Acks != acks {
			return fmt.Errorf("A1: the record for %v without an acknowledgement got the receipt %+v", tp, rc)
		}
		return nil
	}
	if rc.Topic != tp.Topic || rc.Partition != tp.Partition || rc.Offset != offset || rc.Duplicate || rc.Acks < acks {
		return fmt.Errorf("A5/C1: the record for %v at %d with %v got the receipt %+v", tp, offset, acks, rc)
	}
	if rc.LeaderEpoch < w.Must {
		return fmt.Errorf("A5/A9: epoch %d of the new record %d in %v, want at least %d", rc.LeaderEpoch, offset, tp, w.Must)
	}
	return nil
}

// ack records a receipt.
func (w *engineWant) ack(tp stream.TopicPartition, rc stream.Receipt) {
	w.Epoch, w.Used = max(w.Epoch, rc.LeaderEpoch), true
	if rc.Acks == stream.AcksNone {
		return
	}
	p := w.part(tp)
	p.Written = max(p.Written, rc.Offset+1)
	if rc.Acks == stream.AcksSynced {
		p.Synced = max(p.Synced, rc.Offset+1)
	}
}

// produce sends one record without a name.
func (e *engineLife) produce(ctx context.Context, tp stream.TopicPartition, acks stream.Acks, r *rand.Rand) error {
	s := sentRecord{Key: fill(r, 1+r.IntN(4)), Value: fill(r, r.IntN(600))}
	return e.send(ctx, tp, s, acks)
}

func (e *engineLife) send(ctx context.Context, tp stream.TopicPartition, s sentRecord, acks stream.Acks) error {
	p, err := e.producer(ctx, s.Name)
	if err != nil {
		return err
	}
	pw := e.w.part(tp)
	pw.Sent = append(pw.Sent, s)
	rc, err := p.ProduceSync(ctx, s.record(tp, acks))
	if err != nil {
		return fmt.Errorf("A1: produce to %v: %w", tp, err)
	}
	if err := e.w.receipt(tp, int64(len(pw.Sent)-1), acks, rc); err != nil {
		return err
	}
	e.w.ack(tp, rc)
	return nil
}

func (s *sentRecord) record(tp stream.TopicPartition, acks stream.Acks) *stream.Record {
	return &stream.Record{Topic: tp.Topic, Partition: tp.Partition, Key: s.Key, Value: s.Value, Sequence: s.Sequence, Acks: acks}
}

// resend does what a source does after a crash: it sends again what lies above LastSequence, and gets it in once. (C1)
func (e *engineLife) resend(ctx context.Context, before engineWant, r *rand.Rand) error {
	for _, tp := range e.w.partitions() {
		p := e.w.part(tp)
		n := len(p.Sent)
		all := before.part(tp).Sent
		if n > 0 && p.Sent[n-1].Name != "" {
			s := p.Sent[n-1].keyed()
			pr, err := e.producer(ctx, s.Name)
			if err != nil {
				return err
			}
			rc, err := pr.ProduceSync(ctx, s.record(tp, stream.AcksWritten))
			if err != nil || !rc.Duplicate {
				return fmt.Errorf("C1: sequence %d of %s was in %v and got %+v, error %v", s.Sequence, s.Name, tp, rc, err)
			}
		}
		for _, s := range all[n:] {
			if s.Name == "" || chance(r, 0.1) {
				continue // gaps are allowed
			}
			acks := stream.AcksWritten
			if chance(r, 0.2) {
				acks = stream.AcksSynced
			}
			if err := e.send(ctx, tp, s.keyed(), acks); err != nil {
				return err
			}
		}
	}
	return nil
}

// commit commits the end of some partitions: what was recovered may not have been acknowledged as synced, but has to be
// from now on. (E3)
func (e *engineLife) commit(ctx context.Context, r *rand.Rand) (err error) {
	c, err := e.eng.NewConsumer(ctx, stream.ConsumerConfig{Group: engineGroup, ManualCommit: true, MaxWait: -1})
	if err != nil {
		return fmt.Errorf("E3: consumer: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	tps := e.w.partitions()
	if err := c.Assign(tps...); err != nil {
		return fmt.Errorf("E3: assign: %w", err)
	}
	o := stream.Offsets{}
	for _, tp := range tps {
		if chance(r, 0.5) {
			o[tp] = stream.OffsetMetadata{Offset: int64(len(e.w.part(tp).Sent)), LeaderEpoch: -1}
		}
	}
	if err := c.CommitOffsets(ctx, o); err != nil {
		return fmt.Errorf("E3: commit: %w", err)
	}
	for tp, at := range o {
		p := e.w.part(tp)
		p.Commit = at.Offset
		p.Synced = max(p.Synced, at.Offset)
	}
	return nil
}

// save writes an image to a file of dir and returns its name.
func (im *engineImage) save(dir string) (string, error) {
	return saveImage(dir, im.disk, imageFile{Engine: im})
}
