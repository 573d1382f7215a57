package crashtest

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

var powerCuts = flag.Int("powercuts", 10, "losses of power on real file systems, shared among them; CI: 100")

// powerCutChildEnv makes TestPowerCutChild the child of a loop: seed, round and directory.
const powerCutChildEnv = "RUNNEL_POWERCUT_CHILD"

// A2 to A6, A10, C1, E3: what was acknowledged as synced is there after a loss of power at any moment, and what is lost is
// a suffix: on ext4 in each of its ways, and on XFS.
func TestPowerCut(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start := startSeed(t)
	systems := FileSystems()
	for i, fs := range systems {
		cuts := (*powerCuts + len(systems) - 1 - i) / len(systems)
		t.Run(fs.Name, func(t *testing.T) {
			l := PowerCutLoop{FS: fs, Dir: fastDir(), Images: *images, Seed: start, Cuts: cuts}
			l.Child = func(dir string, round int) *exec.Cmd {
				cmd := exec.Command(self, "-test.run=^TestPowerCutChild$")
				cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", powerCutChildEnv, l.Seed, round, dir))
				cmd.Stderr = os.Stderr
				return cmd
			}
			begin := time.Now()
			s, err := l.Run()
			if errors.Is(err, ErrNoMount) {
				t.Skip(err)
			}
			t.Logf("%+v, %.1f cuts/s", s, float64(s.Cuts)/time.Since(begin).Seconds())
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestPowerCutChild is no test but the child of one. It does not return, and ends by itself only if its parent is gone.
func TestPowerCutChild(t *testing.T) {
	env := os.Getenv(powerCutChildEnv)
	if env == "" {
		t.Skip("for TestPowerCut")
	}
	dead := make(chan struct{})
	go func() {
		in := bufio.NewReader(os.Stdin)
		if _, err := in.ReadString('\n'); err == nil {
			close(dead)
			io.Copy(io.Discard, in)
		}
		os.Exit(1)
	}()
	f := strings.SplitN(env, " ", 3)
	seed, _ := strconv.ParseUint(f[0], 10, 64)
	round, _ := strconv.Atoi(f[1])
	go RunCutChild(f[2], seed, round, dead, os.Stdout) // where a panic is not the test's
	select {}
}
