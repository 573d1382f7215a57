package main

import (
	"bytes"
	"compress/flate"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/runnelmq/runnel/internal/batch"
)

// limitOf returns the log that the limit of P1 makes of n records.
func limitOf(t *testing.T, g *generator, n int) []byte {
	t.Helper()
	s, err := newSpace(filepath.Join(t.TempDir(), "limit"), limitLogSize(n, keySize+g.size, 1))
	if err != nil {
		t.Fatal(err)
	}
	l := newLimitLog(s)
	if err := appendAsync(l, g, 0, n); err != nil {
		t.Fatal(err)
	}
	log := slices.Clone(l.published())
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	return log
}

// The limits do all the work of the format: what they write is what the engine's own checks accept, in batches of 16 KiB.
func TestLimitWritesBatches(t *testing.T) {
	for _, size := range []int{100, 1 << 10} {
		log := limitOf(t, newGenerator(size), 1000)
		records := 0
		for b := nextBatch(log); b != nil; b = nextBatch(log) {
			if _, err := batch.Validate(b, nil, len(b)); err != nil {
				t.Fatal(err)
			}
			log = log[len(b):]
			if len(b) > batchTarget || len(log) > 0 && len(b) < batchTarget-2*recordBound(keySize+size) {
				t.Errorf("a batch of %d bytes", len(b))
			}
			records += int(batch.Batch(b).Count())
		}
		if records != 1000 || len(log) > 0 {
			t.Errorf("%d records, %d bytes more", records, len(log))
		}
	}
}

// The limits are verified as strictly as Runnel is.
func TestFaultyLimitIsNoticed(t *testing.T) {
	g := newGenerator(100)
	log := limitOf(t, g, 1000)
	one := len(nextBatch(log))
	two := one + len(nextBatch(log[one:]))
	verify := func(log []byte) error {
		c := newChecker(g, 0, 1)
		return errors.Join(checkLog(log, c), c.done(1000))
	}
	if err := verify(log); err != nil {
		t.Fatal(err)
	}
	flipped := slices.Clone(log)
	flipped[one+batchHeader+40] ^= 1
	id := slices.Clone(log)
	id[one+45] ^= 1 // of a producer, which no record shows
	for name, log := range map[string][]byte{
		"nothing":                 nil,
		"a flipped bit":           flipped,
		"a flipped header bit":    id,
		"the last batch cut":      log[:len(log)-1],
		"the first batch lost":    log[one:],
		"a batch doubled":         slices.Concat(log[:one], log),
		"the first two exchanged": slices.Concat(log[one:two], log[:one], log[two:]),
	} {
		if err := verify(log); err == nil {
			t.Errorf("%s: not noticed", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}

// A log that is full says so, and writes nothing behind its room.
func TestLimitFull(t *testing.T) {
	s, err := newSpace(filepath.Join(t.TempDir(), "limit"), 4<<10)
	if err != nil {
		t.Fatal(err)
	}
	l, g := newLimitLog(s), newGenerator(100)
	if err := appendAsync(l, g, 0, 100); err != errSpace {
		t.Errorf("error %v, want %v", err, errSpace)
	}
	for err == nil {
		_, err = l.AppendOne(make([]byte, keySize), g.value(0, 0))
	}
	if err != errSpace {
		t.Errorf("error %v, want %v", err, errSpace)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}

// Figures of different programs are of the same records: text that compresses to about half.
func TestRecords(t *testing.T) {
	for _, size := range []int{100, 1 << 10} {
		a, b := newGenerator(size), newGenerator(size)
		var packed bytes.Buffer
		w, err := flate.NewWriter(&packed, flate.DefaultCompression)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[[keySize]byte]bool{}
		for i := range 1000 {
			for lane := range 3 {
				var k, again [keySize]byte
				a.key(&k, lane, i)
				b.key(&again, lane, i)
				gotLane, gotI, ok := origin(k[:])
				if k != again || seen[k] || !ok || gotLane != lane || gotI != i {
					t.Fatalf("lane %d, record %d: keys %x and %x", lane, i, k, again)
				}
				seen[k] = true
				if v := a.value(lane, i); len(v) != size || !bytes.Equal(v, b.value(lane, i)) {
					t.Fatalf("lane %d, record %d: values %q and %q", lane, i, v, b.value(lane, i))
				}
			}
			if _, err := w.Write(a.value(0, i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if share := float64(packed.Len()) / float64(1000*size); share < 0.35 || share > 0.65 {
			t.Errorf("values of %d bytes compress to %.2f", size, share)
		}
	}
}
