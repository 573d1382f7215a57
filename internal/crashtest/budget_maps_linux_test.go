package crashtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	maxMapCount = "/proc/sys/vm/max_map_count"
	// fewMaps is what the kernel allows each process in TestFewMappings, and crowd what makes another process too dear for that.
	fewMaps, crowd = 2000, 1500
)

// F12: where the kernel allows a process 2000 mappings, the engine takes a quarter of them, and reads and writes the segments beyond those without.
func TestFewMappings(t *testing.T) {
	if args := childArgs(); args != nil {
		files, maps := newBudgetLoad(t, args[0]).run()
		if maps > fewMaps/4+64 {
			t.Errorf("F12: %d mappings of segments, no more than %d should have been", maps, fewMaps/4+64)
		}
		if files <= maps+100 {
			t.Errorf("F12: %d files were open with %d mappings: none has been read without", files, maps)
		}
		return
	}
	setFewMaps(t)
	cmd := childCommand(t, nil, fastTempDir(t))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("F12: the process of the engine: %v\n%s", err, out.Bytes())
			}
			t.Logf("%s", out.Bytes())
			return
		case <-look.C:
			if who := crowded(cmd.Process.Pid); who != "" {
				cmd.Process.Kill()
				<-ended
				t.Skipf("another process needs more mappings: %s", who)
			}
		}
	}
}

// setFewMaps sets the kernel's limit until the test ends, be it by a kill. It skips the test where it cannot, or where that might harm another process.
func setFewMaps(t *testing.T) {
	old, err := os.ReadFile(maxMapCount)
	if err != nil {
		t.Skip(err)
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(old))); err != nil || n < fewMaps {
		t.Skipf("the limit is %s already", old)
	}
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	if err := os.WriteFile(maxMapCount, old, 0); err != nil {
		t.Skip(err)
	}
	if who := crowded(0); who != "" {
		t.Skip("a process has too many mappings to take them away: " + who)
	}
	restore := exec.Command("sh", "-c", fmt.Sprintf("read end; echo %s >%s", bytes.TrimSpace(old), maxMapCount))
	restore.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := restore.StdinPipe() // it ends with this process
	if err == nil {
		err = restore.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		err := restore.Wait()
		now, rerr := os.ReadFile(maxMapCount)
		if rerr != nil || !bytes.Equal(now, old) {
			t.Errorf("%s is %s, was %s: %v, %v", maxMapCount, now, old, err, rerr)
		}
	})
	if err := os.WriteFile(maxMapCount, []byte(strconv.Itoa(fewMaps)), 0); err != nil {
		t.Skip(err)
	}
}

// crowded names a process, other than one, that has more mappings than can be taken for safe.
func crowded(but int) string {
	names, _ := filepath.Glob("/proc/[0-9]*/maps")
	for _, name := range names {
		text, _ := os.ReadFile(name) // it may have ended
		n := bytes.Count(text, []byte("\n"))
		if pid := filepath.Base(filepath.Dir(name)); n > crowd && pid != strconv.Itoa(but) {
			return fmt.Sprintf("process %s has %d", pid, n)
		}
	}
	return ""
}
