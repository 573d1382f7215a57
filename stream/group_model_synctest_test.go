package stream_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

var groupHistories = flag.Int("grouphistories", 60, "random histories of TestGroupsAsAModel, a quarter with -short; NIGHT: 100000")

// Consumers that join, leave, pause, seek, stop for too long, commit in every way and close in the middle of loops, while records are written and the topic grows. In every history:
//
//   - E1: who is assigned a partition is its only owner.
//   - E5: no record is passed over; in the end each has been dealt with by somebody, or is read by who comes then.
//   - A partition is read in order, without holes.
//   - A committed offset is never beyond what has been handed over; an automatic one covers no record whose loop body has not ended.
//   - E4: automatic commits never go back, but where an explicit one has.
func TestGroupsAsAModel(t *testing.T) {
	histories := *groupHistories
	if testing.Short() {
		histories /= 4
	}
	rnd := newRand(t)
	for i := range histories {
		seed := rnd.Uint64()
		if *seedFlag != 0 && histories == 1 { // one that has failed
			seed = *seedFlag
		}
		onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
			r := rand.New(rand.NewPCG(seed, 1))
			if r.IntN(2) == 0 { // commits take their time
				most := 1 + r.Int64N(2000)
				d.onSync(func(string) { time.Sleep(time.Duration(rand.Int64N(most)) * time.Millisecond) })
			}
			g := &groupModel{t: t, eng: eng, seed: seed, parts: map[stream.TopicPartition]*partModel{}}
			g.run(r)
		})
		if t.Failed() {
			t.Fatalf("history %d (repeat with -args -seed=%d -grouphistories=1)", i, seed)
		}
	}
}

// A partModel is what is known of a partition.
type partModel struct {
	written int64  // records
	handed  int64  // end of what somebody has been given
	done    []bool // by offset: somebody has dealt with it
	last    int64  // commit
	story   []string
}

// deal notes that a record has been dealt with.
func (p *partModel) deal(offset int64) {
	p.done = append(p.done, make([]bool, max(0, int(offset)+1-len(p.done)))...)
	p.done[offset] = true
}

// A groupModel is one history. Everything below mu is guarded by it.
type groupModel struct {
	t    *testing.T
	eng  *stream.Engine
	seed uint64

	mu      sync.Mutex
	parts   map[stream.TopicPartition]*partModel
	members []*modelMember // that are open
}

// A modelMember is one consumer, which one goroutine uses.
type modelMember struct {
	stream.Consumer
	g        *groupModel
	name     string
	rnd      *rand.Rand
	next     map[stream.TopicPartition]int64 // what comes next of partitions that it reads
	hand     []stream.Record                 // whose body has not ended
	explicit bool                            // it is about to commit, and waits
}

const modelLimit = 10 * time.Second

func (g *groupModel) run(rnd *rand.Rand) {
	t := g.t
	check(t, g.eng.Admin().AddPartitions(t.Context(), "a", 2+rnd.IntN(4)))
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range 1 + rnd.IntN(6) {
		r := rand.New(rand.NewPCG(rnd.Uint64(), 2))
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(r.IntN(5000)) * time.Millisecond):
				}
				g.live(fmt.Sprint(i, ".", n), i, r, stop)
			}
		})
	}
	p := newProducer(t, g.eng, stream.ProducerConfig{Partitioner: stream.ManualPartitioner(), Acks: stream.AcksWritten})
	n := 0
	for range 30 {
		time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
		n = must(g.eng.Admin().Topics(t.Context(), "a"))(t)[0].Partitions
		if rnd.IntN(10) == 0 && n < 8 {
			n++
			check(t, g.eng.Admin().AddPartitions(t.Context(), "a", n))
		}
		var rs []stream.Record
		for range rnd.IntN(20) {
			rs = append(rs, stream.Record{Topic: "a", Partition: int32(rnd.IntN(n))})
		}
		g.mu.Lock()
		for _, r := range rs {
			g.part(tp("a", r.Partition)).written++
		}
		g.mu.Unlock()
		must(p.ProduceAll(t.Context(), rs, nil))(t)
	}
	close(stop)
	wg.Wait()
	g.drain(n)
}

// part returns what is known of a partition; g.mu is held.
func (g *groupModel) part(p stream.TopicPartition) *partModel {
	if g.parts[p] == nil {
		g.parts[p] = &partModel{}
	}
	return g.parts[p]
}

// drain checks that who comes in the end reads everything that nobody has dealt with.
func (g *groupModel) drain(partitions int) {
	m := newMember(g.t, g.eng, stream.ConsumerConfig{SessionTimeout: time.Millisecond, MaxWait: time.Hour})
	for len(m.Assignment()) < partitions || len(m.turn(g.t)) > 0 { // static members are to be waited for
		m.turn(g.t)
	}
	for _, r := range m.got {
		g.part(tp(r.Topic, r.Partition)).deal(r.Offset)
	}
	for tp, p := range g.parts {
		if n := endOf(g.t, g.eng, tp); n != p.written {
			g.fail(tp, "the log ends at %d, and %d records were written", n, p.written)
		}
		for i := range p.written {
			if int(i) >= len(p.done) || !p.done[i] {
				g.fail(tp, "nobody has dealt with offset %d; committed is %d", i, committed(g.t, m, tp))
				break
			}
		}
	}
	check(g.t, m.Close(g.t.Context()))
}

// tell adds to the story that a failure of a partition prints; g.mu is held.
func (g *groupModel) tell(p stream.TopicPartition, format string, args ...any) {
	pm := g.part(p)
	pm.story = append(pm.story, time.Now().Format("4:05.000 ")+fmt.Sprintf(format, args...))
}

func (g *groupModel) fail(p stream.TopicPartition, format string, args ...any) {
	g.t.Errorf("seed %d: %v: %s\n\t%s", g.seed, p, fmt.Sprintf(format, args...), strings.Join(g.part(p).story, "\n\t"))
}
