//go:build !windows

package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"
)

// B1, F7: a directory that is deleted under its user: what is open works on as it did, mapped or not, what is by name is
// an error that says so, and nothing is a signal.
func TestDiskDirectoryDeletedUnderOpenFiles(t *testing.T) {
	d := newDisk()
	t.Cleanup(func() { check(t, d.Close()) })
	dir := filepath.Join(t.TempDir(), "data")
	check(t, d.Mkdir(dir))
	in := func(name string) string { return filepath.Join(dir, name) }
	put(t, d, in("other"), "other")
	l := must(d.Lock(in("LOCK")))(t)

	const piece, pieces, before = 1000, 2000, 500
	files := []File{must(d.Create(in("mapped"), 4<<20))(t), must(d.Create(in("unmapped"), 0))(t)}
	ends := make([]atomic.Int64, len(files))
	var half, all sync.WaitGroup
	half.Add(len(files))
	for i, f := range files {
		halfway := sync.OnceFunc(half.Done)
		all.Go(func() { // appends, reserving by steps and syncing at times
			defer halfway()
			for n := range pieces {
				if n == before {
					halfway()
				}
				off := int64(n * piece)
				err := f.Reserve((off/(64<<10) + 2) * (64 << 10))
				if err == nil {
					_, err = f.WriteAt(bytes.Repeat([]byte{byte(n)}, piece), off)
				}
				if err == nil && n%200 == 0 {
					err = f.Sync()
				}
				if err != nil {
					t.Errorf("piece %d of %s: %v", n, f.Name(), err)
					return
				}
				ends[i].Store(off + piece)
			}
		})
		all.Go(func() { // reads what there is, to the end
			var buf []byte
			for at := int64(0); at < pieces*piece && !t.Failed(); {
				if at >= ends[i].Load() {
					continue
				}
				if err := checkPiece(f, at, piece, &buf); err != nil {
					t.Error(err)
					return
				}
				at += piece
			}
		})
	}
	half.Wait()
	check(t, os.RemoveAll(dir))
	gone := func() {
		t.Helper()
		_, err1 := d.Create(in("new"), 1<<20)
		_, err2 := d.Open(in("other"), 0)
		_, err3 := d.OpenRead(in("mapped"))
		_, err4 := d.Stat(in("other"))
		_, err5 := d.List(dir)
		_, err6 := d.Lock(in("LOCK"))
		_, _, err7 := d.Free(dir)
		_, err8 := d.Pebble().Create(in("new"), pebblevfs.WriteCategoryUnspecified)
		_, err9 := d.Pebble().OpenDir(dir)
		for i, err := range []error{err1, err2, err3, err4, err5, err6, err7, err8, err9, d.Mkdir(in("sub")),
			d.Remove(in("other")), d.Rename(in("other"), in("x")), d.SyncDir(dir), d.SetModTime(in("other"), time.Unix(1, 0))} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("call %d: error %v", i, err)
			}
		}
		if held, _, err := d.Locked(in("LOCK")); held || err != nil {
			t.Errorf("a lock that is not there is held: %v, %v", held, err)
		}
	}
	gone()
	all.Wait()
	gone()
	for _, f := range files {
		check(t, f.DropCache(0))
		check(t, f.Truncate(pieces*piece))
		check(t, f.Sync())
		var buf []byte
		for at := int64(0); at < pieces*piece; at += piece {
			check(t, checkPiece(f, at, piece, &buf))
		}
		check(t, f.Close())
	}
	check(t, l.Close())
}

// checkPiece compares n bytes at off, which tell their place, under the guard that the engine reads with.
func checkPiece(f File, off int64, n int, buf *[]byte) (err error) {
	defer Catch(Arm(), f, &err)
	w, err := f.Window(off, n, buf)
	if err == nil && !bytes.Equal(w, bytes.Repeat([]byte{byte(off / int64(n))}, n)) {
		err = fmt.Errorf("%s: %d bytes at %d differ", f.Name(), n, off)
	}
	return err
}
