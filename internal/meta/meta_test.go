package meta

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dir = "/meta"

func open(t testing.TB, sim *vfs.Sim) *Store {
	t.Helper()
	s, err := Open(Options{FS: sim, Dir: dir, Create: true, Ballast: "/BALLAST"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func id(topic byte, partition int32) PartitionID {
	return PartitionID{TopicID{topic}, partition}
}

// A9: a life that does not end in order is known to the next one, and raises the incarnation; one that does, does not.
func TestCleanMark(t *testing.T) {
	sim := vfs.NewSim(1)
	begin := func() (bool, int32) {
		t.Helper()
		s := open(t, sim)
		clean, incarnation, err := s.Begin()
		check(t, err)
		check(t, s.Close())
		return clean, incarnation
	}
	wantLife := func(wantClean bool, want int32) {
		t.Helper()
		if clean, n := begin(); clean != wantClean || n != want {
			t.Fatalf("clean %v, incarnation %d, want %v %d", clean, n, wantClean, want)
		}
	}
	wantLife(true, 0)
	wantLife(false, 1)
	s := open(t, sim)
	_, _, err := s.Begin()
	check(t, err)
	check(t, s.MarkClean(nil, false)) // a partition failed
	check(t, s.Close())
	wantLife(false, 3)
	s = open(t, sim)
	_, _, err = s.Begin()
	check(t, err)
	check(t, s.MarkClean(nil, true))
	check(t, s.Close())
	wantLife(true, 4)
	wantLife(false, 5)
}

// A9, at every storage operation: once Begin has returned, no cut brings the clean mark back.
func TestCleanMarkIsGoneBeforeBeginReturns(t *testing.T) {
	sim := vfs.NewSim(2)
	s := open(t, sim)
	_, _, err := s.Begin()
	check(t, err)
	check(t, s.MarkClean(nil, true))
	check(t, s.Close())
	s = open(t, sim)
	clean, _, err := s.Begin()
	check(t, err)
	if !clean {
		t.Fatal("not clean")
	}
	var images []*vfs.Sim
	for seed := range uint64(50) {
		images = append(images, sim.Cut(vfs.Cut{Seed: seed, Keep: -1}), sim.Cut(vfs.Cut{Seed: seed, Keep: 0}))
	}
	check(t, s.Close())
	for i, image := range images {
		s := open(t, image)
		clean, n, err := s.Begin()
		check(t, err)
		if clean || n != 1 {
			t.Fatalf("image %d: clean %v, incarnation %d", i, clean, n)
		}
		check(t, s.Close())
	}
}

// C4: no producer id is given out twice, whatever operation the power is cut after.
func TestProducerIDsAreGivenOutOnce(t *testing.T) {
	sim := vfs.NewSim(3)
	given := map[int64]bool{}
	type image struct {
		sim   *vfs.Sim
		given int
	}
	var images []image
	s := open(t, sim)
	var order []int64
	var count atomic.Int64 // of order: pebble's goroutines operate on the disk too
	sim.OnOp(func(op vfs.Op) {
		images = append(images, image{sim.Cut(vfs.Cut{Seed: uint64(op.N), Keep: -1}), int(count.Load())})
	})
	for life := range 3 {
		ids := s.ProducerIDs()
		for range idBlock + 3 + life {
			n, err := ids.Next()
			check(t, err)
			if given[n] {
				t.Fatalf("%d again", n)
			}
			given[n] = true
			order = append(order, n)
			count.Add(1)
		}
		check(t, s.Close())
		s = open(t, sim)
	}
	sim.OnOp(nil)
	check(t, s.Close())
	if len(images) < 20 {
		t.Fatalf("%d images", len(images))
	}
	for i, im := range images {
		s := open(t, im.sim)
		n, err := s.ProducerIDs().Next()
		check(t, err)
		for _, old := range order[:im.given] {
			if old == n {
				t.Fatalf("image %d gives out %d again", i, n)
			}
		}
		check(t, s.Close())
	}
}

func TestPartitionState(t *testing.T) {
	s := open(t, vfs.NewSim(4))
	defer s.Close()
	p := id(1, 7)
	st, err := s.Partition(p)
	check(t, err)
	if st != (Partition{}) {
		t.Fatalf("%+v", st)
	}
	check(t, s.MarkDirty(p, 3, 100))
	check(t, s.MarkDirty(p, 3, 200)) // a later life with the same epoch: its start stays
	check(t, s.MarkDirty(p, 5, 300))
	check(t, s.MarkDirty(id(1, 8), 0, 0))
	check(t, s.SetRecoveryPoint(p, 42, false))
	st, err = s.Partition(p)
	check(t, err)
	if st != (Partition{Dirty: true, RecoveryPoint: 42}) {
		t.Fatalf("%+v", st)
	}
	es, err := s.Epochs(p)
	check(t, err)
	if fmt.Sprint(es) != "[{3 100} {5 300}]" {
		t.Fatalf("epochs %v", es)
	}
	check(t, s.MarkClean(map[PartitionID]int64{p: 50}, true))
	st, err = s.Partition(p)
	check(t, err)
	if st != (Partition{RecoveryPoint: 50}) {
		t.Fatalf("%+v", st)
	}
	dirty, err := s.DirtyPartitions()
	check(t, err)
	if fmt.Sprint(dirty) != fmt.Sprint([]PartitionID{id(1, 8)}) {
		t.Fatalf("dirty %v", dirty)
	}
}

func TestDropTopicDropsAllOfItAndNothingElse(t *testing.T) {
	s := open(t, vfs.NewSim(5))
	defer s.Close()
	// Neighbours in the key space, also where the id is all ones.
	topics := []Topic{
		{Name: "Orders", ID: TopicID{1}, Partitions: 2, State: Live, Config: map[string]string{"segment.bytes": "4096"}},
		{Name: "a", ID: TopicID{2}, Partitions: 1, State: Live},
		{Name: "z", Partitions: 1, State: Live},
	}
	for i := range topics[2].ID {
		topics[2].ID[i] = 0xff
	}
	for _, topic := range topics {
		check(t, s.PutTopic(topic))
		for n := range int32(2) {
			p := PartitionID{topic.ID, n}
			check(t, s.MarkDirty(p, 0, 0))
			check(t, s.SetRecoveryPoint(p, 1, false))
			b := s.NewBatch()
			b.SetOffset(p, "g", Offset{Offset: 9, LeaderEpoch: 2, Time: 77, Metadata: "m"})
			b.SetSequence(p, "n", Sequence{Sequence: 5, Next: 6})
			check(t, b.Commit(true))
		}
	}
	for k, dropped := range topics {
		check(t, s.DropTopic(dropped))
		left, err := s.Topics()
		check(t, err)
		if len(left) != len(topics)-k-1 {
			t.Fatalf("%d topics left", len(left))
		}
		for i, topic := range topics {
			p := PartitionID{topic.ID, 1}
			o, ok, err := s.Offset(p, "g")
			check(t, err)
			q, err := s.Sequence(p, "n")
			check(t, err)
			st, err := s.Partition(p)
			check(t, err)
			gone := i <= k
			if ok == gone || (q == Sequence{}) != gone || (st == Partition{}) != gone {
				t.Fatalf("after dropping %q: %q has %+v %+v %+v", dropped.Name, topic.Name, o, q, st)
			}
			if !gone && (o != Offset{9, 2, 77, "m"} || q != Sequence{5, 6}) {
				t.Fatalf("%+v %+v", o, q)
			}
		}
	}
}

func TestTopicsComeBackAsTheyWere(t *testing.T) {
	s := open(t, vfs.NewSim(6))
	defer s.Close()
	want := Topic{Name: "Orders", ID: TopicID{1, 2, 3}, Partitions: 4, State: Deleting, Config: map[string]string{"segment.ms": "1"}}
	check(t, s.PutTopic(want))
	got, err := s.Topics()
	check(t, err)
	if len(got) != 1 || fmt.Sprint(got[0]) != fmt.Sprint(want) {
		t.Fatalf("%v", got)
	}
	if len(want.ID.String()) != 22 || strings.ContainsAny(want.ID.String(), "+/=") {
		t.Fatalf("id %s", want.ID)
	}
}

// A value that is not what was written is reported, whatever key it stands under.
func TestDamagedValues(t *testing.T) {
	s := open(t, vfs.NewSim(7))
	defer s.Close()
	p := id(1, 0)
	for _, k := range [][]byte{keyIncarnation, keyProducerID, topicKey("t"), p.key(kindRecovery, ""), p.key(kindStart, ""), p.key(kindEpoch, "abcd"), p.key(kindOffset, "g"), p.key(kindName, "n"), nameKey("n"), append([]byte{spaceDirty}, "short"...)} {
		check(t, s.set(k, []byte("x"), false))
	}
	for name, fn := range map[string]func() error{
		"begin":       func() error { _, _, err := s.Begin(); return err },
		"producer id": func() error { _, err := s.ProducerIDs().Next(); return err },
		"topics":      func() error { _, err := s.Topics(); return err },
		"partition":   func() error { _, err := s.Partition(p); return err },
		"epochs":      func() error { _, err := s.Epochs(p); return err },
		"offset":      func() error { _, _, err := s.Offset(p, "g"); return err },
		"sequence":    func() error { _, err := s.Sequence(p, "n"); return err },
		"name":        func() error { _, _, err := s.Name("n"); return err },
		"dirty":       func() error { _, err := s.DirtyPartitions(); return err },
	} {
		if err := fn(); !errors.Is(err, kafka.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
