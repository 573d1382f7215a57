package vfs

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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

// A file system that is mapped, and then turns out to be one that cannot reserve.
func TestDiskDropsTheWriterMapping(t *testing.T) {
	d := testDisk(t)
	f := mapped(t, d, 1<<20)
	f.dropWriter()
	f.noReserve = true
	check(t, f.Reserve(100_000))
	must(f.WriteAt([]byte("x"), 50_000))(t)
	if f.Size() != 100_000 || f.writer.Load() != nil || d.maps.Load() != 0 {
		t.Fatalf("size %d, %d mappings", f.Size(), d.maps.Load())
	}
}

func TestDiskMapBudget(t *testing.T) {
	d := testDisk(t)
	if d.maxMaps < 1 || d.maxMaps > mapsPerProcess {
		t.Fatalf("budget %d", d.maxMaps)
	}
	d.maxMaps = 3
	maps := func(n int) {
		t.Helper()
		if u := UsageOf(d); u != (Usage{Maps: n, MaxMaps: 3}) {
			t.Fatalf("%d mappings of %d, want %d of 3", u.Maps, u.MaxMaps, n)
		}
	}
	use := func(f *diskFile, write, read bool) {
		t.Helper()
		check(t, f.Reserve(1<<20))
		must(f.WriteAt([]byte("content"), 1000))(t)
		var buf []byte
		if w := must(f.Window(1000, 7, &buf))(t); string(w) != "content" {
			t.Fatalf("window %q", w)
		}
		check(t, f.Sync())
		if (f.writer.Load() != nil) != write || (buf == nil) != read {
			t.Fatalf("mapped for writing %v, for reading %v", f.writer.Load() != nil, buf == nil)
		}
	}
	files := []*diskFile{mapped(t, d, 1<<20)}
	for range 9 {
		files = append(files, newDiskFile(t, d, 1<<20))
	}
	for i, f := range files {
		use(f, i < 3, false)
	}
	maps(3)
	check(t, files[0].Close())
	maps(2)
	use(newDiskFile(t, d, 1<<20), true, false)
	check(t, files[1].Close())
	check(t, files[2].Close())
	use(newDiskFile(t, d, 1<<20), true, true)
	maps(3)
	check(t, files[3].Close())
	maps(3)
}

// F12: where the kernel refuses a mapping, everything goes on by pread and pwrite, and nothing is counted.
func TestDiskMapRefused(t *testing.T) {
	d := testDisk(t)
	f := newDiskFile(t, d, 1<<60)
	check(t, f.Reserve(1<<20))
	must(f.WriteAt([]byte("content"), 1000))(t)
	if got := string(window(t, f, 1000, 7)); got != "content" {
		t.Fatalf("content %q", got)
	}
	if u := UsageOf(d); u.Maps != 0 || f.writer.Load() != nil || f.reader.Load() != nil {
		t.Fatalf("%d mappings", u.Maps)
	}
}

// F12: the budget is a quarter of the kernel's limit, looked up when the file system is made. The limit of the machine
// is left alone: one thread is given another file to read.
func TestDiskMapBudgetFollowsTheKernel(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting takes root")
	}
	const limit = "/proc/sys/vm/max_map_count"
	fake := filepath.Join(t.TempDir(), "limit")
	errs := make(chan error)
	go func() { // the thread ends with the goroutine
		defer close(errs)
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			errs <- err
			return
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			errs <- err
			return
		}
		for text, want := range map[string]int{
			"2000\n": 500, "65530\n": mapsPerProcess, "3\n": 0, "": mapsPerProcess, "much\n": mapsPerProcess,
		} {
			err := os.WriteFile(fake, []byte(text), 0o644)
			if err == nil {
				err = unix.Mount(fake, limit, "", unix.MS_BIND, "")
			}
			if err != nil {
				errs <- err
				return
			}
			d := NewDisk()
			if got := UsageOf(d).MaxMaps; got != want {
				t.Errorf("limit %q: budget %d, want %d", text, got, want)
			}
			if err := errors.Join(d.Close(), unix.Unmount(limit, 0)); err != nil {
				t.Error(err)
			}
		}
	}()
	for err := range errs {
		t.Skipf("no namespace of its own: %v", err)
	}
}

func TestDiskMapsAReopenedFileThatIsWritten(t *testing.T) {
	d := testDisk(t)
	f := mapped(t, d, 1<<20)
	check(t, f.Close())
	check(t, os.Truncate(f.name, 1<<20)) // holes all over
	f = must(d.Open(f.name, 1<<20))(t).(*diskFile)
	defer f.Close()
	p := make([]byte, 100_000)
	for i := range 3 {
		if f.writer.Load() != nil {
			t.Fatalf("mapped after %d writes", i)
		}
		must(f.WriteAt(p, int64(i)*100_000))(t)
	}
	if f.writer.Load() == nil || f.low != 300_000 || f.high != 1<<20 {
		t.Fatalf("not mapped, or wrongly: from %d to %d", f.low, f.high)
	}
	var st unix.Stat_t
	check(t, unix.Stat(f.name, &st))
	if st.Blocks*512 < 1<<20 {
		t.Fatalf("%d bytes allocated: a store could need a block", st.Blocks*512)
	}
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

func TestDiskLockAcrossProcesses(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), lockChild+"="+name)
	in := must(child.StdinPipe())(t)
	out := must(child.StdoutPipe())(t)
	check(t, child.Start())
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the child says %q", line)
	}
	d := testDisk(t)
	_, err := d.Lock(name)
	var locked *LockedError
	if !errors.As(err, &locked) || locked.PID != child.Process.Pid {
		t.Fatalf("error %v, want the process %d", err, child.Process.Pid)
	}
	if held, pid, err := d.Locked(name); !held || pid != child.Process.Pid || err != nil {
		t.Fatalf("held %v by %d (%v), want the process %d", held, pid, err, child.Process.Pid)
	}
	check(t, child.Process.Kill())
	_ = child.Wait()
	_ = in.Close()
	if held, _, err := d.Locked(name); held || err != nil {
		t.Fatalf("held %v by a process that is dead (%v)", held, err)
	}
	l := must(d.Lock(name))(t)
	check(t, l.Close())
}

// F5, F6: Locked works where nothing can be written: on a read-only mount, and on a disk that is full.
func TestDiskLockedWritesNothing(t *testing.T) {
	d := testDisk(t)
	rw := mount(t, "tmpfs", "size=64k")
	ro := t.TempDir()
	check(t, unix.Mount(rw, ro, "", unix.MS_BIND, ""))
	t.Cleanup(func() { check(t, unix.Unmount(ro, unix.MNT_DETACH)) })
	check(t, unix.Mount("", ro, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	check(t, must(d.Lock(filepath.Join(rw, "LOCK")))(t).Close())

	full := must(d.Create(filepath.Join(rw, "full"), 0))(t)
	defer full.Close()
	_, err := full.WriteAt(make([]byte, 1<<20), 0)
	wantIs(t, err, ErrNoSpace)
	_, err = d.Lock(filepath.Join(ro, "LOCK"))
	wantIs(t, err, syscall.EROFS)
	want := func(held bool) {
		t.Helper()
		for _, dir := range []string{rw, ro} {
			if got, _, err := d.Locked(filepath.Join(dir, "LOCK")); got != held || err != nil {
				t.Fatalf("%s: held %v (%v), want %v", dir, got, err, held)
			}
			if got, _, err := d.Locked(filepath.Join(dir, "MISSING")); got || err != nil {
				t.Fatalf("%s: held %v (%v), and there is no file", dir, got, err)
			}
		}
	}
	want(false)
	l := must(d.Lock(filepath.Join(rw, "LOCK")))(t)
	want(true)
	check(t, l.Close())
	want(false)
}

// F6: a program that keeps a shared lock is in the way, and Lock says so instead of waiting for it.
func TestDiskLockRefusedByASharedLock(t *testing.T) {
	d := testDisk(t)
	name := filepath.Join(t.TempDir(), "LOCK")
	check(t, must(d.Lock(name))(t).Close())
	f := must(os.Open(name))(t)
	if ok, err := flock(f, false); !ok || err != nil {
		t.Fatal(ok, err)
	}
	_, err := d.Lock(name)
	var locked *LockedError
	if !errors.As(err, &locked) || locked.PID != 0 {
		t.Fatalf("error %v, want one that names nobody", err)
	}
	check(t, f.Close())
	check(t, must(d.Lock(name))(t).Close())
}

// F6: a process that is being started has the lock file too until it runs its program. That must not keep the lock.
func TestDiskLockIsGivenBackAtOnce(t *testing.T) {
	d := testDisk(t)
	name := filepath.Join(t.TempDir(), "LOCK")
	l := must(d.Lock(name))(t)
	child := must(unix.Dup(int(l.(diskLock).f.Fd())))(t)
	defer unix.Close(child)
	check(t, l.Close())
	if held, _, err := d.Locked(name); held || err != nil {
		t.Fatalf("held %v after Close (%v)", held, err)
	}
	check(t, must(d.Lock(name))(t).Close())
}

// A lock on a file that the name no longer leads to would exclude nobody.
func TestDiskLockOfARemovedFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	f := must(os.Create(name))(t)
	defer f.Close()
	check(t, os.Remove(name))
	if ok, err := lockFile(f, name); ok || err != nil {
		t.Fatalf("a removed file was locked: %v, %v", ok, err)
	}
	put(t, testDisk(t), name, "")
	g := must(os.Open(name))(t)
	defer g.Close()
	if ok, err := lockFile(f, name); ok || err != nil {
		t.Fatalf("a file that was replaced was locked: %v, %v", ok, err)
	}
	l := must(testDisk(t).Lock(name))(t)
	check(t, l.Close())
	must(io.ReadAll(g))(t)
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
	if n := openLimit(unix.Rlimit{Cur: unix.RLIM_INFINITY}); n != maxOpenCap {
		t.Fatalf("limit %d where there is none", n)
	}
}
