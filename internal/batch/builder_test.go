package batch

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/runnelmq/runnel/internal/kafka"
)

// TestBuilderSizes: Len, SizeOf and SizeBound tell the truth, whichever way Append takes.
func TestBuilderSizes(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var b Builder
		b.Reset(make([]byte, 0, rng.IntN(20_000)))
		if b.Len() != HeaderSize || b.Count() != 0 {
			t.Fatalf("empty: %d bytes, %d records", b.Len(), b.Count())
		}
		for i := range 1 + rng.IntN(100) {
			r := randomRec(rng)
			before, size := b.Len(), b.SizeOf(r.ts, r.key, r.value, r.headers)
			b.Append(r.ts, r.key, r.value, r.headers)
			if b.Len() != before+size || b.Count() != i+1 {
				t.Fatalf("seed %d, record %d: %d bytes, %d records, want %d and %d", seed, i, b.Len(), b.Count(), before+size, i+1)
			}
			if bound := SizeBound(r.key, r.value, r.headers); size > bound {
				t.Fatalf("seed %d, record %d: %d bytes, bound %d", seed, i, size, bound)
			}
		}
		if got := len(b.Seal(NoProducer())); got != b.Len() {
			t.Fatalf("seed %d: sealed %d bytes, want %d", seed, got, b.Len())
		}
	}
}

// TestBuilderRoomDoesNotMatter builds the same records into buffers of every size, so that each way of writing a record
// meets each amount of room, and compares with a buffer that never runs out.
func TestBuilderRoomDoesNotMatter(t *testing.T) {
	recs := []rec{{1000, []byte("k"), bytes.Repeat([]byte("v"), 100), nil}, {900, nil, bytes.Repeat([]byte("w"), 64), nil}, {1100, nil, nil, []kafka.Header{{Key: "h"}}}}
	var b Builder
	b.Reset(make([]byte, 0, 4096))
	for _, r := range recs {
		b.Append(r.ts, r.key, r.value, r.headers)
	}
	want := append(Batch(nil), b.Seal(NoProducer())...)
	for room := range 500 {
		b.Reset(bytes.Repeat([]byte{0xaa}, room)) // old bytes must not show
		for _, r := range recs {
			b.Append(r.ts, r.key, r.value, r.headers)
		}
		if got := b.Seal(NoProducer()); !bytes.Equal(got, want) {
			t.Fatalf("room for %d bytes:\ngot  %x\nwant %x", room, got, want)
		}
	}
}

func TestBuilderUsesTheBuffer(t *testing.T) {
	buf := make([]byte, 0, 256)
	var b Builder
	b.Reset(buf)
	b.Append(1, nil, []byte("v"), nil)
	if s := b.Seal(NoProducer()); &s[0] != &buf[:1][0] {
		t.Error("the batch lies elsewhere")
	}
}

// TestBuilderSealsAgain: with another stamp, and after more records.
func TestBuilderSealsAgain(t *testing.T) {
	one, two := rec{5, []byte("a"), []byte("b"), nil}, rec{9, nil, []byte("c"), nil}
	retried := Stamp{ProducerID: 1, ProducerEpoch: 2, BaseSequence: 3, Attributes: AttrTransactional, BaseOffset: 4, LeaderEpoch: 5}
	var b Builder
	b.Reset(nil)
	b.Append(one.ts, one.key, one.value, nil)
	for _, s := range []Stamp{NoProducer(), retried} {
		if got, want := b.Seal(s), build(s, one); !bytes.Equal(got, want) {
			t.Errorf("%+v:\ngot  %x\nwant %x", s, got, want)
		}
	}
	b.Append(two.ts, two.key, two.value, nil)
	if got, want := b.Seal(NoProducer()), build(NoProducer(), one, two); !bytes.Equal(got, want) {
		t.Errorf("\ngot  %x\nwant %x", got, want)
	}
	b.Reset(nil)
	empty := b.Seal(NoProducer())
	if err := Check(empty); err != nil || empty.Count() != 0 || empty.MaxTimestamp() != kafka.NoTimestamp {
		t.Errorf("empty batch: %v, %x", err, empty)
	}
}

func TestBuilderLargeRecords(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 8<<10 - 1, 8 << 10, 1<<20 - 1, 1 << 20, 17 << 20} {
		value := make([]byte, n)
		for i := range value {
			value[i] = byte(i * 7)
		}
		recs := []rec{{5, []byte("before"), nil, nil}, {6, nil, value, nil}, {7, value, nil, nil}, {8, nil, nil, []kafka.Header{{Key: "h", Value: value}}}, {9, []byte("after"), nil, nil}}
		b := build(NoProducer(), recs...)
		if err := validate(b); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		wantRecords(t, b, recs)
	}
}

func TestNothingAllocates(t *testing.T) {
	headers := []kafka.Header{{Key: "trace", Value: []byte("0123456789")}, {Key: "kind"}}
	key, value, wide := []byte("key"), make([]byte, 100), make([]byte, 10<<10)
	buf := make([]byte, 0, 1<<20)
	var b Builder
	b.Reset(buf)
	append3 := func() {
		if b.Len() > cap(buf)-100<<10 {
			b.Reset(buf)
		}
		b.Append(5, key, value, nil)
		b.Append(6, key, value, headers)
		b.Append(7, key, wide, headers)
	}
	append3()
	sealed := append(Batch(nil), b.Seal(NoProducer())...)
	var r Record
	n := 0
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"Append", append3},
		{"SizeOf", func() { n += b.SizeOf(5, key, value, headers) }},
		{"Reset and Seal", func() { b.Reset(buf); b.Append(5, key, value, nil); b.Seal(NoProducer()) }},
		{"Next", func() {
			for it := sealed.Iter(); it.Next(&r); {
				n += len(r.Value)
			}
		}},
		{"Skip", func() {
			for it := sealed.Iter(); it.Skip(); {
				n++
			}
		}},
		{"Header", func() {
			v, _ := r.Header("trace")
			n += len(v)
		}},
		{"Check", func() {
			if Check(sealed) != nil {
				t.Error("Check fails")
			}
		}},
		{"Validate", func() {
			if validate(sealed) != nil {
				t.Error("Validate fails")
			}
		}},
	} {
		if allocs := testing.AllocsPerRun(100, c.f); allocs != 0 {
			t.Errorf("%s allocates %v times", c.name, allocs)
		}
	}
}
