package vfs

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"
)

// Sim is a simulated disk, under the log and under pebble alike. It knows of every file and directory what is live (what
// the running process sees) and what is durable (what the last sync made safe), and between the two which sectors and
// which directory operations are pending. Cut draws from a seed which of those survive a loss of power; Crash keeps
// them all, as the end of a process does. Inject makes operations fail.
//
// Given the same seed and the same order of operations, everything repeats but Info.ModTime. Images are cheap: pages, page tables and
// directories are shared between a disk and its images until one of them writes.
type Sim struct {
	openFiles
	// ops is held by a mutating operation from beginning to end, the calls of rule and hook included, so that the
	// hook sees the state after its own operation. It comes before mu.
	ops  sync.Mutex
	rule atomic.Pointer[func(Op) error]
	hook func(Op)

	mu struct {
		sync.Mutex
		*simState
		n         int // mutating operations so far
		tracing   bool
		trace     []string
		locked    map[string]bool
		rng       *rand.PCG // for write-back
		writeBack float64
	}
}

// OpKind is the kind of an operation on a Sim.
type OpKind uint8

// Operations that change something, and then the two that only read.
const (
	OpCreate OpKind = iota + 1
	OpWrite
	OpReserve
	OpTruncate
	OpSync
	OpSyncDir
	OpRename
	OpRemove
	OpMkdir
	OpSetModTime
	OpLink // pebble only
	OpRead
	OpWindow
)

var opNames = [...]string{"", "create", "write", "reserve", "truncate", "sync", "syncdir", "rename", "remove", "mkdir",
	"setmodtime", "link", "read", "window"}

func (k OpKind) String() string { return opNames[k] }

// Op is one operation. Off is the new size of OpReserve and OpTruncate; To is the new name of OpRename and OpLink.
type Op struct {
	N    int // mutating operations of this disk up to and including this one; a read has the number of the last
	Kind OpKind
	Name string
	To   string
	Off  int64
	Len  int
}

// String is the form of Trace: "write dir/x 0+512", "rename a b", "syncdir dir".
func (o Op) String() string {
	s := o.Kind.String() + " " + o.Name
	switch o.Kind {
	case OpRename, OpLink:
		s += " " + o.To
	case OpReserve, OpTruncate:
		s += " " + strconv.FormatInt(o.Off, 10)
	case OpWrite, OpRead, OpWindow:
		s += " " + strconv.FormatInt(o.Off, 10) + "+" + strconv.Itoa(o.Len)
	}
	return s
}

// Torn is an error for Inject's rule: a write that fails after N of its bytes have been written.
type Torn struct {
	N   int
	Err error
}

func (t Torn) Error() string { return "torn after " + strconv.Itoa(t.N) + " bytes: " + t.Err.Error() }
func (t Torn) Unwrap() error { return t.Err }

// NewSim returns an empty disk. The seed decides about write-back, and nothing else: a Cut brings its own.
func NewSim(seed uint64) *Sim { return newSim(newSimState(), seed) }

func newSim(st *simState, seed uint64) *Sim {
	s := new(Sim)
	s.mu.simState = st
	s.mu.locked = make(map[string]bool)
	s.mu.rng = rand.NewPCG(seed, 0x51)
	return s
}

// OnOp has f called after every operation that changed something or tried to, also one that failed by injection, while
// no other can begin: f may read the disk and take images with Cut and Crash, and must not change it.
func (s *Sim) OnOp(f func(Op)) {
	s.ops.Lock()
	defer s.ops.Unlock()
	s.hook = f
}

// Inject has rule called before every operation, reads included; an error makes the operation fail with it. Most
// failures leave everything as it was, with two exceptions: Torn, and OpSync, which loses what it should have
// written: the pages stay visible and count as clean, so the next Sync succeeds without making them durable, and
// DropCache or a cut shows what the disk really has. A nil rule ends it. Calls for reads may be concurrent.
func (s *Sim) Inject(rule func(Op) error) {
	if rule == nil {
		s.rule.Store(nil)
		return
	}
	s.rule.Store(&rule)
}

// SetFree limits the disk to bytes more than what it holds now; growing a file beyond fails with ErrNoSpace. A negative
// number lifts the limit. Sizes are counted, as if nothing were sparse.
func (s *Sim) SetFree(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.limit = -1; bytes >= 0 {
		s.mu.limit = s.mu.used + bytes
	}
}

// SetWriteBack makes the disk write by itself: after each operation, with probability p, some of the unsynced sectors
// of one file, or some of the unsynced operations of one directory, become durable.
func (s *Sim) SetWriteBack(p float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.writeBack = p
}

// SetTrace starts or ends the recording of operations that change something.
func (s *Sim) SetTrace(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.tracing = on
}

// Trace returns what has been recorded, one operation a line, and forgets it. An operation that failed is marked
// with its error.
func (s *Sim) Trace() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.mu.trace
	s.mu.trace = nil
	return t
}

// Ops returns the number of mutating operations so far.
func (s *Sim) Ops() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.n
}

// mutate runs one mutating operation. describe is called under s.mu, do too, unless an error was injected: then fail
// is called with it, if there is one.
func (s *Sim) mutate(describe func() Op, do func() error, fail func(error) error) error {
	s.ops.Lock()
	defer s.ops.Unlock()
	s.mu.Lock()
	s.mu.n++
	rule := s.rule.Load()
	var op Op
	if rule != nil || s.hook != nil || s.mu.tracing {
		op = describe()
		op.N = s.mu.n
	}
	var injected error
	if rule != nil {
		s.mu.Unlock()
		injected = (*rule)(op)
		s.mu.Lock()
	}
	var err error
	switch {
	case injected == nil:
		err = do()
	case fail != nil:
		err = fail(injected)
	default:
		err = injected
	}
	if s.mu.tracing {
		line := op.String()
		if err != nil {
			line += ": " + err.Error()
		}
		s.mu.trace = append(s.mu.trace, line)
	}
	if s.mu.writeBack > 0 {
		s.mu.writeSome(rand.New(s.mu.rng), s.mu.writeBack)
	}
	s.mu.Unlock()
	if s.hook != nil {
		s.hook(op)
	}
	return err
}

// reading asks the rule about a read.
func (s *Sim) reading(kind OpKind, h *simHandle, off int64, n int) error {
	rule := s.rule.Load()
	if rule == nil {
		return nil
	}
	s.mu.Lock()
	op := Op{N: s.mu.n, Kind: kind, Name: h.node.path(), Off: off, Len: n}
	s.mu.Unlock()
	return (*rule)(op)
}

// Pebble returns the same disk as pebble sees it.
func (s *Sim) Pebble() pebblevfs.FS { return pebbleFS{s} }

// Free returns what SetFree has left, or a very large number.
func (s *Sim) Free(string) (free, total int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.limit < 0 {
		return Unlimited, Unlimited, nil
	}
	return max(0, s.mu.limit-s.mu.used), s.mu.limit, nil
}

// Close does nothing: a Sim has no helpers, and is still there to be cut.
func (s *Sim) Close() error { return nil }

// writeSome is write-back: of one node that has something pending, drawn by r.
func (st *simState) writeSome(r *rand.Rand, p float64) {
	if r.Float64() >= p {
		return
	}
	st.busy = slices.DeleteFunc(st.busy, func(n *simNode) bool {
		n.busy = n.pending()
		return !n.busy
	})
	i := r.IntN(len(st.busy) + 1)
	if i < len(st.busy) {
		st.busy[i].settle(r.Uint64(), r.Float64())
		return
	}
	if len(st.queue) > 0 {
		k := r.IntN(len(st.queue))
		st.commit(st.needed(k+1, st.queue[k].edits[0].dir))
	}
}
