package batch

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/runnelmq/runnel/internal/kafka"
)

// rec is a record as it was meant.
type rec struct {
	ts         int64
	key, value []byte
	headers    []kafka.Header
}

// build encodes recs into fresh memory.
func build(s Stamp, recs ...rec) Batch {
	var b Builder
	b.Reset(nil)
	for _, r := range recs {
		b.Append(r.ts, r.key, r.value, r.headers)
	}
	return b.Seal(s)
}

// got is a record as it was read.
type got struct {
	offset int64
	rec
}

// read returns the records of b that next reads before it stops, and what stopped it.
func read(b Batch, next func(*Iter, *Record) bool) (all []got, err error) {
	it := b.Iter()
	var r Record
	for next(&it, &r) {
		all = append(all, got{r.Offset, rec{r.Timestamp, r.Key, r.Value, r.AppendHeaders(nil)}})
	}
	return all, it.Err()
}

// nextWide is Iter.Next without its fast path.
func nextWide(it *Iter, r *Record) bool {
	if it.left <= 0 {
		return it.finish()
	}
	return it.next(r)
}

// reseal makes whole what a test changed: the length field and the checksum.
func reseal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[posLength:], uint32(len(b)-lengthEnd))
	binary.BigEndian.PutUint32(b[posCRC:], crc32.Checksum(b[posAttributes:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func sameRec(a, b rec) bool {
	return a.ts == b.ts && same(a.key, b.key) && same(a.value, b.value) &&
		slices.EqualFunc(a.headers, b.headers, func(x, y kafka.Header) bool { return x.Key == y.Key && same(x.Value, y.Value) })
}

func sameGot(a, b got) bool { return a.offset == b.offset && sameRec(a.rec, b.rec) }

// wantRecords fails unless b reads as recs, with dense offsets from its base.
func wantRecords(t testing.TB, b Batch, recs []rec) {
	t.Helper()
	all, err := read(b, (*Iter).Next)
	if err != nil {
		t.Fatalf("Err: %v", err)
	}
	if len(all) != len(recs) {
		t.Fatalf("%d records, want %d", len(all), len(recs))
	}
	for i, r := range recs {
		if want := (got{b.BaseOffset() + int64(i), r}); !sameGot(all[i], want) {
			t.Fatalf("record %d: got %+v, want %+v", i, all[i], want)
		}
	}
}

// validate is Validate with room for any batch of these tests.
func validate(b []byte) error {
	var buf []byte
	_, err := Validate(b, &buf, 64<<20)
	return err
}
