package rlog

import (
	"fmt"
	"math"

	"github.com/runnelmq/runnel/internal/batch"
)

// tracked is a cursor that reads on while the log is compacted.
type tracked struct {
	c    *Cursor
	from int64
	at   int64  // next offset
	gone []bool // by offset, from base on, when it began
	seen []bool // by offset, from base on
	base int64
}

func (c *cleanRun) track() {
	start, end := c.l.StartOffset(), c.l.EndOffset()
	from := start + c.r.Int64N(end-start+1)
	if c.r.IntN(2) == 0 {
		from = start
	}
	t := &tracked{c: c.l.NewCursor(from), at: from, from: from, base: from, gone: make([]bool, end-from), seen: make([]bool, end-from)}
	for o := from; o < end; o++ {
		t.gone[o-from] = c.recs[o].gone
	}
	if len(c.tracked) > 5 {
		c.tracked[0].c.Close()
		c.tracked = c.tracked[1:]
	}
	c.tracked = append(c.tracked, t)
}

// read reads n batches on.
func (t *tracked) read(c *cleanRun, n int) error {
	for range n {
		if t.at < c.l.StartOffset() {
			t.at, t.from = c.l.StartOffset(), c.l.StartOffset()
			t.c.MoveTo(t.at)
		}
		b, err := t.c.Next(c.l.EndOffset())
		if err != nil {
			return fmt.Errorf("A12: a cursor on its way at %d: %w", t.at, err)
		}
		if b == nil {
			return nil
		}
		if b.BaseOffset() > t.at || b.LastOffset() < t.at {
			return fmt.Errorf("A12: a cursor at %d found the batch from %d to %d", t.at, b.BaseOffset(), b.LastOffset())
		}
		var buf []byte
		plain, err := new(batch.Decompressor).Plain(b, &buf, math.MaxInt32)
		if err != nil {
			return err
		}
		it := plain.Iter()
		for r := (batch.Record{}); it.Next(&r); {
			if r.Offset < t.at {
				continue
			}
			if err := c.same(&r); err != nil {
				return err
			}
			o := int(r.Offset - t.base)
			if o < len(t.gone) && t.gone[o] {
				return fmt.Errorf("A12: a cursor found record %d, which was gone when it began", r.Offset)
			}
			if o >= len(t.seen) {
				t.seen = append(t.seen, make([]bool, len(c.recs)-int(t.base)-len(t.seen))...)
			}
			t.seen[o] = true
		}
		if err := it.Err(); err != nil {
			return err
		}
		t.at = b.LastOffset() + 1
	}
	return nil
}

// end reads to the log's end: everything that is there now was seen.
func (t *tracked) end(c *cleanRun) error {
	defer t.c.Close()
	if err := t.read(c, len(c.sent)+1); err != nil {
		return err
	}
	for o := max(t.from, c.l.StartOffset()); o < c.l.EndOffset(); o++ {
		if !c.recs[o].gone && (int(o-t.base) >= len(t.seen) || !t.seen[o-t.base]) {
			return fmt.Errorf("A12: a cursor from %d has not seen record %d", t.from, o)
		}
	}
	return nil
}
