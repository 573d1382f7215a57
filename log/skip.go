package rlog

import (
	"cmp"
	"slices"
)

// Range is a range of offsets, To exclusive.
type Range struct{ From, To int64 }

// Skip lets readers pass over damage within r in silence. What is not damaged there is read as before.
func (l *Log) Skip(r Range) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rs := append(slices.Clone(*l.skips.Load()), r)
	l.setSkips(rs)
}

// setSkips keeps ranges in order, those that touch as one.
func (l *Log) setSkips(rs []Range) {
	slices.SortFunc(rs, func(a, b Range) int { return cmp.Compare(a.From, b.From) })
	var out []Range
	for _, r := range rs {
		if n := len(out); n > 0 && r.From <= out[n-1].To {
			out[n-1].To = max(out[n-1].To, r.To)
		} else {
			out = append(out, r)
		}
	}
	l.skips.Store(&out)
}

// Skipped reports whether damage in [from, to) is passed over.
func (l *Log) Skipped(from, to int64) bool {
	for _, r := range *l.skips.Load() {
		if r.From <= from && to <= r.To {
			return true
		}
	}
	return false
}
