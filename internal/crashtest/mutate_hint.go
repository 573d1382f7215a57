package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/vfs"
	rlog "github.com/runnelmq/runnel/log"
)

// A HintCampaign damages index files and producer snapshots of one log, one at a time. They are hints: the log has to give the
// same answers as without the damage. (A14, C3)
type HintCampaign struct {
	Seed      uint64
	Mutations int
	Images    string // directory for the image of a failure; "": the system's
}

// HintStats says what a campaign has done.
type HintStats struct {
	Mutations, Logs int
}

// mutationsPerLog is how many mutations are done before a new log is made.
const mutationsPerLog = 500

// Run returns after the wanted number of mutations, or with a *Failure.
func (c HintCampaign) Run() (HintStats, error) {
	var s HintStats
	for seed := c.Seed; s.Mutations < c.Mutations; seed++ {
		r := random(seed, 50)
		logs, err := makeLogs(r)
		if err != nil {
			return s, where("making the log", seed, err)
		}
		s.Logs += len(logs)
		for i := 0; i < mutationsPerLog && s.Mutations < c.Mutations; i++ {
			g := logs[r.IntN(len(logs))]
			im := *g
			im.Mutation, im.Seed = drawMutation(r, g.tree, g.hints[r.IntN(len(g.hints))]), r.Uint64()
			s.Mutations++
			if err := contain(im.check); err != nil {
				f := where(fmt.Sprintf("mutation %d: log that was closed %t, %v", i, !im.Marks.Dirty, im.Mutation), seed, err)
				if f.Image, err = saveImage(c.Images, im.disk, imageFile{Hint: &im}); err != nil {
					f.Image = "not written: " + err.Error()
				}
				return s, f
			}
		}
	}
	return s, nil
}

// A hintImage is a log, what it holds, and damage to one of its hints.
type hintImage struct {
	Shape    shape
	Marks    marks
	Want     logWant
	Mutation mutation
	Seed     uint64 // decides what is asked

	disk  *vfs.Sim // without the damage
	tree  []treeFile
	hints []treeFile // what may be damaged
}

// makeLogs makes a log of several segments, killed and closed in order.
func makeLogs(r *rand.Rand) ([]*hintImage, error) {
	s := shape{SegmentBytes: int64(between(r, 1, 4)) << 10, IndexInterval: int64(between(r, 1, 4)) << 7}
	disk := vfs.NewSim(r.Uint64())
	if err := disk.Mkdir(root); err != nil {
		return nil, err
	}
	st := &store{}
	var w logWant
	l, err := rlog.Open(s.options(disk, st, st.now()))
	if err != nil {
		return nil, err
	}
	now, sequences := int64(1_000_000), map[int64]int32{}
	for range between(r, 20, 60) {
		stamp := batch.NoProducer()
		var rs []record
		for range between(r, 1, 4) {
			now += r.Int64N(1000)
			rs = append(rs, record{value: fill(r, r.IntN(120)), timestamp: now - r.Int64N(2500)})
		}
		if chance(r, 0.7) {
			id := producerIDs[r.IntN(len(producerIDs))]
			stamp = batch.Stamp{ProducerID: id, BaseSequence: sequences[id]}
			sequences[id] += int32(len(rs))
		}
		if err := appendTo(l, &w, buildAll(rs, stamp), 0); err != nil {
			l.Abandon()
			return nil, err
		}
		if chance(r, 0.05) { // the files of the active segment get what memory has
			if err := l.Flush(context.Background()); err != nil {
				l.Abandon()
				return nil, err
			}
		}
	}
	var logs []*hintImage
	add := func(disk *vfs.Sim) error {
		im := &hintImage{Shape: s, Marks: st.now(), Want: w.image(), disk: disk}
		var err error
		if im.tree, _, err = readTree(disk, s.options(disk, st, im.Marks).Dir); err != nil {
			return err
		}
		for _, f := range im.tree {
			if ext := path.Ext(f.Name); ext == kindIndex || ext == kindTimeIndex || ext == kindSnapshot {
				im.hints = append(im.hints, f)
			}
		}
		if len(im.hints) > 0 {
			logs = append(logs, im)
		}
		return nil
	}
	if err := add(disk.Crash()); err != nil {
		l.Abandon()
		return nil, err
	}
	end, err := l.Close()
	if err != nil {
		return nil, err
	}
	return logs, errors.Join(st.closed(end, true), add(disk))
}

// check damages the log, opens it and asks it everything, twice.
func (im *hintImage) check() error {
	disk := im.disk.Crash()
	if err := im.Mutation.apply(disk); err != nil {
		return fmt.Errorf("the damage cannot be done: %w", err)
	}
	r := random(im.Seed, 51)
	st := &store{Durable: im.Marks}
	w := im.Want.image()
	w.Written = w.end()
	m := im.Marks
	for range 2 {
		l, err := rlog.Open(im.Shape.options(disk, st, m))
		if err != nil {
			return fmt.Errorf("A14: open (%+v): %w", m, err)
		}
		if err := im.ask(l, &w, r); err != nil {
			l.Abandon()
			return err
		}
		end, err := l.Close()
		if err != nil || end != w.Written {
			return fmt.Errorf("A14: closed at %d of %d, error %v", end, w.Written, err)
		}
		if err := st.closed(end, true); err != nil {
			return err
		}
		m = st.now()
	}
	return nil
}

// ask asks for offsets and times before and after the whole log has been read, and retries what producers have sent.
func (im *hintImage) ask(l *rlog.Log, w *logWant, r *rand.Rand) error {
	for range 2 {
		for range 3 {
			if err := errors.Join(w.probe(l, r.Int64N(w.Written)), w.probeTime(l, r)); err != nil {
				return err
			}
		}
		if _, err := w.verify(l, w.Written, w.Written); err != nil {
			return err
		}
	}
	if err := w.checkProducers(l, producerIDs); err != nil {
		return fmt.Errorf("C3: %w", err)
	}
	return nil
}

// probeTime looks for a time that a record has, or nearly. (A13)
func (w *logWant) probeTime(l *rlog.Log, r *rand.Rand) error {
	times := w.times()
	t := times[r.IntN(len(times))] + r.Int64N(3) - 1
	want := int64(slices.IndexFunc(times, func(is int64) bool { return is >= t }))
	got, ok, err := l.OffsetForTime(t, l.EndOffset())
	if err != nil {
		return fmt.Errorf("A13: time %d: %w", t, err)
	}
	if !ok {
		got.Offset = -1
	}
	if got.Offset != want {
		return fmt.Errorf("A13: time %d is found at %d, a scan finds it at %d", t, got.Offset, want)
	}
	return nil
}

// times returns the timestamps of all records by offset.
func (w *logWant) times() (ts []int64) {
	for _, b := range w.Sent {
		it := b.Iter()
		for r := (batch.Record{}); it.Next(&r); {
			ts = append(ts, r.Timestamp)
		}
	}
	return ts
}
