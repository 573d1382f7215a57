// Package streamtest gives tests an engine: in memory, opened in a millisecond, closed when the test ends, and in virtual time if
// the test wants that.
//
// New is for ordinary tests. Run is for tests about time: fn runs in a testing/synctest bubble, in which waiting costs nothing, so a
// test of an hour's timeout takes a microsecond and is exact. In a bubble use t.Context, channels and time.Sleep freely; t.Run, t.Parallel and
// goroutines that outlive fn are not possible (see package synctest).
//
// It is the engine that programs open with stream.Open, with another file system below it: what passes here behaves the same on a disk, except that
// nothing survives and that a sync costs nothing.
package streamtest

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/runnelmq/runnel/stream"
)

// Option changes how the engine is opened.
type Option func(*config)

type config struct{ o stream.Options }

// WithOptions opens the engine with these options. Options.FS is not used: the engine lives in memory.
func WithOptions(o stream.Options) Option { return func(c *config) { c.o = o } }

// New returns an engine in memory. It is closed, with the producers and consumers that are still open, when the test and its subtests are done; an
// error of that Close fails the test, and closing it earlier is fine. Its log goes to the test's output unless Options.Logger says otherwise.
func New(t testing.TB, opts ...Option) *stream.Engine {
	t.Helper()
	var c config
	for _, o := range opts {
		o(&c)
	}
	if c.o.Logger == nil {
		c.o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	eng, err := stream.OpenMemory(&c.o)
	if err != nil {
		t.Fatalf("open an engine in memory: %v", err)
	}
	t.Cleanup(func() {
		if err := eng.Close(); err != nil {
			t.Errorf("close the engine: %v", err)
		}
	})
	return eng
}

// Run runs fn in a bubble of virtual time with an engine of its own, and returns when fn has returned, the engine is closed and every goroutine
// of the bubble has ended.
func Run(t *testing.T, fn func(t *testing.T, eng *stream.Engine), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		fn(t, New(t, opts...))
	})
}
