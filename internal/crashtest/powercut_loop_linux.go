package crashtest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A PowerCutLoop starts a child process on a file system again and again, cuts the power of that file system at a random
// moment, mounts it again, and holds against it what the child has said before.
//
// What the child says from the moment on at which the cut begins does not count. A process that really loses its power says
// nothing then; here it lives on, and an fdatasync that runs while ext4 is shut down can return without an error although the
// extent that it had to convert stays unwritten (seen in one of 15 cuts of a program that does nothing but write and fdatasync,
// on Linux 6.18; never for one that had returned before).
type PowerCutLoop struct {
	FS     FileSystem
	Dir    string // for the image of the file system; "": the system's temporary directory
	Images string // directory for images of failures; "": the same
	Seed   uint64
	Cuts   int
	// Child returns the command of a child of a round. It has to run RunCutChild with its standard output, then wait to be
	// killed. A line on its standard input says that its disk is dead. It ends when the input does, so that no child outlives
	// its parent.
	Child func(dir string, round int) *exec.Cmd
}

// PowerCutStats says what a loop has done.
type PowerCutStats struct {
	Cuts, Checks, Early    int // Early: cut before the engine was open
	Ranges                 int // of files, written back before a cut
	Acked, Synced, Commits int
	Topics                 int // made, beside those that stay
	Passes, Trims          int // of retention and compaction, and deletions of records
	Lost                   int // acknowledged as written, and gone
	Tails                  int // partitions where recovery met something behind the end
	Records                int // read and compared
}

const (
	// cutsPerDisk is after how many cuts a new file system is made.
	cutsPerDisk = 25
	// cutHang is how long a child may take to where it is cut before it counts as hanging.
	cutHang = 30 * time.Second
)

// Run returns after the wanted number of cuts, or with an error that is a *Failure or matches ErrNoMount.
func (l PowerCutLoop) Run() (PowerCutStats, error) {
	var stats PowerCutStats
	r := random(l.Seed, 6)
	for round := 1; round <= l.Cuts; {
		n := min(cutsPerDisk, l.Cuts-round+1)
		if err := l.life(r, &stats, round, n); err != nil {
			return stats, err
		}
		round += n
	}
	return stats, nil
}

// life makes a file system and cuts its power n times.
func (l PowerCutLoop) life(r *rand.Rand, stats *PowerCutStats, round, n int) (err error) {
	m, err := OpenMount(l.Dir, l.FS)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	s := &cutState{loop: l, r: r, stats: stats, mount: m, dir: filepath.Join(m.Dir, "data")}
	s.want = newCutWant(stats)
	for i := range n {
		s.did = "before it"
		err := contain(func() error { return s.round(round + i) })
		if err == nil && (chance(s.r, 0.7) || i == n-1) {
			err = contain(func() error { return s.want.check(s.dir, s.r, i%10 == 9 || i == n-1) })
		}
		if errors.Is(err, ErrNoMount) {
			return err
		}
		if err != nil {
			f := &Failure{
				Seed:  l.Seed,
				Where: fmt.Sprintf("cut %d of %d, number %d on this %s, %s", round+i, l.Cuts, i+1, l.FS.Name, s.did),
				Err:   err,
			}
			if f.Image, err = m.saveSnapshot(l.Images); err != nil {
				f.Image = "not written: " + err.Error()
			}
			return f
		}
	}
	return nil
}

// A cutState is a file system under test.
type cutState struct {
	loop  PowerCutLoop
	r     *rand.Rand
	stats *PowerCutStats
	mount *Mount
	dir   string // of the engine
	want  *cutWant
	did   string // how the last cut was made
}

// A cutPlan is what a round does to its child.
type cutPlan struct {
	lines  int           // the cut comes with this line of the child
	after  time.Duration // or so long after its start, if this is not 0
	ranges int           // how often files are written back before
	kind   CutKind
	linger time.Duration // for which the child goes on without a disk
}

func (s *cutState) plan() cutPlan {
	p := cutPlan{lines: between(s.r, 2, 250), ranges: s.r.IntN(4), kind: CutAtOnce}
	switch {
	case chance(s.r, 0.2): // which may be before the engine is open
		p.after = time.Duration(between(s.r, 1, 100_000)) * time.Microsecond
	case chance(s.r, 0.1):
		p.lines = 1
	}
	if chance(s.r, 0.3) {
		p.kind = CutWithJournal
	}
	switch {
	case chance(s.r, 0.3):
		p.linger = time.Duration(s.r.IntN(5_000)) * time.Microsecond
	case chance(s.r, 0.03): // the engine begins to try after 100 ms
		p.linger = 300 * time.Millisecond
	}
	return p
}

// round runs one child until its disk is gone, and mounts that again.
func (s *cutState) round(round int) error {
	plan := s.plan()
	cmd := s.loop.Child(s.dir, round)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	listener := newCutListener(s.want, plan.lines)
	go listener.listen(stdout)
	var after <-chan time.Time
	if plan.after > 0 {
		after = time.After(plan.after)
	}
	hang := time.NewTimer(cutHang)
	defer hang.Stop()
	select {
	case <-after:
	case <-listener.due:
	case <-listener.done:
	case <-hang.C:
		err = errors.New("the child hangs")
		cmd.Process.Signal(syscall.SIGQUIT) // it says where
	}
	err = errors.Join(err, s.cut(plan, listener, stdin))
	cmd.Process.Kill()
	<-listener.done
	if died := cmd.Wait(); err == nil && !killed(died) {
		err = fmt.Errorf("F4: the child has ended by itself: %w", died)
	}
	s.stats.Cuts++
	if !listener.ready {
		s.stats.Early++
	}
	if err := errors.Join(err, listener.err); err != nil {
		return err
	}
	s.want.cut()
	return s.mount.Reboot()
}

// killed says whether a process was killed, and has not ended by itself: storage errors do not end the host process.
func killed(err error) bool {
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signal() == syscall.SIGKILL
}

// cut writes something back and cuts the power, and then tells the child that it has no disk.
func (s *cutState) cut(plan cutPlan, l *cutListener, stdin io.Writer) error {
	ranges := 0
	for range plan.ranges {
		n, err := s.mount.writeBack(s.r)
		ranges += n
		if err != nil {
			return err
		}
	}
	s.stats.Ranges += ranges
	s.did = fmt.Sprintf("%+v, %d ranges written back", plan, ranges)
	l.cut()
	if err := s.mount.Cut(plan.kind); err != nil {
		return err
	}
	io.WriteString(stdin, "dead\n") // a child that is gone already is noticed later
	time.Sleep(plan.linger)
	return nil
}

// A cutListener takes down what a child says, until its end of the pipe is closed.
type cutListener struct {
	want  *cutWant
	lines int           // until the cut is due
	due   chan struct{} // closed when it is, or when something is wrong
	done  chan struct{} // closed when the child says nothing more

	mu struct {
		sync.Mutex
		cut bool // a line counts only if it is a lie, or makes less certain what must be there
	}

	// Set when done is closed.
	ready bool
	err   error
}

func newCutListener(w *cutWant, lines int) *cutListener {
	return &cutListener{want: w, lines: lines, due: make(chan struct{}), done: make(chan struct{})}
}

// cut is called right before the power is.
func (l *cutListener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.cut = true
}

// listen runs in a goroutine of its own.
func (l *cutListener) listen(r io.Reader) {
	defer close(l.done)
	l.err = readKillLines(r, func(k killLine) error {
		if l.lines--; l.lines == 0 {
			close(l.due)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.mu.cut && !strings.HasPrefix(k.text, cutLie) && !relaxes(k) {
			return nil
		}
		if k.kind == "error" {
			return errors.New(k.text)
		}
		l.ready = l.ready || k.kind == "ready"
		return l.want.heard(k)
	})
	if l.err != nil {
		if l.lines > 0 {
			close(l.due)
		}
		io.Copy(io.Discard, r) // else the child waits for its reader
	}
}
