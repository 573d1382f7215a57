package vfs

import (
	"math"
	"os"
	"sync"
	"sync/atomic"
)

// A page that is stored to for the first time faults, which costs as much as encoding the records in it. One helper
// goroutine per disk takes those faults ahead of the writers.
//
// It must not take too many: a populated page is dirty, and the next sync writes it, used or not. So the window ahead
// of a writer starts small, doubles only when the writer has outrun the helper, and is held to an eighth of what is
// written between two syncs.
const (
	minWindow  = 256 << 10 // 64 KiB cost 64 callers that sync a sixth of their speed
	maxWindow  = 4 << 20   // a sync interrupts the writer for every page of it, see letGo: not more than bulk needs
	askEvery   = 1 << 20   // bytes, at most: so that the helper knows well where the writer is
	aheadStep  = 1 << 20   // most that is populated in one call: Close and Truncate may have to wait for it
	aheadAfter = 16 << 10  // a file that never gets this far is not worth it
	aheadQueue = 64
)

// aheadState is what a file's writer and the helper tell each other.
type aheadState struct {
	pos    atomic.Int64 // where to begin: what is before it is left to the writer
	target atomic.Int64 // how far it wants to have pages
	done   atomic.Int64 // how far it has them
	queued atomic.Bool
	off    atomic.Bool // populating this file failed
	synced atomic.Bool // since the writer last asked
}

// crossed is called by the writer when a write ends beyond f.cross: it has come to f.next, or there was a sync.
func (f *diskFile) crossed(end int64) {
	a := &f.ahead
	if a.off.Load() || f.fs.ahead.off.Load() {
		f.cross.Store(math.MaxInt64)
		return
	}
	if a.synced.Load() {
		a.synced.Store(false)
		f.synced(end)
	}
	if end > f.next {
		f.ask(end)
	}
	f.cross.Store(f.next)
	if a.synced.Load() { // and its store of cross may have been before ours
		f.cross.Store(0)
	}
}

// synced fits the window to what is written between syncs. The sync has made all pages read-only again: behind a bulk
// writer those ahead are made writable at once, behind a slow one that would only make the next sync larger.
func (f *diskFile) synced(end int64) {
	f.windowMax = min(max((end-f.syncMark)/8, minWindow), maxWindow)
	f.syncMark = end
	f.window = min(f.window, f.windowMax)
	if f.window > minWindow {
		f.next = 0
		f.ahead.done.Store(min(f.ahead.done.Load(), end))
		f.ahead.target.Store(0)
	}
}

// ask moves the target, and has the helper look.
func (f *diskFile) ask(end int64) {
	a := &f.ahead
	from, done := end, a.done.Load()
	if done < min(a.target.Load(), end+f.window/2) {
		f.window = min(2*f.window, f.windowMax) // asked, not done, and the writer is close
	}
	if done < end {
		from += f.window / 4 // the writer has overtaken it: in its way the helper would only be one more fault
	}
	target := min(end+f.window, f.high)
	f.next = end + min(f.window/2, askEvery)
	if f.starved = target == f.high; f.starved {
		f.next = f.high // there is nothing more to ask for until setHigh
	}
	a.pos.Store(from)
	a.target.Store(target)
	f.fs.ahead.kick(f)
}

// syncedAhead is called after a sync, beside the writer.
func (f *diskFile) syncedAhead() {
	f.ahead.synced.Store(true)
	f.cross.Store(0)
}

// letGoFrom is how many bytes behind the writer make it worth taking them out of its mapping before a sync.
const letGoFrom = 256 << 10

// letGo takes the pages that the writer has left behind out of its mapping, in one step, before they are synced. A sync makes every page
// that is mapped for writing read-only, and interrupts the writer's processor for each: appends that run beside a sync of 64 MiB took 6 µs for
// every page of it. The pages stay dirty in the page cache; one that is stored to again is mapped again.
func (f *diskFile) letGo() {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.writer.Load()
	to := f.ahead.pos.Load() &^ (f.fs.ahead.page - 1)
	if m == nil || to-f.mu.kept < letGoFrom || to > int64(len(m.data)) {
		return
	}
	unpopulate(m.data[f.mu.kept:to])
	f.mu.kept = to
}

// clamp is called under f.mu by a Truncate to size.
func (a *aheadState) clamp(size int64) {
	a.target.Store(min(a.target.Load(), size))
	a.done.Store(min(a.done.Load(), size))
	a.pos.Store(min(a.pos.Load(), size))
}

// populateStep does the helper's next piece of work on f and says whether there is more.
func (f *diskFile) populateStep() (more bool) {
	a := &f.ahead
	a.queued.Store(false) // before target is read: whoever moves it later queues f again
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.writer.Load()
	if m == nil || a.off.Load() {
		return false
	}
	target := a.target.Load()
	from := max(a.done.Load(), a.pos.Load()) &^ (f.fs.ahead.page - 1)
	to := min(from+aheadStep, target, int64(len(m.data)))
	if from >= to {
		a.done.Store(max(a.done.Load(), target))
		return false
	}
	if err := populate(m.data[from:to]); err != nil {
		a.off.Store(true)
		if isNoPopulate(err) {
			f.fs.ahead.off.Store(true)
		}
		return false
	}
	a.done.Store(to)
	return to < target
}

// faultAhead is the helper: one goroutine, started by the first file that asks, ended by stop.
type faultAhead struct {
	queue chan *diskFile
	quit  chan struct{}
	off   atomic.Bool // the kernel cannot do it
	page  int64       // its page size
	mu    struct {
		sync.Mutex
		running, stopped bool
	}
	wg sync.WaitGroup
}

func (h *faultAhead) init() {
	h.queue = make(chan *diskFile, aheadQueue)
	h.quit = make(chan struct{})
	h.off.Store(!canPopulate)
	h.page = int64(os.Getpagesize())
}

// kick asks for work on f, without waiting. A full queue drops the request: the writer then takes its faults itself.
func (h *faultAhead) kick(f *diskFile) {
	if h.off.Load() || f.ahead.queued.Swap(true) || !h.start() {
		return
	}
	select {
	case h.queue <- f:
	default:
		f.ahead.queued.Store(false)
	}
}

func (h *faultAhead) start() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.mu.running && !h.mu.stopped {
		h.mu.running = true
		h.wg.Add(1)
		go h.run()
	}
	return !h.mu.stopped
}

func (h *faultAhead) stop() {
	h.mu.Lock()
	if !h.mu.stopped {
		h.mu.stopped = true
		close(h.quit)
	}
	h.mu.Unlock()
	h.wg.Wait()
}

// run takes the files in turn, a step of each.
func (h *faultAhead) run() {
	defer h.wg.Done()
	var turn []*diskFile
	for {
		if len(turn) == 0 {
			select {
			case f := <-h.queue:
				turn = append(turn, f)
			case <-h.quit:
				return
			}
		}
		select {
		case f := <-h.queue:
			turn = append(turn, f)
			continue
		case <-h.quit:
			return
		default:
		}
		f := turn[0]
		turn = append(turn[:0], turn[1:]...)
		if f.populateStep() {
			turn = append(turn, f)
		}
	}
}
