package group

import (
	"flag"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"
)

var (
	seed      = flag.Uint64("seed", 0, "seed of the random tests; 0 takes a new one")
	histories = flag.Int("histories", 300, "random histories of a coordinator's members; CI: 1000")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startSeed is the seed that a random test starts with.
func startSeed(t *testing.T) uint64 {
	t.Helper()
	s := *seed
	if s == 0 {
		s = uint64(rand.Uint32())
	}
	t.Logf("seed %d (again with: go test ./group -run %s -args -seed %d)", s, t.Name(), s)
	return s
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
