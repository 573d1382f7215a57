package batch

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/runnelmq/runnel/internal/kafka"
)

// wantBothPathsAgree fails unless the fast path and the general one read the same from b: the first may only be faster.
func wantBothPathsAgree(t testing.TB, b Batch) (all []got, err error) {
	t.Helper()
	fast, fastErr := read(b, (*Iter).Next)
	slow, slowErr := read(b, nextWide)
	if (fastErr == nil) != (slowErr == nil) || fastErr != nil && fastErr.Error() != slowErr.Error() {
		t.Fatalf("fast path: %v, general path: %v", fastErr, slowErr)
	}
	if len(fast) != len(slow) {
		t.Fatalf("fast path: %d records, general path: %d", len(fast), len(slow))
	}
	for i := range fast {
		if !sameGot(fast[i], slow[i]) {
			t.Fatalf("record %d: fast path %+v, general path %+v", i, fast[i], slow[i])
		}
	}
	return fast, fastErr
}

func TestIterBothPathsAgree(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 2))
		recs := make([]rec, 1+rng.IntN(10))
		for i := range recs {
			recs[i] = randomRec(rng)
		}
		b := build(NoProducer(), recs...)
		if all, err := wantBothPathsAgree(t, b); err != nil || len(all) != len(recs) {
			t.Fatalf("seed %d: %d records of %d, %v", seed, len(all), len(recs), err)
		}
		for range 50 { // and with a byte changed, most often of a varint
			at := HeaderSize + rng.IntN(min(len(b)-HeaderSize, 40))
			was := b[at]
			b[at] = byte(rng.Uint32())
			wantBothPathsAgree(t, b)
			b[at] = was
		}
	}
}

// TestIterEveryByteOfARecord puts every value into every byte of a small batch's records, and cuts it everywhere.
func TestIterEveryByteOfARecord(t *testing.T) {
	b := build(NoProducer(), rec{1000, []byte("key"), []byte("value"), []kafka.Header{{Key: "a", Value: []byte("b")}, {Key: "c"}}}, rec{ts: 2000, value: []byte("0123456789")})
	for i := HeaderSize; i < len(b); i++ {
		was := b[i]
		for v := range 256 {
			b[i] = byte(v)
			wantBothPathsAgree(t, b)
		}
		b[i] = was
	}
	for n := range b {
		if _, err := wantBothPathsAgree(t, b[:n:n]); err == nil {
			t.Errorf("no error with %d bytes of %d", n, len(b))
		}
	}
}

func TestIterNullAndEmpty(t *testing.T) {
	b := build(NoProducer(), rec{key: []byte{}, value: nil, headers: []kafka.Header{{Key: "n"}, {Key: "e", Value: []byte{}}}}, rec{key: nil, value: []byte{}})
	it := b.Iter()
	var r Record
	if !it.Next(&r) || r.Key == nil || len(r.Key) != 0 || r.Value != nil {
		t.Fatalf("first record: %+v", r)
	}
	if v, ok := r.Header("n"); !ok || v != nil {
		t.Errorf("null header: %v, %v", v, ok)
	}
	if v, ok := r.Header("e"); !ok || v == nil || len(v) != 0 {
		t.Errorf("empty header: %v, %v", v, ok)
	}
	if !it.Next(&r) || r.Key != nil || r.Value == nil || len(r.Value) != 0 || r.HeaderCount() != 0 {
		t.Fatalf("second record: %+v", r)
	}
}

func TestRecordHeaders(t *testing.T) {
	headers := []kafka.Header{{Key: "a", Value: []byte("1")}, {Key: "b", Value: nil}, {Key: "a", Value: []byte("2")}, {Key: "", Value: []byte("3")}}
	b := build(NoProducer(), rec{headers: headers})
	it := b.Iter()
	var r Record
	if !it.Next(&r) {
		t.Fatal(it.Err())
	}
	if r.HeaderCount() != len(headers) {
		t.Errorf("HeaderCount is %d, want %d", r.HeaderCount(), len(headers))
	}
	kept := []kafka.Header{{Key: "kept"}}
	all := r.AppendHeaders(kept)
	if !sameRec(rec{headers: all[1:]}, rec{headers: headers}) || all[0].Key != "kept" {
		t.Errorf("AppendHeaders gives %v", all)
	}
	for key, want := range map[string]string{"a": "2", "": "3"} {
		if v, ok := r.Header(key); !ok || string(v) != want {
			t.Errorf("Header(%q) is %q, %v, want the last one, %q", key, v, ok, want)
		}
	}
	if v, ok := r.Header("b"); !ok || v != nil {
		t.Errorf("Header(b) is %q, %v, want null", v, ok)
	}
	if _, ok := r.Header("c"); ok {
		t.Error("Header(c) is there")
	}

	for i := range b { // keys are copies, values are not
		b[i] = 'x'
	}
	if all[1].Key != "a" || string(all[1].Value) != "x" {
		t.Errorf("after the batch was overwritten: %v", all[1])
	}
}

// TestRecordFieldsEndWithTheirCapacity: an append to a field must not write into the batch.
func TestRecordFieldsEndWithTheirCapacity(t *testing.T) {
	b := build(NoProducer(), rec{key: []byte("key"), value: []byte("value"), headers: []kafka.Header{{Key: "h", Value: []byte("v")}}}, rec{value: make([]byte, 100)})
	for _, next := range []func(*Iter, *Record) bool{(*Iter).Next, nextWide} {
		it := b.Iter()
		var r Record
		for next(&it, &r) {
			for _, f := range [][]byte{r.Key, r.Value} {
				if cap(f) != len(f) {
					t.Errorf("a field of %d bytes has room for %d", len(f), cap(f))
				}
			}
			for _, h := range r.AppendHeaders(nil) {
				if cap(h.Value) != len(h.Value) {
					t.Errorf("a header value of %d bytes has room for %d", len(h.Value), cap(h.Value))
				}
			}
		}
	}
}

func TestIterLogAppendTime(t *testing.T) {
	b := build(Stamp{ProducerID: -1, Attributes: AttrLogAppendTime}, rec{ts: 5}, rec{ts: 9}, rec{ts: 7})
	all, err := wantBothPathsAgree(t, b)
	if err != nil || len(all) != 3 {
		t.Fatal(len(all), err)
	}
	for i, r := range all {
		if r.ts != 9 {
			t.Errorf("record %d has timestamp %d, want the batch's 9", i, r.ts)
		}
	}
}

// TestIterDeleteHorizon: compaction stores the horizon as base timestamp, and deltas relative to it.
func TestIterDeleteHorizon(t *testing.T) {
	b := build(Stamp{ProducerID: -1, Attributes: AttrDeleteHorizon}, rec{ts: 5000}, rec{ts: 1000}, rec{ts: 1001})
	put64(posMaxTimestamp, 1001)(b)
	if ms, ok := b.DeleteHorizon(); !ok || ms != 5000 {
		t.Errorf("horizon is %d, %v", ms, ok)
	}
	all, err := wantBothPathsAgree(t, b)
	if err != nil || len(all) != 3 || all[1].ts != 1000 || all[2].ts != 1001 {
		t.Errorf("got %+v, %v", all, err)
	}
}

// TestIterGaps reads what a compaction leaves: fewer records than offsets.
func TestIterGaps(t *testing.T) {
	b := build(Stamp{BaseOffset: 100}, rec{value: []byte("a")}, rec{value: []byte("b")}, rec{value: []byte("c")})
	const size = 8
	b = append(b[:HeaderSize+size], b[HeaderSize+2*size:]...) // without the second
	put32(posCount, 2)(b)
	put32(posLastOffsetDelta, 5)(b)
	reseal(b)
	all, err := wantBothPathsAgree(t, b)
	if err != nil || len(all) != 2 || all[0].offset != 100 || all[1].offset != 102 {
		t.Fatalf("got %+v, %v", all, err)
	}
	if err := Check(b); err != nil {
		t.Error(err)
	}
	if err := validate(b); !errors.Is(err, ErrHeader) {
		t.Errorf("Validate: got %v, want %v", err, ErrHeader)
	}
}

func TestIterRefuses(t *testing.T) {
	good := build(NoProducer(), rec{value: []byte("v")})
	for _, c := range []struct {
		name string
		b    Batch
		want error
	}{
		{"no bytes", nil, ErrShort},
		{"part of a header", good[:HeaderSize-1], ErrShort},
		{"compressed", put16(posAttributes, 2)(append([]byte(nil), good...)), ErrCodec},
		{"negative count", put32(posCount, -5)(append([]byte(nil), good...)), ErrHeader},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, step := range []func(*Iter) bool{func(it *Iter) bool { return it.Next(new(Record)) }, (*Iter).Skip} {
				it := c.b.Iter()
				if step(&it) || !errors.Is(it.Err(), c.want) {
					t.Errorf("got %v, want %v", it.Err(), c.want)
				}
				if step(&it) || !errors.Is(it.Err(), c.want) {
					t.Errorf("second time: got %v, want %v", it.Err(), c.want)
				}
			}
		})
	}
}

func TestIterErrorStays(t *testing.T) {
	b := build(NoProducer(), rec{value: []byte("a")}, rec{value: []byte("b")}, rec{value: []byte("c")})
	b[HeaderSize+8] = 1 // the second one's length
	it := b.Iter()
	r := Record{}
	if !it.Next(&r) {
		t.Fatal(it.Err())
	}
	for range 3 {
		if it.Next(&r) || it.Skip() || !errors.Is(it.Err(), ErrRecord) || string(r.Value) != "a" {
			t.Fatalf("err %v, record %+v", it.Err(), r)
		}
	}
}

func TestIterSkip(t *testing.T) {
	var recs []rec
	for i := range 300 {
		recs = append(recs, rec{ts: int64(i), value: make([]byte, i)})
	}
	b := build(Stamp{BaseOffset: 1000}, recs...)
	var r Record
	for _, n := range []int{0, 1, 63, 64, 150, 299} {
		it := b.Iter()
		for range n {
			if !it.Skip() {
				t.Fatal(it.Err())
			}
		}
		if !it.Next(&r) || r.Offset != 1000+int64(n) || len(r.Value) != n {
			t.Errorf("after %d: offset %d, %d bytes, %v", n, r.Offset, len(r.Value), it.Err())
		}
		for it.Skip() {
		}
		if it.Next(&r) || it.Err() != nil {
			t.Errorf("at the end: %v", it.Err())
		}
	}
}

// TestIterOverlongVarints: Kafka reads them, so they are read.
func TestIterOverlongVarints(t *testing.T) {
	b := build(NoProducer(), rec{ts: 1})
	record := []byte{0, 0, 0x80, 0x00, 0x80, 0x80, 0x00, 0x81, 0x00, 0x82, 0x80, 0x80, 0x80, 0x00, 'v', 0x80, 0x00}
	record[0] = byte(len(record)-1) << 1
	b = reseal(append(b[:HeaderSize], record...))
	all, err := wantBothPathsAgree(t, b)
	if err != nil || len(all) != 1 || !sameGot(all[0], got{0, rec{1, nil, []byte("v"), nil}}) {
		t.Fatalf("got %+v, %v", all, err)
	}
}

// TestIterBothPathsAgreeOnOddVarints strings together a few bytes that make wide, overlong and negative varints: a
// fast path that takes a varint for shorter than it is finds records in them that are not there. Each stands in front
// of a good record, so that the fast path has the room that it asks for.
func TestIterBothPathsAgreeOnOddVarints(t *testing.T) {
	alphabet := []byte{0, 0, 0, 1, 1, 2, 2, 4, 0x80, 0x80, 0x81, 0x82, 0x84}
	good := build(NoProducer(), rec{}, rec{value: make([]byte, 20)})
	tail := good[HeaderSize+7:] // the second record
	rng := rand.New(rand.NewPCG(1, 4))
	taken := 0
	for range 300_000 {
		b := append(Batch(nil), good[:HeaderSize]...)
		n := 6 + rng.IntN(7)
		if rng.IntN(2) == 0 {
			b = append(b, byte(n)<<1)
		} else {
			b = append(b, byte(n)<<1|0x80, alphabet[rng.IntN(len(alphabet))])
		}
		b = append(b, 0)
		for range n - 1 {
			b = append(b, alphabet[rng.IntN(len(alphabet))])
		}
		b = append(b, tail...)
		if all, _ := wantBothPathsAgree(t, b); len(all) > 0 {
			taken++
		}
	}
	if taken < 100 {
		t.Errorf("only %d of the records parse, too few to tell anything", taken)
	}
}

func TestVarints(t *testing.T) {
	check := func(v int64) {
		t.Helper()
		u := zigzag(v)
		p := make([]byte, binary.MaxVarintLen64)
		n := putUvarint(p, 0, u)
		want := binary.AppendVarint(nil, v)
		if string(p[:n]) != string(want) || uvarintSize(u) != len(want) {
			t.Errorf("%d: %x, size %d, want %x", v, p[:n], uvarintSize(u), want)
		}
		for cut := range n {
			if _, i := uvarint(want[:cut], 0, 64); i != -1 {
				t.Errorf("%d: %d bytes of %x are enough", v, cut, want)
			}
		}
		if got, i := uvarint(want, 0, 64); unzigzag(got) != v || i != n {
			t.Errorf("%x: %d at %d, want %d", want, unzigzag(got), i, v)
		}
		got, i := varint(want, 0)
		if fits := v == int64(int32(v)); fits && (int64(got) != v || i != n) || !fits && i != -1 {
			t.Errorf("%x as 32 bits: %d at %d", want, got, i)
		}
	}
	for shift := range 64 {
		for d := int64(-2); d <= 2; d++ {
			check(1<<shift + d)
			check(-(1 << shift) + d)
		}
	}
	// Ten bytes of which the last has more than the one bit that is left.
	if _, i := uvarint([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}, 0, 64); i != -1 {
		t.Error("65 bits are taken")
	}
	if _, i := uvarint([]byte{0xff, 0xff, 0xff, 0xff, 0x10}, 0, 32); i != -1 {
		t.Error("33 bits are taken")
	}
}
