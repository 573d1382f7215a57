package rlog

import (
	"context"
	"errors"
	"math"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// pass is one pass of a log's compaction.
type pass struct {
	plan
	l     *Log
	ctx   context.Context
	c     Compaction
	done  *Compacted
	start int64 // log start offset
	keys  *keyMap
	end   int64 // keys below are in the map
	// succeeded are the offsets from plan.from on whose keys have a later one below end.
	succeeded offsetSet
	// unread is where the next pass begins again since a segment could not be read, though nothing says that it is damaged: records before it that this pass has not missed have
	// had their turn, and its own tombstones must not go before what they delete.
	unread int64
	failed map[*segment]bool // could not be read in this pass
	// left is the base of the first segment of which something has been left as it is, that had to go perhaps. What a tombstone deletes may be there, so from there on tombstones stay; and
	// should it be readable when the log is opened again, its turn comes again, with the keys of all that follows.
	left int64
	// repeatable are the last offsets of batches that producers may repeat.
	repeatable map[int64]struct{}

	filter  batch.Filter
	plain   []byte
	plainer batch.Decompressor
	// Of the batch that is being mapped.
	hashes  []keyHash
	offsets []int64
	touched int64 // so that touch is not left out as useless
}

func (p *pass) run() error {
	if err := p.mapKeys(); err != nil {
		return err
	}
	p.remember()
	if err := p.rewrite(); err != nil {
		return err
	}
	to := min(p.end, p.unread)
	if err := p.l.o.Checkpoints.SetCleaned(min(to, p.left)); err != nil {
		return err
	}
	p.l.cleaned.Store(to)
	p.done.To, p.done.More = to, p.end < p.to && to > p.from
	return nil
}

// damage is an error in a source that says what is wrong with it, and not with the pass.
type damage struct {
	s   *segment
	err error
}

func (d *damage) Error() string { return d.err.Error() }
func (d *damage) Unwrap() error { return d.err }

// lasts reports whether reading the source again would find the same, as far as anybody can tell.
func (d *damage) lasts() bool { return errors.Is(d.err, kafka.ErrCorrupt) }

// each calls fn with the batches of a segment in order. Anything but whole batches from its first offset to its last is *damage.
func (p *pass) each(s *segment, fn func(b batch.Batch) error) error {
	if !s.acquire() {
		return errMoved
	}
	defer s.release()
	f, err := s.open()
	if err == nil {
		err = p.eachOf(s, f, fn)
	} else if !vfs.IsTooManyOpen(err) {
		err = &damage{s, err}
	}
	if err != nil && p.deleted(s) {
		return errMoved
	}
	if errors.Is(err, vfs.ErrFault) {
		err = &damage{s, err}
	}
	return err
}

func (p *pass) eachOf(s *segment, f vfs.File, fn func(b batch.Batch) error) (err error) {
	defer vfs.Catch(vfs.Arm(), f, &err)
	w := walker{f: f, limit: s.written.Load()}
	due := s.base
	for pos := int64(0); pos < w.limit; {
		b, err := w.wholeAt(pos, due)
		if isDamage(err) {
			return &damage{s, p.l.corrupt(s, due, s.next, pos, err)}
		}
		if err != nil {
			return &damage{s, err}
		}
		if err := p.pace(len(b)); err != nil {
			return err
		}
		if err := fn(b); err != nil {
			return err
		}
		pos += int64(len(b))
		due = b.LastOffset() + 1
	}
	if due != s.next {
		return &damage{s, p.l.corrupt(s, due, s.next, w.limit, errMissing)}
	}
	return nil
}

// pace lets others have the disk, and ends the pass when its time is over.
func (p *pass) pace(n int) error {
	if p.ctx.Err() != nil {
		return kafka.ContextError(p.ctx)
	}
	if err := p.l.usable(); err != nil {
		return err
	}
	if p.c.Pace != nil {
		return p.c.Pace(n)
	}
	return nil
}

var errFull = errors.New("key map is full")

// mapKeys remembers the last offset of every key from p.from on, as far as there is room. What damage hides has no keys.
func (p *pass) mapKeys() error {
	p.end = min(p.to, p.from+max(p.c.MapBytes, keySlotsMin*keySlotSize)/4*8)
	p.keys = newKeyMap(p.end-p.from, p.c.MapBytes)
	p.succeeded = offsetSet{from: p.from}
	for _, s := range p.segments {
		if s.next <= p.from {
			continue
		}
		err := p.each(s, p.mapBatch)
		if errors.Is(err, errFull) {
			return nil
		}
		if errors.Is(err, errMoved) && !p.l.closing.Load() {
			continue // deleted meanwhile
		}
		if err := p.passOver(err); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) mapBatch(b batch.Batch) error {
	if b.LastOffset() < p.from || b.Control() {
		return nil
	}
	if b.LastOffset() >= p.end {
		if b.BaseOffset() > p.from {
			p.end = b.BaseOffset()
			return errFull
		}
		p.end = b.LastOffset() + 1 // one batch at least, or no pass would ever come behind it
	}
	plain, err := p.plainer.Plain(b, &p.plain, MaxPlain)
	if err != nil {
		return nil // nobody can read its records; they stay
	}
	p.hashes, p.offsets = p.hashes[:0], p.offsets[:0]
	it := plain.Iter()
	var r batch.Record
	for it.Next(&r) {
		if r.Key != nil && r.Offset >= p.from {
			p.hashes, p.offsets = append(p.hashes, p.keys.hash(r.Key)), append(p.offsets, r.Offset)
		}
	}
	if it.Err() != nil {
		return nil // so do those of which the rest cannot be read
	}
	p.touched += p.keys.touch(p.hashes)
	for i, h := range p.hashes {
		before, ok := p.keys.put(h, p.offsets[i])
		for !ok {
			if b.BaseOffset() > p.from {
				p.end = b.BaseOffset()
				return errFull
			}
			p.keys.most *= 2
			before, ok = p.keys.put(h, p.offsets[i])
		}
		if before >= 0 {
			p.succeeded.add(before)
		}
	}
	return nil
}

// passOver keeps damage from ending the pass, and reports it if it is new.
func (p *pass) passOver(err error) error {
	var d *damage
	if !errors.As(err, &d) {
		return err
	}
	if d.lasts() || d.s.reported {
		d.s.damaged = true
	} else {
		if p.failed == nil {
			p.failed = map[*segment]bool{}
		}
		p.failed[d.s] = true
		p.unread = min(p.unread, max(d.s.base, p.from))
	}
	if !d.s.reported {
		d.s.reported = true
		p.done.Damaged = append(p.done.Damaged, d.err)
	}
	return nil
}

// leave reports whether a segment stays as it is.
func (p *pass) leave(s *segment) bool { return s.damaged || p.failed[s] }

// deleted reports whether a segment is not the log's any more.
func (p *pass) deleted(s *segment) bool { return !p.l.segments.Load().has(s) }

// remember finds out which batches producers may repeat.
func (p *pass) remember() {
	p.repeatable = map[int64]struct{}{}
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	for _, pr := range p.l.mu.producers {
		if p.l.longGone(pr, p.c.Now) {
			continue
		}
		for i := remembered - pr.n; i < remembered; i++ {
			p.repeatable[pr.batches[i].lastOffset] = struct{}{}
		}
	}
}

// rewrite replaces the segments that have keys below p.end, in groups that fit one segment. Damaged ones stand alone and stay.
func (p *pass) rewrite() error {
	for i := 0; i < len(p.segments) && p.segments[i].base < p.end; {
		if s := p.segments[i]; p.leave(s) || p.deleted(s) {
			if p.leave(s) {
				p.left = min(p.left, s.base)
			}
			i++
			continue
		}
		group := p.group(i)
		err := p.rewriteGroup(group)
		if errors.Is(err, errMoved) && !p.l.closing.Load() {
			continue // some of them have been deleted meanwhile: once more without those
		}
		var d *damage
		if errors.As(err, &d) {
			_ = p.passOver(err) // it is marked now: once more without it
			continue
		}
		if err != nil {
			return err
		}
		i += len(group)
	}
	return nil
}

// group returns the segments from i on that make one. All of them are open while it is made, so there are not too many.
func (p *pass) group(i int) []*segment {
	set := p.l.settings.Load()
	first := p.segments[i]
	size := first.sealedSize.Load()
	n := i + 1
	for most := p.l.o.Files.share(); n < len(p.segments) && n-i < most; n++ {
		s := p.segments[n]
		size += s.sealedSize.Load()
		if p.leave(s) || p.deleted(s) || s.base >= p.end || size > set.SegmentBytes || s.next-first.base > math.MaxInt32 || s.base != p.segments[n-1].next {
			break
		}
	}
	return p.segments[i:n]
}

// keep reports whether a record stays.
func (p *pass) keep(b batch.Batch, r *batch.Record) bool {
	if b.Control() || r.Offset >= p.end {
		return true
	}
	if r.Key == nil || r.Offset < p.start {
		return false
	}
	if r.Offset >= p.from {
		if p.succeeded.has(r.Offset) {
			return false
		}
	} else if p.keys.get(p.keys.hash(r.Key)) >= 0 {
		return false
	}
	if r.Value != nil {
		return true
	}
	horizon, ok := b.DeleteHorizon()
	return !ok || horizon > p.c.Now || p.left <= r.Offset
}

// compacted returns what becomes of a batch; kept is -1 if that is the batch itself, as it is.
func (p *pass) compacted(b batch.Batch) (out batch.Batch, kept int, err error) {
	if b.BaseOffset() >= p.end {
		return b, -1, nil
	}
	tombstones := false
	keep := func(r *batch.Record) bool {
		if !p.keep(b, r) {
			return false
		}
		tombstones = tombstones || r.Value == nil && r.Offset < p.end && !b.Control()
		return true
	}
	out, kept, err = p.filter.Apply(b, keep, -1)
	if _, dated := b.DeleteHorizon(); err == nil && tombstones && !dated {
		out, kept, err = p.filter.Apply(b, keep, p.c.Now+p.c.DeleteRetention.Milliseconds())
	}
	if err != nil {
		p.left = min(p.left, b.BaseOffset())
		return b, -1, nil // its records cannot be read: it stays, for whoever repairs it
	}
	p.done.Records += int64(b.Count())
	p.done.Kept += int64(kept)
	if len(out) == len(b) && &out[0] == &b[0] {
		kept = -1
	}
	return out, kept, nil
}
