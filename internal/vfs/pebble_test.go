package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"
)

func TestPebbleAdaptor(t *testing.T) {
	for name, v := range map[string]FS{"memory": NewMemory(), "sim": NewSim(1)} {
		t.Run(name, func(t *testing.T) { testPebbleAdaptor(t, v) })
	}
}

func testPebbleAdaptor(t *testing.T, v FS) {
	p := v.Pebble()
	check(t, p.MkdirAll("/a/b/c", 0o755))
	check(t, p.MkdirAll("/a/b/c", 0o755))
	f := must(p.Create("/a/b/f", pebblevfs.WriteCategoryUnspecified))(t)
	must(f.Write([]byte("hello ")))(t)
	must(f.Write([]byte("world")))(t)
	check(t, f.Preallocate(0, 1<<20))
	check(t, f.Sync())
	if st := must(f.Stat())(t); st.Size() != 11 || st.Name() != "f" || st.IsDir() {
		t.Fatalf("stat %v", st)
	}
	check(t, f.Close())
	if st := must(p.Stat("/a/b/f"))(t); !st.ModTime().Equal(must(v.Stat("/a/b/f"))(t).ModTime) || st.Size() != 11 {
		t.Fatalf("stat %v", st)
	}
	check(t, p.Link("/a/b/f", "/a/b/g"))
	wantIs(t, p.Link("/a/b/f", "/a/b/g"), fs.ErrExist)
	wantIs(t, p.Link("/a/b/missing", "/a/b/h"), fs.ErrNotExist)
	if p.Link("/a/b", "/a/d") == nil {
		t.Fatal("a directory has two names")
	}
	check(t, p.Remove("/a/b/f"))
	r := must(p.Open("/a/b/g", pebblevfs.SequentialReadsOption))(t)
	buf := make([]byte, 8)
	for _, want := range []string{"hello wo", "rld"} {
		if n := must(r.Read(buf))(t); string(buf[:n]) != want {
			t.Fatalf("read %q, want %q", buf[:n], want)
		}
	}
	check(t, r.Sync()) // pebble does that to files it reads
	check(t, r.Close())
	w := must(p.ReuseForWrite("/a/b/g", "/a/b/h", pebblevfs.WriteCategoryUnspecified))(t)
	must(w.Write([]byte("J")))(t)
	check(t, w.Close())
	if got := get(t, v, "/a/b/h"); got != "Jello world" {
		t.Fatalf("re-used file %q", got)
	}
	w = must(p.OpenReadWrite("/a/b/h", pebblevfs.WriteCategoryUnspecified))(t)
	must(w.WriteAt([]byte("W"), 6))(t)
	check(t, w.Close())
	if got := get(t, v, "/a/b/h"); got != "Jello World" {
		t.Fatalf("opened for writing and written it holds %q", got)
	}
	f = must(p.Create("/a/b/h", pebblevfs.WriteCategoryUnspecified))(t)
	check(t, f.Close())
	if got := get(t, v, "/a/b/h"); got != "" {
		t.Fatalf("created anew it holds %q", got)
	}
	d := must(p.OpenDir("/a/b"))(t)
	check(t, d.Sync())
	if st := must(d.Stat())(t); !st.IsDir() || st.Name() != "b" {
		t.Fatalf("stat of the directory %v", st)
	}
	_, err := d.Read(buf)
	wantIs(t, err, syscall.EISDIR)
	check(t, d.Close())
	l := must(p.Lock("/a/LOCK"))(t)
	if _, err := v.Lock("/a/LOCK"); !errors.As(err, new(*LockedError)) {
		t.Fatalf("the lock is not the same: %v", err)
	}
	check(t, l.Close())
	if s, ok := v.(*Sim); ok {
		s.SetFree(10)
		f = must(p.Create("/a/full", pebblevfs.WriteCategoryUnspecified))(t)
		_, err := f.Write(make([]byte, 11))
		wantIs(t, err, syscall.ENOSPC) // what pebble's OnDiskFull looks for
		check(t, f.Close())
	}
	check(t, p.RemoveAll("/a"))
	check(t, p.RemoveAll("/a"))
	if got := render(t, v); got != "" {
		t.Fatalf("left over:\n%s", got)
	}
}

// copyInto copies the files of one directory by plain Create and WriteAt.
func copyInto(t *testing.T, to FS, toDir string, from FS, fromDir string) {
	t.Helper()
	for _, i := range must(from.List(fromDir))(t) {
		if !i.Dir {
			put(t, to, path.Join(toDir, i.Name), get(t, from, path.Join(fromDir, i.Name)))
		}
	}
}

// F5: what a read-only view shows of a pebble store is enough to open it in memory, with all keys, and to go on there;
// what is written there stays there.
func TestPebbleOpensInMemoryWhatWasCopied(t *testing.T) {
	disk := NewDisk()
	t.Cleanup(func() { check(t, disk.Close()) })
	for name, from := range map[string]struct {
		fs  FS
		dir string
	}{"disk": {disk, filepath.ToSlash(t.TempDir())}, "sim": {NewSim(1), "/meta"}, "memory": {NewMemory(), "/meta"}} {
		t.Run(name, func(t *testing.T) {
			const keys = 300
			fill := func(db *pebble.DB, what string, from, to int) {
				for i := from; i < to; i++ {
					check(t, db.Set(fmt.Appendf(nil, "k%d", i), fmt.Appendf(nil, "%s%d", what, i), pebble.Sync))
					if i%100 == 50 {
						check(t, db.Flush()) // so that there are tables, and a log with more
					}
				}
			}
			want := func(db *pebble.DB, what string, from, to int) {
				t.Helper()
				for i := from; i < to; i++ {
					v, c, err := db.Get(fmt.Appendf(nil, "k%d", i))
					if err != nil || string(v) != fmt.Sprintf("%s%d", what, i) {
						t.Fatalf("key %d: %q, %v", i, v, err)
					}
					check(t, c.Close())
				}
			}
			db := openPebbleIn(t, from.fs, from.dir)
			fill(db, "old", 0, keys)
			check(t, db.Close())

			mem := NewMemory()
			check(t, mem.Mkdir("/copy"))
			copyInto(t, mem, "/copy", ReadOnly(from.fs), from.dir)
			for range 2 { // and open what was opened
				db = openPebbleIn(t, mem, "/copy")
				want(db, "old", 0, keys)
				fill(db, "new", keys, 2*keys)
				want(db, "new", keys, 2*keys)
				check(t, db.Close())
			}
			db = openPebbleIn(t, from.fs, from.dir)
			want(db, "old", 0, keys)
			if _, _, err := db.Get(fmt.Appendf(nil, "k%d", keys)); !errors.Is(err, pebble.ErrNotFound) {
				t.Fatalf("the original has changed: %v", err)
			}
			check(t, db.Close())
		})
	}
}
