package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

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
