package stream

import (
	"fmt"
	"time"

	rlog "github.com/runnelmq/runnel/log"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// track is a consumer's way through one partition. The consumer's lock guards it.
type track struct {
	p  *broker.Partition
	tp TopicPartition

	// position is what the caller sees: the offset behind the last record handed over. -1: not placed yet.
	position int64
	epoch    int32 // leader epoch of the last record handed over, -1 if none
	// next is where reading goes on: ahead of position only while Records has fetched records and not yielded them.
	next      int64
	nextEpoch int32
	committed int64 // last position that this consumer has committed or found committed; -1: there is none, unknownOffset: not asked yet
	body      int64 // offset of the first record whose loop body has not ended: automatic commits stop before it; -1: none
	fresh     bool  // the partition was made after the subscription: begin at its first record
	paused    bool
	pausedAt  time.Time
	failure   error // why polls pass the partition over, until Seek or Resume
	seeks     int   // how often the caller has set the position

	life  *broker.Life // of the partition, that cur reads
	cur   *rlog.Cursor
	lent  []*rlog.Cursor // that records of the last poll alias, though the track has left them
	batch batch.Batch    // the batch that is being handed over; nil: none
	it    batch.Iter
	kept  []byte // batch, if it is a copy or was compressed; kept for the next one
	// lost are the offsets that were handed over and are of other records now, since the partition failed.
	lost struct{ from, to int64 }
	// doubt: the file has changed under a reader, so each batch is checked before it is decoded too, and the cursor says what is wrong.
	doubt bool
}

// unknownOffset is what a track's committed offset is before anybody has asked.
const unknownOffset = -2

func newTrack(p *broker.Partition) *track {
	return &track{p: p, tp: p.TopicPartition(), position: -1, epoch: -1, body: -1, next: -1, nextEpoch: -1, committed: unknownOffset}
}

// moveTo puts the position somewhere; epoch is that of the record before, if it is known.
func (t *track) moveTo(offset int64, epoch int32) {
	t.leave()
	t.position, t.epoch = offset, epoch
	t.next, t.nextEpoch = offset, epoch
}

// seek puts the position where the caller wants it.
func (t *track) seek(offset int64) {
	t.moveTo(offset, -1)
	t.failure = nil
	t.seeks++
	t.life = nil // the position is the caller's, of no life until something is read there
}

// handOver makes everything read the caller's.
func (t *track) handOver() { t.position, t.epoch = t.next, t.nextEpoch }

// idle reports whether polls pass the partition over.
func (t *track) idle() bool { return t.paused || t.failure != nil }

// leave lets go of the log.
func (t *track) leave() {
	if t.cur != nil {
		t.cur.Close()
		t.cur = nil
	}
	t.batch = nil
}

// lend keeps the cursor open, though the track leaves it, until the next poll.
func (t *track) lend() {
	if t.cur != nil {
		t.lent = append(t.lent, t.cur)
		t.cur, t.batch = nil, nil
	}
}

// takeBack lets go of what has been lent.
func (t *track) takeBack() {
	for _, c := range t.lent {
		c.Close()
	}
	t.lent = nil
}

// place finds the position of a partition that has none: the group's committed offset, or what the reset policy says; c.mu is held.
func (c *consumer) place(t *track) error {
	if t.position >= 0 {
		return nil
	}
	if c.c.Group != "" {
		o, ok, err := c.e.b.CommittedOffset(c.c.Group, t.p)
		if err != nil {
			return err
		}
		if ok {
			t.moveTo(o.Offset, o.LeaderEpoch)
			t.committed = o.Offset
			return nil
		}
	}
	if t.fresh {
		start, _, _, err := t.p.Bounds()
		if err == nil {
			t.moveTo(start, -1)
		}
		return err
	}
	return c.reset(t, kafka.ErrNoOffset)
}

// reset places a track by the reset policy; none is the error of ResetNone.
func (c *consumer) reset(t *track, none error) error {
	var offset int64
	var err error
	switch c.c.Reset {
	case ResetEarliest:
		offset, _, _, err = t.p.Bounds()
	case ResetLatest:
		offset, err = c.end(t.p)
	default:
		return fmt.Errorf("%s: %w", t.tp, none)
	}
	if err == nil {
		t.moveTo(offset, -1)
	}
	return err
}

// fill decodes records from where the track is into dst, as many as are there; what it returns beside an error is good. room is the bytes that
// may be taken; the first record is taken whatever its size if first is set.
func (c *consumer) fill(t *track, dst []Record, room *int, first bool) (n int, err error) {
	if t.p.Topic().Deleted() {
		return 0, t.p.Gone()
	}
	if err := c.place(t); err != nil {
		return 0, err
	}
	if err := c.enterLife(t); err != nil {
		return 0, err
	}
	if !c.c.Borrow { // what is borrowed is let go of by the next poll
		defer t.spare()
	}
	if t.next == t.position {
		defer func() {
			if n == 0 && err == nil {
				t.position = t.next // over what holds no records
			}
		}()
	}
	for n < len(dst) && (*room > 0 || first && n == 0) {
		if t.batch == nil {
			if c.c.Borrow && n > 0 {
				return n, nil // the next batch would take the place of the one whose bytes have been handed out
			}
			if err := c.nextBatch(t); err != nil {
				return n, err
			}
			if t.batch == nil {
				return n, nil
			}
		}
		at, epoch, left, b := t.next, t.nextEpoch, *room, t.batch
		k, err := c.decode(t, dst[n:], room, first && n == 0)
		if !c.c.Borrow && !t.confirm(b) {
			again := err == nil || !t.doubt
			t.leave()
			t.next, t.nextEpoch, *room, t.doubt = at, epoch, left, true
			if again {
				continue
			}
			return n, t.life.ReadError(err)
		}
		n += k
		if err != nil {
			if c.c.Borrow && n > 0 {
				t.lend()
			}
			t.leave()
			return n, t.life.ReadError(err)
		}
	}
	return n, nil
}

// spare lets go of the segment if files are short. What of a batch is still to be handed over is read again, or is a copy.
func (t *track) spare() {
	switch {
	case t.cur == nil || !t.life.Tight():
	case t.batch != nil && len(t.kept) > 0 && &t.batch[0] == &t.kept[0]:
		t.cur.Close() // it goes on at its offset
	case t.next == t.position || t.batch == nil:
		t.leave()
	}
}

// enterLife goes on in the life that the partition is in. Of what has been read in an earlier one, recovery may have kept less: then reading goes on behind what it kept.
func (c *consumer) enterLife(t *track) error {
	life, err := t.p.Life()
	if err != nil || life == t.life {
		return err
	}
	if c.c.Borrow { // records of the last poll may alias it
		t.lend()
	}
	t.leave()
	if t.life != nil {
		if kept := life.KeptSince(t.life); t.position > kept {
			c.e.b.Clamped(c.c.Group, t.tp, t.position, kept)
			t.lost.from, t.lost.to = kept, t.position
			t.moveTo(kept, -1)
			t.seeks++ // what a loop has fetched and not yielded is gone too
		} else if t.next > kept {
			t.moveTo(t.position, t.epoch)
			t.seeks++
		}
	}
	t.life, t.doubt = life, false
	return nil
}

// nextBatch goes to the next batch that holds records, if there is one that may be seen.
func (c *consumer) nextBatch(t *track) error {
	limit, err := c.end(t.p)
	if err != nil {
		return err
	}
	for t.next != limit {
		if t.cur == nil {
			t.cur = t.life.NewCursor(t.next)
			switch {
			case t.doubt:
				t.cur.Check = rlog.CheckAlways
			case c.c.Borrow:
				t.cur.Check = rlog.CheckWithin // see enter
			default:
				t.cur.Check = rlog.CheckLater // see confirm
			}
		}
		b, err := t.cur.Next(limit)
		if err != nil || b == nil {
			t.next = max(t.next, t.cur.Offset())
			return t.life.ReadError(err)
		}
		right, err := t.take(b, &c.plainer)
		if err != nil || t.batch != nil {
			return t.life.ReadError(err)
		}
		if !right { // the cursor says what is wrong
			t.doubt = true
			t.leave()
		}
	}
	return nil
}

// take makes b the batch that is handed over, at the record that is due; control batches are passed over. It reports whether b is right: of most batches that shows
// later, see confirm.
func (t *track) take(b batch.Batch, plainer *batch.Decompressor) (right bool, err error) {
	defer vfs.Catch(vfs.Arm(), t.cur.File(), &err)
	if b.Control() {
		if batch.Check(b) != nil {
			return false, nil
		}
		t.next = b.LastOffset() + 1
		return true, nil
	}
	if b.Codec() != batch.None {
		return t.unpack(b, plainer)
	}
	if t.next > b.BaseOffset() {
		return t.enter(b), nil
	}
	t.begin(b)
	return true, nil
}

// enter begins in the middle of a batch. To copy and to check it takes less time than to step over its first records where they are: that waits for memory at each of them.
func (t *track) enter(b batch.Batch) (right bool) {
	if len(b) <= maxKept {
		t.kept = append(t.kept[:0], b...)
		b = t.kept
	}
	if batch.Check(b) != nil {
		return false
	}
	t.begin(b)
	return true
}

// begin makes b the batch that is handed over, from the record that is due.
func (t *track) begin(b batch.Batch) {
	t.batch, t.it = b, b.Iter()
	if b.Count() == b.LastOffsetDelta()+1 { // no holes
		for range t.next - b.BaseOffset() {
			t.it.Skip()
		}
	}
}

// unpack makes the batch that is handed over one that was compressed. Its bytes are the track's own from then on, so they are checked before.
func (t *track) unpack(b batch.Batch, plainer *batch.Decompressor) (right bool, err error) {
	if batch.Check(b) != nil {
		return false, nil
	}
	if cap(t.kept) > maxKept {
		t.kept = nil
	}
	plain, err := plainer.Plain(b, &t.kept, rlog.MaxPlain)
	if err != nil {
		if err = t.cur.Unreadable(b, err); err == nil {
			t.next = b.LastOffset() + 1
		}
		return true, err
	}
	t.batch, t.it = plain, plain.Iter()
	return true, nil
}

// decode hands over records of the track's batch. It is the one place where mapped bytes are touched record by record, so it is guarded as
// a whole.
func (c *consumer) decode(t *track, dst []Record, room *int, first bool) (n int, err error) {
	defer vfs.Catch(vfs.Arm(), t.cur.File(), &err)
	epoch := t.batch.LeaderEpoch()
	var r batch.Record
	for n < len(dst) && (*room > 0 || first && n == 0) {
		if !t.it.Next(&r) {
			if err := t.it.Err(); err != nil {
				return n, fmt.Errorf("%w: %w", kafka.ErrCorrupt, err)
			}
			t.next = max(t.next, t.batch.LastOffset()+1)
			t.batch = nil
			break
		}
		if r.Offset < t.next {
			continue
		}
		d := &dst[n]
		*room -= len(r.Key) + len(r.Value)
		*d = Record{
			Topic: t.tp.Topic, Partition: t.tp.Partition,
			Key: r.Key, Value: r.Value,
			Timestamp: time.UnixMilli(r.Timestamp),
			Offset:    r.Offset, LeaderEpoch: epoch,
		}
		if r.HeaderCount() > 0 {
			d.Headers = r.AppendHeaders(make([]Header, 0, r.HeaderCount()))
		}
		if !c.c.Borrow {
			c.own(d)
		}
		n++ // not before: a fault while it is copied leaves it out
		t.next, t.nextEpoch = r.Offset+1, epoch
	}
	return n, nil
}

// confirm checks a batch after records of it have been copied, and not before: they are the caller's for ever and have to be right, and somebody may have truncated the file at any moment
// until now. If later polls hand over the rest of it, that is copied first.
func (t *track) confirm(b batch.Batch) (ok bool) {
	if len(t.kept) > 0 && &b[0] == &t.kept[0] {
		return true
	}
	var err error
	defer func() { ok = err == nil }()
	defer vfs.Catch(vfs.Arm(), t.cur.File(), &err)
	if t.batch == nil {
		err = batch.Check(b)
		return
	}
	if cap(t.kept) > maxKept {
		t.kept = nil
	}
	t.kept = append(t.kept[:0], b...)
	if err = batch.Check(t.kept); err == nil {
		t.batch = t.kept
		t.it.Rebase(t.kept)
	}
	return
}

// maxKept is the capacity of a buffer that is kept between calls.
const maxKept = 256 << 10

// arenaSize bounds what a kept record keeps alive besides itself.
const arenaSize = 64 << 10

// own copies a record's bytes out of the log.
func (c *consumer) own(r *Record) {
	r.Key = c.copy(r.Key)
	r.Value = c.copy(r.Value)
	for i := range r.Headers {
		r.Headers[i].Value = c.copy(r.Headers[i].Value)
	}
}

// copy puts b into the arena; nil stays nil and empty stays empty.
func (c *consumer) copy(b []byte) []byte {
	if len(b) == 0 {
		if b == nil {
			return nil
		}
		return []byte{}
	}
	if len(b) > cap(c.arena)-len(c.arena) {
		if len(b) > arenaSize/4 {
			return append([]byte(nil), b...)
		}
		c.arena = make([]byte, 0, arenaSize)
	}
	n := len(c.arena)
	c.arena = append(c.arena, b...)
	return c.arena[n:len(c.arena):len(c.arena)]
}
