package batch

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kmsg is another implementation of the format, made from Kafka's own description of it.

// kmsgRead decodes b and its records with kmsg and fails unless the header's fields come out as ours.
func kmsgRead(t testing.TB, b Batch) []got {
	t.Helper()
	var k kmsg.RecordBatch
	if err := k.ReadFrom(b); err != nil {
		t.Fatal(err)
	}
	theirs := []any{k.FirstOffset, int(k.Length) + lengthEnd, k.PartitionLeaderEpoch, k.Magic, uint32(k.CRC), k.Attributes, k.LastOffsetDelta,
		k.FirstTimestamp, k.MaxTimestamp, k.ProducerID, k.ProducerEpoch, k.FirstSequence, k.NumRecords}
	ours := []any{b.BaseOffset(), b.Size(), b.LeaderEpoch(), int8(magic), b.CRC(), b.Attributes(), b.LastOffsetDelta(),
		b.BaseTimestamp(), b.MaxTimestamp(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.Count()}
	for i := range ours {
		if ours[i] != theirs[i] {
			t.Fatalf("header field %d: %v, kmsg reads %v", i, ours[i], theirs[i])
		}
	}
	var all []got
	for p := k.Records; len(p) > 0; {
		n, size := binary.Varint(p)
		var r kmsg.Record
		if err := r.ReadFrom(p[:size+int(n)]); err != nil {
			t.Fatal(err)
		}
		p = p[size+int(n):]
		g := got{k.FirstOffset + int64(r.OffsetDelta), rec{k.FirstTimestamp + r.TimestampDelta64, r.Key, r.Value, nil}}
		for _, h := range r.Headers {
			g.headers = append(g.headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
		all = append(all, g)
	}
	return all
}

// kmsgBuild encodes recs with kmsg; lengths and the checksum, which kmsg leaves to its caller, are filled in.
func kmsgBuild(s Stamp, recs []rec) Batch {
	k := kmsg.RecordBatch{FirstOffset: s.BaseOffset, PartitionLeaderEpoch: s.LeaderEpoch, Magic: magic, Attributes: s.Attributes,
		LastOffsetDelta: int32(len(recs) - 1), FirstTimestamp: recs[0].ts, MaxTimestamp: math.MinInt64,
		ProducerID: s.ProducerID, ProducerEpoch: s.ProducerEpoch, FirstSequence: s.BaseSequence, NumRecords: int32(len(recs))}
	for i, r := range recs {
		k.MaxTimestamp = max(k.MaxTimestamp, r.ts)
		kr := kmsg.Record{TimestampDelta64: r.ts - recs[0].ts, OffsetDelta: int32(i), Key: r.key, Value: r.value}
		for _, h := range r.headers {
			kr.Headers = append(kr.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
		}
		kr.Length = int32(len(kr.AppendTo(nil)) - 1) // the length 0 takes one byte
		k.Records = kr.AppendTo(k.Records)
	}
	return Batch(reseal(k.AppendTo(nil)))
}

func TestKmsgReadsTheSame(t *testing.T) {
	for _, v := range vectors() {
		t.Run(v.name, func(t *testing.T) {
			b := build(v.stamp, v.recs...)
			all := kmsgRead(t, b)
			if len(all) != len(v.recs) {
				t.Fatalf("kmsg reads %d records, want %d", len(all), len(v.recs))
			}
			for i, r := range v.recs {
				if want := (got{b.BaseOffset() + int64(i), r}); !sameGot(all[i], want) {
					t.Fatalf("record %d: kmsg reads %+v, want %+v", i, all[i], want)
				}
			}
		})
	}
}

// TestKmsgWritesTheSame compares whole batches, byte for byte, also with records at random.
func TestKmsgWritesTheSame(t *testing.T) {
	for _, v := range vectors() {
		compareWithKmsg(t, v.stamp, v.recs)
	}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		recs := make([]rec, 1+rng.IntN(200))
		for i := range recs {
			recs[i] = randomRec(rng)
		}
		compareWithKmsg(t, Stamp{ProducerID: rng.Int64(), ProducerEpoch: int16(rng.IntN(1 << 15)), BaseSequence: rng.Int32(), BaseOffset: rng.Int64() >> 1, LeaderEpoch: rng.Int32()}, recs)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func compareWithKmsg(t *testing.T, s Stamp, recs []rec) {
	t.Helper()
	theirs := kmsgBuild(s, recs)
	if ours := build(s, recs...); string(ours) != string(theirs) {
		t.Errorf("\nours %x\nkmsg %x", ours, theirs)
		return
	}
	if err := validate(theirs); err != nil {
		t.Error(err)
		return
	}
	wantRecords(t, theirs, recs)
}

// randomRec makes records whose lengths and times lie around the places where a varint grows.
func randomRec(rng *rand.Rand) rec {
	field := func() []byte {
		switch rng.IntN(10) {
		case 0:
			return nil
		case 1:
			return []byte{}
		case 2:
			return make([]byte, 8<<10-40+rng.IntN(80))
		default:
			f := make([]byte, rng.IntN(140))
			for i := range f {
				f[i] = byte(rng.Uint32())
			}
			return f
		}
	}
	r := rec{ts: 1 << 40, key: field(), value: field()}
	switch rng.IntN(4) {
	case 0:
		r.ts += int64(rng.IntN(300) - 150)
	case 1:
		r.ts += rng.Int64N(1<<40) - 1<<39
	}
	if rng.IntN(3) == 0 {
		for range 1 + rng.IntN(4) {
			r.headers = append(r.headers, kafka.Header{Key: string(make([]byte, rng.IntN(70))), Value: field()})
		}
	}
	return r
}
