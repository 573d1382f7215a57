package vfs

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

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
