package vfs

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

var errInjected = errors.New("injected")

// A failed sync is the last word about its pages, although the next one says nil.
func TestSimFailedSyncLosesWhatItShouldHaveWritten(t *testing.T) {
	s := NewSim(1)
	f := must(s.Create("f", 0))(t)
	check(t, s.SyncDir("/"))
	must(f.WriteAt(bytes.Repeat([]byte("a"), 2048), 0))(t)
	check(t, f.Sync())
	must(f.WriteAt(bytes.Repeat([]byte("b"), 1024), 0))(t)
	s.Inject(func(op Op) error {
		if op.Kind == OpSync {
			return errInjected
		}
		return nil
	})
	wantIs(t, f.Sync(), errInjected)
	s.Inject(nil)
	check(t, f.Sync())
	want := func(what, got, pattern string) {
		t.Helper()
		var sectors string
		for i := 0; i < len(got); i += simSectorSize {
			sectors += got[i : i+1]
		}
		if sectors != pattern {
			t.Fatalf("%s: sectors %q, want %q", what, sectors, pattern)
		}
	}
	want("cached", get(t, s, "f"), "bbaa")
	want("cut", get(t, s.Cut(Cut{Keep: 1}), "f"), "aaaa")
	want("crash and cut", get(t, s.Crash().Cut(Cut{Keep: 1}), "f"), "aaaa")
	// What is written anew is durable again, and only that.
	must(f.WriteAt([]byte("c"), 512))(t)
	check(t, f.Sync())
	want("rewritten", get(t, s.Cut(Cut{Keep: 0}), "f"), "acaa")
	check(t, f.DropCache(0))
	want("dropped", get(t, s, "f"), "acaa")
}

func TestSimInjection(t *testing.T) {
	s := NewSim(1)
	var fail func(Op) error
	s.Inject(func(op Op) error { return fail(op) })
	fail = func(Op) error { return nil }
	check(t, s.Mkdir("d"))
	f := must(s.Create("d/f", 0))(t)
	must(f.WriteAt([]byte("0123"), 0))(t)

	var seen []string
	fail = func(op Op) error {
		seen = append(seen, op.String())
		return errInjected
	}
	before := render(t, s.Crash())
	_, werr := f.WriteAt([]byte("xy"), 2)
	_, rerr := f.ReadAt(make([]byte, 1), 0)
	var buf []byte
	_, winErr := f.Window(0, 2, &buf)
	_, cerr := s.Create("d/g", 0)
	for _, err := range []error{werr, rerr, winErr, cerr, s.Mkdir("e"), s.Rename("d/f", "d/h"), s.Remove("d/f"),
		s.SyncDir("d"), f.Reserve(9), f.Truncate(1), f.Sync()} {
		wantIs(t, err, errInjected)
	}
	want := []string{"write d/f 2+2", "read d/f 0+1", "window d/f 0+2", "create d/g", "mkdir e", "rename d/f d/h",
		"remove d/f", "syncdir d", "reserve d/f 9", "truncate d/f 1", "sync d/f"}
	if !slices.Equal(seen, want) {
		t.Fatalf("the rule saw %q", seen)
	}
	if got := render(t, s.Crash()); got != before {
		t.Fatalf("operations that failed have changed\n%s into\n%s", before, got)
	}
	fail = func(Op) error { return Torn{2, errInjected} }
	n, err := f.WriteAt([]byte("abcd"), 1)
	wantIs(t, err, errInjected)
	fail = func(Op) error { return nil }
	if got := get(t, s, "d/f"); n != 2 || got != "0ab3" {
		t.Fatalf("a torn write of %d bytes left %q", n, got)
	}
}

func TestSimFullDisk(t *testing.T) {
	s := NewSim(1)
	f := must(s.Create("f", 0))(t)
	check(t, f.Reserve(1000))
	s.SetFree(500)
	wantIs(t, f.Reserve(1501), ErrNoSpace)
	_, err := f.WriteAt(make([]byte, 1501), 0)
	wantIs(t, err, ErrNoSpace)
	if f.Size() != 1000 {
		t.Fatalf("size %d after a failed Reserve", f.Size())
	}
	must(f.WriteAt(make([]byte, 1000), 0))(t) // reserved space is there
	check(t, f.Reserve(1500))
	if free, total, _ := s.Free(""); free != 0 || total != 1500 {
		t.Fatalf("free %d of %d", free, total)
	}
	wantIs(t, must(s.Cut(Cut{Keep: 1}).Open("f", 0))(t).Reserve(1501), ErrNoSpace)
	check(t, s.Remove("f"))
	if free, _, _ := s.Free(""); free != 0 {
		t.Fatalf("free %d while the file is open", free)
	}
	check(t, f.Close())
	if free, _, _ := s.Free(""); free != 1500 {
		t.Fatalf("free %d after the last close", free)
	}
}
