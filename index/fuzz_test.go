package index

import (
	"bytes"
	"errors"
	"testing"
)

// What loads has entries that rise, and its file form is the file without the zeros at its end.

func FuzzLoadOffsets(f *testing.F) {
	x := NewOffsets(0)
	x.Append(40, 4200)
	x.Append(80, 8400)
	f.Add(int64(0), x.AppendTo(nil, 0))
	f.Add(int64(1<<40), append(x.AppendTo(nil, 0), make([]byte, 16)...))
	f.Add(int64(0), []byte{0})
	f.Fuzz(func(t *testing.T, base int64, data []byte) {
		x, err := LoadOffsets(base, data)
		if err != nil {
			if !errors.Is(err, ErrBroken) {
				t.Fatalf("%v is not ErrBroken", err)
			}
			return
		}
		checkForm(t, data, x.AppendTo(nil, 0), x.Len()*OffsetEntrySize)
		for i := range x.Len() {
			e := x.At(i)
			if e.Offset < base || e.Pos < 0 || i > 0 && (e.Offset <= x.At(i-1).Offset || e.Pos <= x.At(i-1).Pos) {
				t.Fatalf("entry %d is %v", i, e)
			}
			if j, ok := x.Lookup(e.Offset); !ok || j != i {
				t.Fatalf("Lookup of entry %d gives %d, %v", i, j, ok)
			}
			if j, ok := x.LookupPos(e.Pos); !ok || j != i {
				t.Fatalf("LookupPos of entry %d gives %d, %v", i, j, ok)
			}
		}
		again := NewOffsets(base) // each entry is one that Append takes
		for i := range x.Len() {
			if !again.Append(x.At(i).Offset, x.At(i).Pos) {
				t.Fatalf("entry %d, %v, is one that Append refuses", i, x.At(i))
			}
		}
	})
}

func FuzzLoadTimes(f *testing.F) {
	x := NewTimes(0)
	x.Append(1_700_000_000_000, 40)
	x.Append(1_700_000_000_001, 80)
	f.Add(int64(0), x.AppendTo(nil, 0))
	f.Add(int64(1<<40), append(x.AppendTo(nil, 0), make([]byte, 24)...))
	f.Add(int64(0), []byte{0})
	f.Fuzz(func(t *testing.T, base int64, data []byte) {
		x, err := LoadTimes(base, data)
		if err != nil {
			if !errors.Is(err, ErrBroken) {
				t.Fatalf("%v is not ErrBroken", err)
			}
			return
		}
		checkForm(t, data, x.AppendTo(nil, 0), x.Len()*TimeEntrySize)
		again := NewTimes(base)
		for i := range x.Len() {
			e := x.At(i)
			if e.Offset < base || e.Timestamp < 0 || i > 0 && (e.Offset <= x.At(i-1).Offset || e.Timestamp <= x.At(i-1).Timestamp) {
				t.Fatalf("entry %d is %v", i, e)
			}
			if j, ok := x.Lookup(e.Timestamp); !ok || j != i {
				t.Fatalf("Lookup of entry %d gives %d, %v", i, j, ok)
			}
			if !again.Append(e.Timestamp, e.Offset) {
				t.Fatalf("entry %d, %v, is one that Append refuses", i, e)
			}
		}
	})
}

func checkForm(t *testing.T, data, form []byte, size int) {
	t.Helper()
	if len(form) != size || !bytes.Equal(form, data[:size]) {
		t.Fatalf("loaded %x, saved %x", data, form)
	}
	for _, c := range data[size:] {
		if c != 0 {
			t.Fatalf("loaded %x, saved only %x", data, form)
		}
	}
}
