package vfs

import (
	"math/bits"
	"path"
	"time"
)

const (
	simPageSize   = 4096
	simSectorSize = 512
	simSectors    = simPageSize / simSectorSize
)

// simPage is 4 KiB of a file. Only the node in whose live table it is may write to it, and only while owner is that
// node's present token; once it is durable, or part of an image, it is immutable.
type simPage struct {
	owner *simOwner
	data  [simPageSize]byte
}

// simOwner is a token that marks pages of a disk since its last image. It has a size, so that each has an address.
type simOwner struct{ _ byte }

// simNode is a file or a directory. A nil page is one of zeros.
type simNode struct {
	id     uint64 // in order of creation: draws are per node, so that they do not depend on the order of a map
	parent *simNode
	name   string
	dir    bool
	busy   bool // in simState.busy
	links  int  // names that live directories have for it
	opens  int

	// A directory. durable is nil if nothing is pending: then it is what live is.
	live, durable map[string]*simNode
	queued        int  // pending edits
	gone          bool // removed, and its removal is durable

	// A file.
	size, durableSize     int64
	pages, durablePages   []*simPage
	shared, durableShared bool            // with an image: the table must be copied before it changes
	dirty, lost           map[int32]uint8 // sectors that the next sync writes, and those that a failed one dropped
	changed               int64           // when bytes or size last were, in nanoseconds
}

func (n *simNode) info(name string) Info {
	if n.dir {
		return Info{Name: name, Dir: true}
	}
	return Info{Name: name, Size: n.size, ModTime: time.Unix(0, n.changed)}
}

func (n *simNode) path() string {
	if n.parent == nil {
		return n.name
	}
	return path.Join(n.parent.path(), n.name)
}

func (n *simNode) pending() bool {
	return !n.dir && (len(n.dirty) > 0 || n.size != n.durableSize)
}

func pageAt(t []*simPage, i int32) *simPage {
	if int(i) < len(t) {
		return t[i]
	}
	return nil
}

// setPage puts p into a table, which is copied first if it is shared.
func setPage(t []*simPage, shared *bool, i int32, p *simPage) []*simPage {
	if int(i) >= len(t) {
		if p == nil {
			return t
		}
		grown := make([]*simPage, int(i)+1, max(int(i)+1, 2*len(t)))
		copy(grown, t)
		t, *shared = grown, false
	} else if *shared {
		t, *shared = append([]*simPage(nil), t...), false
	}
	t[i] = p
	return t
}

// own returns page i of the live table for writing.
func (n *simNode) own(i int32, o *simOwner) *simPage {
	p := pageAt(n.pages, i)
	if p != nil && p.owner == o {
		return p
	}
	fresh := &simPage{owner: o}
	if p != nil {
		fresh.data = p.data
	}
	n.pages = setPage(n.pages, &n.shared, i, fresh)
	return fresh
}

// sectorsOf returns the mask of the sectors of a page that bytes from..to touch.
func sectorsOf(from, to int64) uint8 {
	first, last := from/simSectorSize, (to-1)/simSectorSize
	return uint8(1<<(last+1)-1) &^ uint8(1<<first-1)
}

func (n *simNode) mark(i int32, mask uint8) {
	if n.dirty == nil {
		n.dirty = make(map[int32]uint8)
	}
	n.dirty[i] |= mask
	n.unlose(i, mask) // what is written again will be written out again
}

func (n *simNode) unlose(i int32, mask uint8) {
	if left := n.lost[i] &^ mask; left != 0 {
		n.lost[i] = left
	} else {
		delete(n.lost, i)
	}
}

func (n *simNode) write(p []byte, off int64, o *simOwner) {
	for len(p) > 0 {
		i, in := int32(off/simPageSize), off%simPageSize
		c := copy(n.own(i, o).data[in:], p)
		n.mark(i, sectorsOf(in, in+int64(c)))
		p, off = p[c:], off+int64(c)
	}
}

// read fills p from a table.
func readPages(t []*simPage, p []byte, off int64) {
	for len(p) > 0 {
		in := off % simPageSize
		c := min(len(p), int(simPageSize-in))
		if pg := pageAt(t, int32(off/simPageSize)); pg != nil {
			copy(p[:c], pg.data[in:])
		} else {
			clear(p[:c])
		}
		p, off = p[c:], off+int64(c)
	}
}

// shrink drops the live bytes from size on. Where the disk has something else than zeros there, or may have, the
// sectors stay dirty.
func (n *simNode) shrink(size int64, o *simOwner) {
	first := int32(size / simPageSize)
	if in := size % simPageSize; in > 0 {
		if pageAt(n.pages, first) != nil {
			clear(n.own(first, o).data[in:])
		}
		if pageAt(n.pages, first) != nil || pageAt(n.durablePages, first) != nil {
			n.mark(first, sectorsOf(in, simPageSize))
		}
		first++
	}
	if int(first) < len(n.pages) {
		n.pages = n.pages[:first:first]
	}
	for i := range n.dirty {
		if i >= first && pageAt(n.durablePages, i) == nil {
			delete(n.dirty, i)
		}
	}
	for i := range n.lost {
		if i >= first {
			delete(n.lost, i)
		}
	}
	for i := first; int(i) < len(n.durablePages); i++ {
		if n.durablePages[i] != nil {
			n.mark(i, 1<<simSectors-1)
		}
	}
}

// flush makes the sectors in mask of page i durable.
func (n *simNode) flush(i int32, mask uint8) {
	n.durablePages = setPage(n.durablePages, &n.durableShared, i, n.merge(i, mask))
	if left := n.dirty[i] &^ mask; left != 0 {
		n.dirty[i] = left
	} else {
		delete(n.dirty, i)
	}
}

// merge returns page i with the sectors in mask as they are live, and the others as they are durable.
func (n *simNode) merge(i int32, mask uint8) *simPage {
	live, durable := pageAt(n.pages, i), pageAt(n.durablePages, i)
	if (n.dirty[i]|n.lost[i])&^mask == 0 { // nothing else differs
		if live != nil {
			live.owner = nil // immutable from now on
		}
		return live
	}
	return mix(durable, live, mask)
}

// mix returns a page with the sectors in mask from over and the others from base.
func mix(base, over *simPage, mask uint8) *simPage {
	if mask == 0 || base == over {
		return base
	}
	p := new(simPage)
	if base != nil {
		p.data = base.data
	}
	for ; mask != 0; mask &= mask - 1 {
		at := bits.TrailingZeros8(mask) * simSectorSize
		if over != nil {
			copy(p.data[at:at+simSectorSize], over.data[at:])
		} else {
			clear(p.data[at : at+simSectorSize])
		}
	}
	return p
}

// sync makes everything that is dirty durable.
func (n *simNode) sync() {
	for i, mask := range n.dirty {
		n.flush(i, mask)
	}
	n.durableSize = n.size
}

// lose is a sync that failed: what was dirty now counts as clean, and the disk does not have it.
func (n *simNode) lose() {
	if n.lost == nil && len(n.dirty) > 0 {
		n.lost = make(map[int32]uint8, len(n.dirty))
	}
	for i, mask := range n.dirty {
		n.lost[i] |= mask
	}
	clear(n.dirty)
}

// dropCache shows what the disk has where the cache is clean.
func (n *simNode) dropCache() {
	for i, mask := range n.lost {
		p := mix(pageAt(n.pages, i), pageAt(n.durablePages, i), mask)
		n.pages = setPage(n.pages, &n.shared, i, p)
	}
	clear(n.lost)
}

// settle makes a drawn share of what is pending durable.
func (n *simNode) settle(seed uint64, share float64) {
	for i, mask := range n.dirty {
		if kept := drawSectors(seed, uint64(i), share, mask); kept != 0 {
			n.flush(i, kept)
		}
	}
	if drawn(hash(seed, 1<<40), share) {
		n.durableSize = n.size
	}
}

// hash, drawn and drawSectors draw without a state, so that the order in which a map is walked does not matter.
func hash(a, b uint64) uint64 {
	x := a ^ (b+0x9e3779b97f4a7c15)*0xbf58476d1ce4e5b9
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func unit(h uint64) float64 { return float64(h>>11) / (1 << 53) }

func drawn(h uint64, share float64) bool { return unit(h) < share }

func drawSectors(seed, page uint64, share float64, mask uint8) (kept uint8) {
	if share >= 1 {
		return mask
	}
	if share <= 0 {
		return 0
	}
	for m := mask; m != 0; m &= m - 1 {
		bit := m & -m
		if drawn(hash(seed, page<<8|uint64(bit)), share) {
			kept |= bit
		}
	}
	return kept
}
