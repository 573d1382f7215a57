package crashtest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"time"
)

// A MutationCampaign damages files of directories that an engine has left, one at a time, and holds what the engine makes of them
// against what they held.
type MutationCampaign struct {
	Seed      uint64
	Mutations int    // how many directories to damage
	Images    string // directory for the image of a failure; "": the system's
}

// MutationStats says what a campaign has done: for each kind of file how many mutations had which outcome, and what was seen of them.
type MutationStats struct {
	Mutations int
	Outcomes  map[string]map[string]int
	Notes     map[string]map[string]int
}

// hangs is how long one mutation may take before it counts as hanging: it takes some 20 ms.
const hangs = 2 * time.Minute

// hoards is how much one mutation may allocate, in bytes: it allocates some 20 MB.
const hoards = 512 << 20

// mutationsPerGolden is how many mutations are done before new directories are made.
const mutationsPerGolden = 1000

// Run returns after the wanted number of mutations, or with a *Failure.
func (c MutationCampaign) Run(ctx context.Context) (MutationStats, error) {
	s := MutationStats{Outcomes: map[string]map[string]int{}, Notes: map[string]map[string]int{}}
	for seed := c.Seed; s.Mutations < c.Mutations; seed++ {
		goldens, err := makeGoldens(ctx, seed)
		if err != nil {
			return s, where("making the directories", seed, err)
		}
		r := random(seed, 21)
		for i := 0; i < mutationsPerGolden && s.Mutations < c.Mutations; i++ {
			g := goldens[r.IntN(len(goldens))]
			im := &mutationImage{Golden: g, Mutation: drawMutation(r, g.tree, g.draw(r)), Seed: r.Uint64(), disk: g.disk}
			if err := c.try(ctx, &s, im); err != nil {
				return s, where(fmt.Sprintf("mutation %d", i), seed, err)
			}
		}
	}
	return s, nil
}

// try does one mutation and counts it.
func (c MutationCampaign) try(ctx context.Context, s *MutationStats, im *mutationImage) error {
	s.Mutations++
	t, err := im.guarded(ctx)
	if err != nil {
		f := where(fmt.Sprintf("directory that was %s, %v", im.Golden.Name, im.Mutation), im.Seed, err)
		name, err := im.save(c.Images)
		f.Image = name
		if err != nil {
			f.Image = "not written: " + err.Error()
		}
		return f
	}
	count(s.Outcomes, t.kind, string(t.out))
	for _, n := range t.notes {
		count(s.Notes, t.kind, n)
	}
	return nil
}

func count(m map[string]map[string]int, kind, what string) {
	if m[kind] == nil {
		m[kind] = map[string]int{}
	}
	m[kind][what]++
}

// guarded is check that reports a hang, and memory without bounds, instead of hanging.
func (im *mutationImage) guarded(ctx context.Context) (t *mutationTrial, err error) {
	before := allocated()
	done := make(chan struct{})
	go func() {
		defer close(done)
		t, err = im.check(ctx)
	}()
	timer := time.NewTimer(hangs)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		buf := make([]byte, 1<<20)
		return nil, fmt.Errorf("F7: nothing has come back after %v\n%s", hangs, buf[:runtime.Stack(buf, true)])
	}
	if n := allocated() - before; err == nil && n > hoards {
		err = fmt.Errorf("F7: %d MB were allocated", n>>20)
	}
	return t, err
}

// allocated is how much this process has ever allocated on its heap.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// draw draws what is damaged: a segment, or first a kind, so that the many files of one kind do not hide the few of another.
func (g *golden) draw(r *rand.Rand) treeFile {
	kinds := map[string][]treeFile{}
	for _, f := range g.tree {
		if k := kindOf(f.Name, f.Dir); k != kindRoot {
			kinds[k] = append(kinds[k], f)
		}
	}
	fs := kinds[kindLog]
	if chance(r, 0.8) {
		fs = kinds[slices.Sorted(maps.Keys(kinds))[r.IntN(len(kinds))]]
	}
	return fs[r.IntN(len(fs))]
}

// String is a table: a line for each kind, with its outcomes and what was seen.
func (s MutationStats) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d mutations", s.Mutations)
	for _, kind := range slices.Sorted(maps.Keys(s.Outcomes)) {
		fmt.Fprintf(&b, "\n  %-20s", kind)
		for _, o := range []outcome{outSame, outError, outPrefix, outForeign, outMeta} {
			fmt.Fprintf(&b, " %s %-5d", o, s.Outcomes[kind][string(o)])
		}
		for _, n := range slices.Sorted(maps.Keys(s.Notes[kind])) {
			fmt.Fprintf(&b, "\n      %5d  %s", s.Notes[kind][n], n)
		}
	}
	return b.String()
}

// save writes an image to a file of dir and returns its name.
func (im *mutationImage) save(dir string) (string, error) {
	return saveImage(dir, im.disk, imageFile{Mutation: im})
}

// replay checks an image that was read from a file.
func (im *mutationImage) replay(ctx context.Context) error {
	g := im.Golden
	var err error
	if g.tree, g.content, err = readTree(im.disk, engineDir); err != nil {
		return err
	}
	_, err = im.guarded(ctx)
	return err
}
