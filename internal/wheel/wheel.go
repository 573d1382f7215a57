package wheel

import (
	"container/heap"
	"math"
	"sync"
	"time"
)

const (
	tick  = time.Millisecond
	slots = 20

	// moveBatch is how many timers move down while the lock is held once: about 20 µs with cold memory.
	moveBatch = 256

	never = math.MaxInt64
	awake = math.MinInt64
)

// Options configures a Wheel. The zero value is good.
type Options struct {
	// OnPanic receives the value of a panic in a timer's function, on the goroutine that panicked and with its stack
	// still in place (debug.Stack shows it). A panic in OnPanic is dropped. Default nil: panics are dropped.
	OnPanic func(any)
}

// Timer is a function to be called later. It may be embedded, must not be copied once used, and belongs to the wheel
// that first scheduled it. It can be scheduled again at any time, also from its own function; that never allocates.
type Timer struct {
	fn func() // set before the first Schedule

	// The rest is guarded by the mu of the wheel.
	next, prev *Timer // neighbours in the list that holds the timer; nil while it is not pending
	when       int64  // the tick at which it is due
}

// NewTimer returns a Timer that calls f when it fires.
func NewTimer(f func()) *Timer { return &Timer{fn: f} }

// Init makes t call f when it fires. It is for timers that are embedded, and comes before their first Schedule.
func (t *Timer) Init(f func()) { t.fn = f }

// A list is a ring of timers. Timers have no reference to their list: unlinking needs the neighbours only.
type list struct{ root Timer }

func (l *list) init()       { l.root.next, l.root.prev = &l.root, &l.root }
func (l *list) empty() bool { return l.root.next == &l.root }

func (l *list) push(t *Timer) {
	t.prev, t.next = l.root.prev, &l.root
	t.prev.next, l.root.prev = t, t
}

// take moves all timers of o to the end of l.
func (l *list) take(o *list) {
	if o.empty() {
		return
	}
	first, last := o.root.next, o.root.prev
	first.prev, last.next = l.root.prev, &l.root
	first.prev.next, l.root.prev = first, last
	o.init()
}

func (t *Timer) unlink() {
	t.prev.next, t.next.prev = t.next, t.prev
	t.next, t.prev = nil, nil
}

// A level is one ring of buckets.
type level struct {
	width   int64 // ticks that a bucket covers
	now     int64 // the wheel's tick, rounded down to a multiple of width
	buckets [slots]bucket
}

type bucket struct {
	list
	level  *level
	begin  int64 // the first tick that it covers
	queued bool  // in the queue, which it may be without any timer
}

func newLevel(width, now int64) *level {
	l := &level{width: width, now: now - now%width}
	for i := range l.buckets {
		l.buckets[i].level = l
		l.buckets[i].init()
	}
	return l
}

// queue is a heap of buckets, the one that begins first on top.
type queue []*bucket

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].begin < q[j].begin }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(b any)        { *q = append(*q, b.(*bucket)) }
func (q *queue) Pop() any {
	old := *q
	b := old[len(old)-1]
	*q = old[:len(old)-1]
	return b
}

// Wheel fires timers. Its methods are safe for concurrent use, also from the functions of its timers (except Close).
type Wheel struct {
	onPanic func(any)
	base    time.Time     // tick 0
	wake    chan struct{} // of capacity 1: the clock has something nearer to wait for, or the wheel is closed
	worker  func()        // work, as a value: starting a worker makes no closure
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		now    int64 // the tick up to which buckets have begun
		levels []*level
		queue  queue

		// sleep is the tick that the clock sleeps to: never without any bucket, awake while it is not asleep. Only
		// a bucket that begins earlier has to wake it.
		sleep int64

		ready    list // timers that are due, waiting for a worker
		starting bool // a worker was started and has not looked at ready yet
		closed   bool
	}
}

// New returns a running wheel, to be closed after use.
func New(o Options) *Wheel {
	w := newWheel(o)
	w.running.Go(w.clock)
	return w
}

// newWheel returns a wheel without its clock.
func newWheel(o Options) *Wheel {
	w := &Wheel{onPanic: o.OnPanic, base: time.Now(), wake: make(chan struct{}, 1)}
	w.worker = w.work
	w.mu.ready.init()
	w.mu.levels = []*level{newLevel(1, 0)}
	w.mu.sleep = awake
	return w
}

// Close stops the wheel and returns when its goroutines have ended, the functions that are running included: a timer's
// function must not call it. A timer that is pending never fires; it stays pending, as does one that is scheduled later.
// Close is idempotent.
func (w *Wheel) Close() {
	w.mu.Lock()
	w.mu.closed = true
	w.mu.Unlock()
	w.notify()
	w.running.Wait()
}

// Schedule arms t to fire once, at the first tick at which d has passed; a d of zero or less has passed already. If t is
// pending, the new time takes the place of the old one. If its function is running, t fires again, possibly while
// it still runs.
func (w *Wheel) Schedule(t *Timer, d time.Duration) {
	now := time.Since(w.base)
	when := deadline(now, d)

	w.mu.Lock()
	if t.next != nil {
		t.unlink()
	}
	t.when = when
	// Keep up with the time, so that t goes as low as it can; unless a bucket has begun meanwhile, then the clock will.
	if n := int64(now / tick); n > w.mu.now && (len(w.mu.queue) == 0 || w.mu.queue[0].begin > n) {
		w.advance(n)
	}
	w.place(t)
	nearer := len(w.mu.queue) > 0 && w.mu.queue[0].begin < w.mu.sleep
	if nearer {
		w.mu.sleep = awake // the others need not wake it too
	}
	w.mu.Unlock()

	if nearer {
		w.notify()
	}
}

// Cancel disarms t. It reports true if t was pending and will not fire, and false if t was not armed or its function has
// been called or is about to be.
func (w *Wheel) Cancel(t *Timer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.next == nil {
		return false
	}
	t.unlink()
	return true
}

// deadline is the first tick at which d has passed since now.
func deadline(now, d time.Duration) int64 {
	if d <= 0 {
		return int64(now / tick)
	}
	if d > math.MaxInt64-now-tick {
		d = math.MaxInt64 - now - tick
	}
	return int64((now + d + tick - 1) / tick)
}

// advance moves the wheel's tick to n. No bucket in the queue begins before n.
func (w *Wheel) advance(n int64) {
	w.mu.now = n
	for _, l := range w.mu.levels {
		if n < l.now+l.width {
			return // nor has a wider bucket passed
		}
		l.now = n - n%l.width
	}
}

// place puts t into the bucket for its tick, or makes it ready if that has come.
func (w *Wheel) place(t *Timer) {
	if t.when <= w.mu.now {
		w.mu.ready.push(t)
		w.start()
		return
	}
	l := w.mu.levels[0]
	for i := 1; t.when >= l.now+l.width*slots; i++ {
		if i == len(w.mu.levels) {
			w.mu.levels = append(w.mu.levels, newLevel(l.width*slots, w.mu.now))
		}
		l = w.mu.levels[i]
	}
	n := t.when / l.width
	b := &l.buckets[n%slots]
	b.push(t)
	if !b.queued {
		b.begin, b.queued = n*l.width, true
		heap.Push(&w.mu.queue, b)
	}
}

// notify wakes the clock.
func (w *Wheel) notify() {
	select {
	case w.wake <- struct{}{}:
	default: // it will wake already
	}
}

// clock moves the buckets down as they begin. It is the one goroutine of an idle wheel; Close ends it.
func (w *Wheel) clock() {
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for {
		d, ok := w.turn()
		if !ok {
			return
		}
		alarm.Stop()
		if d < never {
			alarm.Reset(d)
		}
		select {
		case <-w.wake:
		case <-alarm.C:
		}
	}
}

// turn moves down all buckets that have begun and returns how long it is until the next one begins (never without any),
// or false when the wheel is closed.
func (w *Wheel) turn() (time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.sleep = awake
	for {
		if w.mu.closed {
			return 0, false
		}
		for len(w.mu.queue) > 0 && w.mu.queue[0].empty() {
			w.drop()
		}
		if len(w.mu.queue) == 0 {
			w.mu.sleep = never
			return never, true
		}
		b, now := w.mu.queue[0], time.Since(w.base)
		if b.begin > int64(now/tick) {
			w.mu.sleep = b.begin
			return time.Duration(b.begin)*tick - now, true
		}
		w.down(b)
		// Let the others in. Buckets that they fill begin later than b, so b stays on top until it is empty.
		w.mu.Unlock()
		w.mu.Lock()
	}
}

// down moves timers of b, the first bucket in the queue, which has begun, and drops b when none is left.
func (w *Wheel) down(b *bucket) {
	if b.begin > w.mu.now {
		w.advance(b.begin)
	}
	if b.level.width == 1 {
		w.mu.ready.take(&b.list)
		w.start()
	}
	for i := 0; i < moveBatch && !b.empty(); i++ {
		t := b.root.next
		t.unlink()
		w.place(t)
	}
	if b.empty() {
		w.drop()
	}
}

// drop removes the first bucket from the queue.
func (w *Wheel) drop() { heap.Pop(&w.mu.queue).(*bucket).queued = false }
