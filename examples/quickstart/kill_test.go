package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// With childEnv set, the test binary is the program.
const childEnv = "RUNNEL_QUICKSTART_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child returns the program as a process that has not been started.
func child(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	return cmd
}

func TestKilledRunsLoseNothingAndCountNothingTwice(t *testing.T) {
	rnd := random(t)
	rounds, lines := 6, 200_000
	if testing.Short() {
		rounds = 2
	}
	tmp := t.TempDir()
	kills := 0
	for round := range rounds {
		text := randomLines(rnd, lines)
		dir, f := filepath.Join(tmp, fmt.Sprint("data", round)), write(t, filepath.Join(tmp, "f"), text)
		// The limit grows, so that the run gets to its end whatever the machine.
		for limit := 50 * time.Millisecond; ; limit += 20 * time.Millisecond {
			signal := os.Kill
			if rnd.IntN(5) == 0 && runtime.GOOS != "windows" {
				signal = os.Interrupt
			}
			out, ended := runUntil(t, time.Duration(rnd.Int64N(int64(limit))), signal, "-dir", dir, f)
			if !ended {
				kills++
				continue
			}
			if want := fmt.Sprintf("%d lines counted\n", lines); out != want {
				t.Fatalf("round %d, after %d kills: %q, want %q", round, kills, out, want)
			}
			break
		}
		wantCount(t, lines, dir, "", f)
		wantContents(t, dir, "lines", text)
	}
	t.Logf("%d runs stopped", kills)
}

// runUntil runs the program and sends it a signal after d. It returns its standard output and whether it ended before that.
func runUntil(t *testing.T, d time.Duration, signal os.Signal, args ...string) (string, bool) {
	t.Helper()
	cmd := child(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var sent atomic.Bool
	timer := time.AfterFunc(d, func() {
		sent.Store(true)
		cmd.Process.Signal(signal)
	})
	defer timer.Stop()
	cmd.Wait()
	switch code := cmd.ProcessState.ExitCode(); {
	case code == 0:
		return stdout.String(), true
	case sent.Load() && (code == -1 || signal == os.Interrupt && code == interrupted || runtime.GOOS == "windows"):
		return "", false
	default:
		t.Fatalf("%v: %s", cmd.ProcessState, stderr.String())
		return "", false
	}
}

func TestInterruptEndsInOrder(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be interrupted by another there")
	}
	tmp := t.TempDir()
	dir := filepath.Join(tmp, "data")
	cmd := child("-dir", dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Somebody types without end; when the program says that it has counted, it is interrupted.
	go func() {
		for err := error(nil); err == nil; {
			_, err = io.WriteString(stdin, "a\n")
		}
	}()
	var said strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		fmt.Fprintln(&said, lines.Text())
		if strings.Contains(lines.Text(), " counted, ") {
			cmd.Process.Signal(os.Interrupt)
		}
	}
	cmd.Wait()
	var n, all int
	if _, err := fmt.Sscanf(stdout.String(), "%d lines counted\n", &n); err != nil || n == 0 || cmd.ProcessState.ExitCode() != interrupted {
		t.Fatalf("%v, standard output %q, standard error %q", cmd.ProcessState, stdout.String(), said.String())
	}
	// What was stored but not counted is counted by the next run.
	out, err := inProcess(t, dir, "")
	if _, scanErr := fmt.Sscanf(out, "%d lines counted\n", &all); err != nil || scanErr != nil || all < n {
		t.Errorf("next run: %q, %v, want %d at least", out, err, n)
	}
	if stored := contents(t, dir, "stdin"); all != len(slices.Concat(stored[:]...)) {
		t.Errorf("%d lines counted, %d stored", all, len(slices.Concat(stored[:]...)))
	}
}
