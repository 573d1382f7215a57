package batch

import (
	"bytes"
	"errors"
	"testing"

	"github.com/runnelmq/runnel/internal/kafka"
)

func addVectors(f *testing.F) {
	for _, v := range vectors() {
		f.Add([]byte(build(v.stamp, v.recs...)))
	}
}

// FuzzCheck checks the bytes as they come, and with a right length and checksum, which chance does not find.
func FuzzCheck(f *testing.F) {
	addVectors(f)
	f.Fuzz(func(t *testing.T, p []byte) {
		checkHolds(t, bytes.Clone(p))
		if len(p) >= HeaderSize {
			checkHolds(t, reseal(bytes.Clone(p)))
		}
	})
}

func checkHolds(t *testing.T, p []byte) {
	t.Helper()
	size, peekErr := Peek(p)
	if peekErr == nil && (size < HeaderSize || len(p) < PeekSize) {
		t.Fatalf("Peek takes %d bytes for a batch of %d", len(p), size)
	}
	if Check(p) != nil {
		return
	}
	b := Batch(p)
	if peekErr != nil || size != len(p) || b.Size() != size {
		t.Fatalf("Check takes what Peek does not: size %d of %d, %v", size, len(p), peekErr)
	}
	if b.Count() < 0 || b.BaseOffset() < 0 || b.LastOffset() < b.BaseOffset() {
		t.Fatalf("%d records, offsets %d to %d", b.Count(), b.BaseOffset(), b.LastOffset())
	}
	p[len(p)-1] ^= 1
	if Check(p) == nil {
		t.Fatal("a changed bit is not seen")
	}
}

// FuzzValidate gives the bytes a right length and checksum, so that the rest of Validate is reached.
func FuzzValidate(f *testing.F) {
	addVectors(f)
	for _, c := range codecs[1:] {
		f.Add([]byte(packed(f, NewCompressor(c, 0), sample())))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) < HeaderSize {
			if validate(p) == nil {
				t.Fatal("less than a header is valid")
			}
			return
		}
		p = bytes.Clone(p)
		p[posMagic] = magic
		var buf []byte
		b, err := Validate(reseal(p), &buf, 1<<20)
		if err != nil {
			return
		}
		if err := Check(p); err != nil {
			t.Fatalf("Validate takes what Check does not: %v", err)
		}
		all, err := wantBothPathsAgree(t, b)
		if err != nil || len(all) != int(b.Count()) || all[len(all)-1].offset != b.LastOffset() {
			t.Fatalf("%d records of %d, last offset %d, %v", len(all), b.Count(), b.LastOffset(), err)
		}

		// What is valid can be written, and kmsg reads it as we do.
		recs := make([]rec, len(all))
		greatest := all[0].ts
		for i, g := range all {
			recs[i] = g.rec
			greatest = max(greatest, g.ts)
		}
		if greatest != b.MaxTimestamp() {
			t.Fatalf("max timestamp is %d, want %d", b.MaxTimestamp(), greatest)
		}
		again := build(Stamp{b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.Attributes(), b.BaseOffset(), b.LeaderEpoch()}, recs...)
		// Deltas are relative to the first record's timestamp; those of another base may have been shorter.
		if all[0].ts == b.BaseTimestamp() && len(again) > len(b) {
			t.Fatalf("%d bytes, written anew %d", len(b), len(again))
		}
		theirs := kmsgRead(t, again)
		for i := range all {
			if !sameGot(theirs[i], all[i]) {
				t.Fatalf("record %d: got %+v, kmsg reads %+v", i, all[i], theirs[i])
			}
		}
	})
}

// F9, F16: whatever stands where compressed records should, Plain gives records that can be read, within the limit, or an
// error of its kinds, in memory that the limit bounds. The first byte chooses codec and limit.
func FuzzPlain(f *testing.F) {
	for _, v := range vectors() {
		for _, c := range codecs[1:] {
			b := packed(f, NewCompressor(c, 0), build(v.stamp, v.recs...))
			f.Add(byte(c)|8<<3, []byte(b[HeaderSize:]))
		}
	}
	for _, boast := range boasts() {
		f.Add(byte(boast.codec)|2<<3, boast.records)
	}
	f.Fuzz(func(t *testing.T, choice byte, records []byte) {
		b := withRecords(sample(), Codec(choice&7), records)
		before := bytes.Clone(b)
		limit := min(1<<(2*int(choice>>3)), 1<<20)
		var buf []byte
		plain, err := new(Decompressor).Plain(b, &buf, limit)
		if !bytes.Equal(b, before) {
			t.Fatal("the source has changed")
		}
		if b.Codec() == None {
			if err != nil || !bytes.Equal(plain, b) {
				t.Fatalf("not compressed: %v", err)
			}
			return
		}
		if most := HeaderSize + 2*limit + 2*zstdBlock + 4*len(records); cap(buf) > most {
			t.Fatalf("%d bytes for %d with limit %d", cap(buf), len(records), limit)
		}
		if err != nil {
			if errors.Is(err, ErrCodec) == errors.Is(err, ErrTooLarge) {
				t.Fatal(err)
			}
			return
		}
		if plain.Size() != len(plain) || len(plain)-HeaderSize > limit || plain.Codec() != None {
			t.Fatalf("%d bytes, limit %d, header %x", len(plain), limit, plain[:HeaderSize])
		}
		if _, err := wantBothPathsAgree(t, plain); err != nil && !errors.Is(err, ErrRecord) {
			t.Fatal(err)
		}
		if len(plain) == HeaderSize {
			return
		}
		// What could be decompressed can be compressed again.
		again := packed(t, NewCompressor(b.Codec(), 0), reseal(bytes.Clone(plain)))
		var other []byte
		same, err := new(Decompressor).Plain(again, &other, limit)
		if err != nil || !bytes.Equal(same[HeaderSize:], plain[HeaderSize:]) {
			t.Fatalf("compressed again it does not come back: %v", err)
		}
	})
}

// FuzzIter reads bytes that nobody has checked.
func FuzzIter(f *testing.F) {
	addVectors(f)
	f.Fuzz(func(t *testing.T, p []byte) {
		p = p[:len(p):len(p)]
		before := bytes.Clone(p)
		all, err := wantBothPathsAgree(t, p)
		for i, g := range all {
			if last := Batch(p).LastOffsetDelta(); uint64(g.offset-Batch(p).BaseOffset()) > uint64(last) {
				t.Fatalf("record %d has offset %d, outside of the batch", i, g.offset)
			}
			if i > 0 && g.offset-all[i-1].offset <= 0 {
				t.Fatalf("record %d has offset %d after %d", i, g.offset, all[i-1].offset)
			}
		}
		if err == nil && len(all) != int(Batch(p).Count()) {
			t.Fatalf("%d records of %d, and no error", len(all), Batch(p).Count())
		}

		it := Batch(p).Iter()
		skipped := 0
		for it.Skip() {
			skipped++
		}
		if skipped < len(all) || err == nil && it.Err() != nil {
			t.Fatalf("Skip passes over %d records, Next over %d; %v", skipped, len(all), it.Err())
		}
		if !bytes.Equal(before, p) {
			t.Fatal("reading has changed the bytes")
		}
	})
}

// FuzzBuildAndRead makes records of the bytes: a byte says which fields a record has, further ones how long they are.
func FuzzBuildAndRead(f *testing.F) {
	f.Add([]byte{0}, int64(0))
	f.Add([]byte{0x07, 3, 'a', 'b', 'c', 2, 'd', 'e', 1, 'h', 0x1f, 0, 0, 0, 9}, int64(1_700_000_000_000))
	f.Add(bytes.Repeat([]byte{0x03, 70, 'k'}, 90), int64(-1))
	f.Fuzz(func(t *testing.T, p []byte, ts int64) {
		take := func() int {
			if len(p) == 0 {
				return 0
			}
			n := int(p[0])
			p = p[1:]
			return n
		}
		field := func() []byte {
			n := min(take(), len(p))
			v := p[:n:n]
			p = p[n:]
			return v
		}
		var recs []rec
		var b Builder
		b.Reset(make([]byte, 0, take()*8))
		for len(p) > 0 && len(recs) < 1000 {
			kind := take()
			r := rec{ts: ts}
			if kind&1 != 0 {
				r.key = field()
			}
			if kind&2 != 0 {
				r.value = field()
			}
			if kind&32 != 0 { // longer than the input
				r.value = bytes.Repeat(r.value, 40)
			}
			for range kind >> 2 & 3 {
				r.headers = append(r.headers, kafka.Header{Key: string(field()), Value: field()})
			}
			if kind&16 != 0 {
				r.ts += int64(take()-128) << (kind >> 6 * 8)
			}
			size, bound := b.Len()+b.SizeOf(r.ts, r.key, r.value, r.headers), SizeBound(r.key, r.value, r.headers)
			before := b.Len()
			b.Append(r.ts, r.key, r.value, r.headers)
			if b.Len() != size || size-before > bound {
				t.Fatalf("record %d takes %d bytes, SizeOf %d, SizeBound %d", len(recs), b.Len()-before, size-before, bound)
			}
			recs = append(recs, r)
		}
		if len(recs) == 0 {
			return
		}
		sealed := b.Seal(Stamp{ProducerID: 3, BaseSequence: 1, BaseOffset: 77})
		// Only times that overflow the distance to the first one are refused.
		if err := validate(sealed); err != nil && ts > -1<<60 && ts < 1<<60 {
			t.Fatal(err)
		}
		wantRecords(t, sealed, recs)
		theirs := kmsgRead(t, sealed)
		for i := range recs {
			if want := (got{77 + int64(i), recs[i]}); !sameGot(theirs[i], want) {
				t.Fatalf("record %d: kmsg reads %+v, want %+v", i, theirs[i], want)
			}
		}
	})
}
