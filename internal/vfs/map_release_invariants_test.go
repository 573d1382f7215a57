//go:build invariants && linux

package vfs

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"
)

// inaccessible says which of the addresses lie in memory that the process keeps and nobody may touch.
func inaccessible(t *testing.T, addrs []uintptr) []bool {
	t.Helper()
	f := must(os.Open("/proc/self/maps"))(t)
	defer f.Close()
	found := make([]bool, len(addrs))
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var from, to uintptr
		must(fmt.Sscanf(sc.Text(), "%x-%x", &from, &to))(t)
		for i, a := range addrs {
			if a >= from && a < to {
				found[i] = strings.Fields(sc.Text())[1] == "---p"
			}
		}
	}
	return found
}

// faults says whether touching b[0] does, and where.
func faults(b []byte, write bool) (addr uintptr) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if a, ok := recover().(interface{ Addr() uintptr }); ok {
			addr = a.Addr()
		}
	}()
	if write {
		b[0] = 'x'
	} else if b[0] == 0 {
		return 1
	}
	return 0
}

func addrOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// B1: after Close a window, and the writer's mapping, cannot be touched, whatever has been mapped since.
func TestLateTouchFaults(t *testing.T) {
	d := testDisk(t)
	f := mapped(t, d, 1<<20)
	check(t, f.Reserve(1<<20))
	must(f.WriteAt([]byte("content"), 0))(t)
	r := must(d.OpenRead(f.name))(t)
	var buf []byte
	late := map[string][]byte{
		"window of the writer": must(f.Window(0, 7, &buf))(t),
		"window of the reader": must(r.Window(0, 7, &buf))(t),
		"writer's mapping":     f.writer.Load().data,
	}
	if buf != nil {
		t.Fatal("a window is not mapped")
	}
	check(t, f.Close())
	check(t, r.Close())
	for i := range 8 { // that would take the same addresses
		g := must(d.Create(filepath.Join(t.TempDir(), fmt.Sprint(i)), 1<<20))(t)
		defer g.Close()
		check(t, g.Reserve(1<<20))
		must(g.WriteAt([]byte("another"), 0))(t)
		must(g.Window(0, 7, &buf))(t)
	}
	for name, b := range late {
		for _, write := range []bool{false, true} {
			if addr := faults(b, write); addr != addrOf(b) {
				t.Errorf("%s, write %v: fault at %x, want %x", name, write, addr, addrOf(b))
			}
		}
		if !inaccessible(t, []uintptr{addrOf(b)})[0] {
			t.Errorf("%s: the range is not kept", name)
		}
	}
	if u := UsageOf(d); u.Maps != 16 {
		t.Errorf("%d mappings, want two for each of 8 files", u.Maps)
	}
}

// F12: the ranges that are kept do not add up to the kernel's limit, and they are the last ones.
func TestFewRangesAreKept(t *testing.T) {
	d := testDisk(t)
	f := mapped(t, d, 1<<20)
	check(t, f.Reserve(1<<20))
	var last []uintptr
	seen := make(map[uintptr]bool)
	for range 8 * keptRanges {
		r := must(d.OpenRead(f.name))(t)
		var buf []byte
		a := addrOf(must(r.Window(0, 1, &buf))(t))
		seen[a] = true
		last = append(last, a)
		check(t, r.Close())
	}
	last = last[len(last)-keptRanges:]
	for i, there := range inaccessible(t, last) {
		if !there {
			t.Fatalf("range %d of the last %d is not kept", i, keptRanges)
		}
	}
	var all []uintptr
	for a := range seen {
		all = append(all, a)
	}
	n := 0
	for _, there := range inaccessible(t, all) {
		if there {
			n++
		}
	}
	if n > keptRanges {
		t.Fatalf("%d ranges are kept, want %d", n, keptRanges)
	}
}
