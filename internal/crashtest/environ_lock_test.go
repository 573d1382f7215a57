package crashtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// F6: whoever holds the directory in another process keeps everybody out, with its process id, at once; so also when somebody
// empties, removes or replaces the file LOCK. When the holder is killed, the directory is free.
func TestLockOfAnotherProcess(t *testing.T) {
	for _, tc := range []struct {
		name   string
		harm   func(lock string) error
		nobody bool // the process id cannot be known
	}{
		{name: "untouched", harm: func(string) error { return nil }},
		{name: "emptied", harm: func(lock string) error { return os.Truncate(lock, 0) }, nobody: true},
		{name: "removed", harm: os.Remove, nobody: true},
		{name: "replaced", nobody: true, harm: func(lock string) error {
			return errors.Join(os.WriteFile(lock+".new", []byte("1\n"), 0o644), os.Rename(lock+".new", lock))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if args := childArgs(); args != nil {
				holdDirectory(t, args[0])
				return
			}
			dir := t.TempDir()
			pid, kill := startHolder(t, dir)
			if err := tc.harm(filepath.Join(dir, "LOCK")); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				eng, err := stream.Open(dir, nil)
				if err == nil {
					t.Errorf("F6: two processes have the directory open")
					eng.Close()
					break
				}
				var facts *vfs.LockedError
				if !errors.Is(err, stream.ErrLocked) || !tc.nobody && !(errors.As(err, &facts) && facts.PID == pid) {
					t.Errorf("F6: process %d holds the directory, and the error is %v", pid, err)
				}
			}
			kill()
			eng := openAt(t, dir, stream.Options{})
			book := newLedger()
			book.sender(t, eng, "next", stream.AcksSynced).sendAll(t, part("t", 0), 1)
			if got, err := readFrom(atOnce(t), eng, part("t", 0), 0); err != nil || len(got) != 2 {
				t.Errorf("A1: %d records, %v", len(got), err)
			}
			if err := eng.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// holdDirectory is the child: it holds the directory until it is killed, or its parent is gone.
func holdDirectory(t *testing.T, dir string) {
	eng := openAt(t, dir, stream.Options{})
	createTopic(t, eng, "t", stream.TopicConfig{})
	newLedger().sender(t, eng, "holder", stream.AcksSynced).sendAll(t, part("t", 0), 1)
	fmt.Printf("\nheld\n")
	io.Copy(io.Discard, os.Stdin)
}

// startHolder returns when the child holds the directory. kill kills it and returns when it is gone.
func startHolder(t *testing.T, dir string) (pid int, kill func()) {
	t.Helper()
	cmd := childCommand(t, nil, dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := false
	kill = func() {
		if gone {
			return
		}
		gone = true
		cmd.Process.Kill()
		io.Copy(io.Discard, stdout) // for Wait to return
		cmd.Wait()                  // its error is that it was killed
		stdin.Close()
	}
	t.Cleanup(kill)
	said := bufio.NewScanner(stdout)
	for said.Scan() {
		if said.Text() == "held" {
			return cmd.Process.Pid, kill
		}
	}
	t.Fatal("the child does not hold the directory")
	return 0, nil
}

// F6: a second opener in the same process is kept out too, whatever the path to the directory is called and even if LOCK was
// removed, and the first engine does not notice.
func TestLockInThisProcess(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Skip(err)
	}
	eng := openAt(t, dir, stream.Options{})
	createTopic(t, eng, "t", stream.TopicConfig{})
	book := newLedger()
	s := book.sender(t, eng, "first", stream.AcksSynced)
	for i, name := range []string{dir, link, dir + string(filepath.Separator) + ".", dir} {
		if i == 3 {
			if err := os.Remove(filepath.Join(dir, "LOCK")); err != nil {
				t.Fatal(err)
			}
		}
		_, err := stream.Open(name, nil)
		var facts *vfs.LockedError
		if !errors.Is(err, stream.ErrLocked) || i < 3 && !(errors.As(err, &facts) && facts.PID == os.Getpid()) {
			t.Errorf("F6: a second engine in %s: %v", name, err)
		}
		s.sendAll(t, part("t", 0), 1)
	}
	book.verify(t, eng, false, part("t", 0))
	if err := eng.Close(); err != nil {
		t.Error(err)
	}
}
