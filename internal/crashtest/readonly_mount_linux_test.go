package crashtest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/runnelmq/runnel/stream"
)

// seen opens a directory read only and returns what it shows; not a byte in it changes, nor a time.
func seen(t *testing.T, dir string) (v view) {
	t.Helper()
	before := everything(t, dir)
	var damage error
	eng, err := stream.Open(dir, &stream.Options{ReadOnly: true, Events: stream.Events{
		Corrupt: func(err *stream.CorruptError) { damage = err },
	}})
	if err != nil {
		t.Errorf("F5: open %s read only: %v", dir, err)
		return v
	}
	v, err = viewOf(t, eng)
	if err := errors.Join(err, eng.Verify(atOnce(t), func(d *stream.CorruptError) { t.Errorf("F5: %s: %v", dir, d) })); err != nil {
		t.Errorf("F5: %s: %v", dir, err)
	}
	if _, err := eng.NewProducer(atOnce(t), stream.ProducerConfig{}); !errors.Is(err, stream.ErrReadOnly) {
		t.Errorf("F5: a producer: %v", err)
	}
	if err := errors.Join(damage, eng.Close()); err != nil {
		t.Errorf("F5: close %s: %v", dir, err)
	}
	if after := everything(t, dir); after != before {
		t.Errorf("F5: %s has changed:\n%s\nbefore:\n%s", dir, after, before)
	}
	return v
}

// asOpened opens a directory that was seen, with recovery and everything: it holds what was seen.
func asOpened(t *testing.T, dir string, saw view) {
	t.Helper()
	eng := openAt(t, dir, stream.Options{MinFree: -1, CleanRate: 1}) // compaction does not come far
	v, err := viewOf(t, eng)
	if err := errors.Join(err, eng.Close()); err != nil {
		t.Errorf("%s: %v", dir, err)
	}
	if fmt.Sprint(v) != fmt.Sprint(saw) {
		t.Errorf("F5: %s, read only:\n%v\nopened:\n%v", dir, saw, v)
	}
}

// F5: on a file system that is mounted read only, a directory shows what Open would find in it, however its engine has ended: closed, killed, killed while compaction swaps files,
// or by a loss of power that tears its tail. So it does on a disk that is full. Not a byte of it changes, nor a time.
func TestReadOnlyMount(t *testing.T) {
	m := NewMount(t, fastDir(), FileSystems()[0])
	cut := cutForView(t, m)
	dirs := viewDirs(t, m.Dir)
	dirs["power cut"] = cut
	torn := filepath.Join(m.Dir, "torn")
	if err := os.CopyFS(torn, os.DirFS(dirs["killed"])); err != nil {
		t.Fatal(err)
	}
	tearTails(t, torn)
	dirs["torn"] = torn

	if err := m.Remount(unix.MS_RDONLY); err != nil {
		t.Fatal(err)
	}
	saw := map[string]view{}
	for _, how := range slices.Sorted(maps.Keys(dirs)) {
		t.Run(how, func(t *testing.T) { saw[how] = seen(t, dirs[how]) })
	}
	if err := m.Remount(0); err != nil {
		t.Fatal(err)
	}
	t.Run("full", func(t *testing.T) {
		filler := filepath.Join(m.Dir, "filler")
		fillUp(t, filler)
		for how, dir := range dirs {
			if v := seen(t, dir); fmt.Sprint(v) != fmt.Sprint(saw[how]) {
				t.Errorf("F5: %s, on a full disk:\n%v\nbefore:\n%v", how, v, saw[how])
			}
		}
		if err := os.Remove(filler); err != nil {
			t.Error(err)
		}
	})
	for how, dir := range dirs {
		asOpened(t, dir, saw[how])
	}
}

// F5: a user who may not write sees a directory all the same.
func TestReadOnlyUser(t *testing.T) {
	if args := childArgs(); args != nil {
		asNobody(t, args)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	home := fastTempDir(t)
	dirs := viewDirs(t, home)
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	alive(t, slices.Collect(maps.Values(dirs))...)
}

// asNobody looks at directories as a user who owns nothing.
func asNobody(t *testing.T, dirs []string) {
	const nobody = 65534
	if err := errors.Join(syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); !errors.Is(err, os.ErrPermission) {
			t.Fatalf("a file in %s: %v", dir, err)
		}
		seen(t, dir)
		if _, err := stream.Open(dir, nil); !errors.Is(err, os.ErrPermission) {
			t.Errorf("F5: open %s for writing: %v", dir, err)
		}
	}
}

// cutForView cuts the power of a directory's file system while records are only written, some of their pages having reached the disk.
func cutForView(t *testing.T, m *Mount) string {
	t.Helper()
	r := random(startSeed(t), 31)
	dir := filepath.Join(m.Dir, "power-cut")
	eng := openAt(t, dir, stream.Options{MinFree: -1, SyncInterval: 10 * hang})
	fillForViews(t, eng)
	ctx := atOnce(t)
	p, err := eng.NewProducer(ctx, stream.ProducerConfig{Acks: stream.AcksWritten, Partitioner: stream.ManualPartitioner()})
	if err != nil {
		t.Fatal(err)
	}
	for offset := int64(viewRecords); offset < viewRecords+8; offset++ {
		for _, tp := range viewTPs() {
			if _, err := p.ProduceSync(ctx, viewRecord(tp, offset)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := m.writeBack(r); err != nil {
		t.Fatal(err)
	}
	if err := m.Cut(CutAtOnce); err != nil {
		t.Fatal(err)
	}
	if err := eng.Close(); err == nil {
		t.Error("F4: closed without a disk")
	}
	if err := m.Reboot(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// tearTails puts half a batch behind the end of the last segment of each partition, where space is reserved.
func tearTails(t *testing.T, dir string) {
	t.Helper()
	for _, tp := range viewTPs() {
		logs, err := filepath.Glob(filepath.Join(dir, "topics", tp.String(), "*.log"))
		if err != nil || len(logs) == 0 {
			t.Fatalf("%v: %v", tp, err)
		}
		last := logs[len(logs)-1]
		text, err := os.ReadFile(last)
		if err != nil {
			t.Fatal(err)
		}
		end := len(text)
		for end > 0 && text[end-1] == 0 {
			end--
		}
		copy(text[end:], text[:end/2+20])
		if err := os.WriteFile(last, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// fillUp takes all the space there is.
func fillUp(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		if _, err := f.Write(chunk); err != nil {
			if !errors.Is(err, unix.ENOSPC) {
				t.Fatal(err)
			}
			chunk = chunk[:len(chunk)/2]
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
