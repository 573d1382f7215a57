package crashtest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
	rlog "github.com/runnelmq/runnel/log"
)

// producerIDs are the producer ids that histories use.
var producerIDs = []int64{1000, 1001, 1002}

const (
	root       = "d"
	quarantine = "d/q"
)

// shape is what a history has drawn once for the whole of it.
type shape struct {
	SegmentBytes  int64
	IndexBytes    int
	IndexInterval int64
	Clean         bool // the log is trimmed, retained and compacted
}

func (s *shape) options(fs vfs.FS, st *store, m marks) rlog.Options { return s.of(0, fs, st, m) }

// of are the options of the log of partition i.
func (s *shape) of(i int, fs vfs.FS, st *store, m marks) rlog.Options {
	return rlog.Options{
		FS: fs, Dir: partitionDir(i), Quarantine: quarantine, Checkpoints: st,
		TopicPartition: kafka.TopicPartition{Topic: "t", Partition: int32(i)}, TopicID: "AAAAAAAAAAAAAAAAAAAAAA",
		Dirty: m.Dirty, RecoveryPoint: m.RecoveryPoint, Epoch: m.Epoch, LogStart: m.LogStart, Cleaned: m.Cleaned,
		Settings: rlog.Settings{SegmentBytes: s.SegmentBytes, IndexBytes: s.IndexBytes, IndexInterval: s.IndexInterval},
		MinFree:  1,
	}
}

func partitionDir(i int) string { return fmt.Sprintf("d/t-%d", i) }

// A logImage is a disk after a stop and what the log on it has to hold. It is checked by recovering from it.
type logImage struct {
	Shape shape
	Marks marks
	Want  logWant
	Cut   bool   // power was lost; else the process ended
	Exact int64  // where recovery has to find the end, -1 if that is not known
	Depth int    // stops before this one that were not followed by a full check of their own
	Seed  uint64 // decides what is done after recovery

	disk  *vfs.Sim
	place string
}

// maxDepth bounds images of images.
const maxDepth = 3

// take makes an image of a disk and a store. keep as in vfs.Cut; above 1 the process ends and the disk keeps all.
func take(disk *vfs.Sim, st *store, w *logWant, s shape, keep float64, r *rand.Rand, depth int, place string) *logImage {
	im := &logImage{Shape: s, Want: w.image(), Exact: -1, Depth: depth, Seed: r.Uint64()}
	if keep > 1 {
		im.disk = disk.Crash()
		im.place = place + ", kill"
	} else {
		im.disk = disk.Cut(vfs.Cut{Seed: r.Uint64(), Keep: keep})
		im.Cut = true
		im.place = fmt.Sprintf("%s, power cut keeping %.2g", place, keep)
	}
	im.Marks = st.image(r, min(keep, 1)).now()
	if im.Cut && chance(r, 0.5) {
		im.Marks = st.image(r, -1).now()
	}
	return im
}

// drawKeep draws what take does.
func drawKeep(r *rand.Rand) float64 {
	switch r.IntN(8) {
	case 0, 1:
		return 0
	case 2:
		return 1
	case 3, 4:
		return 2
	default:
		return -1
	}
}

func (im *logImage) lower() int64 {
	if im.Cut {
		return im.Want.Synced
	}
	return im.Want.Written
}

// check recovers from the image and says what is wrong with the result. It counts itself and the images inside it. The
// disk of the image is used up.
func (im *logImage) check(count *int) error {
	*count++
	var inner []*logImage
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

// recover opens the log, checks what is in it, lets it live on for a while, and leaves the images taken meanwhile in
// inner.
func (im *logImage) recover(inner *[]*logImage) error {
	r := random(im.Seed, 1)
	w := im.Want.image()
	st := &store{Durable: im.Marks, claimed: w.claim}
	m := im.Marks
	m.Epoch++
	if !m.Dirty && chance(r, 0.3) {
		m.Dirty = true // recovering what was closed in order changes nothing
	}

	rate := 0.0 // of operations after which an image is taken
	phase := ""
	reached := func(op string) {
		if chance(r, rate) {
			in := take(im.disk, st, &w, im.Shape, drawKeep(r), r, im.Depth+1, phase+op)
			*inner = append(*inner, in)
		}
	}
	im.disk.OnOp(func(op vfs.Op) { reached(op.String()) })
	st.reached = reached

	// A7: a stop in the middle of recovery, after one that kept only what was durable, changes nothing.
	if im.Depth < maxDepth && chance(r, 0.4) {
		rate, phase = 0.5, "recovering: "
		if im.Cut {
			w.Written = w.Synced
		}
	}
	l, err := rlog.Open(im.Shape.options(im.disk, st, m))
	rate = 0
	if err != nil {
		return fmt.Errorf("A1/A2: open (%+v): %w", m, err)
	}
	defer func() { l.Abandon() }()
	lower, upper := im.lower(), w.end()
	if im.Exact >= 0 {
		lower, upper = im.Exact, im.Exact
	}
	if l.StartOffset() != m.LogStart {
		return fmt.Errorf("A11: the log starts at %d, kept was %d", l.StartOffset(), m.LogStart)
	}
	n, err := w.verify(l, lower, upper)
	if err == nil {
		err = checkFiles(im.disk, partitionDir(0), w.Start)
	}
	if err != nil {
		return err
	}
	end := l.EndOffset()
	for _, in := range *inner {
		in.Want.Sent = in.Want.Sent[:n:n]
		in.Want.Written = min(in.Want.Written, end)
		if im.Cut || !in.Cut {
			in.Exact = end
		}
	}
	lost := im.Want.Sent[n:]
	w = w.cut(n)
	w.claim(l.DurableEnd())
	if end > 0 {
		if err := w.probe(l, r.Int64N(end)); err != nil {
			return err
		}
	}
	if im.Depth >= maxDepth || chance(r, 0.5) {
		return w.checkProducers(l, producerIDs)
	}

	// A6: the space of what was lost is filled by batches of the same sizes, and then the power goes again.
	rate, phase = 0.04, "after recovery: "
	if im.Shape.Clean && chance(r, 0.3) {
		if err := w.tidy(l, r, activeBase(im.disk, partitionDir(0))); err != nil {
			return err
		}
	}
	same := chance(r, 0.4) // the client retries what it got no answer for (C1)
	noise := func(n int) []byte { return fill(r, n) }
	lost = lost[:min(len(lost), between(r, 0, 4))]
	if same && len(lost) > 0 {
		if err := w.checkProducers(l, producerIDs); err != nil {
			return err
		}
	}
	for i := range len(lost) + r.IntN(3) {
		var b batch.Batch
		switch {
		case i >= len(lost):
			b = build(record{value: fill(r, r.IntN(2000))}, batch.NoProducer())
		case same:
			b = again(lost[i])
		default:
			if b, err = twin(lost[i], noise); err != nil {
				return err
			}
		}
		if err := appendTo(l, &w, b, m.Epoch); err != nil {
			return err
		}
		if chance(r, 0.3) {
			if err := l.WaitDurable(context.Background(), w.Written); err != nil {
				return fmt.Errorf("A2: wait: %w", err)
			}
			w.claim(w.Written)
		}
		if chance(r, 0.1) {
			if err := l.Flush(context.Background()); err != nil {
				return fmt.Errorf("A2: flush: %w", err)
			}
		}
		w.claim(l.DurableEnd())
	}
	if chance(r, 0.2) {
		end, err := l.Close()
		if err != nil || end != w.Written {
			return fmt.Errorf("A2: closed at %d of %d, error %v", end, w.Written, err)
		}
		w.claim(end)
		if err := st.closed(end, true); err != nil {
			return err
		}
		rate = 0
		m = st.now()
		if l, err = rlog.Open(im.Shape.options(im.disk, st, m)); err != nil {
			return fmt.Errorf("A2: open after close (%+v): %w", m, err)
		}
	}
	rate = 0
	if _, err := w.verify(l, w.Written, w.Written); err != nil {
		return err
	}
	if err := w.checkProducers(l, producerIDs); err != nil {
		return err
	}
	in := take(im.disk, st, &w, im.Shape, drawKeep(r), r, im.Depth+1, "after recovery")
	*inner = append(*inner, in)
	return nil
}

// appendTo appends a batch and checks the answer.
func appendTo(l *rlog.Log, w *logWant, b batch.Batch, epoch int32) error {
	want := bytes.Clone(b)
	batch.Batch(want).SetOffset(w.end(), epoch)
	w.Sent = append(w.Sent, want)
	a, err := l.Append(b)
	if err != nil {
		return fmt.Errorf("A1: append of %s: %w", describe(want), err)
	}
	ok := rlog.Appended{Base: batch.Batch(want).BaseOffset(), Last: batch.Batch(want).LastOffset(), LeaderEpoch: epoch}
	if a != ok || l.EndOffset() != ok.Last+1 {
		return fmt.Errorf("A5: append of %s was answered %+v, and the log ends at %d", describe(want), a, l.EndOffset())
	}
	if !bytes.Equal(b, want) {
		return fmt.Errorf("A5: append of %s made it %s", describe(want), describe(b))
	}
	w.Written = ok.Last + 1
	return nil
}

// save writes an image to a file of dir and returns its name.
func (im *logImage) save(dir string) (string, error) {
	return saveImage(dir, im.disk, imageFile{Log: im})
}
