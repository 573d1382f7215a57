package group

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
)

// A lockInput is a commit in a partition; its output is whether it was accepted.
type lockInput struct {
	partition  int
	generation int32
	player     string
}

// ownership is what commits in a partition may look like: each generation has one owner, and when the next one's has committed, the last one's never does again.
var ownership = porcupine.Model{
	Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, modelPartitions)
		for _, op := range ops {
			p := op.Input.(lockInput).partition
			parts[p] = append(parts[p], op)
		}
		return parts
	},
	Init: func() any { return lockInput{} },
	Step: func(state, input, output any) (bool, any) {
		s, in := state.(lockInput), input.(lockInput)
		if !output.(bool) {
			return true, s
		}
		return in.generation > s.generation || in.generation == s.generation && in.player == s.player, in
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %v", input, output) },
}

// E1: whatever members do at the same moment, the commits that are accepted in a partition come from one member for each generation, and their times do not overlap.
func TestPartitionsHaveOneOwner(t *testing.T) {
	start := startSeed(t)
	ops, accepted := 0, 0
	for s := start; s < start+uint64(*histories) && !t.Failed(); s++ {
		bubble(t, Options{}, func(b *bed) {
			h := &lockHistory{b: b, l: newLedger(func() *Coordinator { return b.c })}
			if err := h.run(s); err != nil {
				b.Fatalf("seed %d: %v", s, err)
			}
			if !porcupine.CheckOperations(ownership, h.ops) {
				for _, op := range h.ops {
					b.Logf("%d-%d %s", op.Call, op.Return, ownership.DescribeOperation(op.Input, op.Output))
				}
				b.Fatalf("seed %d: E1: a partition had two owners", s)
			}
			for _, op := range h.ops {
				if op.Output.(bool) {
					accepted++
				}
			}
			ops += len(h.ops)
		})
	}
	t.Logf("%d commits, %d accepted", ops, accepted)
	if min(accepted, ops-accepted) < *histories*2 && !t.Failed() {
		t.Error("too few to prove anything")
	}
}

// A lockHistory is some players' life, all at the same time.
type lockHistory struct {
	b     *bed
	l     *ledger
	clock atomic.Int64
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (h *lockHistory) run(seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 8))
	var wg sync.WaitGroup
	for i := range 3 + r.IntN(3) {
		own := rand.New(rand.NewPCG(seed, uint64(100+i)))
		p := newPlayer(h.l, own, i)
		wg.Go(func() { h.play(i, p, own) })
	}
	wg.Wait()
	h.b.c.Close()
	synctest.Wait()
	if err := h.l.answered(); err != nil {
		return err
	}
	return h.l.err()
}

func (h *lockHistory) play(client int, p *player, r *rand.Rand) {
	for range 100 {
		switch n := r.IntN(100); {
		case n < 45:
			p.step()
		case n < 75:
			h.commit(client, &p.had, r)
		case n < 85:
			if x := h.l.anyPast(r); x.Generation > 0 {
				h.commit(client, &x, r)
			}
		case n < 88:
			p.stray()
		case n < 99:
			time.Sleep(time.Duration(r.IntN(3)) * moment)
		default:
			time.Sleep(time.Duration(r.IntN(10)) * time.Second)
		}
	}
}

// anyPast returns one of the identities that anybody has had.
func (l *ledger) anyPast(r *rand.Rand) (x past) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.mu.past); n > 0 {
		x = l.mu.past[r.IntN(n)]
	}
	return x
}

func (h *lockHistory) commit(client int, x *past, r *rand.Rand) {
	call := h.clock.Add(1)
	partition, err := h.l.commit(x, r)
	if partition < 0 {
		return
	}
	op := porcupine.Operation{ClientId: client, Call: call, Return: h.clock.Add(1), Output: err == nil,
		Input: lockInput{partition: partition, generation: x.Generation, player: x.player}}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
}
