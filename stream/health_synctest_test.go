package stream_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// states keeps what Events said of partitions and of the metadata store.
type states struct {
	sync.Mutex
	list []string
}

func (s *states) add(what string) {
	s.Lock()
	defer s.Unlock()
	s.list = append(s.list, what)
}

func (s *states) take() string {
	s.Lock()
	defer s.Unlock()
	l := strings.Join(s.list, ", ")
	s.list = nil
	return l
}

func (s *states) events() stream.Events {
	return stream.Events{
		PartitionState: func(tp stream.TopicPartition, st stream.PartitionState, err error) {
			if (st == stream.PartitionOK) != (err == nil) {
				s.add("an error without a reason, or a reason without an error")
			}
			s.add(fmt.Sprintf("%v %v", tp, st))
		},
		MetaFailed:    func(error) { s.add("meta failed") },
		MetaRecovered: func() { s.add("meta recovered") },
		OffsetClamped: func(_ string, tp stream.TopicPartition, from, to int64) {
			s.add(fmt.Sprintf("%v clamped %d to %d", tp, from, to))
		},
	}
}

// inBubble runs fn in virtual time with an engine on a simulated disk, and without background syncs.
func inBubble(t *testing.T, change func(*stream.Options), fn func(t *testing.T, sim *vfs.Sim, eng *stream.Engine, seen *states)) {
	synctest.Test(t, func(t *testing.T) {
		sim, seen := vfs.NewSim(1), &states{}
		o := stream.Options{FS: sim, MinFree: -1, SyncInterval: 24 * time.Hour, Events: seen.events()}
		if change != nil {
			change(&o)
		}
		eng := must(stream.Open("/data", &o))(t)
		fn(t, sim, eng, seen)
		sim.Inject(nil)
		check(t, eng.Close())
	})
}

func health(t *testing.T, eng *stream.Engine, part stream.TopicPartition) stream.PartitionHealth {
	t.Helper()
	hs := must(eng.Admin().Health(t.Context(), part))(t)
	eq(t, "partitions", len(hs), 1)
	return hs[0]
}

// failing makes operations of these kinds on files that have part in their name fail.
func failing(sim *vfs.Sim, part string, kinds ...vfs.OpKind) {
	sim.Inject(func(op vfs.Op) error {
		for _, k := range kinds {
			if op.Kind == k && strings.Contains(op.Name, part) {
				return syscall.EIO
			}
		}
		return nil
	})
}

// F4: a failed sync takes its partition offline, visibly, and nothing else. When the disk works again the partition comes back by itself, with what was acknowledged as synced; of
// the rest the end may be gone, the leader epoch tells, and producers and consumers go on.
func TestFailedPartitionComesBack(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, sim *vfs.Sim, eng *stream.Engine, seen *states) {
		create(t, eng, "a", 2)
		manual := stream.ProducerConfig{Partitioner: stream.ManualPartitioner()}
		p := newProducer(t, eng, manual)
		manual.Name = "n"
		named := newProducer(t, eng, manual)
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Reset: stream.ResetEarliest, MaxWait: -1})
		check(t, c.Assign(tp("a", 0), tp("a", 1)))
		ctx := t.Context()
		for i := range 3 {
			must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: []byte("kept")}))(t)
			must(named.ProduceSync(ctx, &stream.Record{Topic: "a", Value: []byte("kept"), Sequence: int64(i + 1)}))(t)
		}
		must(named.ProduceSync(ctx, &stream.Record{Topic: "a", Value: []byte("written"), Sequence: 4, Acks: stream.AcksWritten}))(t)
		must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: []byte("written"), Acks: stream.AcksWritten}))(t)
		eq(t, "read", len(must(c.Poll(ctx, 100))(t)), 8)
		eq(t, "health", health(t, eng, tp("a", 0)).State, stream.PartitionOK)

		failing(sim, "topics/a-0", vfs.OpSync, vfs.OpCreate, vfs.OpTruncate)
		_, err := p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: []byte("lost")})
		wantErr(t, err, stream.ErrPartitionFailed)
		wantErr(t, err, stream.ErrOutcomeUnknown)
		time.Sleep(time.Minute) // every attempt to open it fails
		_, err = p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: []byte("refused")})
		wantErr(t, err, stream.ErrPartitionFailed)
		if errors.Is(err, stream.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		h := health(t, eng, tp("a", 0))
		eq(t, "health", h.State, stream.PartitionFailed)
		wantErr(t, h.Err, stream.ErrPartitionFailed)
		eq(t, "health of the other", health(t, eng, tp("a", 1)).State, stream.PartitionOK)
		eq(t, "events", seen.take(), "a-0 failed")
		must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Partition: 1}))(t)

		// The record whose sync failed was published, and is not shown any more.
		_, err = c.Poll(ctx, 100)
		var perr *stream.PartitionError
		if !errors.As(err, &perr) || perr.TopicPartition != tp("a", 0) {
			t.Fatal(err)
		}
		wantErr(t, err, stream.ErrPartitionFailed)
		eq(t, "the other partition", len(must(c.Poll(ctx, 100))(t)), 1)
		wantErr(t, c.Commit(ctx), stream.ErrPartitionFailed) // it would cover what is not durable

		sim.Inject(nil)
		time.Sleep(10 * time.Second)
		eq(t, "events", seen.take(), "a-0 ok")
		eq(t, "health", health(t, eng, tp("a", 0)), stream.PartitionHealth{TopicPartition: tp("a", 0)})
		end := endOf(t, eng, tp("a", 0))
		eq(t, "end", end, 6) // what the disk has lost with the sync, the simulation forgets
		eq(t, "last sequence", lastSequence(t, named, tp("a", 0)) >= 3, true)
		rec := must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: []byte("new")}))(t)
		eq(t, "offset", rec.Offset, end)
		if rec.LeaderEpoch == 0 {
			t.Fatal("the leader epoch has not risen")
		}
		rec = must(named.ProduceSync(ctx, &stream.Record{Topic: "a", Value: []byte("new"), Sequence: 5}))(t)
		eq(t, "duplicate", rec.Duplicate, false)
		c.Resume(tp("a", 0))
		got := must(c.Poll(ctx, 100))(t)
		if len(got) != 2 || string(got[0].Value) != "new" || got[0].Offset != end {
			t.Fatalf("%v", got)
		}
		eq(t, "events", seen.take(), "a-0 clamped 8 to 6")
		check(t, c.Commit(ctx))
		all := readAll(t, eng, tp("a", 0))
		eq(t, "records", int64(len(all)), end+2)
		for _, r := range all[:6] {
			eq(t, "value", string(r.Value), "kept")
		}
	})
}

// F4: the metadata store fails and comes back in the same process: appends and reads go on meanwhile, what needs it says so, and nothing that it had
// acknowledged is lost.
func TestMetadataStoreComesBack(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, sim *vfs.Sim, eng *stream.Engine, seen *states) {
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{})
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest, MaxWait: -1})
		ctx := t.Context()
		must(p.ProduceSync(ctx, &stream.Record{Topic: "a"}))(t)
		eq(t, "read", len(must(c.Poll(ctx, 10))(t)), 1)
		check(t, c.Commit(ctx))

		failing(sim, "/meta/", vfs.OpSync, vfs.OpCreate)
		must(p.ProduceSync(ctx, &stream.Record{Topic: "a"}))(t)
		eq(t, "read", len(must(c.Poll(ctx, 10))(t)), 1)
		err := c.Commit(ctx)
		wantErr(t, err, stream.ErrMetaFailed)
		wantErr(t, err, stream.ErrOutcomeUnknown)
		for range 10 {
			time.Sleep(10 * time.Second)
			wantErr(t, c.Commit(ctx), stream.ErrMetaFailed)
			wantErr(t, eng.Admin().CreateTopic(ctx, "b", stream.TopicConfig{}), stream.ErrMetaFailed)
			wantErr(t, eng.Admin().DeleteTopic(ctx, "c"), stream.ErrUnknownTopic)
			must(p.ProduceSync(ctx, &stream.Record{Topic: "a"}))(t)
			eq(t, "read", len(must(c.Poll(ctx, 10))(t)), 1)
		}
		eq(t, "events", seen.take(), "meta failed")
		sim.Inject(nil)
		time.Sleep(10 * time.Second)
		eq(t, "events", seen.take(), "meta recovered")
		eq(t, "committed", must(c.Committed(ctx, tp("a", 0)))(t)[tp("a", 0)].Offset >= 1, true)
		check(t, c.Commit(ctx))
		eq(t, "committed", must(c.Committed(ctx, tp("a", 0)))(t)[tp("a", 0)].Offset, 12)
		check(t, eng.Admin().CreateTopic(ctx, "b", stream.TopicConfig{}))
	})
}

// F4, A10: a topic whose creation or deletion failed with the store, its outcome unknown, is in the end what the store says.
func TestTopicsAfterTheMetadataStoreFailed(t *testing.T) {
	for _, kind := range []vfs.OpKind{vfs.OpSync, vfs.OpWrite} {
		inBubble(t, nil, func(t *testing.T, sim *vfs.Sim, eng *stream.Engine, seen *states) {
			ctx := t.Context()
			create(t, eng, "a", 1)
			p := newProducer(t, eng, stream.ProducerConfig{})
			must(p.ProduceSync(ctx, &stream.Record{Topic: "a"}))(t)
			failing(sim, "/meta/", kind)
			wantErr(t, eng.Admin().DeleteTopic(ctx, "a"), stream.ErrOutcomeUnknown)
			_, err := p.ProduceSync(ctx, &stream.Record{Topic: "a"})
			wantErr(t, err, stream.ErrUnknownTopic)
			sim.Inject(nil)
			time.Sleep(time.Second)
			failing(sim, "/meta/", kind)
			wantErr(t, eng.Admin().CreateTopic(ctx, "b", stream.TopicConfig{}), stream.ErrOutcomeUnknown)
			sim.Inject(nil)
			time.Sleep(time.Second)
			eq(t, "events", seen.take(), "meta failed, meta recovered, meta failed, meta recovered")
			// Deleted for good, also on the disk.
			dirs := must(sim.List("/data/topics"))(t)
			eq(t, "directories", len(dirs), 0)
			before := must(eng.Admin().Topics(ctx))(t)
			check(t, eng.Close())
			eng = must(stream.Open("/data", &stream.Options{FS: sim, MinFree: -1}))(t)
			eq(t, "topics", fmt.Sprint(must(eng.Admin().Topics(ctx))(t)), fmt.Sprint(before))
			check(t, eng.Close())
		})
	}
}

// F2: a full disk stops appends, visibly, and nothing else; the next append after space has returned succeeds by itself.
func TestFullDiskPasses(t *testing.T) {
	const free = 8 << 20
	inBubble(t, func(o *stream.Options) {
		o.FS.(*vfs.Sim).SetFree(free)
		o.MinFree = 1 << 20
	}, func(t *testing.T, sim *vfs.Sim, eng *stream.Engine, seen *states) {
		ctx := t.Context()
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{})
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest, MaxWait: -1})
		n := 0
		var err error
		for err == nil {
			if _, err = p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: make([]byte, 100<<10)}); err == nil {
				n++
			}
		}
		wantErr(t, err, stream.ErrDiskFull)
		eq(t, "retriable", stream.IsRetriable(err), true)
		eq(t, "health", health(t, eng, tp("a", 0)).State, stream.PartitionDiskFull)
		eq(t, "events", seen.take(), "a-0 disk full")
		eq(t, "read", len(must(c.Poll(ctx, 1000))(t)), n)
		check(t, c.Commit(ctx))
		check(t, eng.Admin().CreateTopic(ctx, "b", stream.TopicConfig{}))
		check(t, eng.Admin().DeleteTopic(ctx, "b"))
		_, err = p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: make([]byte, 1<<20-1000)})
		wantErr(t, err, stream.ErrDiskFull)
		eq(t, "events", seen.take(), "")
		sim.SetFree(2 * free)
		must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: make([]byte, 1<<20-1000)}))(t)
		eq(t, "events", seen.take(), "a-0 ok")
		eq(t, "end", endOf(t, eng, tp("a", 0)), int64(n+1))
	})
}

// F2: with nothing kept free the disk is full to the last byte; the metadata store lives on what was held back for it, and when that is used up it comes back with the space.
func TestMetadataStoreOnAFullDisk(t *testing.T) {
	const free = 4 << 20
	inBubble(t, func(o *stream.Options) { o.FS.(*vfs.Sim).SetFree(free) }, func(t *testing.T, sim *vfs.Sim, eng *stream.Engine, seen *states) {
		ctx := t.Context()
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{})
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Reset: stream.ResetEarliest, MaxWait: -1})
		check(t, c.Assign(tp("a", 0)))
		var err error
		for size := 64 << 10; size > 0; size /= 2 {
			for err = nil; err == nil; {
				_, err = p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: make([]byte, size)})
			}
			wantErr(t, err, stream.ErrDiskFull)
		}
		end := endOf(t, eng, tp("a", 0))
		meta := strings.Repeat("m", 4000)
		commits, acked := 0, int64(0)
		for i := int64(1); i <= 400; i++ {
			err := c.CommitOffsets(ctx, stream.Offsets{tp("a", 0): {Offset: i % (end + 1), Metadata: meta}})
			if err == nil {
				commits++
				acked = i % (end + 1)
				continue
			}
			wantErr(t, err, stream.ErrMetaFailed)
			break
		}
		if commits < 40 { // a sixteenth of the disk is 256 KiB
			t.Fatalf("%d commits on a full disk", commits)
		}
		t.Logf("%d commits on the full disk", commits)
		sim.SetFree(2 * free)
		time.Sleep(11 * time.Second)
		o := must(c.Committed(ctx, tp("a", 0)))(t)[tp("a", 0)]
		if o.Offset != acked && o.Offset != (acked+1)%(end+1) {
			t.Fatalf("committed %d, acknowledged %d", o.Offset, acked)
		}
		check(t, c.CommitOffsets(ctx, stream.Offsets{tp("a", 0): {Offset: 1}}))
		if _, err := sim.Stat("/data/BALLAST"); err != nil {
			t.Fatalf("nothing is held back again: %v", err)
		}
	})
}

// lose makes partition a-0 fail and come back without what was not durable.
func lose(t *testing.T, sim *vfs.Sim, eng *stream.Engine) {
	t.Helper()
	p := newProducer(t, eng, stream.ProducerConfig{})
	failing(sim, "topics/a-0", vfs.OpSync)
	_, err := p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Value: []byte("lost")})
	wantErr(t, err, stream.ErrPartitionFailed)
	sim.Inject(nil)
	time.Sleep(11 * time.Second)
	eq(t, "health", health(t, eng, tp("a", 0)).State, stream.PartitionOK)
}

// E3: a consumer that has read what a failed partition has lost commits no more than what was kept, by any verb, also before it polls again: the group gets the records that take
// their place.
func TestCommitAfterAPartitionFailed(t *testing.T) {
	for _, verb := range []string{"Commit", "CommitRecords", "Close"} {
		inBubble(t, nil, func(t *testing.T, sim *vfs.Sim, eng *stream.Engine, seen *states) {
			ctx := t.Context()
			create(t, eng, "a", 1)
			p := newProducer(t, eng, stream.ProducerConfig{})
			config := stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest, MaxWait: -1}
			c := newConsumer(t, eng, config)
			for range 2 {
				must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: []byte("kept")}))(t)
			}
			for range 2 {
				must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: []byte("written"), Acks: stream.AcksWritten}))(t)
			}
			read := must(c.Poll(ctx, 100))(t)
			eq(t, "read", len(read), 4)
			lose(t, sim, eng)
			eq(t, "end", endOf(t, eng, tp("a", 0)), 2)
			for range 4 {
				must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: []byte("new")}))(t)
			}
			switch verb {
			case "Commit":
				check(t, c.Commit(ctx))
			case "CommitRecords":
				wantErr(t, c.CommitRecords(ctx, read...), stream.ErrOffsetOutOfRange)
			}
			check(t, c.Close(ctx))
			c = newConsumer(t, eng, config)
			got := must(c.Poll(ctx, 100))(t)
			if len(got) < 4 || string(got[len(got)-4].Value) != "new" {
				t.Fatalf("%s: the group gets %d records", verb, len(got))
			}
		})
	}
}

// C1: a record of a named producer that its partition has lost, heard of or not, holds back those behind it until it has been sent again, and is no duplicate then.
func TestLostRecordOfANamedProducer(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, sim *vfs.Sim, eng *stream.Engine, seen *states) {
		ctx := t.Context()
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{Name: "n"})
		send := func(sequence int64, acks stream.Acks) (stream.Receipt, error) {
			return p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: fmt.Append(nil, sequence), Sequence: sequence, Acks: acks})
		}
		must(send(10, stream.AcksSynced))(t)
		for _, s := range []int64{20, 21, 30} { // with gaps
			must(send(s, stream.AcksWritten))(t)
		}
		failing(sim, "topics/a-0", vfs.OpSync)
		errs := make(chan error, 1)
		p.Produce(ctx, &stream.Record{Topic: "a", Value: []byte("40"), Sequence: 40}, func(_ stream.Receipt, err error) { errs <- err })
		synctest.Wait()
		_, err := p.LastSequence(ctx, tp("a", 0))
		wantErr(t, err, stream.ErrPartitionFailed)
		sim.Inject(nil)
		time.Sleep(11 * time.Second)
		wantErr(t, <-errs, stream.ErrOutcomeUnknown)
		_, err = send(50, stream.AcksSynced)
		wantErr(t, err, stream.ErrPartitionFailed)
		for _, s := range []int64{20, 21, 30, 40, 50} {
			eq(t, "duplicate", must(send(s, stream.AcksSynced))(t).Duplicate, false)
		}
		var values []string
		for _, r := range readAll(t, eng, tp("a", 0)) {
			values = append(values, string(r.Value))
		}
		eq(t, "log", strings.Join(values, " "), "10 20 21 30 40 50")
	})
}
