package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/runnelmq/runnel/group"
	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "/data"

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func tryOpen(sim *vfs.Sim, ev Events) (*Broker, error) {
	return Open(Options{
		FS: sim, Dir: root, Logger: slog.New(slog.DiscardHandler), SyncInterval: time.Hour, SyncBytes: 1 << 30, Events: ev,
	})
}

func open(t testing.TB, sim *vfs.Sim) *Broker {
	t.Helper()
	b, err := tryOpen(sim, Events{})
	check(t, err)
	return b
}

// put appends records to a partition, durably.
func put(t testing.TB, b *Broker, tp kafka.TopicPartition, n int) {
	t.Helper()
	p, err := b.Partition(tp)
	check(t, err)
	for i := range n {
		var bt batch.Builder
		bt.Reset(nil)
		bt.Append(1, nil, fmt.Append(nil, i), nil)
		f, err := p.Life()
		check(t, err)
		a, err := f.Append(bt.Seal(batch.NoProducer()))
		check(t, err)
		check(t, f.WaitDurable(context.Background(), a.Last+1))
	}
}

func end(t testing.TB, b *Broker, tp kafka.TopicPartition) int64 {
	t.Helper()
	p, err := b.Partition(tp)
	check(t, err)
	_, end, _, err := p.Bounds()
	check(t, err)
	return end
}

// images runs fn and returns what a power cut after each of its storage operations may leave, with how many steps fn had reported.
type image struct {
	sim  *vfs.Sim
	op   vfs.Op
	done int
}

func images(sim *vfs.Sim, fn func(step func())) (all []image) {
	var done atomic.Int64 // pebble's goroutines operate on the disk too
	sim.OnOp(func(op vfs.Op) {
		for i, keep := range []float64{0, 1, -1} {
			all = append(all, image{sim.Cut(vfs.Cut{Seed: uint64(op.N*3 + i), Keep: keep}), op, int(done.Load())})
		}
	})
	fn(func() { done.Add(1) })
	sim.OnOp(nil)
	return all
}

// A directory that a crash left in the making is made again; a topic that was reported is there.
func TestCutAtEveryOperationOfTheFirstLife(t *testing.T) {
	sim := vfs.NewSim(1)
	tp := kafka.TopicPartition{Topic: "a"}
	all := images(sim, func(step func()) {
		b := open(t, sim)
		step()
		check(t, b.CreateTopic("a", 1, nil))
		step()
		put(t, b, tp, 1)
		step()
		check(t, b.Close())
		step()
	})
	for _, im := range all {
		b, err := tryOpen(im.sim, Events{})
		if err != nil {
			t.Fatalf("after %v: %v", im.op, err)
		}
		_, err = b.Partition(tp)
		if im.done >= 2 && err != nil {
			t.Fatalf("after %v: %v", im.op, err)
		}
		if err != nil {
			check(t, b.CreateTopic("a", 1, nil))
		}
		if n := end(t, b, tp); im.done >= 3 && n != 1 {
			t.Fatalf("after %v: the log ends at %d", im.op, n)
		}
		put(t, b, tp, 1)
		check(t, b.Close())
	}
}

// A10: a topic is there whole, or gone with all that it had, whatever operation of its deletion the power is cut after.
func TestCutAtEveryOperationOfADeletion(t *testing.T) {
	sim := vfs.NewSim(2)
	b := open(t, sim)
	check(t, b.CreateTopic("a", 3, nil))
	check(t, b.CreateTopic("b", 1, nil))
	for n := range int32(2) {
		put(t, b, kafka.TopicPartition{Topic: "a", Partition: n}, 3)
	}
	put(t, b, kafka.TopicPartition{Topic: "b"}, 3)
	p, err := b.Partition(kafka.TopicPartition{Topic: "a"})
	check(t, err)
	check(t, b.CommitOffsets(context.Background(), group.Identity{Group: "g", Generation: -1}, []Commit{{Partition: p, Offset: 2}}))
	all := images(sim, func(step func()) {
		check(t, b.DeleteTopic("a"))
		step()
	})
	if infos, err := b.meta.Topics(); err != nil || len(infos) != 1 {
		t.Fatalf("the metadata knows %v, %v", infos, err)
	}
	check(t, b.Close())
	if len(all) < 20 {
		t.Fatalf("%d images", len(all))
	}
	var kept, gone int
	for _, im := range all {
		b, err := tryOpen(im.sim, Events{})
		if err != nil {
			t.Fatalf("after %v: %v", im.op, err)
		}
		if n := end(t, b, kafka.TopicPartition{Topic: "b"}); n != 3 {
			t.Fatalf("after %v: the other topic ends at %d", im.op, n)
		}
		p, err := b.Partition(kafka.TopicPartition{Topic: "a"})
		switch {
		case err == nil && im.done == 0:
			kept++
			if n := end(t, b, p.TopicPartition()); n != 3 {
				t.Fatalf("after %v: the topic is there and ends at %d", im.op, n)
			}
		case err == nil:
			t.Fatalf("after %v: the deleted topic is there", im.op)
		default:
			gone++
			infos, err := im.sim.List(path.Join(root, dirTopics))
			check(t, err)
			for _, i := range infos {
				if strings.HasPrefix(i.Name, "a") {
					t.Fatalf("after %v: %s is left", im.op, i.Name)
				}
			}
			check(t, b.CreateTopic("a", 1, nil))
			p, err = b.Partition(kafka.TopicPartition{Topic: "a"})
			check(t, err)
			if _, ok, err := b.CommittedOffset("g", p); ok || err != nil || end(t, b, p.TopicPartition()) != 0 {
				t.Fatalf("after %v: the new topic knows the old one: %v %v", im.op, ok, err)
			}
		}
		check(t, b.Close())
	}
	if kept == 0 || gone == 0 {
		t.Fatalf("%d times kept, %d times gone", kept, gone)
	}
}

// A deletion that an error has interrupted is finished before its name is used again.
func TestNameOfAnUnfinishedDeletion(t *testing.T) {
	sim := vfs.NewSim(6)
	b := open(t, sim)
	check(t, b.CreateTopic("a", 1, nil))
	tp := kafka.TopicPartition{Topic: "a"}
	put(t, b, tp, 3)
	p, err := b.Partition(tp)
	check(t, err)
	old := p.id
	disk := errors.New("input/output error")
	sim.Inject(func(op vfs.Op) error {
		if op.Kind == vfs.OpRemove && strings.Contains(op.Name, suffixDelete) {
			return disk
		}
		return nil
	})
	if err := b.DeleteTopic("a"); !errors.Is(err, disk) {
		t.Fatal(err)
	}
	if err := b.CreateTopic("A", 1, nil); !errors.Is(err, disk) {
		t.Fatal(err)
	}
	sim.Inject(nil)
	check(t, b.CreateTopic("A", 1, nil))
	if st, err := b.meta.Partition(old); err != nil || st.Dirty {
		t.Fatalf("the metadata still has %+v, %v", st, err)
	}
	if infos, err := sim.List(path.Join(root, dirTopics)); err != nil || len(infos) != 0 {
		t.Fatalf("left: %v, %v", infos, err)
	}
	check(t, b.Close())
}

// What is missing in a directory is said, and never made anew over what is there.
func TestDirectoryWithoutItsParts(t *testing.T) {
	build := func(t *testing.T) *vfs.Sim {
		sim := vfs.NewSim(3)
		b := open(t, sim)
		check(t, b.CreateTopic("a", 1, nil))
		put(t, b, kafka.TopicPartition{Topic: "a"}, 1)
		check(t, b.Close())
		return sim
	}
	remove := func(t *testing.T, sim *vfs.Sim, dir string) {
		check(t, sim.Pebble().RemoveAll(dir))
	}
	t.Run("meta", func(t *testing.T) {
		sim := build(t)
		remove(t, sim, path.Join(root, dirMeta))
		if _, err := tryOpen(sim, Events{}); !errors.Is(err, kafka.ErrCorrupt) {
			t.Fatal(err)
		}
	})
	t.Run("what is in meta", func(t *testing.T) {
		sim := build(t)
		remove(t, sim, path.Join(root, dirMeta))
		check(t, sim.Mkdir(path.Join(root, dirMeta)))
		if _, err := tryOpen(sim, Events{}); err == nil {
			t.Fatal("opened")
		}
	})
	t.Run("RUNNEL", func(t *testing.T) {
		sim := build(t)
		check(t, sim.Remove(path.Join(root, fileRunnel)))
		if _, err := tryOpen(sim, Events{}); !errors.Is(err, kafka.ErrCorrupt) {
			t.Fatal(err)
		}
	})
	t.Run("a later format", func(t *testing.T) {
		sim := build(t)
		f, err := sim.Open(path.Join(root, fileRunnel), 0)
		check(t, err)
		_, err = f.WriteAt([]byte("runnel 2"), 0)
		check(t, err)
		check(t, f.Close())
		if _, err := tryOpen(sim, Events{}); !errors.Is(err, kafka.ErrUnsupported) {
			t.Fatal(err)
		}
	})
	t.Run("the records", func(t *testing.T) {
		sim := build(t)
		remove(t, sim, path.Join(root, dirTopics, "a-0"))
		b := open(t, sim)
		defer b.Close()
		p, err := b.Partition(kafka.TopicPartition{Topic: "a"})
		check(t, err)
		if _, _, _, err := p.Bounds(); !errors.Is(err, kafka.ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

// Directories that are no partition's are renamed and reported; nothing in them is used or lost.
func TestStrayDirectories(t *testing.T) {
	sim := vfs.NewSim(4)
	b := open(t, sim)
	check(t, b.CreateTopic("a", 1, nil))
	put(t, b, kafka.TopicPartition{Topic: "a"}, 2)
	check(t, b.Close())
	topics := path.Join(root, dirTopics)
	for _, name := range []string{"a-1", "b-0", "notes", "a-00", "a--1"} {
		check(t, sim.Mkdir(path.Join(topics, name)))
		f, err := sim.Create(path.Join(topics, name, "keep"), 0)
		check(t, err)
		check(t, f.Close())
	}
	// A partition of ours with another topic's id.
	f, err := sim.Open(path.Join(topics, "a-0", "partition.metadata"), 0)
	check(t, err)
	_, err = f.WriteAt([]byte("AAAA"), int64(len("version: 0\ntopic_id: ")))
	check(t, err)
	check(t, f.Close())

	var moved []string
	b, err = tryOpen(sim, Events{StrayDirectory: func(from, to string) { moved = append(moved, path.Base(from)) }})
	check(t, err)
	defer b.Close()
	p, err := b.Partition(kafka.TopicPartition{Topic: "a"})
	check(t, err)
	// Its own records are not there: that is a loss, and not an empty log.
	if _, _, _, err := p.Bounds(); !errors.Is(err, kafka.ErrCorrupt) {
		t.Fatal(err)
	}
	if len(moved) != 6 {
		t.Fatalf("moved %v", moved)
	}
	infos, err := sim.List(topics)
	check(t, err)
	strays := 0
	for _, i := range infos {
		if strings.HasSuffix(i.Name, suffixStray) {
			strays++
			if kept, err := sim.List(path.Join(topics, i.Name)); err != nil || len(kept) == 0 {
				t.Fatalf("%s: %v, %v", i.Name, kept, err)
			}
		}
	}
	if strays != 6 {
		t.Fatalf("%v", infos)
	}
}

// E3: a committed offset that lies behind the log's end is taken as the end, and reported.
func TestCommittedOffsetBehindTheEnd(t *testing.T) {
	sim := vfs.NewSim(5)
	b := open(t, sim)
	tp := kafka.TopicPartition{Topic: "a"}
	check(t, b.CreateTopic("a", 1, nil))
	put(t, b, tp, 5)
	p, err := b.Partition(tp)
	check(t, err)
	check(t, b.CommitOffsets(context.Background(), group.Identity{Group: "g", Generation: -1}, []Commit{{Partition: p, Offset: 5, Metadata: "m"}}))
	check(t, b.Close())
	check(t, b2(t, sim, func(b *Broker, p *Partition) error { return b.meta.SetRecoveryPoint(p.id, 0, true) }))
	name := path.Join(root, dirTopics, "a-0", strings.Repeat("0", 20)+".log")
	f, err := sim.Open(name, 0)
	check(t, err)
	check(t, f.Truncate(f.Size()-10))
	check(t, f.Close())

	var clamped string
	b, err = tryOpen(sim, Events{OffsetClamped: func(group string, tp kafka.TopicPartition, from, to int64) {
		clamped = fmt.Sprint(group, tp, from, to)
	}})
	check(t, err)
	defer b.Close()
	p, err = b.Partition(tp)
	check(t, err)
	o, ok, err := b.CommittedOffset("g", p)
	check(t, err)
	if !ok || o.Offset != 4 || o.Metadata != "m" || clamped != fmt.Sprint("g", tp, 5, 4) || b.Counts().Clamped != 1 {
		t.Fatalf("%+v %v, reported %q", o, ok, clamped)
	}
}

// b2 opens the metadata once more, to change what a life has left.
func b2(t *testing.T, sim *vfs.Sim, fn func(b *Broker, p *Partition) error) error {
	t.Helper()
	b := open(t, sim)
	p, err := b.Partition(kafka.TopicPartition{Topic: "a"})
	if err != nil {
		return err
	}
	return errors.Join(fn(b, p), b.Close())
}

func TestConfigFaultsAreReportedTogether(t *testing.T) {
	_, err := ParseConfig(map[string]string{"segment.bytes": "1", "cleanup.policy": "compress", "no.such": "x", "segment.ms": "-1"})
	if !errors.Is(err, kafka.ErrInvalidConfig) {
		t.Fatal(err)
	}
	for _, name := range []string{"segment.bytes", "cleanup.policy", "no.such", "segment.ms"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is missing in %v", name, err)
		}
	}
	if _, err := ParseConfig(map[string]string{"segment.bytes": "4096", "cleanup.policy": "delete", "retention.ms": "-1"}); err != nil {
		t.Fatal(err)
	}
}
