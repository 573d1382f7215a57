package stream_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// C1: a promise runs though a ProduceSync that rode in its batch was given up.
func TestPromiseBesideACallThatWasGivenUp(t *testing.T) {
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		p := newProducer(t, eng, stream.ProducerConfig{MaxInFlight: 1})
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
		release := d.hang()
		defer release()
		a := newAnswers(t)
		p.Produce(t.Context(), &stream.Record{Topic: "a", Value: []byte("1")}, a.promise(1))
		synctest.Wait()
		p.Produce(t.Context(), &stream.Record{Topic: "a", Value: []byte("2")}, a.promise(2))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: []byte("3")})
			ended <- err
		}()
		synctest.Wait()
		cancel()
		wantErr(t, <-ended, context.Canceled)
		release()
		check(t, p.Flush(t.Context()))
		eq(t, "log", values(readAll(t, eng, tp("a", 0))), []string{"", "1", "2"})
		eq(t, "promises run", len(a.list), 2)
	})
}

// F1: the results of a ProduceAll that was given up are not touched any more: the caller uses the slice again.
func TestResultsOfACallThatWasGivenUpAreLeftAlone(t *testing.T) {
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		p := newProducer(t, eng, stream.ProducerConfig{})
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
		release := d.hang()
		defer release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		out, err := p.ProduceAll(ctx, []stream.Record{{Topic: "a", Value: []byte("1")}}, nil)
		wantErr(t, err, stream.ErrOutcomeUnknown)
		ctx2, cancel2 := context.WithTimeout(t.Context(), time.Hour)
		defer cancel2()
		time.AfterFunc(time.Second, release)
		out, err = p.ProduceAll(ctx2, []stream.Record{{Topic: "a", Value: []byte("2")}}, out)
		check(t, err)
		eq(t, "offset", out[0].Receipt.Offset, 2)
	})
}

// F1: what waits for the window goes when somebody else's sync has opened it.
func TestBatchesBehindAWindowThatOpensUnseen(t *testing.T) {
	onSlowDisk(t, 5, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		p := newProducer(t, eng, stream.ProducerConfig{MaxInFlight: 1, DeliveryTimeout: 10 * time.Second, Partitioner: stream.ManualPartitioner()})
		for n := range int32(5) {
			must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Partition: n}))(t)
		}
		release := d.hang()
		defer release()
		other := newAnswers(t)
		for n := range int32(4) {
			p.Produce(t.Context(), &stream.Record{Topic: "a", Partition: n}, other.promise(0))
			synctest.Wait()
		}
		a := newAnswers(t)
		p.Produce(t.Context(), &stream.Record{Topic: "a", Partition: 4, Value: []byte("1")}, a.promise(1))
		time.Sleep(5 * time.Second)
		p.Produce(t.Context(), &stream.Record{Topic: "a", Partition: 4, Value: []byte("2")}, a.promise(2))
		time.Sleep(6 * time.Second)
		got := a.next()
		wantErr(t, got.err, stream.ErrOutcomeUnknown)
		release() // at 11 s
		got = a.next()
		eq(t, "answered after", got.at, 11*time.Second)
		check(t, got.err)
	})
}

type hangCreate struct {
	*vfs.Sim
	wait atomic.Pointer[chan struct{}]
}

func (d *hangCreate) Create(name string, limit int64) (vfs.File, error) {
	if w := d.wait.Load(); w != nil && strings.HasSuffix(name, ".log") {
		<-*w
	}
	return d.Sim.Create(name, limit)
}

// F14: a batch that was opened while somebody waited for memory goes too.
func TestBatchOpenedWhileMemoryIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hangCreate{Sim: vfs.NewSim(1)}
		eng := must(stream.Open("/data", &stream.Options{FS: d, MinFree: -1, SyncInterval: forever}))(t)
		defer func() { report(t, eng.Close()) }()
		create(t, eng, "a", 7)
		const size = 1000
		p := newProducer(t, eng, stream.ProducerConfig{BatchSize: size, BufferMemory: 5 * size, Linger: time.Minute, Acks: stream.AcksWritten, Partitioner: stream.ManualPartitioner()})
		for n := 4; n < 7; n++ {
			must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Partition: int32(n)}))(t)
		}
		free := make(chan struct{})
		d.wait.Store(&free)
		a := newAnswers(t)
		for n := range 4 {
			p.Produce(t.Context(), &stream.Record{Topic: "a", Partition: int32(n)}, a.promise(n))
		}
		p.Produce(t.Context(), &stream.Record{Topic: "a", Partition: 4}, a.promise(4))
		go p.Produce(t.Context(), &stream.Record{Topic: "a", Partition: 5}, a.promise(5)) // waits, and presses: four senders hang
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		go p.Produce(ctx, &stream.Record{Topic: "a", Partition: 6}, a.promise(6)) // waits
		synctest.Wait()
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Partition: 4}))(t) // frees memory for 5
		synctest.Wait()
		cancel()
		synctest.Wait()
		d.wait.Store(nil)
		close(free)
		for range 7 {
			select {
			case <-a.list:
			case <-time.After(100 * time.Hour):
				t.Fatal("a record has no answer after 100 hours")
			}
		}
	})
}

// F1: full batches that a sender leaves for its next turn do not linger.
func TestFullBatchesThatASenderLeavesDoNotLinger(t *testing.T) {
	onFullDisk(t, func(t *testing.T, eng *stream.Engine, space func()) {
		p := newProducer(t, eng, stream.ProducerConfig{Retries: -1, BatchSize: 200, Linger: time.Hour, DeliveryTimeout: 2 * time.Hour, Acks: stream.AcksWritten})
		a := newAnswers(t)
		for i := range 201 {
			p.Produce(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 100)}, a.promise(i))
		}
		time.Sleep(2 * time.Second)
		space()
		for i, got := range a.some(200) {
			check(t, got.err)
			if got.at > 4*time.Second {
				t.Fatalf("answer %d of a full batch after %v", i, got.at)
			}
		}
	})
}

// F14: a call that waits for memory has that of batches that a sender has left.
func TestMemoryOfBatchesThatASenderLeaves(t *testing.T) {
	onFullDisk(t, func(t *testing.T, eng *stream.Engine, space func()) {
		p := newProducer(t, eng, stream.ProducerConfig{Retries: -1, BatchSize: 200, Linger: time.Hour, DeliveryTimeout: 2 * time.Hour, BufferMemory: 200 * 101, Acks: stream.AcksWritten})
		a := newAnswers(t)
		for i := range 101 {
			p.Produce(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 100)}, a.promise(i))
		}
		time.Sleep(2 * time.Second)
		space()
		time.Sleep(2 * time.Second)
		began := time.Now()
		p.Produce(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 16000)}, a.promise(101)) // needs memory of the batches that are left
		eq(t, "blocked", time.Since(began) < time.Minute, true)
		for range 102 {
			check(t, a.next().err)
		}
	})
}

// C1: a record that was cancelled in its batch can be sent again, though the next one was sent.
func TestSequenceCancelledInItsBatch(t *testing.T) {
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		p := newProducer(t, eng, stream.ProducerConfig{Name: "n", Linger: time.Hour})
		a := newAnswers(t)
		ctx, cancel := context.WithCancel(t.Context())
		p.Produce(ctx, &stream.Record{Topic: "a", Sequence: 1, Value: []byte("1")}, a.promise(1))
		p.Produce(t.Context(), &stream.Record{Topic: "a", Sequence: 2, Value: []byte("2")}, a.promise(2))
		cancel()
		synctest.Wait()
		check(t, p.Flush(t.Context()))
		for range 2 {
			a.next()
		}
		rec, err := p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: 1, Value: []byte("1")})
		check(t, err)
		eq(t, "duplicate", rec.Duplicate, false)
	})
}

// C1: what repeats a record that was not written is no duplicate.
func TestDuplicateOfASequenceThatFails(t *testing.T) {
	onFullDisk(t, func(t *testing.T, eng *stream.Engine, space func()) {
		p := newProducer(t, eng, stream.ProducerConfig{Name: "n", Retries: -1, DeliveryTimeout: 10 * time.Second})
		a := newAnswers(t)
		// Something that keeps the lane from being idle, with the sequence.
		p.Produce(t.Context(), &stream.Record{Topic: "a", Sequence: 1, Value: []byte("1")}, a.promise(1))
		time.Sleep(5 * time.Second)
		p.Produce(t.Context(), &stream.Record{Topic: "a", Sequence: 1, Value: []byte("1")}, a.promise(2))
		got := a.next()
		eq(t, "n", got.n, 1)
		wantErr(t, got.err, stream.ErrTimeout)
		space()
		got = a.next()
		rs := values(readAll(t, eng, tp("a", 0)))
		if got.err == nil && len(rs) == 0 {
			t.Fatal("said to be there, and is not")
		}
	})
}

// F14: memory that a call has waited for is given back if its record has become a duplicate.
func TestMemoryOfACallThatBecameADuplicate(t *testing.T) {
	onSlowDisk(t, 2, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		p := newProducer(t, eng, stream.ProducerConfig{Name: "n", BatchSize: 1000, BufferMemory: 4200, Partitioner: stream.ManualPartitioner()})
		for n := range int32(2) {
			must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Partition: n}))(t)
		}
		release := d.hang()
		defer release()
		a := newAnswers(t)
		p.Produce(t.Context(), &stream.Record{Topic: "a", Partition: 1}, a.promise(0))
		synctest.Wait()
		go p.Produce(t.Context(), &stream.Record{Topic: "a", Sequence: 5, Value: make([]byte, 4000)}, a.promise(1))
		synctest.Wait()
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: 6, Acks: stream.AcksWritten}))(t)
		release()
		for range 2 {
			a.next()
		}
		check(t, p.Flush(t.Context()))
		synctest.Wait()
		eq(t, "memory in use", p.Metrics().BufferBytes, 0)
	})
}

// F1: Flush and Close wait for records of an earlier life of a topic.
func TestFlushKnowsAnEarlierLifeOfItsTopic(t *testing.T) {
	for _, how := range []string{"flush", "close"} {
		onFullDisk(t, func(t *testing.T, eng *stream.Engine, space func()) {
			p := newProducer(t, eng, stream.ProducerConfig{Retries: -1})
			a := newAnswers(t)
			p.Produce(t.Context(), &stream.Record{Topic: "a"}, a.promise(0))
			time.Sleep(time.Second)
			space()
			check(t, eng.Admin().DeleteTopic(t.Context(), "a"))
			create(t, eng, "a", 1)
			p.Produce(t.Context(), &stream.Record{Topic: "a"}, a.promise(1))
			if how == "flush" {
				check(t, p.Flush(t.Context()))
			} else {
				check(t, p.Close(t.Context()))
			}
			n := len(a.list)
			time.Sleep(time.Minute)
			a.next()
			a.next()
			if n != 2 {
				t.Errorf("%s: promises run %d, want 2", how, n)
			}
		})
	}
}

// F1: with BatchSize 1 every record is a batch, which is full and does not linger.
func TestBatchOfOneRecordIsFull(t *testing.T) {
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		p := newProducer(t, eng, stream.ProducerConfig{BatchSize: 1, Linger: time.Minute})
		a := newAnswers(t)
		p.Produce(t.Context(), &stream.Record{Topic: "a"}, a.promise(0))
		eq(t, "after", a.next().at, 0)
	})
}

// F1: a cancelled record behind a full window is answered at once.
func TestCancelledBehindTheWindow(t *testing.T) {
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		p := newProducer(t, eng, stream.ProducerConfig{MaxInFlight: 1})
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
		release := d.hang()
		defer release()
		a := newAnswers(t)
		p.Produce(t.Context(), &stream.Record{Topic: "a"}, a.promise(0))
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		p.Produce(ctx, &stream.Record{Topic: "a"}, a.promise(1))
		synctest.Wait()
		cancel()
		synctest.Wait()
		eq(t, "answers", len(a.list), 1)
		wantErr(t, a.next().err, context.Canceled)
	})
}
