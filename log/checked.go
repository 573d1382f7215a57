package rlog

import "sync/atomic"

// checked is the stretch of a segment whose batches have had their checksums checked since the log was opened: once is enough, and a scan that
// computes no checksum is twice as fast. The positions, below 2 GiB, are packed as from<<32 | to. Batches that this
// process has appended are checked when they are first read, as all others are.
type checked struct{ packed atomic.Uint64 }

// has reports whether the batch at pos has been checked.
func (c *checked) has(pos int64) bool {
	v := c.packed.Load()
	return uint64(pos) >= v>>32 && uint64(pos) < v&(1<<32-1)
}

// add notes that n bytes at pos have been checked, if they adjoin the stretch or begin it. Of two readers at one moment one may lose: its batch is
// checked once more.
func (c *checked) add(pos, n int64) {
	v := c.packed.Load()
	from, to := v>>32, v&(1<<32-1)
	begin, end := uint64(pos), uint64(pos+n)
	switch {
	case from == to:
		from, to = begin, end
	case begin == to:
		to = end
	case end == from:
		from = begin
	default:
		return
	}
	c.packed.CompareAndSwap(v, from<<32|to)
}
