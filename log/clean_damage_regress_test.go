package rlog

import (
	"slices"
	"syscall"
	"testing"

	"github.com/runnelmq/runnel/internal/kafka"
)

// F7: Verify of a log that is read only and cannot look again reports the damage that it has found, and does not say that it has read everything.
func TestVerifyThatCannotLookAgain(t *testing.T) {
	e := cleanEnv(t)
	l := e.open()
	put(t, l, "a=1", "b=1", "c=1", "d=1")
	e.close(l)
	e.flip(1)
	ro := e.readOnly()
	defer ro.Abandon()
	if err := e.fs.Remove(fileName(e.options().Dir, 3, suffixLog)); err != nil {
		t.Fatal(err)
	}
	var found []int64
	err := ro.Verify(t.Context(), func(d *kafka.CorruptError) { found = append(found, d.From) })
	if err == nil || !slices.Contains(found, 1) {
		t.Fatalf("F7: reported at %v, %v", found, err)
	}
}

// A12: a segment that cannot be opened is reported, and does not keep the others from being compacted, in whichever pass; when it can, it is compacted too.
func TestCompactPassesOverWhatCannotBeOpened(t *testing.T) {
	e, fsys := pickyEnv(t)
	each(e)
	l := e.open()
	put(t, l, "a=1", "b=1", "a=2", "b=2", "a=3", "c=1", "c=2", "x=1")
	e.close(l)
	bad := fileName(e.options().Dir, 2, suffixLog)
	fsys.refuse = func(op, name string) error {
		if op == "open" && name == bad {
			return syscall.EIO
		}
		return nil
	}
	l = e.open()
	reports, to := 0, int64(0)
	for range 3 {
		done := mustCompact(t, l, 10_000)
		reports, to = reports+len(done.Damaged), done.To
	}
	if reports != 1 || to != 7 {
		t.Errorf("A12: reported %d times, and the keys up to %d have had their turn", reports, to)
	}
	recs, err := readAll(l, 3)
	if err != nil || len(recs) != 4 { // b=2, a=3, c=2, x=1
		t.Fatalf("A12: %d records behind the segment, %v", len(recs), err)
	}
	e.close(l)
	fsys.refuse = func(string, string) error { return nil }
	l = e.open()
	defer l.Abandon()
	put(t, l, "x=2")
	mustCompact(t, l, 10_000)
	wantLeft(t, l, "b=2", "a=3", "c=2", "x=1", "x=2")
}

// A12: a key that was deleted stays so when a segment with an older value of it, that was damaged while the tombstone had its time, is whole again.
func TestDeletedKeyStaysDeletedWhenDamageHeals(t *testing.T) {
	e := cleanEnv(t)
	l := e.open()
	put(t, l, "k=old", "a=1", "k", "b=1", "x=1")
	e.close(l)
	name := fileName(e.options().Dir, 0, suffixLog)
	before, err := readFile(e.fs, name)
	if err != nil {
		t.Fatal(err)
	}
	e.flip(0)
	l = e.open()
	for i := range int64(3) {
		mustCompact(t, l, 10_000*(i+1))
		put(t, l, "x=2")
	}
	e.close(l)
	if err := writeFile(e.fs, name, before, true); err != nil {
		t.Fatal(err)
	}
	for i := range int64(4) { // lives
		l = e.open()
		for k := range int64(3) {
			put(t, l, "x=3")
			mustCompact(t, l, 100_000*(3*i+k+1))
			var last []byte
			recs, err := readAll(l, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range recs {
				if string(r.key) == "k" {
					last = r.value
				}
			}
			if last != nil {
				t.Fatalf("A12: k=%s is back in life %d", last, i)
			}
		}
		e.close(l)
	}
}
