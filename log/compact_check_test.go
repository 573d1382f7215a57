package rlog

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/runnelmq/runnel/internal/batch"
)

// check reads the whole log and holds it against the model.
func (c *cleanRun) check() error {
	start, end := c.l.StartOffset(), int64(len(c.recs))
	if c.l.EndOffset() != end {
		return fmt.Errorf("A1: the log ends at %d, want %d", c.l.EndOffset(), end)
	}
	cur := c.l.NewCursor(start)
	defer cur.Close()
	due := int64(-1)
	at := start
	for at < end {
		b, err := cur.Next(end)
		if err != nil || b == nil {
			return fmt.Errorf("A12: at offset %d of %d: %d bytes, %w", at, end, len(b), err)
		}
		if due >= 0 && b.BaseOffset() != due || b.BaseOffset() > at {
			return fmt.Errorf("A12: a batch begins at %d, due is %d", b.BaseOffset(), max(due, at))
		}
		due = b.LastOffset() + 1
		if err := c.checkBatch(b); err != nil {
			return err
		}
		for err := range c.between(b, &at, due) {
			return err
		}
	}
	for o := range c.recs {
		c.recs[o].maybe = false
	}
	c.e.whole(c.l)
	return errors.Join(c.checkProducers(), c.checkTimes())
}

// checkBatch holds what a batch says of itself against the ones that were appended.
func (c *cleanRun) checkBatch(b batch.Batch) error {
	if err := batch.Check(b); err != nil {
		return fmt.Errorf("A4: batch at %d: %w", b.BaseOffset(), err)
	}
	of := c.sent[c.recs[b.BaseOffset()].batch]
	if b.Count() == 0 && b.ProducerID() < 0 {
		if to := c.sent[c.recs[b.LastOffset()].batch]; of.BaseOffset() != b.BaseOffset() || to.LastOffset() != b.LastOffset() {
			return fmt.Errorf("A12: a filler takes offsets %d to %d: parts of batches", b.BaseOffset(), b.LastOffset())
		}
		return nil
	}
	if b.BaseOffset() != of.BaseOffset() || b.LastOffset() != of.LastOffset() || b.LeaderEpoch() != of.LeaderEpoch() ||
		b.ProducerID() != of.ProducerID() || b.ProducerEpoch() != of.ProducerEpoch() || b.BaseSequence() != of.BaseSequence() {
		return fmt.Errorf("A12: the batch at %d has another header than when it was appended", of.BaseOffset())
	}
	if b.Count() > 0 && b.Codec() != of.Codec() {
		return fmt.Errorf("A12: the batch at %d has turned from %v to %v", of.BaseOffset(), of.Codec(), b.Codec())
	}
	at, dated := b.DeleteHorizon()
	want, should := c.horizon[b.BaseOffset()]
	if dated && (!should || at != want) {
		return fmt.Errorf("A12: the batch at %d has the horizon %d, want %d (%t)", b.BaseOffset(), at, want, should)
	}
	for o := b.BaseOffset(); o <= b.LastOffset() && should && !dated; o++ {
		if rec := c.recs[o]; !rec.gone && !rec.maybe && rec.value == nil && o >= c.l.StartOffset() {
			return fmt.Errorf("A12: the batch at %d with the tombstone %d has no horizon", b.BaseOffset(), o)
		}
	}
	return nil
}

// between compares the records of b from *at on with those that have to be there up to offset to.
func (c *cleanRun) between(b batch.Batch, at *int64, to int64) func(yield func(error) bool) {
	return func(yield func(error) bool) {
		var buf []byte
		plain, err := new(batch.Decompressor).Plain(b, &buf, math.MaxInt32)
		if err != nil {
			yield(err)
			return
		}
		it := plain.Iter()
		for r := (batch.Record{}); it.Next(&r); {
			if err := c.absent(at, r.Offset); err != nil {
				yield(err)
				return
			}
			if r.Offset < *at {
				continue // before the wanted one
			}
			if err := c.same(&r); err != nil {
				yield(err)
				return
			}
			if c.recs[r.Offset].gone {
				yield(fmt.Errorf("A12: record %d should be gone", r.Offset))
				return
			}
			*at++
		}
		if err := it.Err(); err != nil {
			yield(err)
			return
		}
		if err := c.absent(at, to); err != nil {
			yield(err)
		}
	}
}

// absent moves *at over records that are not in the log.
func (c *cleanRun) absent(at *int64, to int64) error {
	for ; *at < to; *at++ {
		rec := &c.recs[*at]
		rec.gone = rec.gone || rec.maybe
		if !rec.gone {
			return fmt.Errorf("A12: record %d is missing", *at)
		}
	}
	return nil
}

// same reports a record that is not what was appended at its offset.
func (c *cleanRun) same(r *batch.Record) error {
	want := c.recs[r.Offset]
	h, _ := r.Header("h")
	if !bytes.Equal(r.Key, want.key) || (r.Key == nil) != (want.key == nil) || !bytes.Equal(r.Value, want.value) || (r.Value == nil) != (want.value == nil) ||
		r.Timestamp != want.ts || string(h) != want.header {
		return fmt.Errorf("A12: record %d is %q %q at %d with header %q, want %q %q at %d with %q",
			r.Offset, r.Key, r.Value, r.Timestamp, h, want.key, want.value, want.ts, want.header)
	}
	return nil
}

// checkProducers sends the last batches of each producer again.
func (c *cleanRun) checkProducers() error {
	for id, bs := range c.last {
		for _, b := range bs[max(0, len(bs)-remembered):] {
			again := batch.Batch(bytes.Clone(b))
			again.SetOffset(-7, -7)
			a, err := c.l.Append(again)
			if err != nil || !a.Duplicate || a.Base != b.BaseOffset() || a.Last != b.LastOffset() {
				return fmt.Errorf("C1: producer %d sent %d to %d again: %+v, %v", id, b.BaseOffset(), b.LastOffset(), a, err)
			}
		}
	}
	return nil
}

// checkTimes looks for times.
func (c *cleanRun) checkTimes() error {
	for range 4 {
		at := c.r.Int64N(c.now + 1500)
		limit := c.r.Int64N(int64(len(c.recs)) + 1)
		got, ok, err := c.l.OffsetForTime(at, limit)
		if err != nil {
			return fmt.Errorf("A13: %w", err)
		}
		want := int64(-1)
		for o := c.l.StartOffset(); o < limit; o++ {
			if rec := c.recs[o]; !rec.gone && rec.ts >= at {
				want = o
				break
			}
		}
		if ok != (want >= 0) || ok && (got.Offset != want || got.Timestamp != c.recs[want].ts) {
			return fmt.Errorf("A13: the first record at %d below %d is %+v (%t), want %d", at, limit, got, ok, want)
		}
	}
	return nil
}

// checkDirt holds what Dirty says against the batch at which the next pass begins.
func (c *cleanRun) checkDirt(clean bool) error {
	d := c.l.Dirty(c.now, 0)
	if (d.Dirty == 0) != (d.Oldest < 0) || clean && d.Dirty > 0 {
		return fmt.Errorf("it is clean (%t), and there is %+v", clean, d)
	}
	if d.Dirty == 0 {
		return nil
	}
	cur := c.l.NewCursor(max(c.l.cleaned.Load(), c.l.StartOffset()))
	defer cur.Close()
	if b, err := cur.Next(c.l.EndOffset()); err != nil || b.MaxTimestamp() != d.Oldest {
		return fmt.Errorf("there is %+v, the first dirty batch is of %d, %v", d, b.MaxTimestamp(), err)
	}
	return nil
}

// scan returns the offsets that are there, from an offset on.
func (c *cleanRun) scan(from int64) (map[int64]bool, error) {
	recs := map[int64]bool{}
	cur := c.l.NewCursor(from)
	defer cur.Close()
	for {
		b, err := cur.Next(c.l.EndOffset())
		if b == nil || err != nil {
			return recs, err
		}
		var buf []byte
		plain, err := new(batch.Decompressor).Plain(b, &buf, math.MaxInt32)
		if err != nil {
			return nil, err
		}
		it := plain.Iter()
		for r := (batch.Record{}); it.Next(&r); {
			if err := c.same(&r); err != nil {
				return nil, err
			}
			if r.Offset >= from {
				recs[r.Offset] = true
			}
		}
	}
}
