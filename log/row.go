package rlog

import "github.com/google/btree"

// row is an immutable snapshot of the segments, ordered by base offset.
type row struct {
	tree   *btree.BTreeG[*segment]
	active *segment // nil before the first append
}

func newRow() *row {
	return &row{tree: btree.NewG(8, func(a, b *segment) bool { return a.base < b.base })}
}

// with returns a row that also has s, as its active segment.
func (r *row) with(s *segment) *row {
	t := r.tree.Clone()
	t.ReplaceOrInsert(s)
	return &row{tree: t, active: s}
}

// without returns a row that lacks these sealed segments.
func (r *row) without(gone []*segment) *row {
	t := r.tree.Clone()
	for _, s := range gone {
		t.Delete(s)
	}
	return &row{tree: t, active: r.active}
}

// swapped returns a row in which s stands for these sealed segments.
func (r *row) swapped(old []*segment, s *segment) *row {
	next := r.without(old)
	next.tree.ReplaceOrInsert(s)
	return next
}

// has reports whether s itself is in the row.
func (r *row) has(s *segment) bool {
	x, ok := r.tree.Get(s)
	return ok && x == s
}

// same reports whether o has the same segments.
func (r *row) same(o *row) bool {
	same := r.tree.Len() == o.tree.Len()
	r.tree.Ascend(func(s *segment) bool { same = same && o.has(s); return same })
	return same
}

// find returns the segment that holds offset: the last whose base is not above it.
func (r *row) find(offset int64) (s *segment) {
	r.tree.DescendLessOrEqual(&segment{base: offset}, func(x *segment) bool { s = x; return false })
	return s
}

// after returns the segment behind the one with this base offset, or nil.
func (r *row) after(base int64) (s *segment) {
	r.tree.AscendGreaterOrEqual(&segment{base: base + 1}, func(x *segment) bool { s = x; return false })
	return s
}

// sealed returns the segments before the active one, oldest first.
func (r *row) sealed() []*segment {
	ss := make([]*segment, 0, r.tree.Len())
	r.tree.Ascend(func(s *segment) bool {
		if s != r.active {
			ss = append(ss, s)
		}
		return true
	})
	return ss
}
