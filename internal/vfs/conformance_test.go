package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// What every ground must do alike.
func TestConformance(t *testing.T) {
	t.Run("disk", func(t *testing.T) { testFS(t, NewDisk(), filepath.ToSlash(t.TempDir())) })
	t.Run("disk unmapped", func(t *testing.T) {
		d := newDisk()
		d.maxMaps = 0
		testFS(t, d, filepath.ToSlash(t.TempDir()))
	})
	t.Run("memory", func(t *testing.T) { testFS(t, NewMemory(), "/") })
	t.Run("sim", func(t *testing.T) { testFS(t, NewSim(1), "/") })
	t.Run("sim write-back", func(t *testing.T) {
		s := NewSim(1)
		s.SetWriteBack(0.5)
		testFS(t, s, "/")
	})
}

func testFS(t *testing.T, v FS, dir string) {
	t.Cleanup(func() { check(t, v.Close()) })
	for _, c := range []struct {
		name string
		test func(t *testing.T, v FS, dir string)
	}{
		{"names", testNames},
		{"rename", testRename},
		{"remove", testRemove},
		{"read and write", testReadWrite},
		{"reserve and truncate", testReserveTruncate},
		{"model", testModel},
		{"late mapping", testLateMapping},
		{"read only", testReadOnly},
		{"closed", testClosed},
		{"modification time", testModTime},
		{"lock", testLock},
		{"locked", testLocked},
		{"read-only view", testReadOnlyView},
		{"free", testFree},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := path.Join(dir, c.name)
			check(t, v.Mkdir(dir))
			c.test(t, v, dir)
		})
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantIs(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error %v, want one that is %v", err, target)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

// put makes a file with the given content.
func put(t testing.TB, v FS, name, content string) {
	t.Helper()
	f := must(v.Create(name, 1<<20))(t)
	must(f.WriteAt([]byte(content), 0))(t)
	check(t, f.Close())
}

// get returns the content of a file.
func get(t testing.TB, v FS, name string) string {
	t.Helper()
	f := must(v.OpenRead(name))(t)
	defer f.Close()
	return string(window(t, f, 0, int(f.Size())))
}

// window returns a copy of what Window shows, after comparing it with ReadAt.
func window(t testing.TB, f File, off int64, n int) []byte {
	t.Helper()
	var buf []byte
	w := bytes.Clone(must(f.Window(off, n, &buf))(t))
	r := make([]byte, n)
	if _, err := f.ReadAt(r, off); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(w, r) {
		t.Fatalf("Window and ReadAt differ in %d bytes at %d of %s", n, off, f.Name())
	}
	return w
}

func testNames(t *testing.T, v FS, dir string) {
	for _, n := range []string{"b", "c", "a"} {
		put(t, v, path.Join(dir, n), n+"!")
	}
	check(t, v.Mkdir(path.Join(dir, "b0")))
	want := []Info{{Name: "a", Size: 2}, {Name: "b", Size: 2}, {Name: "b0", Dir: true}, {Name: "c", Size: 2}}
	infos := must(v.List(dir))(t)
	if !slices.EqualFunc(infos, want, func(got, want Info) bool {
		want.ModTime = got.ModTime
		return got == want && got.ModTime.IsZero() == got.Dir
	}) {
		t.Fatalf("list %v, want %v and times for the files", infos, want)
	}
	for _, want := range infos {
		if got := must(v.Stat(path.Join(dir, want.Name)))(t); got != want {
			t.Fatalf("stat %v, list %v", got, want)
		}
	}
	check(t, v.SyncDir(dir))

	missing := path.Join(dir, "missing")
	nested := path.Join(missing, "x")
	_, err := v.Create(path.Join(dir, "a"), 0)
	wantIs(t, err, fs.ErrExist)
	wantIs(t, v.Mkdir(path.Join(dir, "a")), fs.ErrExist)
	wantIs(t, v.Mkdir(path.Join(dir, "b0")), fs.ErrExist)
	_, err = v.Create(nested, 0)
	wantIs(t, err, fs.ErrNotExist)
	wantIs(t, v.Mkdir(nested), fs.ErrNotExist)
	_, err = v.Open(missing, 0)
	wantIs(t, err, fs.ErrNotExist)
	_, err = v.OpenRead(missing)
	wantIs(t, err, fs.ErrNotExist)
	_, err = v.Stat(missing)
	wantIs(t, err, fs.ErrNotExist)
	_, err = v.List(missing)
	wantIs(t, err, fs.ErrNotExist)
	wantIs(t, v.SyncDir(missing), fs.ErrNotExist)
	wantIs(t, v.Remove(missing), fs.ErrNotExist)
	wantIs(t, v.Rename(missing, path.Join(dir, "d")), fs.ErrNotExist)
	_, err = v.Lock(nested)
	wantIs(t, err, fs.ErrNotExist)
	for _, open := range []func() (File, error){
		func() (File, error) { return v.OpenRead(path.Join(dir, "b0")) },
		func() (File, error) { return v.Open(path.Join(dir, "b0"), 0) },
	} {
		if _, err := open(); err == nil {
			t.Fatal("a directory was opened as a file")
		}
	}
}

func testRename(t *testing.T, v FS, dir string) {
	a, b, sub := path.Join(dir, "a"), path.Join(dir, "b"), path.Join(dir, "sub")
	put(t, v, a, "new")
	put(t, v, b, "old")
	f := must(v.OpenRead(b))(t)
	defer f.Close()
	if runtime.GOOS != "windows" {
		check(t, v.Rename(a, b))
		if got := get(t, v, b); got != "new" {
			t.Fatalf("after the rename the file holds %q", got)
		}
		if got := string(window(t, f, 0, 3)); got != "old" {
			t.Fatalf("the file that was replaced holds %q for its reader", got)
		}
	}
	check(t, v.Mkdir(sub))
	check(t, v.Rename(b, path.Join(sub, "c")))
	check(t, v.Rename(sub, path.Join(dir, "moved")))
	if got := get(t, v, path.Join(dir, "moved", "c")); got != "new" {
		t.Fatalf("the file in the renamed directory holds %q", got)
	}
	check(t, v.Mkdir(sub))
	put(t, v, a, "a")
	wantIs(t, v.Rename(a, sub), fs.ErrExist)
	if err := v.Rename(sub, path.Join(sub, "self")); err == nil {
		t.Fatal("a directory was moved into itself")
	}
	check(t, v.Rename(a, a))
}

func testRemove(t *testing.T, v FS, dir string) {
	a, sub := path.Join(dir, "a"), path.Join(dir, "sub")
	put(t, v, a, "content")
	f := must(v.Open(a, 1<<20))(t)
	check(t, v.Remove(a))
	wantIs(t, v.Remove(a), fs.ErrNotExist)
	put(t, v, a, "another")
	if got := string(window(t, f, 0, 7)); got != "content" {
		t.Fatalf("the removed file holds %q", got)
	}
	must(f.WriteAt([]byte("C"), 0))(t)
	if got := string(window(t, f, 0, 7)); got != "Content" {
		t.Fatalf("the removed file holds %q", got)
	}
	check(t, f.Close())
	if got := get(t, v, a); got != "another" {
		t.Fatalf("the new file holds %q", got)
	}
	check(t, v.Mkdir(sub))
	put(t, v, path.Join(sub, "x"), "")
	if err := v.Remove(sub); err == nil {
		t.Fatal("a directory that is not empty was removed")
	}
	check(t, v.Remove(path.Join(sub, "x")))
	check(t, v.Remove(sub))
}

func testReadWrite(t *testing.T, v FS, dir string) {
	f := must(v.Create(path.Join(dir, "f"), 1<<20))(t)
	defer f.Close()
	p := make([]byte, 100)
	if n, err := f.ReadAt(p, 0); n != 0 || err != io.EOF {
		t.Fatalf("reading an empty file: %d, %v", n, err)
	}
	must(f.WriteAt([]byte("0123456789"), 0))(t)
	if n, err := f.ReadAt(p, 8); n != 2 || err != io.EOF || string(p[:n]) != "89" {
		t.Fatalf("reading past the end: %d, %v", n, err)
	}
	var buf []byte
	for _, r := range []struct{ off, n int }{{0, 11}, {11, 0}, {8, 3}, {-1, 1}, {0, -1}, {20, 1}} {
		_, err := f.Window(int64(r.off), r.n, &buf)
		wantIs(t, err, io.ErrUnexpectedEOF)
	}
	if w := must(f.Window(10, 0, &buf))(t); len(w) != 0 {
		t.Fatal("an empty window is not empty")
	}
	if _, err := f.WriteAt([]byte("x"), -1); err == nil {
		t.Fatal("a write before the beginning succeeded")
	}
	if n, err := f.WriteAt(nil, 5); n != 0 || err != nil {
		t.Fatalf("an empty write: %d, %v", n, err)
	}
	if f.Size() != 10 {
		t.Fatalf("size %d, want 10", f.Size())
	}
	// A hole reads as zeros, and a window is cut to its length.
	must(f.WriteAt([]byte("end"), 200_000))(t)
	if w := window(t, f, 10, 199_990); len(bytes.Trim(w, "\x00")) != 0 {
		t.Fatal("a hole is not zero")
	}
	w := must(f.Window(0, 5, &buf))(t)
	if len(w) != 5 || string(w) != "01234" {
		t.Fatalf("window %q", w)
	}
	if f.Name() != path.Join(dir, "f") {
		t.Fatalf("name %q", f.Name())
	}
	check(t, f.Sync())
	check(t, f.DropCache(0))
	if got := string(window(t, f, 200_000, 3)); got != "end" {
		t.Fatalf("after DropCache: %q", got)
	}
	if _, ok := f.Fault(1); ok {
		t.Fatal("address 1 is in the file")
	}
}

func testReserveTruncate(t *testing.T, v FS, dir string) {
	f := must(v.Create(path.Join(dir, "f"), 1<<20))(t)
	defer f.Close()
	check(t, f.Reserve(100_000))
	if f.Size() != 100_000 {
		t.Fatalf("size %d after Reserve", f.Size())
	}
	check(t, f.Reserve(50_000))
	if f.Size() != 100_000 {
		t.Fatalf("size %d after a smaller Reserve", f.Size())
	}
	x := bytes.Repeat([]byte("x"), 100_000)
	must(f.WriteAt(x, 0))(t)
	for _, grow := range []func(int64) error{f.Reserve, f.Truncate, func(n int64) error {
		_, err := f.WriteAt([]byte{0}, n-1)
		return err
	}} {
		must(f.WriteAt(x, 0))(t)
		check(t, f.Truncate(5_000))
		if f.Size() != 5_000 {
			t.Fatalf("size %d after Truncate", f.Size())
		}
		check(t, grow(100_000))
		w := window(t, f, 0, 100_000)
		if !bytes.Equal(w[:5_000], x[:5_000]) || len(bytes.Trim(w[5_000:], "\x00")) != 0 {
			t.Fatal("bytes that were cut off are back")
		}
	}
	if err := f.Truncate(-1); err == nil {
		t.Fatal("a negative size was accepted")
	}
	// Beyond the limit the file works on.
	check(t, f.Reserve(3<<20))
	must(f.WriteAt(x, 1<<20-50_000))(t)
	must(f.WriteAt(x, 2<<20))(t)
	for _, off := range []int64{1<<20 - 50_000, 2 << 20} {
		if !bytes.Equal(window(t, f, off, len(x)), x) {
			t.Fatalf("what was written at %d is not there", off)
		}
	}
}

// testModel compares random operations with a slice of bytes.
func testModel(t *testing.T, v FS, dir string) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		limit := []int64{0, 100_000, 300_000}[r.IntN(3)]
		name := path.Join(dir, "f")
		f := must(v.Create(name, limit))(t)
		var model []byte
		resize := func(n int) {
			if n > len(model) {
				model = append(model, make([]byte, n-len(model))...)
			}
		}
		for i := range 60 {
			n := 1 << r.IntN(17)
			off := r.IntN(1 << (1 + r.IntN(18)))
			switch r.IntN(8) {
			case 0:
				check(t, f.Reserve(int64(n)))
				resize(n)
			case 1:
				check(t, f.Truncate(int64(n)))
				resize(n)
				clear(model[n:])
				model = model[:n]
			case 2:
				check(t, f.Close())
				f = must(v.Open(name, limit))(t)
			case 3:
				check(t, f.Sync())
				check(t, f.DropCache(0))
			default:
				p := bytes.Repeat([]byte{byte(i + 1)}, n)
				if got, err := f.WriteAt(p, int64(off)); got != n || err != nil {
					t.Fatalf("seed %d: write: %d, %v", seed, got, err)
				}
				resize(off + n)
				copy(model[off:], p)
			}
			if f.Size() != int64(len(model)) {
				t.Fatalf("seed %d, operation %d: size %d, want %d", seed, i, f.Size(), len(model))
			}
			off = r.IntN(len(model) + 1)
			n = r.IntN(len(model) - off + 1)
			if !bytes.Equal(window(t, f, int64(off), n), model[off:off+n]) {
				t.Fatalf("seed %d, operation %d: bytes %d+%d differ", seed, i, off, n)
			}
		}
		if got := window(t, f, 0, len(model)); !bytes.Equal(got, model) {
			t.Fatalf("seed %d: content differs", seed)
		}
		check(t, f.Close())
		check(t, v.Remove(name))
	}
}

// testLateMapping appends to a re-opened file for so long that Disk maps it.
func testLateMapping(t *testing.T, v FS, dir string) {
	name := path.Join(dir, "f")
	put(t, v, name, "head")
	f := must(v.Open(name, 4<<20))(t)
	defer f.Close()
	check(t, f.Reserve(2<<20))
	p := make([]byte, 10_000)
	off := int64(4)
	for i := range 100 {
		for j := range p {
			p[j] = byte(i)
		}
		must(f.WriteAt(p, off))(t)
		off += int64(len(p))
	}
	must(f.WriteAt([]byte("HEAD"), 0))(t) // before what is mapped
	if got := string(window(t, f, 0, 4)); got != "HEAD" {
		t.Fatalf("head %q", got)
	}
	for i := range 100 {
		if w := window(t, f, 4+int64(i)*10_000, 10_000); w[0] != byte(i) || w[9_999] != byte(i) {
			t.Fatalf("write %d is not there", i)
		}
	}
}

func testReadOnly(t *testing.T, v FS, dir string) {
	name := path.Join(dir, "f")
	put(t, v, name, "content")
	w := must(v.Open(name, 1<<20))(t)
	defer w.Close()
	r := must(v.OpenRead(name))(t)
	defer r.Close()
	_, err := r.WriteAt([]byte("x"), 0)
	for _, err := range []error{err, r.Reserve(100), r.Truncate(0), r.Sync()} {
		if err == nil {
			t.Fatal("a file opened for reading was written")
		}
	}
	if got := string(window(t, r, 0, 7)); got != "content" {
		t.Fatalf("content %q", got)
	}
	// It sees the file grow.
	must(w.WriteAt([]byte(" and more"), 7))(t)
	if got := string(window(t, r, 0, 16)); got != "content and more" {
		t.Fatalf("content %q", got)
	}
	if r.Size() != 16 {
		t.Fatalf("size %d", r.Size())
	}
}

func testClosed(t *testing.T, v FS, dir string) {
	f := must(v.Create(path.Join(dir, "f"), 1<<20))(t)
	check(t, f.Reserve(1000))
	must(f.WriteAt([]byte("x"), 0))(t)
	var buf []byte
	must(f.Window(0, 1, &buf))(t)
	check(t, f.Close())
	_, werr := f.WriteAt([]byte("x"), 0)
	_, rerr := f.ReadAt(make([]byte, 1), 0)
	_, werr2 := f.Window(0, 1, &buf)
	for i, err := range []error{werr, rerr, werr2, f.Sync(), f.Truncate(5), f.Reserve(1 << 16), f.Close()} {
		if err == nil {
			t.Fatalf("call %d on a closed file succeeded", i)
		}
	}
}
