package crashtest

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	cuts       = flag.Int("cuts", 10_000, "simulated stops of the log alone; CI: 150000")
	engineCuts = flag.Int("enginecuts", 0, "simulated stops of the whole engine; 0: a tenth of -cuts; CI: 20000")
	kills      = flag.Int("kills", 20, "kills -9 of a child process; CI: 300")
	mutations  = flag.Int("mutations", 300, "damaged directories of the whole engine; CI: 2000")
	hints      = flag.Int("hints", 3000, "damaged index files and snapshots of a log alone; CI: 50000")
	seed       = flag.Uint64("seed", 0, "seed of the first history; 0: a new one")
	images     = flag.String("images", "", "directory for images of failures; default: the system's")
	replay     = flag.String("replay", "", "image file of a failure that TestReplay checks again")
)

// killChildEnv makes this binary the child of a kill loop: directory, seed and round.
const killChildEnv = "RUNNEL_CRASHTEST_CHILD"

func TestMain(m *testing.M) {
	if env := os.Getenv(killChildEnv); env != "" {
		beKilled(env)
	}
	// Campaigns allocate little at a time from ever new stacks: the heap profile's table of these grows without end, and every
	// collection walks it. With a heap of a few MB there would be a hundred of them a second.
	runtime.MemProfileRate = 0
	debug.SetGCPercent(800)
	goleak.VerifyTestMain(m)
}

// beKilled does not return. The child ends by itself only if its parent is gone.
func beKilled(env string) {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	f := strings.SplitN(env, " ", 3)
	seed, _ := strconv.ParseUint(f[0], 10, 64)
	round, _ := strconv.Atoi(f[1])
	RunKillChild(f[2], seed, round, os.Stdout)
	select {}
}

// A1, A3 to A5, C1, E3: what was acknowledged is there after kill -9 at any moment, on a real disk.
func TestKill(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "runnel-kill-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() { // else it is there to be looked at
			os.RemoveAll(dir)
		}
	})
	l := KillLoop{Dir: filepath.Join(dir, "data"), Seed: startSeed(t), Kills: *kills}
	l.Child = func(round int) *exec.Cmd {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", killChildEnv, l.Seed, round, l.Dir))
		cmd.Stderr = os.Stderr
		return cmd
	}
	begin := time.Now()
	s, err := l.Run()
	t.Logf("%+v, %.1f kills/s", s, float64(s.Kills)/time.Since(begin).Seconds())
	if err != nil {
		t.Fatal(err)
	}
}

// startSeed is the seed that a test starts with.
func startSeed(t *testing.T) uint64 {
	s := *seed
	if s == 0 {
		s = uint64(rand.Uint32())
	}
	t.Logf("seed %d (again with: go test ./internal/crashtest -run %s -args -seed %d)", s, t.Name(), s)
	return s
}

// A1 to A7, C1, C2: whatever the log has acknowledged is there after a kill or a loss of power at any operation.
func TestLogSurvivesEveryCut(t *testing.T) {
	c := LogCampaign{Seed: startSeed(t), Cuts: *cuts, Images: *images}
	begin := time.Now()
	s, err := c.Run()
	t.Logf("%+v, %.0f cuts/s", s, float64(s.Cuts)/time.Since(begin).Seconds())
	if err != nil {
		t.Fatal(err)
	}
}

// A1 to A7, A9, A10, C1, E3: whatever the engine has acknowledged, topics, records, offsets and sequences, is there after a
// kill or a loss of power at any operation.
func TestEngineSurvivesEveryCut(t *testing.T) {
	c := EngineCampaign{Seed: startSeed(t), Cuts: *engineCuts, Images: *images}
	if c.Cuts == 0 {
		c.Cuts = *cuts / 10
	}
	begin := time.Now()
	s, err := c.Run()
	t.Logf("%+v, %.0f cuts/s", s, float64(s.Cuts)/time.Since(begin).Seconds())
	if err != nil {
		t.Fatal(err)
	}
}

// A failure's image fails again.
func TestReplay(t *testing.T) {
	if *replay == "" {
		t.Skip("no -replay")
	}
	b, err := os.ReadFile(*replay)
	if err != nil {
		t.Fatal(err)
	}
	if err := Replay(b); err != nil {
		t.Fatal(err)
	}
}
