package batch

import (
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runnelmq/runnel/internal/kafka"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// vector is a batch whose bytes are pinned in testdata/golden.
type vector struct {
	name  string
	stamp Stamp
	recs  []rec
}

func vectors() []vector {
	const ts = 1_700_000_000_000
	long := []byte(strings.Repeat("runnel ", 20))
	producer := Stamp{ProducerID: 0x0102030405060708, ProducerEpoch: 0x090a, BaseSequence: 0x0b0c0d0e, BaseOffset: 0x1112131415161718, LeaderEpoch: 0x191a1b1c}
	txn, wrap := producer, producer
	txn.Attributes = AttrTransactional
	wrap.BaseSequence = math.MaxInt32 - 1

	var many []rec
	for i := range 70 { // offset deltas of one byte and of two
		many = append(many, rec{ts + int64(i)*100, fmt.Appendf(nil, "k%d", i), fmt.Appendf(nil, "value %d", i), nil})
	}
	return []vector{
		{"one", NoProducer(), []rec{{ts, []byte("key"), []byte("value"), nil}}},
		{"null", NoProducer(), []rec{{ts, nil, nil, nil}}},
		{"empty_key_null_value", NoProducer(), []rec{{ts, []byte{}, nil, nil}, {ts, nil, []byte{}, nil}}},
		{"headers", NoProducer(), []rec{{ts, []byte("k"), []byte("v"), []kafka.Header{
			{Key: "a", Value: []byte("1")}, {Key: "null", Value: nil}, {Key: "empty", Value: []byte{}}, {Key: "", Value: []byte("no key")}, {Key: "a", Value: long}}}}},
		{"falling_time", NoProducer(), []rec{{ts, nil, []byte("a"), nil}, {ts - 1, nil, []byte("b"), nil}, {ts - 1_000_000, nil, []byte("c"), nil}, {ts + 1, nil, []byte("d"), nil}}},
		{"no_time", NoProducer(), []rec{{-1, nil, []byte("a"), nil}, {-1, nil, []byte("b"), nil}}},
		{"wide_time", NoProducer(), []rec{{0, nil, []byte("a"), nil}, {math.MaxInt64, nil, []byte("b"), nil}}},
		{"producer", producer, []rec{{ts, []byte("k"), []byte("v"), nil}, {ts, []byte("k"), []byte("w"), nil}}},
		{"transactional", txn, []rec{{ts, []byte("k"), []byte("v"), nil}}},
		{"sequence_wraps", wrap, []rec{{ts, nil, []byte("a"), nil}, {ts, nil, []byte("b"), nil}, {ts, nil, []byte("c"), nil}}},
		{"long", NoProducer(), []rec{{ts, long[:64], long, nil}, {ts + 63, long, long[:63], nil}, {ts + 64, long, nil, nil}}},
		{"many", producer, many},
	}
}

func TestGolden(t *testing.T) {
	for _, v := range vectors() {
		t.Run(v.name, func(t *testing.T) {
			b := build(v.stamp, v.recs...)
			text := fmt.Sprintf("crc %08x\n%s", b.CRC(), hex.Dump(b))
			file := filepath.Join("testdata", "golden", v.name+".txt")
			if *rewrite {
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if text != string(want) {
				t.Fatalf("got\n%swant\n%s", text, want)
			}
			if err := validate(b); err != nil {
				t.Fatal(err)
			}
			wantRecords(t, b, v.recs)
		})
	}
}

// TestKnownBytes pins one batch by hand, beside the golden files that this package wrote itself.
func TestKnownBytes(t *testing.T) {
	b := build(Stamp{ProducerID: 5, ProducerEpoch: 6, BaseSequence: 7, BaseOffset: 8, LeaderEpoch: 9},
		rec{1000, []byte("k"), []byte("vv"), []kafka.Header{{Key: "h"}}}, rec{998, nil, nil, nil})
	want := "0000000000000008" + "00000045" + "00000009" + "02" + "accfd59a" +
		"0000" + "00000001" + "00000000000003e8" + "00000000000003e8" + "0000000000000005" + "0006" + "00000007" + "00000002" +
		"18" + "00" + "00" + "00" + "02" + "6b" + "04" + "7676" + "02" + "0268" + "01" + // length 12
		"0c" + "00" + "03" + "02" + "01" + "01" + "00" // length 6
	if got := hex.EncodeToString(b); got != want {
		t.Fatalf("\ngot  %s\nwant %s", got, want)
	}

	// CRC-32C by its definition: the reflected polynomial 0x82f63b78, one bit at a time.
	sum := ^uint32(0)
	for _, c := range b[posAttributes:] {
		sum ^= uint32(c)
		for range 8 {
			sum = sum>>1 ^ 0x82f63b78&-(sum&1)
		}
	}
	if ^sum != b.CRC() {
		t.Fatalf("checksum is %08x, want %08x", b.CRC(), ^sum)
	}
}

func TestFields(t *testing.T) {
	s := Stamp{ProducerID: 1 << 40, ProducerEpoch: 12, BaseSequence: math.MaxInt32 - 1, Attributes: AttrTransactional, BaseOffset: 1 << 41, LeaderEpoch: 77}
	b := build(s, rec{ts: 5}, rec{ts: 9}, rec{ts: 7})
	for _, f := range []struct {
		name      string
		got, want any
	}{
		{"Size", b.Size(), len(b)},
		{"BaseOffset", b.BaseOffset(), s.BaseOffset},
		{"LeaderEpoch", b.LeaderEpoch(), s.LeaderEpoch},
		{"Attributes", b.Attributes(), s.Attributes},
		{"LastOffsetDelta", b.LastOffsetDelta(), int32(2)},
		{"LastOffset", b.LastOffset(), s.BaseOffset + 2},
		{"BaseTimestamp", b.BaseTimestamp(), int64(5)},
		{"MaxTimestamp", b.MaxTimestamp(), int64(9)},
		{"ProducerID", b.ProducerID(), s.ProducerID},
		{"ProducerEpoch", b.ProducerEpoch(), s.ProducerEpoch},
		{"BaseSequence", b.BaseSequence(), s.BaseSequence},
		{"LastSequence", b.LastSequence(), int32(0)}, // MaxInt32-1, MaxInt32, 0
		{"Count", b.Count(), int32(3)},
		{"Codec", b.Codec(), None},
		{"LogAppendTime", b.LogAppendTime(), false},
		{"Transactional", b.Transactional(), true},
		{"Control", b.Control(), false},
	} {
		if f.got != f.want {
			t.Errorf("%s is %v, want %v", f.name, f.got, f.want)
		}
	}
	if _, ok := b.DeleteHorizon(); ok {
		t.Error("DeleteHorizon is set")
	}

	b.SetOffset(42, 43)
	if b.BaseOffset() != 42 || b.LastOffset() != 44 || b.LeaderEpoch() != 43 {
		t.Errorf("after SetOffset: base %d, last %d, epoch %d", b.BaseOffset(), b.LastOffset(), b.LeaderEpoch())
	}
	if err := validate(b); err != nil {
		t.Errorf("after SetOffset: %v", err)
	}
	if got := build(NoProducer(), rec{}).LastSequence(); got != -1 {
		t.Errorf("LastSequence without a producer is %d, want -1", got)
	}
	b[posAttributes+1] = byte(Zstd) | byte(AttrLogAppendTime|AttrControl|AttrDeleteHorizon)
	ms, ok := b.DeleteHorizon()
	if b.Codec() != Zstd || !b.LogAppendTime() || b.Transactional() || !b.Control() || !ok || ms != 5 {
		t.Errorf("attributes %#x are read wrong", b.Attributes())
	}
}

func TestCodecNames(t *testing.T) {
	got := fmt.Sprint(None, Gzip, Snappy, LZ4, Zstd, Codec(5))
	if want := "none gzip snappy lz4 zstd Codec(5)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
