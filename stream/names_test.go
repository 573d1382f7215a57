package stream_test

import (
	"encoding/binary"
	"errors"
	"strconv"
	"testing"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

func lastSequence(t testing.TB, p stream.Producer, part stream.TopicPartition) int64 {
	t.Helper()
	return must(p.LastSequence(t.Context(), part))(t)
}

// C1: a record whose sequence is not above the last one of its name in its partition is not appended, by any verb, also after
// reopening; gaps are allowed.
func TestNamedProducerAppendsEachSequenceOnce(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 2)
		name := stream.ProducerConfig{Name: "n", Partitioner: stream.ManualPartitioner()}
		p := newProducer(t, eng, name)
		eq(t, "last of none", lastSequence(t, p, tp("a", 0)), 0)
		_, err := p.LastSequence(t.Context(), tp("a", 2))
		wantErr(t, err, stream.ErrUnknownTopic)
		end := int64(0)
		for _, s := range []int64{1, 2, 5, 100} { // with gaps
			for _, produce := range verbs {
				rec := must(produce(p, t.Context(), &stream.Record{Topic: "a", Sequence: s}))(t)
				if duplicate := endOf(t, eng, tp("a", 0)) == end; rec.Duplicate != duplicate {
					t.Fatalf("sequence %d: %+v, end %d, was %d", s, rec, endOf(t, eng, tp("a", 0)), end)
				}
				if !rec.Duplicate {
					eq(t, "offset", rec.Offset, end)
					end++
				}
			}
			eq(t, "last", lastSequence(t, p, tp("a", 0)), s)
		}
		eq(t, "end", end, 4)
		// Records without a sequence are always appended and move nothing.
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
		eq(t, "last", lastSequence(t, p, tp("a", 0)), 100)
		// Each partition has its own.
		eq(t, "last of the other partition", lastSequence(t, p, tp("a", 1)), 0)
		eq(t, "other partition", must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Partition: 1, Sequence: 3}))(t).Duplicate, false)

		for range 3 {
			eng = g.reopen()
			p = newProducer(t, eng, name)
			eq(t, "last after reopening", []int64{lastSequence(t, p, tp("a", 0)), lastSequence(t, p, tp("a", 1))}, []int64{100, 3})
			rec := must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: 100}))(t)
			eq(t, "receipt of a duplicate", []any{rec.Duplicate, rec.Offset}, []any{true, -1})
		}
		eq(t, "end", endOf(t, eng, tp("a", 0)), 5)
		other := newProducer(t, eng, stream.ProducerConfig{Name: "m", Partitioner: stream.ManualPartitioner()})
		eq(t, "last of another name", lastSequence(t, other, tp("a", 0)), 0)
		eq(t, "another name", must(other.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: 1}))(t).Duplicate, false)
	})
}

func TestNamedProducerFindsDuplicatesWithinOneCall(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{Name: "n", BatchSize: 200})
		var rs []stream.Record
		for _, s := range []int64{1, 1, 3, 2, 0, 3, 4, 0, 4, 10, 9, 11} {
			rs = append(rs, stream.Record{Topic: "a", Sequence: s, Value: []byte(strconv.FormatInt(s, 10))})
		}
		out := must(p.ProduceAll(t.Context(), rs, nil))(t)
		var duplicates []bool
		for _, r := range out {
			duplicates = append(duplicates, r.Receipt.Duplicate)
		}
		eq(t, "duplicates", duplicates, []bool{false, true, false, true, false, true, false, false, true, false, true, false})
		eq(t, "records", values(readAll(t, eng, tp("a", 0))), []string{"1", "3", "0", "4", "0", "10", "11"})
	})
}

// "Duplicate" says that the record is in the partition. When the first of two equal ones could not be appended, the second is not there either.
func TestDuplicateOfARecordThatFailedIsNoDuplicate(t *testing.T) {
	onSim(t, func(t *testing.T, g *ground) {
		eng := g.open(func(o *stream.Options) { o.MinFree = 64 << 20 })
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{Name: "n"})
		g.sim.SetFree(32 << 20)
		rs := []stream.Record{{Topic: "a", Sequence: 1}, {Topic: "a", Sequence: 1}}
		out, err := p.ProduceAll(t.Context(), rs, nil)
		wantErr(t, err, stream.ErrDiskFull)
		for i, r := range out {
			if !errors.Is(r.Err, stream.ErrDiskFull) {
				t.Errorf("record %d: %+v", i, r)
			}
		}
		g.sim.SetFree(-1)
		eq(t, "end", endOf(t, eng, tp("a", 0)), 0)
		out = must(p.ProduceAll(t.Context(), rs, out))(t)
		eq(t, "offset", out[0].Receipt.Offset, 0)
	})
}

// A receipt at AcksSynced is safe from a power cut, also that of a duplicate whose first record was only written.
func TestDuplicateWaitsForTheDurabilityThatItAsksFor(t *testing.T) {
	for _, together := range []bool{false, true} {
		t.Run(strconv.FormatBool(together), func(t *testing.T) {
			onSim(t, func(t *testing.T, g *ground) {
				eng := g.open(func(o *stream.Options) { o.SyncInterval = forever })
				create(t, eng, "a", 1)
				p := newProducer(t, eng, stream.ProducerConfig{Name: "n"})
				must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: 1}))(t)
				rs := []stream.Record{{Topic: "a", Sequence: 2, Acks: stream.AcksWritten}, {Topic: "a", Sequence: 2, Acks: stream.AcksSynced}}
				if together {
					eq(t, "duplicate", must(p.ProduceAll(t.Context(), rs, nil))(t)[1].Receipt.Duplicate, true)
				} else {
					must(p.ProduceSync(t.Context(), &rs[0]))(t)
					eq(t, "duplicate", must(p.ProduceSync(t.Context(), &rs[1]))(t).Duplicate, true)
				}
				durable := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest, Visibility: stream.Durable})
				eq(t, "durable records", len(poll(t, durable, 9)), 2)
			})
		})
	}
}

// C2: the second live instance of a name fences the first, at once and for good; nothing that the first sends is appended.
func TestSecondInstanceFencesTheFirst(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 1)
		conf := stream.ProducerConfig{Name: "n"}
		first := newProducer(t, eng, conf)
		must(first.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: 1}))(t)
		bystander := newProducer(t, eng, stream.ProducerConfig{Name: "m"})
		second := newProducer(t, eng, conf)
		for name, produce := range verbs {
			for _, sequence := range []int64{0, 1, 2} {
				rec, err := produce(first, t.Context(), &stream.Record{Topic: "a", Sequence: sequence})
				if !errors.Is(err, stream.ErrFenced) && !(rec.Duplicate && sequence == 1) {
					t.Errorf("%s of sequence %d: %+v, %v", name, sequence, rec, err)
				}
				if err != nil && (!stream.IsFatal(err) || stream.IsRetriable(err)) {
					t.Errorf("%v is fatal: %v, retriable: %v", err, stream.IsFatal(err), stream.IsRetriable(err))
				}
			}
		}
		_, err := first.LastSequence(t.Context(), tp("a", 0))
		wantErr(t, err, stream.ErrFenced)
		eq(t, "end", endOf(t, eng, tp("a", 0)), 1)
		eq(t, "last", lastSequence(t, second, tp("a", 0)), 1)
		eq(t, "offset", must(second.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: 2}))(t).Offset, 1)
		_, err = first.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: 9})
		wantErr(t, err, stream.ErrFenced)
		must(bystander.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: 1}))(t)
		check(t, first.Close(t.Context()))
		must(second.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: 3}))(t)
	})
}

func TestSequencesAreForNamedProducers(t *testing.T) {
	eng := streamtest.New(t)
	create(t, eng, "a", 1)
	p := newProducer(t, eng, stream.ProducerConfig{})
	_, err := p.LastSequence(t.Context(), tp("a", 0))
	wantErr(t, err, stream.ErrUnsupported)
	_, err = p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: 1})
	wantErr(t, err, stream.ErrInvalidRecord)
	eq(t, "end", endOf(t, eng, tp("a", 0)), 0)
}

// A program that forwards records forwards their headers. A runnel.seq that came with them is not this producer's sequence.
func TestForwardedSequenceHeaderIsNotTheProducersOwn(t *testing.T) {
	forwarded := []stream.Header{{Key: "runnel.seq", Value: binary.BigEndian.AppendUint64(nil, 1000)}}
	for name, own := range map[string]int64{"with a sequence": 7, "without": 0} {
		t.Run(name, func(t *testing.T) {
			onGrounds(t, func(t *testing.T, g *ground) {
				eng := g.open()
				create(t, eng, "a", 1)
				p := newProducer(t, eng, stream.ProducerConfig{Name: "n"})
				must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: own, Headers: forwarded}))(t)
				eq(t, "last", lastSequence(t, p, tp("a", 0)), own)
				eng = g.reopen()
				p = newProducer(t, eng, stream.ProducerConfig{Name: "n"})
				eq(t, "last after reopening", lastSequence(t, p, tp("a", 0)), own)
			})
		})
	}
}

// C1: after a crash of the process the source sends again what it is not sure of, and every record is there once.
func TestNamedProducerAfterCrashOfTheProcess(t *testing.T) {
	onSim(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{Name: "n", Acks: stream.AcksWritten})
		for i := range 50 {
			must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: int64(i + 1), Value: []byte(strconv.Itoa(i))}))(t)
		}
		crashed := g.sim.Crash()
		o := stream.Options{FS: crashed, MinFree: -1}
		after := must(stream.Open(g.dir, &o))(t)
		defer func() { check(t, after.Close()) }()
		p = newProducer(t, after, stream.ProducerConfig{Name: "n"})
		eq(t, "last", lastSequence(t, p, tp("a", 0)), 50)
		for i := 40; i < 60; i++ {
			rec := must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Sequence: int64(i + 1), Value: []byte(strconv.Itoa(i))}))(t)
			eq(t, "duplicate", rec.Duplicate, i < 50)
		}
		eq(t, "records", values(readAll(t, after, tp("a", 0))), numbers(0, 60))
	})
}
