package vfs

import "maps"

// Cut says what a loss of power leaves of what was not synced.
type Cut struct {
	Seed uint64
	Keep float64 // the share of sectors and operations that survive, 0 to 1; below 0 it is drawn from Seed
}

// Cut returns the disk as it is after a loss of power now and a restart: every file has its durable bytes and any subset
// of its unsynced sectors, its old or its new size; every directory has had a prefix of its unsynced operations. Nothing
// is pending there, nothing locked, and the original is as it was.
func (s *Sim) Cut(c Cut) *Sim {
	s.mu.Lock()
	defer s.mu.Unlock()
	share := c.Keep
	if share < 0 {
		// The ends are the likeliest places for a bug.
		share = min(max(unit(hash(c.Seed, 1<<41))*1.5-0.25, 0), 1)
	}
	im := &image{from: s.mu.simState, seed: c.Seed, share: share, entries: make(map[*simNode]map[string]*simNode),
		nodes: make(map[*simNode]*simNode)}
	im.to = &simState{nextID: im.from.nextID, limit: im.from.limit, owner: new(simOwner)}
	im.cutDirs()
	im.to.root = im.cut(im.from.root)
	return newSim(im.to, c.Seed)
}

// image is an image being taken.
type image struct {
	from, to *simState
	seed     uint64
	share    float64
	entries  map[*simNode]map[string]*simNode // of directories whose entries are not simply the durable ones
	nodes    map[*simNode]*simNode            // those that are done: a file may have several names
}

// cutDirs draws how many of its pending operations each directory has had. An operation happens if it is within that
// number in all its directories; one that does not happen ends the prefix in all of them.
func (im *image) cutDirs() {
	count := make(map[*simNode]int)
	for _, op := range im.from.queue {
		for _, d := range op.dirs() {
			count[d]++
		}
	}
	for d, n := range count {
		h := hash(hash(im.seed, d.id), 1<<42)
		switch {
		case im.share >= 1:
		case im.share <= 0:
			count[d] = 0
		default:
			count[d] = int(unit(h) * float64(n+1))
		}
	}
	for _, op := range im.from.queue {
		happens := true
		for _, d := range op.dirs() {
			happens = happens && count[d] > 0
		}
		for _, d := range op.dirs() {
			if count[d]--; !happens {
				count[d] = 0
			}
		}
		if !happens {
			continue
		}
		for _, e := range op.edits {
			if im.entries[e.dir] == nil {
				im.entries[e.dir] = maps.Clone(e.dir.durable)
			}
			e.apply(im.entries[e.dir])
		}
	}
}

// dirs returns the one or two directories of an operation.
func (op *simDirOp) dirs() []*simNode {
	if len(op.edits) == 2 && op.edits[0].dir != op.edits[1].dir {
		return []*simNode{op.edits[0].dir, op.edits[1].dir}
	}
	return []*simNode{op.edits[0].dir}
}

// cut returns what survives of n and of everything under it.
func (im *image) cut(n *simNode) *simNode {
	if c := im.nodes[n]; c != nil {
		return c
	}
	c := &simNode{id: n.id, dir: n.dir, changed: n.changed}
	im.nodes[n] = c
	if !n.dir {
		im.cutFile(n, c)
		im.to.used += c.size
		return c
	}
	entries := im.entries[n]
	if entries == nil {
		entries = n.durable
	}
	if entries == nil {
		entries = n.live
	}
	c.live = make(map[string]*simNode, len(entries))
	for name, child := range entries {
		cc := im.cut(child)
		c.live[name] = cc
		cc.links++
		if cc.links == 1 || name < cc.name && cc.parent == c || c.id < cc.parent.id { // one that does not depend on the order
			cc.parent, cc.name = c, name
		}
	}
	return c
}

func (im *image) cutFile(n, c *simNode) {
	seed := hash(im.seed, n.id)
	c.size = n.durableSize
	if drawn(hash(seed, 1<<40), im.share) {
		c.size = n.size
	}
	pages, shared := n.durablePages, true
	n.durableShared = true
	for i, mask := range n.dirty {
		kept := drawSectors(seed, uint64(i), im.share, mask)
		if kept == 0 {
			continue
		}
		var p *simPage
		if kept == mask {
			p = n.merge(i, mask)
		} else {
			p = mix(pageAt(n.durablePages, i), pageAt(n.pages, i), kept)
		}
		pages = setPage(pages, &shared, i, p)
	}
	if end := (c.size + simPageSize - 1) / simPageSize; int64(len(pages)) > end {
		pages = pages[:end:end]
	}
	if in := c.size % simPageSize; in > 0 && n.pending() {
		if last := int32(c.size / simPageSize); pageAt(pages, last) != nil {
			p := &simPage{data: pages[last].data}
			clear(p.data[in:])
			pages = setPage(pages, &shared, last, p)
		}
	}
	c.pages, c.durablePages = pages, pages
	c.shared, c.durableShared = true, true
	c.durableSize = c.size
}

// Crash returns the disk as it is after the end of the process now: everything live is there, what was not synced is
// not synced yet, no file is open and nothing locked. The original is as it was.
func (s *Sim) Crash() *Sim {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.mu.simState
	im := &image{from: from, nodes: make(map[*simNode]*simNode)}
	im.to = &simState{nextID: from.nextID, limit: from.limit, owner: new(simOwner)}
	from.owner = new(simOwner) // all live pages are shared now
	im.to.root = im.copy(from.root)
	for _, op := range from.queue {
		edits := make([]simEdit, len(op.edits))
		for i, e := range op.edits {
			edits[i] = simEdit{im.copy(e.dir), e.name, im.copy(e.node)}
		}
		im.to.queue = append(im.to.queue, &simDirOp{edits})
	}
	for _, n := range from.busy {
		if c := im.nodes[n]; c != nil {
			c.busy = true
			im.to.busy = append(im.to.busy, c)
		}
	}
	for _, c := range im.nodes {
		if !c.dir && c.links > 0 {
			im.to.used += c.size
		}
	}
	rng := *s.mu.rng
	c := newSim(im.to, 0)
	c.mu.rng, c.mu.writeBack = &rng, s.mu.writeBack
	return c
}

// copy returns the copy of n, and of everything that can be reached from it, live or durable.
func (im *image) copy(n *simNode) *simNode {
	if n == nil {
		return nil
	}
	if c := im.nodes[n]; c != nil {
		return c
	}
	c := new(simNode)
	im.nodes[n] = c
	n.shared, n.durableShared = true, true
	*c = *n
	c.busy, c.opens = false, 0
	c.dirty, c.lost = maps.Clone(n.dirty), maps.Clone(n.lost)
	c.parent = im.copy(n.parent)
	c.live, c.durable = im.copyEntries(n.live), im.copyEntries(n.durable)
	return c
}

func (im *image) copyEntries(entries map[string]*simNode) map[string]*simNode {
	if entries == nil {
		return nil
	}
	c := make(map[string]*simNode, len(entries))
	for name, n := range entries {
		c[name] = im.copy(n)
	}
	return c
}
