package crashtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoMount is what this machine cannot do: no root, no loop device, no mkfs, no such file system. A test skips then.
var ErrNoMount = errors.New("file systems cannot be mounted here")

// A FileSystem says what to make and how to mount it.
type FileSystem struct {
	Name    string   // for reports
	Type    string   // ext4, xfs or tmpfs
	Bytes   int64    // size; XFS takes no less than 300 MiB. The image is sparse
	Make    []string // options of mkfs
	Options string   // of the mount, as after -o
	// Repair makes Mount run e2fsck -fy first: there is no journal to replay. Of such a file system a cut loses data and no
	// metadata, since that is in buffers of the device, which unmounting writes. Nor could one live on what is left without
	// them: a synced directory may name inodes that have never been written, or are something else by now.
	Repair bool
}

// FileSystems are those that Runnel is tried on: ext4 in four ways, and XFS.
func FileSystems() []FileSystem {
	const size = 64 << 20
	return []FileSystem{
		{Name: "ext4 ordered", Type: "ext4", Bytes: size, Options: "data=ordered"},
		{Name: "ext4 writeback", Type: "ext4", Bytes: size, Options: "data=writeback"},
		{Name: "ext4 commit=1", Type: "ext4", Bytes: size, Options: "commit=1"},
		{Name: "ext4 without journal", Type: "ext4", Bytes: size, Make: []string{"-O", "^has_journal"}, Repair: true},
		{Name: "xfs", Type: "xfs", Bytes: 300 << 20},
	}
}

// Tmpfs is a file system in memory that is full at this many bytes.
func Tmpfs(bytes int64) FileSystem { return FileSystem{Name: "tmpfs", Type: "tmpfs", Bytes: bytes} }

// A Mount is a file system of its own, in an image file behind a loop device or in memory. Not for concurrent use.
type Mount struct {
	Dir    string // where it is mounted
	Image  string // the file that holds it; "" for a tmpfs
	Device string // the loop device; "" for a tmpfs

	fs      FileSystem
	home    string // holds Dir and Image
	mounted bool
}

// NewMount makes a file system, with its image in dir ("": the system's temporary directory), and mounts it. The test is
// skipped if that is impossible here. Nothing is left when the test has ended; files of it must be closed by then.
func NewMount(t testing.TB, dir string, fs FileSystem) *Mount {
	t.Helper()
	m, err := OpenMount(dir, fs)
	if errors.Is(err, ErrNoMount) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// OpenMount is NewMount for those who call Close. Its errors match ErrNoMount if the machine is the reason.
func OpenMount(dir string, fs FileSystem) (_ *Mount, err error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: not root", ErrNoMount)
	}
	home, err := os.MkdirTemp(dir, "runnel-mount-")
	if err != nil {
		return nil, err
	}
	m := &Mount{Dir: filepath.Join(home, "mnt"), fs: fs, home: home}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if err := os.Mkdir(m.Dir, 0o755); err != nil {
		return nil, err
	}
	if fs.Type == "tmpfs" {
		return m, m.Mount()
	}
	m.Image = filepath.Join(home, "image")
	f, err := os.Create(m.Image)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(fs.Bytes), f.Close()); err != nil {
		return nil, err
	}
	device, err := run("losetup", "--find", "--show", m.Image)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoMount, err)
	}
	m.Device = strings.TrimSpace(device)
	if err := m.Format(); err != nil {
		return nil, err
	}
	return m, m.Mount()
}

// Format makes the file system anew. It must not be mounted, nor be a tmpfs.
func (m *Mount) Format() error {
	force := map[string]string{"ext4": "-F", "xfs": "-f"}[m.fs.Type]
	_, err := run("mkfs."+m.fs.Type, append([]string{"-q", force}, append(m.fs.Make, m.Device)...)...)
	if err == nil {
		_, err = run("fallocate", "--dig-holes", m.Image) // of the zeros of XFS's log
	}
	return err
}

// Mount mounts what is not mounted: a journal is replayed, what has none is repaired first.
func (m *Mount) Mount() error {
	if m.fs.Repair {
		if err := m.repair(); err != nil {
			return err
		}
	}
	source, options := m.Device, m.fs.Options
	if m.fs.Type == "tmpfs" {
		source, options = "tmpfs", fmt.Sprintf("size=%d", m.fs.Bytes)
	}
	if err := unix.Mount(source, m.Dir, m.fs.Type, 0, options); err != nil {
		err = fmt.Errorf("mount %s: %w", m.fs.Name, err)
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV) {
			err = fmt.Errorf("%w: %w", ErrNoMount, err)
		}
		return err
	}
	m.mounted = true
	return nil
}

// Remount changes the flags of what is mounted, such as unix.MS_RDONLY.
func (m *Mount) Remount(flags uintptr) error {
	if err := unix.Mount("", m.Dir, "", unix.MS_REMOUNT|flags, ""); err != nil {
		return fmt.Errorf("remount %s: %w", m.fs.Name, err)
	}
	return nil
}

// unmountWait is how long Unmount waits for files that are still being closed.
const unmountWait = 10 * time.Second

// Unmount unmounts what is mounted. The contents of a tmpfs are gone then.
func (m *Mount) Unmount() error {
	if !m.mounted {
		return nil
	}
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		err := unix.Unmount(m.Dir, 0)
		if err == nil {
			m.mounted = false
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Since(begin) > unmountWait {
			return fmt.Errorf("unmount %s: %w", m.fs.Name, err)
		}
	}
}

// Close removes the file system and its image. If it is in use, that is an error, and it goes when it no longer is.
func (m *Mount) Close() error {
	var errs []error
	if err := m.Unmount(); err != nil {
		errs = append(errs, err, unix.Unmount(m.Dir, unix.MNT_DETACH))
		m.mounted = false
	}
	if m.Device != "" {
		_, err := run("losetup", "--detach", m.Device)
		errs = append(errs, err)
		m.Device = ""
	}
	return errors.Join(append(errs, os.RemoveAll(m.home))...)
}

// repair brings an ext4 without journal into order.
func (m *Mount) repair() error {
	_, err := run("e2fsck", "-fy", m.Device)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil // there was something to correct, and it is
	}
	return err
}

// run runs a tool of the system and returns what it prints.
func run(tool string, args ...string) (string, error) {
	name, err := exec.LookPath(tool)
	for _, dir := range []string{"/usr/sbin", "/sbin"} { // often not in the path
		if err != nil {
			name, err = exec.LookPath(filepath.Join(dir, tool))
		}
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoMount, err)
	}
	var out, complaint bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s%s", tool, strings.Join(args, " "), err, out.Bytes(), complaint.Bytes())
	}
	return out.String(), nil
}

// Reboot mounts what Cut has stopped. Files of it must be closed by then. The image as the cut has left it is kept until the
// next time.
func (m *Mount) Reboot() error {
	_, err := run("cp", m.Image, m.snapshotName())
	return errors.Join(err, m.Unmount(), m.Mount())
}

func (m *Mount) snapshotName() string { return filepath.Join(m.home, "snapshot") }

// saveSnapshot copies the last snapshot into a file in dir ("": the system's temporary directory).
func (m *Mount) saveSnapshot(dir string) (name string, err error) {
	f, err := os.CreateTemp(dir, "runnel-powercut-*.image")
	if err != nil {
		return "", err
	}
	_, err = run("cp", m.snapshotName(), f.Name())
	return f.Name(), errors.Join(err, f.Close())
}
