package crashtest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Every file system keeps its files over an unmount in order, loses what was not synced in a loss of power, and keeps what
// was. Nothing of it is left afterwards.
func TestMountsLoseWhatIsNotSynced(t *testing.T) {
	for _, fs := range FileSystems() {
		t.Run(fs.Name, func(t *testing.T) {
			m, err := OpenMount(fastDir(), fs)
			if errors.Is(err, ErrNoMount) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			checkCut(t, m)
			device := m.Device
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			mounts, err := os.ReadFile("/proc/self/mounts")
			if err != nil || bytes.Contains(mounts, []byte(m.Dir)) {
				t.Errorf("still mounted, or unknown: %v", err)
			}
			if _, err := os.Stat(m.Image); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the image is still there: %v", err)
			}
			if out, _ := run("losetup", "--noheadings", "--output", "BACK-FILE", device); strings.Contains(out, m.Image) {
				t.Errorf("%s still holds %s", device, out)
			}
		})
	}
}

func checkCut(t *testing.T, m *Mount) {
	name := filepath.Join(m.Dir, "file")
	one, two := bytes.Repeat([]byte{1}, 8<<10), bytes.Repeat([]byte{2}, 8<<10)
	err := os.WriteFile(name, one, 0o644)
	if err == nil {
		err = errors.Join(m.Unmount(), m.Mount())
	}
	if err != nil {
		t.Error(err)
		return
	}
	got, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(got, one) {
		t.Errorf("after an unmount in order: %d bytes, %v", len(got), err)
	}
	for _, synced := range []bool{false, true} {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Error(err)
			return
		}
		_, err = f.WriteAt(two, 0)
		if synced {
			err = errors.Join(err, unix.Fdatasync(int(f.Fd())))
		}
		err = errors.Join(err, m.Cut(CutAtOnce), f.Close(), m.Reboot())
		if err != nil {
			t.Error(err)
			return
		}
		want := one
		if synced {
			want = two
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("synced %t: after the cut there are %d bytes, the first is %.1x, %v", synced, len(got), got, err)
		}
	}
}

// A tmpfs is full at its size, and a file system can be made read-only.
func TestMountTmpfs(t *testing.T) {
	m := NewMount(t, "", Tmpfs(1<<20))
	name := filepath.Join(m.Dir, "file")
	if err := os.WriteFile(name, make([]byte, 2<<20), 0o644); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("2 MiB to a tmpfs of 1 MiB: %v", err)
	}
	if err := m.Remount(unix.MS_RDONLY); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing to what is read-only: %v", err)
	}
}

// fastDir is where images go: into memory if there is room, since what a loop device's own file system makes durable is
// none of the test's business.
func fastDir() string {
	if free := new(unix.Statfs_t); unix.Statfs("/dev/shm", free) == nil && free.Bavail*uint64(free.Bsize) > 512<<20 {
		return "/dev/shm"
	}
	return ""
}
