package crashtest

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/vfs"
	rlog "github.com/runnelmq/runnel/log"
)

var (
	recoverySeeds = flag.Int("recoveryseeds", 10, "seeds of each script whose recovery is interrupted")
	recoveryThird = flag.Int("recoverythird", 4, "of the stops inside a third recovery one in this many is tried; 1: all of them")
)

// A recoveryKind says what the stop of the script leaves, and what the stops inside recoveries do. As for take: the share that a
// loss of power keeps; above 1 the process ends.
type recoveryKind struct{ first, later float64 }

var recoveryKinds = []recoveryKind{{0, 0}, {0.5, 0.5}, {1, 1}, {2, 2}, {2, 0}, {2, 0.5}}

// exact reports whether nothing can get lost between the first stop and the last recovery.
func (k recoveryKind) exact() bool { return k.first <= 1 || k.later > 1 }

// A recoveryImage is a disk after a stop with the logs of one or two partitions on it.
type recoveryImage struct {
	disk  *vfs.Sim
	logs  []recoveryLog
	place string
}

// A recoveryLog is what is known of one of them.
type recoveryLog struct {
	Marks marks
	Want  logWant
}

// after returns the image of disk after one more stop. The marks stay: recovery does not touch them.
func (im *recoveryImage) after(disk *vfs.Sim, keep float64, seed uint64, place string) *recoveryImage {
	in := &recoveryImage{logs: im.logs, place: place}
	if keep > 1 {
		in.disk = disk.Crash()
	} else {
		in.disk = disk.Cut(vfs.Cut{Seed: seed, Keep: keep})
	}
	return in
}

// A recovered is what a recovery has led to.
type recovered struct {
	batches     []int             // of each log
	files       map[string]string // of the partitions' directories; of the segments also what is in them
	quarantined []string          // what is in the files of the quarantine
}

// A recoveryRun tries one script with one seed in one kind.
type recoveryRun struct {
	shape      shape
	kind       recoveryKind
	r          *rand.Rand
	damaged    bool      // what was acknowledged need not be there
	want       recovered // what an undisturbed recovery gives
	recoveries *int
}

// A7: recovery is idempotent and itself crash-safe. It is stopped after every operation, and again after every operation of the
// recovery from that, and from some of those again: every one of these recoveries gives what an undisturbed one would have given.
func TestRecoveryIsIdempotent(t *testing.T) {
	start := startSeed(t)
	begin := time.Now()
	recoveries, stops := 0, 0
	for _, s := range recoveryScripts {
		for seed := start; seed < start+uint64(*recoverySeeds); seed++ {
			h, err := s.stops(seed)
			if err != nil {
				t.Fatalf("seed %d: %s: %v", seed, s.name, err)
			}
			stops += len(h.stops)
			for i, kind := range recoveryKinds {
				// Each seed stops somewhere else; all of them together are spread over what the script does.
				stop := h.stops[int(seed%uint64(*recoverySeeds))*len(h.stops) / *recoverySeeds]
				x := &recoveryRun{shape: h.shape, kind: kind, r: random(seed, uint64(200+i)), damaged: h.damaged, recoveries: &recoveries}
				if err := x.try(stop.image(x.r, kind.first)); err != nil {
					t.Fatalf("seed %d: %s, keeping %g and then %g: %v", seed, s.name, kind.first, kind.later, err)
				}
			}
		}
	}
	d := time.Since(begin)
	t.Logf("%d scripts with %d places to stop, %d recoveries in %.1f s", len(recoveryScripts), stops, recoveries, d.Seconds())
}

func (x *recoveryRun) try(im *recoveryImage) error {
	undisturbed := &recoveryImage{disk: im.disk.Crash(), logs: im.logs, place: im.place}
	var err error
	if x.want, err = x.recover(undisturbed, func(string) {}); err != nil {
		return fmt.Errorf("%s: %w", im.place, err)
	}
	return x.explore(im, 1)
}

// explore recovers from an image, compares the result, and goes on from images taken while it does.
func (x *recoveryRun) explore(im *recoveryImage, depth int) error {
	var inner []*recoveryImage
	n := 0
	got, err := x.recover(im, func(op string) {
		n++
		if depth < 3 || depth == 3 && x.r.IntN(*recoveryThird) == 0 {
			inner = append(inner, im.after(im.disk, x.kind.later, x.r.Uint64(), fmt.Sprintf("%s; recovery %d, operation %d, %s", im.place, depth, n, op)))
		}
	})
	if err == nil {
		err = x.compare(got)
	}
	if err == nil && chance(x.r, 0.1) {
		err = x.live(im, got)
	}
	if err != nil {
		return fmt.Errorf("%s; recovery %d: %w", im.place, depth, err)
	}
	for _, in := range inner {
		if err := x.explore(in, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// options are those of one of the logs for recovery number n of an image: each of them is another life, with an epoch of its own.
func (x *recoveryRun) options(im *recoveryImage, i int) (rlog.Options, *store) {
	m := im.logs[i].Marks
	m.Dirty = true
	m.Epoch += int32(1 + strings.Count(im.place, ";"))
	st := &store{Durable: m}
	return x.shape.of(i, im.disk, st, m), st
}

// recover opens the logs and closes them again as the end of the process would. reached is called after each operation.
func (x *recoveryRun) recover(im *recoveryImage, reached func(op string)) (got recovered, err error) {
	*x.recoveries++
	im.disk.OnOp(func(op vfs.Op) { reached(op.String()) })
	defer im.disk.OnOp(nil)
	err = contain(func() error {
		for i := range im.logs {
			n, err := x.open(im, i)
			if err != nil {
				return err
			}
			got.batches = append(got.batches, n)
		}
		return nil
	})
	if err == nil {
		err = got.list(im)
	}
	return got, err
}

func (x *recoveryRun) open(im *recoveryImage, i int) (batches int, err error) {
	o, _ := x.options(im, i)
	l, err := rlog.Open(o)
	if err != nil {
		return 0, fmt.Errorf("A7: open: %w", err)
	}
	defer l.Abandon()
	w := im.logs[i].Want.image()
	lower := w.Synced
	switch {
	case x.damaged:
		lower = 0
	case x.kind.first > 1 && x.kind.exact():
		lower = w.Written
	}
	n, err := w.verify(l, lower, w.end())
	if err != nil {
		return n, err
	}
	// What was in the page cache only is synced in the background, as part of recovery.
	if err := l.WaitDurable(context.Background(), l.EndOffset()); err != nil {
		return n, fmt.Errorf("A7: sync of what was recovered: %w", err)
	}
	w = w.cut(n)
	return n, w.checkProducers(l, producerIDs)
}

// compare says in what a recovery differs from the undisturbed one.
func (x *recoveryRun) compare(got recovered) error {
	want := x.want
	if !x.kind.exact() {
		for i, n := range got.batches {
			if n > want.batches[i] {
				return fmt.Errorf("A7: partition %d has %d batches, with an undisturbed recovery %d", i, n, want.batches[i])
			}
		}
		return nil
	}
	if !slices.Equal(got.batches, want.batches) {
		return fmt.Errorf("A7: the partitions have %d batches, with an undisturbed recovery %d", got.batches, want.batches)
	}
	if !maps.Equal(got.files, want.files) {
		return fmt.Errorf("A7: there are %v, with an undisturbed recovery %v", sizes(got.files), sizes(want.files))
	}
	for _, q := range want.quarantined {
		if !slices.Contains(got.quarantined, q) {
			return fmt.Errorf("A7: %d bytes that an undisturbed recovery keeps in the quarantine are nowhere", len(q))
		}
	}
	return nil
}

func sizes(files map[string]string) (s []string) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		s = append(s, fmt.Sprintf("%s (%d)", name, len(files[name])))
	}
	return s
}

// list reads what recovery has left in the directories.
func (g *recovered) list(im *recoveryImage) error {
	g.files = map[string]string{}
	read := func(dir string, fn func(name string) error) error {
		infos, err := im.disk.List(dir)
		if err != nil {
			return nil // it is not there
		}
		for _, i := range infos {
			if err := fn(path.Join(dir, i.Name)); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range im.logs {
		if err := read(partitionDir(i), func(name string) error {
			if !strings.HasSuffix(name, ".log") {
				g.files[name] = ""
				return nil
			}
			b, err := contents(im.disk, name)
			g.files[name] = string(bytes.TrimRight(b, "\x00")) // reserved space is no difference
			return err
		}); err != nil {
			return err
		}
	}
	return read(quarantine, func(name string) error {
		b, err := contents(im.disk, name)
		g.quarantined = append(g.quarantined, string(b))
		return err
	})
}

func contents(disk *vfs.Sim, name string) ([]byte, error) {
	f, err := disk.OpenRead(name)
	if err != nil {
		return nil, err
	}
	b := make([]byte, f.Size())
	_, err = f.ReadAt(b, 0)
	return b, cmp.Or(err, f.Close())
}

// live fills the space of what was lost with batches of the same sizes, after which the power goes: nothing that recovery has cut
// away comes back. (A6)
func (x *recoveryRun) live(im *recoveryImage, got recovered) error {
	noise := func(n int) []byte { return fill(x.r, n) }
	for i := range im.logs {
		o, st := x.options(im, i)
		l, err := rlog.Open(o)
		if err != nil {
			return fmt.Errorf("A7: open again: %w", err)
		}
		w := im.logs[i].Want.cut(got.batches[i])
		err = func() error {
			defer l.Abandon()
			for _, b := range im.logs[i].Want.Sent[got.batches[i]:] {
				var t batch.Batch
				if t, err = twin(b, noise); err != nil {
					return err
				}
				if err := appendTo(l, &w, t, o.Epoch); err != nil {
					return err
				}
				if chance(x.r, 0.5) {
					break
				}
			}
			return l.WaitDurable(context.Background(), w.Written)
		}()
		if err != nil {
			return fmt.Errorf("A6: living on: %w", err)
		}
		m := st.now()
		m.Dirty, m.Epoch = true, m.Epoch+1
		cut := im.disk.Cut(vfs.Cut{Seed: x.r.Uint64(), Keep: x.kind.later - float64(int(x.kind.later))})
		if l, err = rlog.Open(x.shape.of(i, cut, st, m)); err != nil {
			return fmt.Errorf("A6: open after living on: %w", err)
		}
		_, err = w.verify(l, w.Written, w.Written)
		l.Abandon()
		if err != nil {
			return fmt.Errorf("living on: %w", err)
		}
	}
	return nil
}

// A recoveryStop is a moment of a script.
type recoveryStop struct {
	disk   *vfs.Sim // as it was, with what was pending
	stores []*store
	wants  []logWant
	place  string
}

// image is what a stop at that moment leaves.
func (s *recoveryStop) image(r *rand.Rand, keep float64) *recoveryImage {
	im := (&recoveryImage{}).after(s.disk, keep, r.Uint64(), s.place)
	for i, st := range s.stores {
		im.logs = append(im.logs, recoveryLog{st.image(r, min(keep, 1)).now(), s.wants[i]})
	}
	return im
}

// zeros overwrites n bytes of a file at off, durably.
func zeros(disk *vfs.Sim, name string, off int64, n int) error {
	f, err := disk.Open(name, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(bytes.Repeat([]byte{0}, n), off)
	return cmp.Or(err, f.Sync(), f.Close())
}
