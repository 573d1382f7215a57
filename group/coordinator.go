package group

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/meta"
	"github.com/runnelmq/runnel/internal/wheel"
)

// Limits of foreign members' requests, as Kafka has them by default.
const (
	// MinSessionTimeout and MaxSessionTimeout bound what a foreign member may ask for (group.min.session.timeout.ms, group.max.session.timeout.ms).
	MinSessionTimeout = 6 * time.Second
	MaxSessionTimeout = 30 * time.Minute
	// newMemberTimeout is how long a foreign member that has never been in a generation is believed to wait in its Join.
	newMemberTimeout = 5 * time.Minute
)

// Options configures a Coordinator.
type Options struct {
	Store  *meta.Store
	Wheel  *wheel.Wheel
	Logger *slog.Logger
	// Now is the wall clock in ms.
	Now func() int64
	// Since is asked when a group gets its first member; see Joined.Since.
	Since func() int64
	// InitialDelay is how long the first rebalance of a group waits for more members, if the first one is foreign (group.initial.rebalance.delay.ms).
	InitialDelay time.Duration
	// MaxSize is how many members a group may have; 0: any number (group.max.size).
	MaxSize int
}

// Coordinator keeps the groups. Its methods are safe for concurrent use. Callbacks run on the goroutine of the call or timer that leads to them, without locks.
type Coordinator struct {
	o       Options
	opening atomic.Bool
	mu      struct {
		sync.Mutex
		groups map[string]*group // that have members, or whose state could not be written
		closed bool
	}
}

// New returns a coordinator. Of the members that groups had when the store was last open, native ones that are not static are gone with their process; the
// others have their session timeout to come back.
func New(o Options) (*Coordinator, error) {
	c := &Coordinator{o: o}
	c.mu.groups = map[string]*group{}
	c.opening.Store(true)
	defer c.opening.Store(false)
	all, err := o.Store.Groups()
	if err != nil {
		return nil, err
	}
	for name, r := range all {
		if len(r.Members) > 0 {
			g := c.restore(name, r)
			g.mu.Lock()
			g.revive()
			g.unlock()
		}
	}
	return c, nil
}

// Close ends the coordinator: whoever waits gets kafka.ErrClosed, and so does every later call.
func (c *Coordinator) Close() {
	c.mu.Lock()
	c.mu.closed = true
	groups := c.mu.groups
	c.mu.groups = nil
	c.mu.Unlock()
	for _, g := range groups {
		g.mu.Lock()
		g.close()
		g.unlock()
	}
}

// enter returns a group with its lock held; the caller ends with unlock. One that is not there is made if make is set, else it is nil without an error.
func (c *Coordinator) enter(name string, make bool) (*group, error) {
	if name == "" {
		return nil, fmt.Errorf("%w: the name is empty", kafka.ErrInvalidGroup)
	}
	for {
		g, err := c.find(name, make)
		if g == nil || err != nil {
			return nil, err
		}
		g.mu.Lock()
		if !g.gone {
			return g, nil
		}
		g.unlock() // it has left the map since
	}
}

func (c *Coordinator) find(name string, make bool) (*group, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil, kafka.ErrClosed
	}
	if g := c.mu.groups[name]; g != nil || !make {
		return g, nil
	}
	r, _, err := c.o.Store.Group(name)
	if err != nil {
		return nil, err
	}
	return c.restore(name, r), nil
}

// restore makes a group of what was written and puts it into the map; c.mu is held, or nobody else knows c.
func (c *Coordinator) restore(name string, r meta.Group) *group {
	g := newGroup(c, name)
	g.load(r)
	c.mu.groups[name] = g
	return g
}

// forget takes a group that is empty out of the map; g.mu is held.
func (c *Coordinator) forget(g *group) {
	g.gone = true
	g.timer.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.groups[g.name] == g {
		delete(c.mu.groups, g.name)
	}
}

// newID returns a member id that nobody has had.
func newID(prefix string) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return prefix + "-" + hex.EncodeToString(b[:])
}

// alarm is a timer that may be put off without touching the wheel: it looks at its time when it fires.
type alarm struct {
	w  *wheel.Wheel
	t  wheel.Timer
	at time.Time // zero: off
}

// init makes fn, which is called with the lock that guards the alarm held by lock, what the alarm does.
func (a *alarm) init(w *wheel.Wheel, lock sync.Locker, fn func()) {
	a.w = w
	a.t.Init(func() {
		lock.Lock()
		defer lock.Unlock()
		if a.at.IsZero() {
			return
		}
		if left := time.Until(a.at); left > 0 {
			a.w.Schedule(&a.t, left)
			return
		}
		a.at = time.Time{}
		fn()
	})
}

// set makes the alarm go off after d.
func (a *alarm) set(d time.Duration) {
	earlier := a.at.IsZero() || time.Now().Add(d).Before(a.at)
	a.at = time.Now().Add(d)
	if earlier { // else the timer that is pending finds out
		a.w.Schedule(&a.t, d)
	}
}

func (a *alarm) cancel() {
	if !a.at.IsZero() {
		a.at = time.Time{}
		a.w.Cancel(&a.t)
	}
}
