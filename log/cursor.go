package rlog

import (
	"errors"
	"fmt"
	"io"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

var errMissing = errors.New("the segment ends before its last offset")

// Cursor reads a log's batches in order. It takes no lock and holds a reference to the segment that it stands in. A
// Cursor is for one goroutine; it must be closed.
type Cursor struct {
	l    *Log
	next int64 // offset that is wanted next
	s    *segment
	pos  int64 // in s, at the start of a batch
	due  int64 // base offset of that batch, -1 if it is not known
	w    walker
}

// NewCursor returns a cursor at offset. Whether the offset exists shows at Next.
func (l *Log) NewCursor(offset int64) *Cursor { return &Cursor{l: l, next: offset} }

// Offset is the offset that the next batch has to hold or follow.
func (c *Cursor) Offset() int64 { return c.next }

// MoveTo moves the cursor.
func (c *Cursor) MoveTo(offset int64) {
	if offset != c.next {
		c.leave()
		c.next = offset
	}
}

// Close lets go of the segment. The bytes that Next returned are gone.
func (c *Cursor) Close() { c.leave() }

func (c *Cursor) leave() {
	if c.s != nil {
		c.s.release()
		c.s = nil
	}
	c.w = walker{buf: c.w.buf}
}

// File is the file that the bytes of the last batch lie in, for vfs.Catch.
func (c *Cursor) File() vfs.File { return c.w.f }

// Next returns the next batch below the offset limit, with its checksum verified, and moves behind it: the batch that holds the wanted
// offset (its first records may lie before), or the first behind it. At limit, or at the log end if that is lower, it returns
// nil and no error.
//
// The bytes alias the file or the cursor's buffer, are valid until the next call and must not be changed; touching
// them can fault, so their user defers vfs.Catch(vfs.Arm(), c.File(), &err).
//
// Errors: kafka.ErrOffsetOutOfRange; *kafka.CorruptError, after which the cursor has not moved.
func (c *Cursor) Next(limit int64) (batch.Batch, error) {
	// The log end is loaded before the segment's state: see segment.sealedSize.
	limit = min(limit, c.l.end.Load())
	if c.next >= limit {
		if end := c.l.end.Load(); c.next > end {
			return nil, c.outOfRange(end)
		}
		return nil, nil
	}
	b, err := c.step(limit)
	if err != nil {
		c.leave()
	}
	return b, err
}

func (c *Cursor) outOfRange(end int64) error {
	return fmt.Errorf("%s: %w: offset %d, the log holds %d to %d", c.l.o.TopicPartition, kafka.ErrOffsetOutOfRange, c.next, c.l.start.Load(), end)
}

func (c *Cursor) step(limit int64) (b batch.Batch, err error) {
	if c.s == nil {
		if err := c.enter(limit); err != nil {
			return nil, err
		}
	}
	for c.atSegmentEnd() {
		s := c.l.segments.Load().after(c.s.base)
		if s == nil {
			return nil, nil
		}
		if s.base > c.next {
			return nil, c.l.corrupt(c.s, c.next, s.base, c.pos, errMissing)
		}
		if err := c.stand(s); err != nil {
			return nil, err
		}
	}
	return c.read(limit)
}

func (c *Cursor) atSegmentEnd() bool {
	size := c.s.sealedSize.Load()
	return size >= 0 && c.pos >= size
}

// enter stands in the segment that holds the wanted offset, at a batch that is not behind it.
func (c *Cursor) enter(limit int64) (err error) {
	if c.next < c.l.start.Load() {
		return c.outOfRange(limit)
	}
	s := c.l.segments.Load().find(c.next)
	if s == nil {
		return c.outOfRange(limit)
	}
	if err := c.stand(s); err != nil {
		return err
	}
	defer vfs.Catch(vfs.Arm(), c.w.f, &err)
	c.pos, c.due, err = c.l.position(s, &c.w, c.next)
	return err
}

// stand goes to the start of s.
func (c *Cursor) stand(s *segment) error {
	if !s.acquire() {
		return fmt.Errorf("%s: %w", c.l.o.TopicPartition, kafka.ErrClosed)
	}
	c.leave()
	c.s, c.pos, c.due = s, 0, s.base
	f, err := s.open(c.l.o.FS)
	if err != nil {
		return err
	}
	c.w.f, c.w.limit = f, s.written.Load()
	return nil
}

// read walks to the wanted batch and checks it.
func (c *Cursor) read(limit int64) (b batch.Batch, err error) {
	c.w.limit = c.s.written.Load()
	defer vfs.Catch(vfs.Arm(), c.w.f, &err)
	for {
		if c.pos >= c.w.limit {
			return nil, c.l.corrupt(c.s, c.next, limit, c.pos, errMissing)
		}
		h, n, err := c.w.header(c.pos)
		if err != nil {
			return nil, c.damaged(err)
		}
		// Offset and leader epoch are outside the checksum.
		base, last := h.BaseOffset(), h.LastOffset()
		if c.due >= 0 && base != c.due || last < base || h.LeaderEpoch() < 0 || h.LeaderEpoch() > c.l.o.Epoch {
			return nil, c.damaged(fmt.Errorf("%w: it says offsets %d to %d of epoch %d, offset %d is due", batch.ErrHeader, base, last, h.LeaderEpoch(), c.due))
		}
		if last < c.next {
			c.pos, c.due = c.pos+n, last+1
			continue
		}
		b, err := c.w.bytes(c.pos, n)
		if err != nil {
			return nil, err
		}
		if err := batch.Check(b); err != nil {
			return nil, c.damaged(err)
		}
		c.pos += n
		c.next, c.due = last+1, last+1
		return b, nil
	}
}

// damaged says which offsets the bytes at the cursor make unreadable.
func (c *Cursor) damaged(reason error) error {
	if !isDamage(reason) && !errors.Is(reason, io.ErrUnexpectedEOF) {
		return reason
	}
	to := c.l.end.Load()
	if n := c.l.segments.Load().after(c.s.base); n != nil {
		to = n.base
	}
	if _, base, err := resync(c.w.f, c.pos, c.w.limit, c.next); err == nil && base >= 0 {
		to = base
	}
	return c.l.corrupt(c.s, c.next, to, c.pos, reason)
}
