package vfs

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// mount mounts a small file system for the test.
func mount(t *testing.T, kind, options string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting takes root")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, kind, 0, options); err != nil {
		t.Skipf("cannot mount %s: %v", kind, err)
	}
	t.Cleanup(func() { check(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

func testDisk(t *testing.T) *disk {
	d := newDisk()
	t.Cleanup(func() { check(t, d.Close()) })
	return d
}

func newDiskFile(t *testing.T, d *disk, limit int64) *diskFile {
	t.Helper()
	f := must(d.Create(filepath.Join(t.TempDir(), "f"), limit))(t).(*diskFile)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// mapped is newDiskFile where the file must be mapped for its writer.
func mapped(t *testing.T, d *disk, limit int64) *diskFile {
	t.Helper()
	f := newDiskFile(t, d, limit)
	if f.writer.Load() == nil {
		t.Skip("the file system of the temporary directory is not one that is mapped")
	}
	return f
}

func TestDiskFaultBecomesAnError(t *testing.T) {
	d := testDisk(t)
	d.ahead.off.Store(true)
	f := mapped(t, d, 1<<20)
	check(t, f.Reserve(1<<20))
	must(f.WriteAt(bytes.Repeat([]byte("x"), 1<<20), 0))(t)
	var buf []byte
	w := must(f.Window(0, 1<<20, &buf))(t)
	if buf != nil {
		t.Fatal("the window is not mapped")
	}
	check(t, os.Truncate(f.name, 0))

	touch := func(at int) (b byte, err error) {
		defer Catch(Arm(), f, &err)
		return w[at], nil
	}
	_, err := touch(20_000)
	wantFault(t, err, f.name, 20_000)
	n, err := f.WriteAt([]byte("0123456789"), 8192)
	wantFault(t, err, f.name, 8192)
	if n != 0 {
		t.Fatalf("%d bytes written", n)
	}
	// A fault of one file is not blamed on another.
	func() {
		other := mapped(t, d, 1<<20)
		var err error
		defer func() {
			if recover() == nil || err != nil {
				t.Fatalf("a fault in another file became the error %v", err)
			}
		}()
		defer Catch(Arm(), other, &err)
		t.Log(w[20_000])
	}()
	check(t, os.Truncate(f.name, 1<<20))
	must(f.WriteAt([]byte("back"), 8192))(t)
	if b := must(touch(8192))(t); b != 'b' {
		t.Fatalf("byte %q", b)
	}
}

func wantFault(t *testing.T, err error, name string, off int64) {
	t.Helper()
	wantIs(t, err, ErrFault)
	var fe *FaultError
	if !errors.As(err, &fe) || fe.File != name || fe.Off != off {
		t.Fatalf("error %v, want a fault at %d of %s", err, off, name)
	}
}

func TestCatchLetsOtherPanicsGo(t *testing.T) {
	f := must(NewMemory().Create("f", 0))(t)
	panicking := func(do func()) (r any, err error) {
		defer func() { r = recover() }()
		func() {
			defer Catch(Arm(), f, &err)
			do()
		}()
		return nil, err
	}
	if r, err := panicking(func() { panic("mine") }); r != "mine" || err != nil {
		t.Fatalf("recovered %v, error %v", r, err)
	}
	var p *int
	if r, err := panicking(func() { *p = 1 }); r == nil || err != nil {
		t.Fatalf("recovered %v, error %v", r, err)
	}
	if Arm() {
		t.Fatal("Catch has not restored what Arm found")
	}
	Catch(false, f, new(error))
}

func TestDiskMappedAndPositionedAgree(t *testing.T) {
	d := testDisk(t)
	f := mapped(t, d, 1<<20)
	check(t, f.Reserve(1<<20))
	must(f.WriteAt([]byte("mapped"), 70_000))(t)
	o := must(os.OpenFile(f.name, os.O_RDWR, 0))(t)
	defer o.Close()
	p := make([]byte, 6)
	must(o.ReadAt(p, 70_000))(t)
	if string(p) != "mapped" {
		t.Fatalf("pread sees %q", p)
	}
	var buf []byte
	w := must(f.Window(70_000, 6, &buf))(t)
	must(o.WriteAt([]byte("pwrite"), 70_000))(t)
	if string(w) != "pwrite" || buf != nil {
		t.Fatalf("the window shows %q", w)
	}
	must(f.WriteAt([]byte("stored"), 70_000))(t)
	if string(w) != "stored" {
		t.Fatalf("the window shows %q", w)
	}
	if _, ok := f.Fault(0); ok || f.reader.Load() == nil {
		t.Fatal("Fault or the reader's mapping is wrong")
	}
	// A write through a window must not damage the log.
	func() {
		var err error
		defer func() { wantFault(t, err, f.name, 70_000) }()
		defer Catch(Arm(), f, &err)
		w[0] = '!'
	}()
}

func TestDiskFullLeavesTheOldSize(t *testing.T) {
	t.Run("tmpfs", func(t *testing.T) { testDiskFull(t, mount(t, "tmpfs", "size=8m")) })
	t.Run("ext4", func(t *testing.T) { testDiskFull(t, mountExt4(t)) }) // it keeps what it could allocate
}

// mountExt4 makes and mounts an ext4 of 16 MiB.
func mountExt4(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting takes root")
	}
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	put(t, testDisk(t), image, "")
	check(t, os.Truncate(image, 16<<20))
	for _, command := range [][]string{{"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%s: %v %s", command[0], err, out)
		}
	}
	t.Cleanup(func() { check(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

func testDiskFull(t *testing.T, dir string) {
	for _, limit := range []int64{0, 64 << 20} {
		d := testDisk(t)
		f := must(d.Create(filepath.Join(dir, "f"), limit))(t)
		check(t, f.Reserve(100_000))
		must(f.WriteAt(bytes.Repeat([]byte("x"), 100_000), 0))(t)
		wantIs(t, f.Reserve(64<<20), ErrNoSpace)
		wantIs(t, f.Reserve(64<<20), syscall.ENOSPC)
		if st := must(d.Stat(f.Name()))(t); st.Size != 100_000 || f.Size() != 100_000 {
			t.Fatalf("size %d (%d)", st.Size, f.Size())
		}
		if free, total, err := d.Free(dir); err != nil || free < total/4 {
			t.Fatalf("a failed Reserve has left %d of %d free (%v)", free, total, err)
		}
		_, err := f.WriteAt(make([]byte, 32<<20), 100_000)
		wantIs(t, err, ErrNoSpace)
		check(t, f.Truncate(100_000))
		check(t, f.Reserve(200_000))
		if w := window(t, f, 0, 200_000); len(bytes.Trim(w, "\x00")) != 100_000 {
			t.Fatal("content differs")
		}
		check(t, f.Close())
		check(t, d.Remove(f.Name()))
	}
}

func TestDiskWithoutFallocate(t *testing.T) {
	dir := mount(t, "ramfs", "")
	d := testDisk(t)
	f := must(d.Create(filepath.Join(dir, "f"), 1<<20))(t).(*diskFile)
	check(t, f.Reserve(1000))
	if !f.noReserve || f.writer.Load() != nil || f.reader.Load() != nil {
		t.Fatal("a file without reservations is mapped")
	}
	check(t, f.Close())
	testFS(t, d, dir)
}

func TestDiskFaultAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := testDisk(t)
		f := mapped(t, d, 64<<20)
		defer d.Close()
		defer f.Close()
		check(t, f.Reserve(16<<20))
		var off int64
		write := func(n int) {
			must(f.WriteAt(make([]byte, n), off))(t)
			off += int64(n)
		}
		write(1000)
		synctest.Wait()
		if d.ahead.mu.running {
			t.Fatal("the helper was started for a small file")
		}
		write(aheadAfter)
		synctest.Wait()
		if d.ahead.off.Load() {
			t.Skip("this kernel cannot populate")
		}
		if done := f.ahead.done.Load(); done != off+minWindow {
			t.Fatalf("populated up to %d, want %d", done, off+minWindow)
		}
		// A writer that waits for the helper keeps the small window,
		for range 20 {
			write(minWindow / 2)
			synctest.Wait()
		}
		if f.window != minWindow {
			t.Fatalf("window %d for a slow writer", f.window)
		}
		// one that does not is given more, but never what is not reserved,
		f.fs.ahead.mu.Lock() // holds the helper off
		f.mu.Lock()
		f.fs.ahead.mu.Unlock()
		for range 20 {
			write(minWindow)
		}
		f.mu.Unlock()
		synctest.Wait()
		if f.window <= minWindow || f.ahead.done.Load() > f.high {
			t.Fatalf("window %d, populated up to %d of %d", f.window, f.ahead.done.Load(), f.high)
		}
		write(int(f.high-off) - 1000)
		synctest.Wait()
		check(t, f.Reserve(32<<20))
		write(1)
		synctest.Wait()
		if f.ahead.done.Load() <= 16<<20 {
			t.Fatal("the helper did not go on after Reserve")
		}
		// and a small one again when the file is synced often.
		for range 3 {
			check(t, f.Sync())
			for range 4 {
				write(minWindow / 4)
				synctest.Wait()
			}
		}
		if f.windowMax > 8*minWindow {
			t.Fatalf("window up to %d for a writer that syncs", f.windowMax)
		}
		if f.ahead.off.Load() {
			t.Fatal("the helper was sent where it could not go")
		}
		check(t, f.Truncate(100))
		if done := f.ahead.done.Load(); done > 100 {
			t.Fatalf("populated up to %d of 100", done)
		}
		check(t, f.Close())
		if f.populateStep() {
			t.Fatal("work on a closed file")
		}
		check(t, d.Close())
		check(t, d.Close())
		f.fs.ahead.kick(f)
	})
}

// Stores, syncs, windows and the helper at once, and a Close in the end.
func TestDiskConcurrentUse(t *testing.T) {
	d := testDisk(t)
	for range 10 {
		appendAndRead(t, d, filepath.Join(t.TempDir(), "f"))
	}
}

// What is taken out of the writer's mapping before a sync is in the file, on the disk, and may be stored to again.
func TestLetGoKeepsWhatWasStored(t *testing.T) {
	d := NewDisk()
	defer d.Close()
	f, err := d.Create(filepath.Join(t.TempDir(), "x"), 16<<20)
	check(t, err)
	defer f.Close()
	check(t, f.Reserve(8<<20))
	want := make([]byte, 0, 8<<20)
	piece := make([]byte, 60_000)
	for n := 0; len(want)+len(piece) <= 8<<20; n++ {
		for i := range piece {
			piece[i] = byte(n + i*7)
		}
		_, err := f.WriteAt(piece, int64(len(want)))
		check(t, err)
		want = append(want, piece...)
		if n%20 == 19 {
			check(t, f.Sync())
		}
	}
	check(t, f.Sync())
	if kept := f.(*diskFile).mu.kept; f.(*diskFile).writer.Load() != nil && kept < 4<<20 {
		t.Fatalf("only %d bytes were let go", kept)
	}
	_, err = f.WriteAt([]byte("again"), 12345)
	check(t, err)
	copy(want[12345:], "again")
	check(t, f.Sync())
	for range 2 {
		got := make([]byte, len(want))
		_, err := f.ReadAt(got, 0)
		check(t, err)
		var buf []byte
		w, err := f.Window(0, len(want), &buf)
		check(t, err)
		if !bytes.Equal(got, want) || !bytes.Equal(w, want) {
			t.Fatal("the file holds something else")
		}
		check(t, f.DropCache(0))
	}
}

// F11: the limit is the one the process runs under, and never infinite.
func TestDiskMaxOpen(t *testing.T) {
	var old unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	t.Cleanup(func() { check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) })
	d := testDisk(t)
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: old.Max}))
	if n := d.MaxOpen(); n != 256 {
		t.Fatalf("limit %d under one of 256", n)
	}
	name := filepath.Join(t.TempDir(), "f")
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max}))
	_, err := d.Create(name, 0)
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	wantFull(t, err)
	if n := openLimit(unix.Rlimit{Cur: unix.RLIM_INFINITY}); n != maxOpenCap {
		t.Fatalf("limit %d where there is none", n)
	}
}
