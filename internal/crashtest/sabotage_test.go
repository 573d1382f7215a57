//go:build sabotage

package crashtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/sabotage"
)

// catches says which test, with which seed, notices which switch, and how its message begins.
var catches = map[sabotage.Switch]struct {
	test string
	args []string
	says string
}{
	sabotage.NoSync:          {"TestLogSurvivesEveryCut", []string{"-seed", "1"}, "A1/A2"},
	sabotage.SyncBeforeWrite: {"TestLogSurvivesEveryCut", []string{"-seed", "1"}, "A1/A2"},
	sabotage.NoDirSync:       {"TestLogSurvivesEveryCut", []string{"-seed", "1"}, "A1/A2"},
	sabotage.KeepTail:        {"TestLogSurvivesEveryCut", []string{"-seed", "1"}, "A3/A6"},
	sabotage.IgnoreCRC:       {"TestLogSurvivesEveryCut", []string{"-seed", "1"}, "A1/A2"},
	sabotage.TrustProducers:  {"TestLogSurvivesEveryCut", []string{"-seed", "1"}, "C1"},
	sabotage.RetrySync:       {"TestLogSurvivesFailingOperations", []string{"-seed", "1"}, "A1/A2"},
	sabotage.Unmap:           {"TestReadersOfSegmentsThatAreTakenAway", []string{"-seed", "1", "-readerrounds", "8"}, "B1"},
	sabotage.SwapNoSync:      {"TestLogSurvivesEveryCut", []string{"-seed", "1"}, "A1/A2"},
	sabotage.DirSyncFirst:    {"TestTraces", nil, "A10"},
	sabotage.AnyGeneration:   {"TestOldGenerationsAreRefused", nil, "E2"},
	sabotage.CommitAhead:     {"TestEngineSurvivesEveryCut", []string{"-seed", "1"}, "A1/A2"},
}

// bite is how long a switch may stay unnoticed.
const bite = time.Minute

// The tests bite: each promise that can be broken on purpose is noticed by its test within a minute, and with nothing broken the same tests pass.
func TestSabotage(t *testing.T) {
	clean := map[string]bool{}
	for _, s := range sabotage.All {
		t.Run(string(s), func(t *testing.T) {
			c, ok := catches[s]
			if !ok {
				t.Fatal("no test is named for it")
			}
			args := append([]string{"-test.run", "^" + c.test + "$"}, c.args...)
			begin := time.Now()
			out, err := rerun(t, string(s), args)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !strings.Contains(out, ": "+c.says) {
				t.Fatalf("not noticed: %v\n%s", err, out)
			}
			t.Logf("noticed after %v: %s", time.Since(begin).Round(10*time.Millisecond), line(out, c.says))
			if key := fmt.Sprint(args); !clean[key] {
				clean[key] = true
				if out, err := rerun(t, "", args); err != nil {
					t.Fatalf("with nothing broken: %v\n%s", err, out)
				}
			}
		})
	}
}

// rerun runs this binary with a switch on.
func rerun(t *testing.T, s string, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), bite)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), sabotage.Variable+"="+s)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return string(out), err
}

// line is the line of out that has text in it.
func line(out, text string) string {
	for l := range strings.Lines(out) {
		if strings.Contains(l, ": "+text) {
			return strings.TrimSpace(l)
		}
	}
	return ""
}
