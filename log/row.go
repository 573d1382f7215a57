package rlog

import "github.com/google/btree"

// row is an immutable snapshot of the segments, ordered by base offset.
type row struct {
	tree   *btree.BTreeG[place]
	active *segment // nil before the first append
}

// place is a segment under its base offset, so that one is looked for without making one.
type place struct {
	base int64
	s    *segment
}

func newRow() *row {
	less := func(a, b place) bool { return a.base < b.base }
	// Rows change too seldom to keep nodes for the next change.
	return &row{tree: btree.NewWithFreeListG(8, less, btree.NewFreeListG[place](0))}
}

// with returns a row that also has s, as its active segment.
func (r *row) with(s *segment) *row {
	t := r.tree.Clone()
	t.ReplaceOrInsert(place{s.base, s})
	return &row{tree: t, active: s}
}

// without returns a row that lacks these sealed segments.
func (r *row) without(gone []*segment) *row {
	t := r.tree.Clone()
	for _, s := range gone {
		t.Delete(place{base: s.base})
	}
	return &row{tree: t, active: r.active}
}

// swapped returns a row in which s stands for these sealed segments.
func (r *row) swapped(old []*segment, s *segment) *row {
	next := r.without(old)
	next.tree.ReplaceOrInsert(place{s.base, s})
	return next
}

func (r *row) len() int { return r.tree.Len() }

// each calls fn with the segments, oldest first.
func (r *row) each(fn func(s *segment)) {
	r.tree.Ascend(func(p place) bool { fn(p.s); return true })
}

// first returns the oldest segment, or nil.
func (r *row) first() *segment {
	p, _ := r.tree.Min()
	return p.s
}

// at returns the segment with this base offset, or nil.
func (r *row) at(base int64) *segment {
	p, _ := r.tree.Get(place{base: base})
	return p.s
}

// has reports whether s itself is in the row.
func (r *row) has(s *segment) bool { return r.at(s.base) == s }

// same reports whether o has the same segments.
func (r *row) same(o *row) bool {
	same := r.len() == o.len()
	r.each(func(s *segment) { same = same && o.has(s) })
	return same
}

// find returns the segment that holds offset: the last whose base is not above it.
func (r *row) find(offset int64) (s *segment) {
	if r.active != nil && r.active.base <= offset {
		return r.active
	}
	r.tree.DescendLessOrEqual(place{base: offset}, func(p place) bool { s = p.s; return false })
	return s
}

// before returns the segment n places before the one with this base offset, or nil.
func (r *row) before(base int64, n int) (s *segment) {
	r.tree.DescendLessOrEqual(place{base: base}, func(p place) bool {
		if n--; n < 0 {
			s = p.s
		}
		return s == nil
	})
	return s
}

// after returns the segment behind the one with this base offset, or nil.
func (r *row) after(base int64) (s *segment) {
	r.tree.AscendGreaterOrEqual(place{base: base + 1}, func(p place) bool { s = p.s; return false })
	return s
}

// sealed returns the segments before the active one, oldest first.
func (r *row) sealed() []*segment {
	ss := make([]*segment, 0, r.len())
	r.each(func(s *segment) {
		if s != r.active {
			ss = append(ss, s)
		}
	})
	return ss
}
