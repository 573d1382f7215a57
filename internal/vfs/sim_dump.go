package vfs

import (
	"encoding/gob"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
)

// dumpVersion changes when images of one version cannot be read by another.
const dumpVersion = 1

// simDump is a Sim in a file. Nodes are referred to by their index, -1 for none; a page that is durable as it is
// live is written once.
type simDump struct {
	Version   int
	NextID    uint64
	Limit     int64
	RNG       []byte
	WriteBack float64
	Nodes     []dumpNode // the root first
	Queue     [][]dumpEdit
	Busy      []int
}

type dumpNode struct {
	ID                  uint64
	Parent              int
	Name                string
	Dir                 bool
	Live, Durable       []dumpEntry
	Size, DurableSize   int64
	Pages, DurablePages []dumpPage
	Dirty, Lost         map[int32]uint8
	Changed             int64 // 0 in older images
}

type dumpEntry struct {
	Name string
	Node int
}

type dumpPage struct {
	I    int32
	Same bool // as the live one
	Data []byte
}

type dumpEdit struct {
	Dir  int
	Name string
	Node int
}

// Dump writes the disk, with all that is pending, to w. As after Crash no file is open in it. LoadSim reads it.
func (s *Sim) Dump(w io.Writer) error {
	c := s.Crash()
	st := c.mu.simState
	d := simDump{Version: dumpVersion, NextID: st.nextID, Limit: st.limit, WriteBack: c.mu.writeBack}
	var err error
	if d.RNG, err = c.mu.rng.MarshalBinary(); err != nil {
		return err
	}
	ix := &dumpIndex{at: make(map[*simNode]int)}
	ix.add(st.root)
	for _, op := range st.queue {
		for _, e := range op.edits {
			ix.add(e.dir)
			ix.add(e.node)
		}
	}
	for _, n := range ix.nodes {
		d.Nodes = append(d.Nodes, ix.node(n))
	}
	for _, op := range st.queue {
		var edits []dumpEdit
		for _, e := range op.edits {
			edits = append(edits, dumpEdit{ix.of(e.dir), e.name, ix.of(e.node)})
		}
		d.Queue = append(d.Queue, edits)
	}
	for _, n := range st.busy {
		if i := ix.of(n); i >= 0 {
			d.Busy = append(d.Busy, i)
		}
	}
	return gob.NewEncoder(w).Encode(&d)
}

// dumpIndex numbers the nodes in an order that depends on names alone.
type dumpIndex struct {
	nodes []*simNode
	at    map[*simNode]int
}

func (ix *dumpIndex) of(n *simNode) int {
	if i, ok := ix.at[n]; ok {
		return i
	}
	return -1
}

func (ix *dumpIndex) add(n *simNode) {
	if n == nil || ix.of(n) >= 0 {
		return
	}
	ix.at[n] = len(ix.nodes)
	ix.nodes = append(ix.nodes, n)
	ix.add(n.parent)
	for _, entries := range []map[string]*simNode{n.live, n.durable} {
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			ix.add(entries[name])
		}
	}
}

func (ix *dumpIndex) node(n *simNode) dumpNode {
	d := dumpNode{ID: n.id, Parent: ix.of(n.parent), Name: n.name, Dir: n.dir, Size: n.size,
		DurableSize: n.durableSize, Dirty: n.dirty, Lost: n.lost, Live: ix.entries(n.live), Changed: n.changed}
	if n.durable != nil {
		d.Durable = ix.entries(n.durable)
	}
	for i, p := range n.pages {
		if p != nil {
			d.Pages = append(d.Pages, dumpPage{I: int32(i), Data: p.data[:]})
		}
	}
	for i, p := range n.durablePages {
		if p == nil {
			continue
		}
		dp := dumpPage{I: int32(i), Same: p == pageAt(n.pages, int32(i))}
		if !dp.Same {
			dp.Data = p.data[:]
		}
		d.DurablePages = append(d.DurablePages, dp)
	}
	return d
}

func (ix *dumpIndex) entries(entries map[string]*simNode) []dumpEntry {
	d := make([]dumpEntry, 0, len(entries))
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		d = append(d, dumpEntry{name, ix.of(entries[name])})
	}
	return d
}

// LoadSim reads what Dump wrote.
func LoadSim(r io.Reader) (s *Sim, err error) {
	var d simDump
	if err := gob.NewDecoder(r).Decode(&d); err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	if d.Version != dumpVersion || len(d.Nodes) == 0 {
		return nil, fmt.Errorf("image: version %d, want %d", d.Version, dumpVersion)
	}
	defer func() {
		if r := recover(); r != nil { // an index that leads nowhere
			s, err = nil, fmt.Errorf("image: %v", r)
		}
	}()
	st := &simState{nextID: d.NextID, limit: d.Limit, owner: new(simOwner)}
	nodes := make([]*simNode, len(d.Nodes))
	for i := range nodes {
		nodes[i] = new(simNode)
	}
	at := func(i int) *simNode {
		if i < 0 {
			return nil
		}
		return nodes[i]
	}
	for i, dn := range d.Nodes {
		nodes[i].load(dn, at)
	}
	st.root = nodes[0]
	for _, edits := range d.Queue {
		op := new(simDirOp)
		for _, e := range edits {
			op.edits = append(op.edits, simEdit{at(e.Dir), e.Name, at(e.Node)})
			at(e.Dir).queued++
		}
		st.queue = append(st.queue, op)
	}
	for _, i := range d.Busy {
		nodes[i].busy = true
		st.busy = append(st.busy, nodes[i])
	}
	for _, n := range nodes {
		for _, c := range n.live {
			if c.links++; c.links == 1 {
				st.used += c.size
			}
		}
		if n.dir && n.queued > 0 && n.durable == nil { // gob does not tell empty from missing
			n.durable = make(map[string]*simNode)
		}
	}
	s = newSim(st, 0)
	s.mu.rng, s.mu.writeBack = new(rand.PCG), d.WriteBack
	if err := s.mu.rng.UnmarshalBinary(d.RNG); err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	return s, nil
}

func (n *simNode) load(d dumpNode, at func(int) *simNode) {
	n.id, n.parent, n.name, n.dir = d.ID, at(d.Parent), d.Name, d.Dir
	n.size, n.durableSize, n.dirty, n.lost, n.changed = d.Size, d.DurableSize, d.Dirty, d.Lost, d.Changed
	if n.dir {
		n.live = loadEntries(d.Live, at)
		if len(d.Durable) > 0 {
			n.durable = loadEntries(d.Durable, at)
		}
	}
	var unshared bool
	for _, p := range d.Pages {
		n.pages = setPage(n.pages, &unshared, p.I, loadPage(p.Data))
	}
	for _, p := range d.DurablePages {
		page := pageAt(n.pages, p.I)
		if !p.Same {
			page = loadPage(p.Data)
		}
		n.durablePages = setPage(n.durablePages, &unshared, p.I, page)
	}
}

func loadEntries(d []dumpEntry, at func(int) *simNode) map[string]*simNode {
	entries := make(map[string]*simNode, len(d))
	for _, e := range d {
		entries[e.Name] = at(e.Node)
	}
	return entries
}

func loadPage(data []byte) *simPage {
	p := new(simPage)
	copy(p.data[:], data)
	return p
}
