package group

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/internal/meta"
	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/internal/wheel"
)

const (
	groupName = "g"
	session   = 10 * time.Second // of the actors, unless they say else
	rebalance = 60 * time.Second
	moment    = time.Millisecond // a tick of the wheel
)

// A bed is a coordinator in virtual time, over a simulated disk.
type bed struct {
	*testing.T
	o     Options
	disk  *vfs.Sim
	store *meta.Store
	c     *Coordinator
	calls []interface{ times() int }
}

// bubble runs fn with a bed. At the end every call has been answered once.
func bubble(t *testing.T, o Options, fn func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{T: t, o: o, disk: vfs.NewSim(1)}
		b.open()
		defer b.close()
		fn(b)
	})
}

func (b *bed) open() {
	b.Helper()
	var err error
	b.store, err = meta.Open(meta.Options{FS: b.disk, Dir: "/meta", Create: true})
	check(b, err)
	o := b.o
	o.Store, o.Wheel, o.Logger = b.store, wheel.New(wheel.Options{}), slog.New(slog.DiscardHandler)
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixMilli() }
	}
	if o.Since == nil {
		o.Since = func() int64 { return 0 }
	}
	b.c, err = New(o)
	if err != nil {
		b.end()
		b.Fatal(err)
	}
	b.o.Wheel = o.Wheel
}

// end stops what open has started.
func (b *bed) end() {
	b.Helper()
	if b.c != nil {
		b.c.Close()
	}
	b.o.Wheel.Close()
	_ = b.store.Close() // a store that has failed says so
}

func (b *bed) close() {
	b.Helper()
	b.end()
	synctest.Wait()
	for i, c := range b.calls {
		if n := c.times(); n != 1 {
			b.Errorf("call %d has been answered %d times", i, n)
		}
	}
}

// A stop is a way in which a process ends.
type stop string

const (
	inOrder stop = "in order"
	kill    stop = "kill"
	power   stop = "loss of power"
)

// restart goes on in the next process.
func (b *bed) restart(how stop) {
	b.Helper()
	synctest.Wait()
	disk := b.disk
	switch how {
	case kill:
		disk = disk.Crash()
	case power:
		disk = disk.Cut(vfs.Cut{})
	}
	b.end()
	b.disk = disk
	b.open()
}

// A call is a Join or a Sync.
type call[T any] struct {
	b    *bed
	took func(T)
	mu   struct {
		sync.Mutex
		got []T
	}
}

func newCall[T any](b *bed, took func(T)) *call[T] {
	c := &call[T]{b: b, took: took}
	b.calls = append(b.calls, c)
	return c
}

func (c *call[T]) done(v T) {
	c.mu.Lock()
	c.mu.got = append(c.mu.got, v)
	c.mu.Unlock()
	if c.took != nil {
		c.took(v)
	}
}

func (c *call[T]) times() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.got)
}

// answered reports whether the answer is there.
func (c *call[T]) answered() bool {
	synctest.Wait()
	return c.times() > 0
}

// answer returns it; it must be there.
func (c *call[T]) answer() (v T) {
	c.b.Helper()
	if !c.answered() {
		c.b.Fatal("no answer")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.got) != 1 {
		c.b.Fatalf("%d answers", len(c.mu.got))
	}
	return c.mu.got[0]
}

// waits requires that the answer is not there.
func (c *call[T]) waits() {
	c.b.Helper()
	if c.answered() {
		c.b.Fatalf("answered: %+v", c.answer())
	}
}

// An actor is a member as a test plays it.
type actor struct {
	b    *bed
	r    JoinRequest // MemberID is the one that it has got
	told atomic.Int32
	mu   struct {
		sync.Mutex
		joined Joined
	}
}

func protocols(names ...string) (ps []Protocol) {
	for _, n := range names {
		ps = append(ps, Protocol{Name: n, Metadata: []byte("says to " + n)})
	}
	return ps
}

// foreign returns a member that reaches the coordinator by a protocol.
func (b *bed) foreign(name string) *actor {
	return &actor{b: b, r: JoinRequest{Group: groupName, ClientID: name, Host: "host of " + name, ProtocolType: ConsumerProtocol,
		SessionTimeout: session, RebalanceTimeout: rebalance, Protocols: protocols("range")}}
}

// native returns one that lives in the process.
func (b *bed) native(name string) *actor {
	a := b.foreign(name)
	a.r.Notify = func() { a.told.Add(1) }
	return a
}

// as makes the actor static.
func (a *actor) as(instance string) *actor {
	a.r.InstanceID = instance
	return a
}

// again returns the next life of a static member.
func (a *actor) again() *actor {
	next := a.b.foreign(a.r.ClientID)
	next.r = a.r
	next.r.MemberID = ""
	if a.r.Notify != nil {
		next.r.Notify = func() { next.told.Add(1) }
	}
	return next
}

func (a *actor) join() *call[Joined] {
	c := newCall(a.b, func(j Joined) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if j.Err == nil {
			a.mu.joined = j
		}
	})
	if id := a.b.c.Join(a.r, c.done); id != "" {
		a.r.MemberID = id
	}
	return c
}

// joined is the last answer to a Join that was no error.
func (a *actor) joined() Joined {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.joined
}

func (a *actor) identity() Identity {
	return Identity{Group: a.r.Group, MemberID: a.r.MemberID, InstanceID: a.r.InstanceID, Generation: a.joined().Generation}
}

func (a *actor) leads() bool { j := a.joined(); return j.Leader == j.MemberID }

// share is what the leader of a generation gives to a member.
func share(generation int32, memberID string) []byte {
	return append([]byte{byte(generation)}, memberID...)
}

func shares(j Joined) map[string][]byte {
	as := map[string][]byte{}
	for _, m := range j.Members {
		as[m.ID] = share(j.Generation, m.ID)
	}
	return as
}

func (a *actor) sync() *call[Synced] {
	c := newCall[Synced](a.b, nil)
	r := SyncRequest{Identity: a.identity()}
	if a.leads() {
		r.Assignments = shares(a.joined())
	}
	a.b.c.Sync(r, c.done)
	return c
}

func (a *actor) beat() error  { return a.b.c.Heartbeat(a.identity()) }
func (a *actor) leave() error { return a.b.c.Leave(a.r.Group, a.r.MemberID, a.r.InstanceID) }

// fence asks whether the actor may commit; no error means that it could.
func (a *actor) fence() error { return a.b.fence(a.identity()) }

func (b *bed) fence(id Identity) error {
	b.Helper()
	ran := 0
	err := b.c.Fence(id, func() error { ran++; return nil })
	if ran > 1 || (ran == 1) != (err == nil) {
		b.Fatalf("ran %d times, error %v", ran, err)
	}
	return err
}

// gather has the actors join one after the other, everybody anew for each, until there is a generation of all.
func (b *bed) gather(as ...*actor) {
	b.Helper()
	for i := range as {
		calls := []*call[Joined]{as[i].join()}
		for _, a := range as[:i] {
			calls = append(calls, a.join())
		}
		for _, c := range calls {
			check(b, c.answer().Err)
		}
	}
}

// settle has the actors of a generation ask for what is theirs, the leader last.
func (b *bed) settle(as ...*actor) {
	b.Helper()
	var calls []*call[Synced]
	var leader *actor
	for _, a := range as {
		if a.leads() {
			leader = a
		} else {
			calls = append(calls, a.sync())
		}
	}
	if leader != nil {
		calls = append(calls, leader.sync())
	}
	for _, c := range calls {
		check(b, c.answer().Err)
	}
	b.is(Stable, as...)
}

// stable makes a stable group of the actors.
func (b *bed) stable(as ...*actor) {
	b.Helper()
	b.gather(as...)
	b.settle(as...)
}

func (b *bed) describe() Description {
	b.Helper()
	synctest.Wait()
	d, err := b.c.Describe(groupName)
	check(b, err)
	return d
}

// is requires a state and, in any order, who is in the group.
func (b *bed) is(s State, as ...*actor) {
	b.Helper()
	d := b.describe()
	var got, want []string
	for _, m := range d.Members {
		got = append(got, m.ID)
	}
	for _, a := range as {
		want = append(want, a.r.MemberID)
	}
	slices.Sort(got)
	slices.Sort(want)
	if d.State != s || !slices.Equal(got, want) {
		b.Fatalf("%v %q, want %v %q", d.State, got, s, want)
	}
}

// has reports whether somebody is in the group.
func (b *bed) has(a *actor) bool {
	b.Helper()
	for _, m := range b.describe().Members {
		if m.ID == a.r.MemberID {
			return true
		}
	}
	return false
}

// pass lets time go by.
func (b *bed) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// after requires that something becomes true when d has passed, and not a tick before.
func (b *bed) after(d time.Duration, what string, is func() bool) {
	b.Helper()
	b.pass(d - moment)
	if is() {
		b.Fatalf("%s: not later than %v", what, d-moment)
	}
	b.pass(moment)
	if !is() {
		b.Fatalf("%s: not after %v", what, d)
	}
}

// wants requires a kind of error, nil for none.
func (b *bed) wants(err, kind error) {
	b.Helper()
	if kind == nil && err != nil || kind != nil && !errors.Is(err, kind) {
		b.Fatalf("%v, want %v", err, kind)
	}
}

// tells requires how often the actor has been told something since it was last looked.
func (a *actor) tells(n int32) {
	a.b.Helper()
	synctest.Wait()
	if got := a.told.Swap(0); got != n {
		a.b.Fatalf("%s was told %d times, want %d", a.r.ClientID, got, n)
	}
}

func (b *bed) detach(a *actor) { b.c.Detach(groupName, a.r.MemberID) }
