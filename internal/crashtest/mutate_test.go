package crashtest

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
)

// F7, A3, A8, A14, C3: whatever is done to one file or name of a closed engine's directory, there is the same data, or a part of
// it and an explicit error.
func TestMutations(t *testing.T) {
	c := MutationCampaign{Seed: startSeed(t), Mutations: *mutations, Images: *images}
	begin := time.Now()
	s, err := c.Run(t.Context())
	t.Logf("%v\n%.0f mutations/s", s, float64(s.Mutations)/time.Since(begin).Seconds())
	if err != nil {
		t.Fatal(err)
	}
}

// A13, A14, C1, C3: whatever is done to an index or a snapshot, every answer of the log is the same.
func TestHintMutations(t *testing.T) {
	c := HintCampaign{Seed: startSeed(t), Mutations: *hints, Images: *images}
	begin := time.Now()
	s, err := c.Run()
	t.Logf("%+v, %.0f mutations/s", s, float64(s.Mutations)/time.Since(begin).Seconds())
	if err != nil {
		t.Fatal(err)
	}
}

// A8, A3: every byte of a batch's header is told from what was written, or changes nothing that anybody reads: of a batch below the
// recovery point, of one above it, and of one in a directory that was closed in order.
func TestEveryHeaderByte(t *testing.T) {
	start := startSeed(t)
	goldens, err := makeGoldens(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	s := MutationStats{Outcomes: map[string]map[string]int{}, Notes: map[string]map[string]int{}}
	r := random(start, 22)
	c := MutationCampaign{Images: *images}
	for _, g := range goldens {
		tps := g.Want.partitions()
		p := g.Parts[tps[r.IntN(len(tps))]]
		for _, b := range []goldenBatch{p.Batches[r.IntN(len(p.Batches)/2)], p.Batches[len(p.Batches)-1]} {
			for at := range int64(batch.HeaderSize) {
				m := mutation{Op: opFlipBit, Name: b.File, Off: b.Pos + at, Len: r.Int64N(8)}
				if err := c.try(t.Context(), &s, &mutationImage{Golden: g, Mutation: m, Seed: r.Uint64(), disk: g.disk}); err != nil {
					t.Errorf("header byte %d: %v", at, where("header", start, err))
				}
			}
		}
	}
	t.Log(s)
}

// The image of a mutation that failed is checked again as it was: one whose model is wrong fails in the same way, and one that is right
// passes.
func TestMutationImageReplays(t *testing.T) {
	goldens, err := makeGoldens(t.Context(), startSeed(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []bool{false, true} {
		g := *goldens[0]
		im := &mutationImage{Golden: &g, Mutation: mutation{Op: opDelete}, disk: g.disk}
		for _, f := range g.tree {
			if kindOf(f.Name, f.Dir) == kindIndex {
				im.Mutation.Name = f.Name
			}
		}
		if wrong {
			w := g.Want.image()
			w.part(w.partitions()[0]).Sent = w.part(w.partitions()[0]).Sent[1:]
			g.Want = w
		}
		name, err := im.save(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := Replay(b); (err != nil) != wrong || wrong && !strings.HasPrefix(err.Error(), "A3") {
			t.Errorf("with a wrong model %t: %v", wrong, err)
		}
	}
}
