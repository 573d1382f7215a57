package broker

import (
	"time"

	"github.com/runnelmq/runnel/internal/meta"
)

const (
	// jump is by how much the wall clock may move ahead of the time that passes before retention doubts it.
	jump = time.Hour
	// absence is how long no engine may have been open: nobody can tell a longer time from a clock that has jumped.
	absence = 7 * 24 * time.Hour
	// believeAfter is for how long of the engine's time, in all its lives, a clock has to go on as it does to be believed.
	believeAfter = 24 * time.Hour
)

// clockWatch compares the wall clock with the time that passes, so that a clock that jumps forward does not make a year's records too old in a moment. Its state is kept, as of the
// last look, for the next life of the engine.
type clockWatch struct {
	meta.Clock           // Wall 0: nobody has looked yet
	at         time.Time // of the last look
}

// resume goes on from where an earlier life of the engine, if there was one, has left off. now is the wall clock in ms.
func (w *clockWatch) resume(last meta.Clock, now int64) {
	*w = clockWatch{Clock: last, at: time.Now()}
	if last.Wall == 0 {
		return
	}
	switch away := time.Duration(now-last.Wall) * time.Millisecond; {
	case away > absence:
		w.Ahead += away
		w.Held = 0
	case away < 0: // it has been put right
		w.Ahead = max(w.Ahead+away, 0)
	}
	w.Wall = now
}

// doubt returns by how much now, in ms, may be ahead; 0 if it is believed.
func (w *clockWatch) doubt(now int64) time.Duration {
	passed := time.Since(w.at)
	moved := passed
	if w.Wall != 0 {
		moved = time.Duration(now-w.Wall) * time.Millisecond
	}
	w.Wall, w.at = now, time.Now()
	before := w.Ahead
	w.Ahead += moved - passed
	switch {
	case w.Ahead <= jump:
		w.Ahead, w.Held = 0, 0
	case before <= jump || moved-passed > jump:
		w.Held = 0
	default:
		if w.Held += passed; w.Held > believeAfter {
			w.Ahead, w.Held = 0, 0
		}
	}
	return w.Ahead
}
