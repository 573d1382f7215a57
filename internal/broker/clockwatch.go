package broker

import "time"

const (
	// jump is by how much the wall clock may be ahead of the time that has passed before retention doubts it.
	jump = time.Hour
	// believeAfter is how long a clock has to have gone on as it does to be believed.
	believeAfter = 24 * time.Hour
)

// clockWatch compares the wall clock with the time that passes, so that a clock that jumps forward does not make a year's records too old in a moment. The time in which no
// engine was open counts as a jump too: nobody can tell them apart.
type clockWatch struct {
	wall  int64         // ms, when it was last believed
	at    time.Time     // and what the monotonic clock said then
	since time.Time     // from when on it has been in doubt; zero: it is not
	ahead time.Duration // by so much, when it was last looked at in doubt
}

// doubt returns by how much now, in ms, may be ahead; 0 if it is believed.
func (w *clockWatch) doubt(now int64) time.Duration {
	if w.wall == 0 {
		w.believe(now)
	}
	ahead := time.Duration(now-w.wall)*time.Millisecond - time.Since(w.at)
	switch {
	case ahead <= jump:
		w.believe(now)
	case w.since.IsZero() || ahead-w.ahead > jump:
		w.since, w.ahead = time.Now(), ahead
	case time.Since(w.since) > believeAfter:
		w.believe(now)
		return 0
	}
	if w.since.IsZero() {
		return 0
	}
	return ahead
}

func (w *clockWatch) believe(now int64) { *w = clockWatch{wall: now, at: time.Now()} }
