package batch

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
)

func put16(at int, v int16) func([]byte) []byte {
	return func(b []byte) []byte { binary.BigEndian.PutUint16(b[at:], uint16(v)); return b }
}
func put32(at int, v int32) func([]byte) []byte {
	return func(b []byte) []byte { binary.BigEndian.PutUint32(b[at:], uint32(v)); return b }
}
func put64(at int, v int64) func([]byte) []byte {
	return func(b []byte) []byte { binary.BigEndian.PutUint64(b[at:], uint64(v)); return b }
}

// sample has two records of one-byte varints: the first lies at 61 (length 8, deltas 0, key "k", value "v"), the second
// at 70 (timestamp delta -5, offset delta 1, null key, value "w").
func sample() []byte {
	return build(Stamp{ProducerID: 7, ProducerEpoch: 1, BaseSequence: 10, BaseOffset: 100, LeaderEpoch: 3},
		rec{1000, []byte("k"), []byte("v"), nil}, rec{995, nil, []byte("w"), nil})
}

func TestPeek(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func([]byte) []byte
		want   error
	}{
		{"whole", func(b []byte) []byte { return b }, nil},
		{"just enough", func(b []byte) []byte { return b[:PeekSize] }, nil},
		{"one byte short", func(b []byte) []byte { return b[:PeekSize-1] }, ErrShort},
		{"nothing", func([]byte) []byte { return nil }, ErrShort},
		{"zeros", func([]byte) []byte { return make([]byte, 100) }, ErrMagic},
		{"magic 1", func(b []byte) []byte { b[posMagic] = 1; return b }, ErrMagic},
		{"magic 3", func(b []byte) []byte { b[posMagic] = 3; return b }, ErrMagic},
		{"shorter than a header", put32(posLength, HeaderSize-lengthEnd-1), ErrLength},
		{"negative", put32(posLength, -1), ErrLength},
		{"too long", put32(posLength, math.MaxInt32-11), ErrLength},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := sample()
			size, err := Peek(c.change(b))
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if err == nil && size != len(b) {
				t.Fatalf("size is %d, want %d", size, len(b))
			}
		})
	}
	for _, length := range []int32{HeaderSize - lengthEnd, math.MaxInt32 - lengthEnd} {
		if size, err := Peek(put32(posLength, length)(sample())); err != nil || size != int(length)+lengthEnd {
			t.Errorf("length %d: size %d, %v", length, size, err)
		}
	}
}

// TestCheckAndValidate has a failing case for each thing that they look at. A change is made first and the length and
// checksum are then mended, unless raw is set.
func TestCheckAndValidate(t *testing.T) {
	with := func(at int, bytes ...byte) func([]byte) []byte {
		return func(b []byte) []byte { copy(b[at:], bytes); return b }
	}
	all := func(changes ...func([]byte) []byte) func([]byte) []byte {
		return func(b []byte) []byte {
			for _, c := range changes {
				b = c(b)
			}
			return b
		}
	}
	const first, second = 61, 70
	for _, c := range []struct {
		name     string
		raw      bool
		change   func([]byte) []byte
		check    error
		validate error
		text     string // part of Validate's error
	}{
		{"good", false, with(0), nil, nil, ""},
		{"cut", true, func(b []byte) []byte { return b[:len(b)-1] }, ErrShort, ErrShort, "77 bytes of 78"},
		{"cut in the header", true, func(b []byte) []byte { return b[:HeaderSize-1] }, ErrShort, ErrShort, "60 bytes of 78"},
		{"cut in the first fields", true, func(b []byte) []byte { return b[:PeekSize-1] }, ErrShort, ErrShort, "16 bytes"},
		{"followed by another", true, func(b []byte) []byte { return append(b, b...) }, ErrLength, ErrLength, "78 bytes after a batch of 78"},
		{"magic", true, with(posMagic, 1), ErrMagic, ErrMagic, "1"},
		{"checksum", true, with(posCRC, 0xff, 0xff, 0xff, 0xff), ErrCRC, ErrCRC, "0xffffffff is stored"},
		{"base offset", false, put64(posBaseOffset, -1), ErrHeader, ErrHeader, "base offset -1"},
		{"last offset delta", false, put32(posLastOffsetDelta, -1), ErrHeader, ErrHeader, "last offset delta -1"},
		{"last offset overflows", false, put64(posBaseOffset, math.MaxInt64), ErrHeader, ErrHeader, "overflow"},
		{"negative count", false, put32(posCount, -1), ErrHeader, ErrHeader, "-1 records"},

		// What Check lets pass and Validate does not.
		{"codec gzip", false, put16(posAttributes, 1), nil, ErrCodec, "gzip"},
		{"codec zstd", false, put16(posAttributes, 4), nil, ErrCodec, "zstd"},
		{"codec unknown", false, put16(posAttributes, 7), nil, ErrCodec, "Codec(7)"},
		{"log append time", false, put16(posAttributes, AttrLogAppendTime), nil, ErrTimestamp, "log append time"},
		{"control", false, put16(posAttributes, AttrControl), nil, ErrHeader, "control"},
		{"delete horizon", false, put16(posAttributes, AttrDeleteHorizon), nil, ErrHeader, "delete horizon"},
		{"attribute bit 7", false, put16(posAttributes, 1<<7), nil, ErrHeader, "0x0080"},
		{"attribute bit 15", false, put16(posAttributes, -1<<15), nil, ErrHeader, "0x8000"},
		{"no records", false, all(put32(posCount, 0), func(b []byte) []byte { return b[:HeaderSize] }), nil, ErrHeader, "no records"},
		{"count below last offset delta", false, put32(posCount, 1), nil, ErrHeader, "1 records and last offset delta 1"},
		{"count above last offset delta", false, put32(posCount, math.MaxInt32), nil, ErrHeader, "last offset delta 1"},
		{"producer id", false, put64(posProducerID, -2), nil, ErrHeader, "producer id -2"},
		{"producer without sequence", false, put32(posBaseSequence, -1), nil, ErrHeader, "base sequence -1"},
		{"producer without epoch", false, put16(posProducerEpoch, -1), nil, ErrHeader, "epoch -1"},
		{"transactional without producer", false, all(put64(posProducerID, -1), put16(posAttributes, AttrTransactional)), nil, ErrHeader, "transactional"},
		{"transactional", false, put16(posAttributes, AttrTransactional), nil, nil, ""},
		{"sequence without producer", false, put64(posProducerID, -1), nil, nil, ""},
		{"max timestamp too great", false, put64(posMaxTimestamp, 1001), nil, ErrTimestamp, "1001"},
		{"max timestamp too small", false, put64(posMaxTimestamp, 999), nil, ErrTimestamp, "999"},
		{"timestamp underflows", false, all(put64(posBaseTimestamp, math.MinInt64+4), put64(posMaxTimestamp, math.MaxInt64)), nil, ErrTimestamp, "overflow"},
		{"a record too many", false, all(put32(posCount, 1), put32(posLastOffsetDelta, 0)), nil, ErrRecord, "8 bytes after the last one"},
		{"a record too few", false, all(put32(posCount, 3), put32(posLastOffsetDelta, 2)), nil, ErrRecord, "in place 2"},
		{"bytes after the last record", false, func(b []byte) []byte { return append(b, 0) }, nil, ErrRecord, "1 bytes after"},
		{"record length too great", false, with(second, 16), nil, ErrRecord, "bad length in place 1 at byte 70"},
		{"record length negative", false, with(second, 1), nil, ErrRecord, "bad length"},
		{"record length too small", false, with(first, 14), nil, ErrRecord, "in place 0"},
		{"record of no bytes", false, with(first, 0), nil, ErrRecord, "no attributes"},
		{"record length unending", false, with(second, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80), nil, ErrRecord, "bad length"},
		{"timestamp delta unending", false, with(second+2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), nil, ErrRecord, "bad timestamp delta"},
		{"offset delta twice", false, with(second+3, 0), nil, ErrRecord, "bad offset delta"},
		{"offset delta negative", false, with(first+3, 1), nil, ErrRecord, "bad offset delta"},
		{"offset delta above the last", false, with(second+3, 4), nil, ErrRecord, "bad offset delta"},
		{"offset deltas with a gap", false, all(put32(posCount, 2), with(first+3, 2), put32(posLastOffsetDelta, 1)), nil, ErrRecord, "offset delta 1 in place 0"},
		{"key length", false, with(first+4, 12), nil, ErrRecord, "bad key"},
		{"key length -2", false, with(first+4, 3), nil, ErrRecord, "bad key"},
		{"value length", false, with(first+6, 6), nil, ErrRecord, "bad value"},
		{"value length -2", false, with(first+6, 3), nil, ErrRecord, "bad value"},
		{"header count negative", false, with(first+8, 1), nil, ErrRecord, "bad number of headers"},
		{"header missing", false, with(first+8, 2), nil, ErrRecord, "bad header"},
		{"byte after the headers", false, with(first+6, 0, 0), nil, ErrRecord, "bytes after the last field"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.change(sample())
			if !c.raw {
				b = reseal(b)
			}
			if err := Check(b); !errors.Is(err, c.check) {
				t.Errorf("Check: got %v, want %v", err, c.check)
			}
			err := validate(b)
			if !errors.Is(err, c.validate) {
				t.Errorf("Validate: got %v, want %v", err, c.validate)
			}
			if err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("Validate: %q does not say %q", err, c.text)
			}
		})
	}
}

func TestValidateHeaderKeyIsNotNull(t *testing.T) {
	b := build(NoProducer(), rec{ts: 5})
	// A record without key and value, and with one header.
	put := func(keyLength, valueLength byte) []byte {
		p := append([]byte(nil), b[:HeaderSize]...)
		return reseal(append(p, 16, 0, 0, 0, 1, 1, 2, keyLength, valueLength))
	}
	if err := validate(put(0, 1)); err != nil {
		t.Errorf("empty key, null value: %v", err)
	}
	if err := validate(put(1, 0)); !errors.Is(err, ErrRecord) {
		t.Errorf("null key: got %v, want %v", err, ErrRecord)
	}
}

// TestCheckFindsEveryBitFlip flips each bit of a batch. Base offset and leader epoch are outside the checksum.
func TestCheckFindsEveryBitFlip(t *testing.T) {
	b := sample()
	for i := range len(b) * 8 {
		b[i/8] ^= 1 << (i % 8)
		err := Check(b)
		free := i/8 < posLength || i/8 >= posLeaderEpoch && i/8 < posMagic
		if sign := i == 7; sign || !free {
			if err == nil {
				t.Errorf("bit %d of byte %d: no error", i%8, i/8)
			}
		} else if err != nil {
			t.Errorf("bit %d of byte %d: %v", i%8, i/8, err)
		}
		b[i/8] ^= 1 << (i % 8)
	}
}

func TestCheckFindsEveryCut(t *testing.T) {
	b := sample()
	for n := range b {
		if err := Check(b[:n]); !errors.Is(err, ErrShort) {
			t.Errorf("%d bytes: got %v, want %v", n, err, ErrShort)
		}
	}
}

// TestCheckTakesWhatACompactionLeaves: gaps, and a batch without records that keeps its offsets.
func TestCheckTakesWhatACompactionLeaves(t *testing.T) {
	b := sample()[:HeaderSize]
	put32(posCount, 0)(b)
	put64(posBaseTimestamp, -1)(b)
	reseal(b)
	if err := Check(b); err != nil {
		t.Fatal(err)
	}
	wantRecords(t, b, nil)
	if got := Batch(b).LastOffset(); got != 101 {
		t.Errorf("last offset is %d, want 101", got)
	}
}
