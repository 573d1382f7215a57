package vfs

import (
	"io/fs"
	"maps"
	"slices"
	"syscall"
	"time"
)

// simState is what an image has of its own: the tree, and what of it is pending.
type simState struct {
	root   *simNode
	nextID uint64
	owner  *simOwner // marks the pages that may be written in place
	queue  []*simDirOp
	busy   []*simNode // files with something pending, and some that had
	used   int64      // sum of the sizes of files that are linked or open
	limit  int64      // what used may grow to, -1 for no limit
}

// simDirOp is one operation on one directory, or a rename between two; all its edits happen, or none.
type simDirOp struct{ edits []simEdit }

// simEdit gives name in dir to node, or to nobody.
type simEdit struct {
	dir  *simNode
	name string
	node *simNode
}

func newSimState() *simState {
	st := &simState{limit: -1, owner: new(simOwner)}
	st.root = st.newNode(true)
	return st
}

func (st *simState) newNode(dir bool) *simNode {
	st.nextID++
	n := &simNode{id: st.nextID, dir: dir, changed: time.Now().UnixNano()}
	if dir {
		n.live = make(map[string]*simNode)
	}
	return n
}

// parent returns the directory that name is in and its last element, "" for the root itself.
func (st *simState) parent(op, name string) (*simNode, string, error) {
	elems := split(name)
	if len(elems) == 0 {
		return st.root, "", nil
	}
	dir := st.root
	for _, e := range elems[:len(elems)-1] {
		n := dir.live[e]
		if n == nil {
			return nil, "", pathError(op, name, fs.ErrNotExist)
		}
		if !n.dir {
			return nil, "", pathError(op, name, syscall.ENOTDIR)
		}
		dir = n
	}
	return dir, elems[len(elems)-1], nil
}

func (st *simState) find(op, name string) (*simNode, error) {
	dir, base, err := st.parent(op, name)
	if err != nil || base == "" {
		return dir, err
	}
	if n := dir.live[base]; n != nil {
		return n, nil
	}
	return nil, pathError(op, name, fs.ErrNotExist)
}

func (st *simState) findDir(op, name string) (*simNode, error) {
	n, err := st.find(op, name)
	if err == nil && !n.dir {
		err = pathError(op, name, syscall.ENOTDIR)
	}
	return n, err
}

// add puts a new node where name is free.
func (st *simState) add(op, name string, dir bool) (*simNode, error) {
	in, base, err := st.parent(op, name)
	if err != nil {
		return nil, err
	}
	if base == "" || in.live[base] != nil {
		return nil, pathError(op, name, fs.ErrExist)
	}
	n := st.newNode(dir)
	st.perform(simEdit{in, base, n})
	return n, nil
}

func (st *simState) remove(op, name string) error {
	n, err := st.find(op, name)
	if err != nil {
		return err
	}
	if n == st.root || n.dir && len(n.live) > 0 {
		return pathError(op, name, syscall.ENOTEMPTY)
	}
	in, base, _ := st.parent(op, name)
	st.perform(simEdit{in, base, nil})
	return nil
}

func (st *simState) rename(oldname, newname string) error {
	n, err := st.find("rename", oldname)
	if err != nil {
		return err
	}
	to, newbase, err := st.parent("rename", newname)
	if err != nil {
		return err
	}
	there := to.live[newbase]
	if there == n {
		return nil
	}
	if err := mayReplace(oldname, newname, n.dir, there != nil, there != nil && there.dir); err != nil {
		return err
	}
	from, oldbase, _ := st.parent("rename", oldname)
	st.perform(simEdit{from, oldbase, nil}, simEdit{to, newbase, n})
	return nil
}

// link gives a file a second name.
func (st *simState) link(oldname, newname string) error {
	n, err := st.find("link", oldname)
	if err != nil {
		return err
	}
	to, base, err := st.parent("link", newname)
	switch {
	case err != nil:
		return err
	case n.dir:
		return pathError("link", oldname, fs.ErrPermission)
	case base == "" || to.live[base] != nil:
		return pathError("link", newname, fs.ErrExist)
	}
	st.perform(simEdit{to, base, n})
	return nil
}

// perform does an operation in the live directories and queues it for the durable ones.
func (st *simState) perform(edits ...simEdit) {
	var gone []*simNode
	for _, e := range edits {
		if e.dir.durable == nil {
			e.dir.durable = maps.Clone(e.dir.live)
		}
		e.dir.queued++
		if old := e.dir.live[e.name]; old != nil {
			old.links--
			gone = append(gone, old)
		}
		e.apply(e.dir.live)
		if e.node != nil {
			e.node.parent, e.node.name = e.dir, e.name
			e.node.links++
		}
	}
	st.queue = append(st.queue, &simDirOp{edits})
	for _, n := range gone { // only now: a rename takes one name from its node and gives it another
		st.free(n)
	}
}

// free gives the space of a file back that nobody can reach any more.
func (st *simState) free(n *simNode) {
	if n.dir || n.links > 0 || n.opens > 0 {
		return
	}
	st.used -= n.size
	if n.busy {
		n.busy = false
		st.busy = slices.DeleteFunc(st.busy, func(b *simNode) bool { return b == n })
	}
}

// needed marks the operations of the queue that must become durable with those of dirs before index end: the earlier
// ones of the same directories, and because a rename belongs to two, so on.
func (st *simState) needed(end int, dirs ...*simNode) []bool {
	marks := make([]bool, len(st.queue))
	for i := end - 1; i >= 0; i-- {
		op := st.queue[i]
		if !slices.ContainsFunc(op.edits, func(e simEdit) bool { return slices.Contains(dirs, e.dir) }) {
			continue
		}
		marks[i] = true
		for _, e := range op.edits {
			if !slices.Contains(dirs, e.dir) {
				dirs = append(dirs, e.dir)
			}
		}
	}
	return marks
}

// commit makes the marked operations durable.
func (st *simState) commit(marks []bool) {
	removed := false
	kept := st.queue[:0:0]
	for i, op := range st.queue {
		if marks[i] {
			removed = op.commit() || removed
		} else {
			kept = append(kept, op)
		}
	}
	st.queue = kept
	// What is pending in a directory that is gone for good would stay so for ever.
	for removed {
		removed = false
		st.queue = slices.DeleteFunc(st.queue, func(op *simDirOp) bool {
			if slices.ContainsFunc(op.edits, func(e simEdit) bool { return !e.dir.gone }) {
				return false
			}
			removed = op.commit() || removed
			return true
		})
	}
}

// commit makes one operation durable, and says whether a directory is gone with it.
func (op *simDirOp) commit() (removed bool) {
	for _, e := range op.edits {
		if old := e.dir.durable[e.name]; old != nil && old.dir && old.links == 0 && e.node == nil {
			old.gone, removed = true, true
		}
		e.apply(e.dir.durable)
		if e.dir.queued--; e.dir.queued == 0 {
			e.dir.durable = nil
		}
	}
	return removed
}

func (e simEdit) apply(entries map[string]*simNode) {
	if e.node != nil {
		entries[e.name] = e.node
	} else {
		delete(entries, e.name)
	}
}

// grow accounts for a file that is to have the given size.
func (st *simState) grow(op string, n *simNode, size int64) error {
	if size <= n.size {
		return nil
	}
	if st.limit >= 0 && st.used+size-n.size > st.limit {
		return errNoSpace(op, n.path())
	}
	st.setSize(n, size)
	return nil
}

func (st *simState) setSize(n *simNode, size int64) {
	st.used += size - n.size
	n.size = size
	st.touch(n)
}

// touch notes that n has changed, and remembers it for write-back.
func (st *simState) touch(n *simNode) {
	n.changed = time.Now().UnixNano()
	if !n.busy {
		n.busy = true
		st.busy = append(st.busy, n)
	}
}
