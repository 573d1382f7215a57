package vfs

import (
	"io/fs"
	"path"
	"reflect"
	"slices"
	"testing"
	"time"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"
)

// F5: the view refuses everything that would change something, and shows everything else.
func testReadOnlyView(t *testing.T, v FS, dir string) {
	f, g, sub := path.Join(dir, "f"), path.Join(dir, "g"), path.Join(dir, "sub")
	put(t, v, f, "content")
	check(t, v.Mkdir(sub))
	before := must(v.List(dir))(t)
	ro := ReadOnly(v)
	refused := func(name string, err error) {
		t.Helper()
		wantIs(t, err, fs.ErrPermission)
		if pe, ok := err.(*fs.PathError); !ok || pe.Path != name {
			t.Fatalf("error %v does not say that it is about %s", err, name)
		}
	}
	_, err := ro.Create(g, 0)
	refused(g, err)
	_, err = ro.Open(f, 0)
	refused(f, err)
	_, err = ro.Lock(path.Join(dir, "LOCK"))
	refused(path.Join(dir, "LOCK"), err)
	refused(sub, ro.Mkdir(sub))
	refused(f, ro.Remove(f))
	refused(f, ro.Rename(f, g))
	refused(dir, ro.SyncDir(dir))
	refused(f, ro.SetModTime(f, time.Unix(1, 0)))

	p := ro.Pebble()
	const category = pebblevfs.WriteCategoryUnspecified
	_, err = p.Create(g, category)
	refused(g, err)
	_, err = p.OpenReadWrite(f, category)
	refused(f, err)
	_, err = p.ReuseForWrite(f, g, category)
	refused(f, err)
	_, err = p.Lock(g)
	refused(g, err)
	refused(f, p.Link(f, g))
	refused(f, p.Remove(f))
	refused(sub, p.RemoveAll(sub))
	refused(f, p.Rename(f, g))
	refused(g, p.MkdirAll(g, 0o755))
	if p.Unwrap() != v.Pebble() {
		t.Fatal("pebble does not find what is below the view")
	}
	d := must(p.OpenDir(dir))(t)
	refused(dir, d.Sync())
	refused(dir, d.SyncData())
	check(t, d.Close())
	pf := must(p.Open(f))(t)
	if _, err := pf.Write([]byte("x")); err == nil {
		t.Fatal("pebble could write")
	}
	b := make([]byte, 7)
	if must(pf.ReadAt(b, 0))(t); string(b) != "content" {
		t.Fatalf("pebble reads %q", b)
	}
	check(t, pf.Close())

	r := must(ro.OpenRead(f))(t)
	_, err = r.WriteAt([]byte("x"), 0)
	for _, err := range []error{err, r.Reserve(100), r.Truncate(0), r.Sync()} {
		if err == nil {
			t.Fatal("a file of the view was written")
		}
	}
	check(t, r.Close())
	if got := get(t, ro, f); got != "content" {
		t.Fatalf("content %q", got)
	}
	if got := must(ro.List(dir))(t); !slices.Equal(got, before) {
		t.Fatalf("the directory is %v, and was %v", got, before)
	}
	if _, _, err := ro.Free(dir); err != nil || ro.MaxOpen() != v.MaxOpen() || UsageOf(ro) != UsageOf(v) {
		t.Fatal("the view counts otherwise")
	}
	l := must(v.Lock(f))(t)
	if held, _, err := ro.Locked(f); !held || err != nil {
		t.Fatalf("held %v, %v", held, err)
	}
	check(t, l.Close())
}

// A method that FS or pebble's FS gains must be sorted into those that change something and those that do not.
func TestReadOnlyKnowsEveryMethod(t *testing.T) {
	for _, c := range []struct {
		of    reflect.Type
		known []string
	}{
		{reflect.TypeFor[FS](), []string{
			"Create", "Lock", "Mkdir", "Open", "Remove", "Rename", "SetModTime", "SyncDir", // refused
			"Close", "Free", "List", "Locked", "MaxOpen", "OpenRead", "Pebble", "Stat",
		}},
		{reflect.TypeFor[pebblevfs.FS](), []string{
			"Create", "Link", "Lock", "MkdirAll", "OpenReadWrite", "Remove", "RemoveAll", "Rename", "ReuseForWrite", // refused
			"GetDiskUsage", "List", "Open", "OpenDir", "PathBase", "PathDir", "PathJoin", "Stat", "Unwrap",
		}},
	} {
		for i := range c.of.NumMethod() {
			if m := c.of.Method(i).Name; !slices.Contains(c.known, m) {
				t.Errorf("%s.%s is not known to the read-only view", c.of, m)
			}
		}
	}
}
