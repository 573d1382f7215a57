package batch

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// A12: what Filter leaves is what decoding, dropping records and reading the header's description by hand leave: for all
// codecs, with gaps from before, log append time, and every combination of horizons.
func TestFilterAgainstAModel(t *testing.T) {
	var f Filter // its memory is used again and again, whatever the codec
	eachSeed(t, func(t *testing.T, rng *rand.Rand) {
		b := randomBatch(rng)
		b.setAttributes([]int16{0, AttrTransactional, AttrLogAppendTime, AttrTransactional | AttrControl}[rng.IntN(4)])
		b.finish()
		b = packed(t, NewCompressor(codecs[rng.IntN(len(codecs))], 0), b)
		for range 4 { // the next pass filters what this one has left
			before := bytes.Clone(b)
			_, had := b.DeleteHorizon()
			horizon := []int64{-1, 0, 1 << 40, math.MaxInt64}[rng.IntN(4)]
			odds := []int{0, 1, 2, 10, 100}[rng.IntN(5)]
			var seen, want []got
			var buf []byte
			plain, err := new(Decompressor).Plain(b, &buf, maxRecords)
			if err != nil {
				t.Fatal(err)
			}
			all, err := read(plain, (*Iter).Next)
			if err != nil {
				t.Fatal(err)
			}
			out, kept, err := f.Apply(b, func(r *Record) bool {
				g := got{r.Offset, rec{r.Timestamp, bytes.Clone(r.Key), bytes.Clone(r.Value), r.AppendHeaders(nil)}}
				seen = append(seen, g)
				if odds == 0 || rng.IntN(odds) > 0 {
					want = append(want, g)
					return true
				}
				return false
			}, horizon)
			if err != nil {
				t.Fatal(err)
			}
			if kept != len(want) || len(seen) != len(all) {
				t.Fatalf("%d records stay, want %d; keep has seen %d of %d", kept, len(want), len(seen), len(all))
			}
			if !bytes.Equal(b, before) {
				t.Fatal("the source has changed")
			}
			if same := &out[0] == &b[0]; same != (len(want) == len(all) && (horizon < 0 || had || len(all) == 0)) {
				t.Fatalf("out is b: %v, with %d of %d records and horizon %d", same, kept, len(all), horizon)
			}
			checkFiltered(t, b, out, want, horizon)
			b = bytes.Clone(out)
		}
	})
}

func checkFiltered(t *testing.T, b, out Batch, want []got, horizon int64) {
	t.Helper()
	if err := Check(out); err != nil {
		t.Fatal(err)
	}
	var buf []byte
	plain, err := new(Decompressor).Plain(out, &buf, maxRecords)
	if err != nil {
		t.Fatal(err)
	}
	left, err := read(plain, (*Iter).Next)
	if err != nil || len(left) != len(want) {
		t.Fatalf("%d records are left, want %d; %v", len(left), len(want), err)
	}
	for i := range left {
		if !sameGot(left[i], want[i]) {
			t.Fatalf("record %d is %+v, want %+v", i, left[i], want[i])
		}
	}
	if out.BaseOffset() != b.BaseOffset() || out.LastOffset() != b.LastOffset() || out.LeaderEpoch() != b.LeaderEpoch() ||
		out.ProducerID() != b.ProducerID() || out.ProducerEpoch() != b.ProducerEpoch() || out.BaseSequence() != b.BaseSequence() {
		t.Fatalf("got %x, of %x", out[:HeaderSize], b[:HeaderSize])
	}
	kind := int16(AttrLogAppendTime | AttrTransactional | AttrControl)
	if out.Attributes()&kind != b.Attributes()&kind {
		t.Fatalf("attributes %#x, of %#x", out.Attributes(), b.Attributes())
	}
	ms, ok := out.DeleteHorizon()
	old, had := b.DeleteHorizon()
	if len(want) == 0 {
		if ok || out.Codec() != None || out.BaseTimestamp() != -1 || out.MaxTimestamp() != b.MaxTimestamp() || len(out) != HeaderSize {
			t.Fatalf("the empty batch is %x, of %x", out, b[:HeaderSize])
		}
		return
	}
	greatest := want[0].ts
	for _, g := range want {
		greatest = max(greatest, g.ts)
	}
	if out.MaxTimestamp() != greatest || out.Codec() != b.Codec() || int(out.Count()) != len(want) {
		t.Fatalf("max timestamp %d, want %d; codec %s, want %s; %d records of %d", out.MaxTimestamp(), greatest, out.Codec(), b.Codec(), out.Count(), len(want))
	}
	switch {
	case had && (!ok || ms != old), !had && horizon >= 0 && (!ok || ms != horizon), !had && horizon < 0 && ok:
		t.Fatalf("horizon %d, %v; it was %d, %v, and %d is asked for", ms, ok, old, had, horizon)
	}
}

func TestFilterErrors(t *testing.T) {
	keepAll := func(*Record) bool { return true }
	var f Filter
	b := Batch(sample())
	b[70] = 1 // the length of the second record
	if out, kept, err := f.Apply(reseal(b), keepAll, -1); !errors.Is(err, ErrRecord) || out != nil || kept != 0 {
		t.Errorf("a bad record: %x, %d, %v", out, kept, err)
	}
	b = withRecords(sample(), Zstd, []byte("not compressed"))
	if out, kept, err := f.Apply(b, keepAll, -1); !errors.Is(err, ErrCodec) || out != nil || kept != 0 {
		t.Errorf("bad compression: %x, %d, %v", out, kept, err)
	}
	if out, kept, err := f.Apply(sample(), keepAll, -1); err != nil || kept != 2 || !bytes.Equal(out, sample()) {
		t.Errorf("after errors: %x, %d, %v", out, kept, err)
	}
}

// A filter that has met a batch of some size needs no more memory for another, unless its encoder does.
func TestFilterDoesNotAllocate(t *testing.T) {
	b := timingBatch(nil)
	var f Filter
	n := 0
	run := func() {
		_, kept, err := f.Apply(b, func(*Record) bool { n++; return n%2 == 0 }, 1<<41)
		if err != nil || kept == 0 {
			t.Fatal(kept, err)
		}
	}
	run()
	if allocs := testing.AllocsPerRun(20, run); allocs > 2 { // the function that it is given, and what that keeps
		t.Errorf("%v allocations", allocs)
	}
}

// A12: a filler takes exactly the offsets that it is made for, and nothing else is in it.
func TestFiller(t *testing.T) {
	room := make([]byte, 0, HeaderSize)
	for _, c := range []struct{ from, to int64 }{
		{0, 1}, {5, 6}, {1000, 1500}, {7, 7 + 1<<31}, {math.MaxInt64 - 1, math.MaxInt64},
	} {
		b := Filler(room, c.from, c.to, 9)
		if err := Check(b); err != nil {
			t.Fatal(err)
		}
		if &b[0] != &room[:1][0] || len(b) != HeaderSize {
			t.Error("the memory is not used")
		}
		if b.BaseOffset() != c.from || b.LastOffset() != c.to-1 || b.LeaderEpoch() != 9 || !b.Empty() || b.Attributes() != 0 ||
			b.BaseTimestamp() != -1 || b.MaxTimestamp() != -1 || b.ProducerID() != -1 || b.ProducerEpoch() != -1 || b.BaseSequence() != -1 {
			t.Errorf("from %d to %d: %x", c.from, c.to, b)
		}
		wantRecords(t, b, nil)
	}
	if Batch(sample()).Empty() {
		t.Error("a batch with records is empty")
	}
}

// Markers come back as they were sealed; what is not a marker is an error that can be told.
func TestMarkers(t *testing.T) {
	room := make([]byte, 0, 200)
	for _, m := range []Marker{{true, 0}, {false, 1}, {true, math.MaxInt32}, {false, -1}} {
		b := m.Seal(room, 1<<40, 3, 500)
		if err := Check(b); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Marker(); err != nil || got != m {
			t.Errorf("%+v comes back as %+v, %v", m, got, err)
		}
		if &b[0] != &room[:1][0] {
			t.Error("the memory is not used")
		}
		if b.ProducerID() != 1<<40 || b.ProducerEpoch() != 3 || b.BaseSequence() != -1 || !b.Control() || !b.Transactional() ||
			b.Count() != 1 || b.MaxTimestamp() != 500 || b.LastOffsetDelta() != 0 {
			t.Errorf("%+v: %x", m, b)
		}
	}
	control := func(key, value string, count int) Batch {
		recs := make([]rec, count)
		for i := range recs {
			recs[i] = rec{5, []byte(key), []byte(value), nil}
		}
		return build(Stamp{ProducerID: 1, Attributes: AttrControl | AttrTransactional}, recs...)
	}
	const commit, value = "\x00\x00\x00\x01", "\x00\x00\x00\x00\x00\x07"
	for _, c := range []struct {
		name string
		b    Batch
		want error
	}{
		{"good", control(commit, value, 1), nil},
		{"of a later version", control("\x00\x01\x00\x01more", "\x00\x05\x00\x00\x00\x07more", 1), nil},
		{"no record", control(commit, value, 0), ErrHeader},
		{"two records", control(commit, value, 2), ErrHeader},
		{"a user's", build(Stamp{ProducerID: 1, Attributes: AttrTransactional}, rec{5, []byte(commit), []byte(value), nil}), ErrHeader},
		{"short key", control(commit[:3], value, 1), ErrRecord},
		{"short value", control(commit, value[:5], 1), ErrRecord},
		{"negative version of the key", control("\xff\xff\x00\x01", value, 1), ErrRecord},
		{"negative version of the value", control(commit, "\xff\xff\x00\x00\x00\x07", 1), ErrRecord},
		{"another type", control("\x00\x00\x00\x02", value, 1), ErrRecord},
		{"negative type", control("\x00\x00\xff\xff", value, 1), ErrRecord},
		{"bytes behind", reseal(append(control(commit, value, 1), 0)), ErrRecord},
	} {
		m, err := c.b.Marker()
		if !errors.Is(err, c.want) || err == nil && m != (Marker{true, 7}) {
			t.Errorf("%s: %+v, %v", c.name, m, err)
		}
	}
	b := Marker{}.Seal(nil, 1, 1, 1)
	if m, err := packed(t, NewCompressor(Gzip, 0), b).Marker(); !errors.Is(err, ErrCodec) {
		t.Errorf("compressed: %+v, %v", m, err)
	}
}
