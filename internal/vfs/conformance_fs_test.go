package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"runtime"
	"sync"
	"testing"
	"time"
)

// A file has the time of its last change, or the one that was set.
func testModTime(t *testing.T, v FS, dir string) {
	a, b := path.Join(dir, "a"), path.Join(dir, "b")
	modTime := func(name string) time.Time { return must(v.Stat(name))(t).ModTime }
	put(t, v, a, "content")
	old := time.Unix(1_000_000_000, 0)
	f := must(v.Open(a, 0))(t)
	defer f.Close()
	for _, c := range []struct {
		name    string
		do      func() error
		changed bool
	}{
		{"write", func() error { _, err := f.WriteAt([]byte("C"), 0); return err }, true},
		{"reserve", func() error { return f.Reserve(100_000) }, true},
		{"truncate", func() error { return f.Truncate(10) }, true},
		{"truncate to the same size", func() error { return f.Truncate(10) }, true},
		{"reserve what is there", func() error { return f.Reserve(5) }, false},
		{"empty write", func() error { _, err := f.WriteAt(nil, 0); return err }, false},
		{"read", func() error { _, err := f.ReadAt(make([]byte, 5), 0); return err }, false},
		{"set no time", func() error { return v.SetModTime(a, time.Time{}) }, false},
		{"sync", f.Sync, false},
	} {
		check(t, v.SetModTime(a, old))
		if got := modTime(a); !got.Equal(old) {
			t.Fatalf("time %v, set was %v", got, old)
		}
		check(t, c.do())
		if got := modTime(a); got.After(old.AddDate(1, 0, 0)) != c.changed || !c.changed && !got.Equal(old) {
			t.Fatalf("%s: time %v, changed must be %v", c.name, got, c.changed)
		}
	}
	check(t, v.SetModTime(a, old))
	if runtime.GOOS != "windows" {
		check(t, v.Rename(a, b))
		if got := must(v.List(dir))(t); len(got) != 1 || !got[0].ModTime.Equal(old) {
			t.Fatalf("after the rename %v", got)
		}
	}
	check(t, v.SetModTime(dir, old)) // no effect that can be seen
	wantIs(t, v.SetModTime(path.Join(dir, "missing"), old), fs.ErrNotExist)
}

func testLock(t *testing.T, v FS, dir string) {
	name := path.Join(dir, "LOCK")
	l := must(v.Lock(name))(t)
	_, err := v.Lock(name)
	var locked *LockedError
	if !errors.As(err, &locked) || locked.PID != os.Getpid() || locked.Name != name {
		t.Fatalf("error %v (%T)", err, err)
	}
	other := must(v.Lock(path.Join(dir, "OTHER")))(t)
	check(t, other.Close())
	check(t, l.Close())
	must(v.Stat(name))(t) // never removed
	l = must(v.Lock(name))(t)
	check(t, l.Close())
	check(t, v.Mkdir(path.Join(dir, "d")))
	if _, err := v.Lock(path.Join(dir, "d")); err == nil {
		t.Fatal("a directory was locked")
	}
}

// F6: Locked sees a lock that is held and no other, and is in nobody's way.
func testLocked(t *testing.T, v FS, dir string) {
	name := path.Join(dir, "LOCK")
	want := func(held bool) {
		t.Helper()
		got, pid, err := v.Locked(name)
		check(t, err)
		if got != held || held && pid != os.Getpid() || !held && pid != 0 {
			t.Fatalf("held %v by %d, want %v", got, pid, held)
		}
	}
	want(false)
	if _, err := v.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("asking has made the file (%v)", err)
	}
	for range 2 {
		l := must(v.Lock(name))(t)
		want(true)
		want(true)
		if _, err := v.Lock(name); !errors.As(err, new(*LockedError)) {
			t.Fatalf("error %v", err)
		}
		want(true)
		check(t, l.Close())
		want(false)
	}
	check(t, v.Mkdir(path.Join(dir, "d")))
	if _, _, err := v.Locked(path.Join(dir, "d")); err == nil {
		t.Fatal("a directory may be locked")
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, _, err := v.Locked(name); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 200 {
		l, err := v.Lock(name)
		if err != nil {
			t.Errorf("a lock that nobody holds: %v", err)
			break
		}
		check(t, l.Close())
	}
	close(stop)
	wg.Wait()
}

func testFree(t *testing.T, v FS, dir string) {
	free, total, err := v.Free(dir)
	check(t, err)
	if free <= 0 || total < free {
		t.Fatalf("free %d of %d", free, total)
	}
	p := v.Pebble()
	pd := p.PathJoin(dir, "pebble")
	check(t, p.MkdirAll(pd, 0o755))
	must(p.Stat(pd))(t)
}
