package rlog

import (
	"errors"
	"fmt"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// errMoved says that a segment has been taken out of the row, or that the log is closed.
var errMoved = errors.New("segment was taken away")

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

	Check Checking
}

// Checking says when the checksum of a batch is checked.
type Checking int8

const (
	// CheckOnce: when it is first read since the log was opened.
	CheckOnce Checking = iota
	// CheckAlways: each time, since somebody may have truncated the file.
	CheckAlways
	// CheckLater: by the cursor's user. Until then nothing of the batch is to be believed but its length and place.
	CheckLater
	// CheckWithin: by the cursor's user if the wanted offset is not the batch's first, else as CheckOnce.
	CheckWithin
)

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

// Next returns the next batch below the offset limit, with its checksum verified (see Check), and moves behind it: the batch that holds the wanted
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
	if err := c.l.Err(); err != nil {
		// What a sync that failed has left in memory need not be on the disk, and memory may be taken from it at any time.
		limit = min(limit, c.l.durable.Load())
		if c.next >= limit {
			return nil, err
		}
	}
	if c.next >= limit {
		if end := c.l.end.Load(); c.next > end {
			return nil, c.outOfRange(end)
		}
		return nil, nil
	}
	if c.next < c.l.start.Load() {
		c.leave()
		return nil, c.outOfRange(c.l.end.Load())
	}
	b, err := c.step(limit)
	for err != nil && c.goesOn(err) {
		c.leave()
		if c.next >= limit {
			return nil, nil
		}
		b, err = c.step(limit)
	}
	if errors.Is(err, errMoved) {
		err = c.l.closedErr()
	}
	if err != nil {
		c.leave()
		if c.l.o.ReadOnly && errors.Is(c.l.Refresh(), kafka.ErrUnknownTopic) {
			return nil, fmt.Errorf("%s: %w", c.l.o.TopicPartition, kafka.ErrUnknownTopic)
		}
		if c.next < c.l.start.Load() { // it has moved under the reader, and what was wanted is gone
			return nil, c.outOfRange(c.l.end.Load())
		}
		if ferr := c.l.Err(); ferr != nil && c.next >= c.l.durable.Load() {
			return nil, ferr // it failed under the reader, and may have been cut by now
		}
	}
	return b, err
}

// goesOn reports whether the cursor, after this error of a step, tries again: in the row as it is now, or behind damage that has been given up.
func (c *Cursor) goesOn(err error) bool {
	if errors.Is(err, errMoved) {
		return !c.l.closing.Load()
	}
	var d *kafka.CorruptError
	if c.l.overtaken(err, c.l.segments.Load(), c.s) {
		return true
	}
	if !errors.As(err, &d) || !c.l.Skipped(max(d.From, c.next), d.To) || d.To <= c.next {
		return false
	}
	c.next = d.To
	return true
}

// Unreadable says that the records of the batch that Next has returned last cannot be read, though its checksum is right; nil if that has been given up (Skip).
func (c *Cursor) Unreadable(b batch.Batch, reason error) error {
	if c.l.Skipped(b.BaseOffset(), b.LastOffset()+1) {
		return nil
	}
	return c.l.corrupt(c.s, b.BaseOffset(), b.LastOffset()+1, c.pos-int64(len(b)), reason)
}

func (c *Cursor) outOfRange(end int64) error {
	return fmt.Errorf("%s: %w: offset %d, the log holds %d to %d", c.l.o.TopicPartition, kafka.ErrOffsetOutOfRange, c.next, c.l.start.Load(), end)
}

// missing says that the segments before the first one that is there are lost.
func (l *Log) missing(r *row, offset int64) error {
	s := r.after(offset)
	return l.corrupt(s, offset, s.base, 0, errors.New("the segment before this one is missing"))
}

func (c *Cursor) step(limit int64) (b batch.Batch, err error) {
	if c.s == nil {
		if err := c.enter(limit); err != nil {
			return nil, err
		}
	}
	if c.atSegmentEnd() {
		if err := c.leap(limit); err != nil {
			return nil, err
		}
	}
	return c.read(limit)
}

// leap goes from the end of a segment to the one that holds the wanted offset. Since the cursor entered it, the row may have got segments that begin elsewhere.
func (c *Cursor) leap(limit int64) error {
	r := c.l.segments.Load()
	s := r.find(c.next)
	if s != nil && s.base == c.next {
		return c.stand(s)
	}
	if s == nil || s != c.s {
		c.leave()
		return c.enter(limit)
	}
	n := r.after(s.base)
	return c.l.corrupt(s, c.next, n.base, c.pos, errMissing)
}

func (c *Cursor) atSegmentEnd() bool {
	size := c.s.sealedSize.Load()
	return size >= 0 && c.pos >= size
}

// enter stands in the segment that holds the wanted offset, at a batch that is not behind it.
func (c *Cursor) enter(limit int64) (err error) {
	r := c.l.segments.Load()
	s := r.find(c.next)
	if s == nil {
		return c.l.missing(r, c.next)
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
		return errMoved
	}
	c.leave()
	c.s, c.pos, c.due = s, 0, s.base
	f, err := s.open()
	if err != nil {
		if !c.l.segments.Load().has(s) {
			return errMoved
		}
		return err
	}
	c.w.f, c.w.limit = f, s.written.Load()
	return nil
}

// read walks to the wanted batch. Every batch on the way is checked: its header says where the next one is.
func (c *Cursor) read(limit int64) (b batch.Batch, err error) {
	c.w.limit = c.s.written.Load()
	defer vfs.Catch(vfs.Arm(), c.w.f, &err)
	for {
		if c.pos >= c.w.limit {
			return nil, c.l.corrupt(c.s, c.next, min(limit, c.s.end(limit)), c.pos, errMissing)
		}
		b, err := c.check()
		if err == nil {
			err = c.believe(b)
		}
		if isDamage(err) {
			if err := c.passOver(err); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		next := b.LastOffset() + 1
		c.pos += int64(len(b))
		c.due = next
		if next > c.next {
			c.next = next
			return b, nil
		}
	}
}

// check returns the batch at the cursor, with its checksum checked as Check says.
func (c *Cursor) check() (batch.Batch, error) {
	if c.Check != CheckAlways {
		h, n, err := c.w.header(c.pos)
		if err != nil {
			return nil, err
		}
		// What is passed over on the way to the wanted offset is checked here: its user does not see it.
		left := h.LastOffset() >= c.next && (c.Check == CheckLater || c.Check == CheckWithin && h.BaseOffset() < c.next)
		if left || c.s.checked.has(c.pos) {
			return c.w.bytes(c.pos, n)
		}
	}
	b, err := c.w.whole(c.pos)
	if err == nil {
		c.s.checked.add(c.pos, int64(len(b)))
	}
	return b, err
}

// believe checks what the checksum does not cover.
func (c *Cursor) believe(b batch.Batch) error {
	base, epoch := b.BaseOffset(), b.LeaderEpoch()
	if c.due >= 0 && base != c.due || epoch < 0 || epoch > c.l.o.Epoch {
		return fmt.Errorf("%w: it says offset %d of epoch %d, offset %d of at most epoch %d is due", batch.ErrHeader, base, epoch, c.due, c.l.o.Epoch)
	}
	return nil
}

// passOver goes to the first whole batch behind the damage at the cursor, if the wanted offset is not hidden by it; else it says what is.
func (c *Cursor) passOver(reason error) error {
	from := c.next
	if c.due >= 0 {
		from = c.due
	}
	end := c.s.end(c.l.end.Load())
	at, base, err := c.w.resync(c.pos, from+1, end)
	if err != nil {
		return err
	}
	if base >= 0 && base <= c.next {
		c.pos, c.due = at, base
		return nil
	}
	if base < 0 {
		base = end
	}
	return c.l.corrupt(c.s, from, base, c.pos, reason)
}
