package rlog

import (
	"context"
	"errors"
	"io/fs"

	"github.com/runnelmq/runnel/index"
	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// Verify reads every batch and every record from the log start to the log end, and the index files and producer snapshots beside them, and reports what is damaged, ranges of Skip
// included. Damage of a file that is only a hint has no offsets: From and To are equal. The log is used as before meanwhile. An error means that it did not come to
// the end.
func (l *Log) Verify(ctx context.Context, report func(*kafka.CorruptError)) error {
	v := &verifier{l: l, ctx: ctx, report: report, due: l.start.Load(), to: l.end.Load()}
	for {
		if v.err != nil {
			return v.err
		}
		r := l.segments.Load()
		v.due = max(v.due, l.start.Load()) // it may have moved
		if v.due >= v.to {
			return nil
		}
		s := r.find(v.due)
		if s == nil || s.end(v.to) <= v.due {
			n := r.after(v.due)
			if n == nil || n.base >= v.to {
				v.found(v.l.newSegment(v.due), v.due, v.to, 0, errMissing)
				if v.told(r, nil) {
					return v.err
				}
				continue
			}
			v.found(n, v.due, n.base, 0, errors.New("the segment before this one is missing"))
			if v.told(r, nil) {
				v.due = n.base
			}
			continue
		}
		err := v.segment(s)
		if err != nil && !errors.Is(err, errMoved) {
			return err
		}
		if l.closing.Load() {
			return l.closedErr()
		}
	}
}

type verifier struct {
	l       *Log
	ctx     context.Context
	report  func(*kafka.CorruptError)
	due, to int64
	plain   []byte
	plainer batch.Decompressor
	pending []*kafka.CorruptError // found in one segment
	err     error                 // why there is no going on
}

// told reports what has been found in s, or in the row r, unless somebody has taken that away meanwhile: then it was none.
func (v *verifier) told(r *row, s *segment) bool {
	pending := v.pending
	v.pending = nil
	if len(pending) == 0 {
		return true
	}
	if v.l.o.ReadOnly {
		v.err = v.l.Refresh() // Verify ends with it
	}
	now := v.l.segments.Load()
	if s != nil && !now.has(s) || s == nil && !r.same(now) {
		return false
	}
	for _, d := range pending {
		v.report(d)
	}
	return true
}

func (v *verifier) found(s *segment, from, to, pos int64, reason error) {
	v.hint(s.name(suffixLog), from, to, pos, reason)
}

func (v *verifier) hint(file string, from, to, pos int64, reason error) {
	v.pending = append(v.pending, &kafka.CorruptError{TopicPartition: v.l.o.TopicPartition, From: from, To: to, File: file, Pos: pos, Reason: reason})
}

func (v *verifier) segment(s *segment) error {
	if !s.acquire() {
		return errMoved
	}
	defer s.release()
	end := min(s.end(v.to), v.to)
	f, err := s.open()
	if err != nil {
		if !v.l.segments.Load().has(s) {
			return errMoved
		}
		v.found(s, max(v.due, s.base), end, 0, err)
		if !v.told(nil, s) {
			return errMoved
		}
		v.due = end
		return nil
	}
	whole, err := v.batches(s, f, end)
	if err != nil {
		return err
	}
	if s.sealedSize.Load() >= 0 && whole {
		v.indexes(s, f)
	}
	v.snapshot(s)
	if !v.told(nil, s) {
		return errMoved
	}
	v.due = end
	return nil
}

// batches reads a segment from its start, and reports whether it is whole. Damage before the log start is not reported.
func (v *verifier) batches(s *segment, f vfs.File, end int64) (whole bool, err error) {
	w := walker{f: f, limit: s.written.Load()}
	due := s.base
	whole = true
	for pos := int64(0); due < end; {
		if v.ctx.Err() != nil {
			return false, kafka.ContextError(v.ctx)
		}
		b, err := v.batch(&w, pos, due)
		if err == nil {
			pos += int64(len(b))
			due = b.LastOffset() + 1
			continue
		}
		whole = false
		at, base, rerr := w.guardedResync(pos, due+1, end)
		if rerr != nil || base < 0 {
			base = end
		}
		if base > v.l.start.Load() {
			v.found(s, due, base, pos, err)
		}
		pos, due = at, base
	}
	return whole, nil
}

// batch checks the batch at pos and its records.
func (v *verifier) batch(w *walker, pos, due int64) (b batch.Batch, err error) {
	defer vfs.Catch(vfs.Arm(), w.f, &err)
	if b, err = w.wholeAt(pos, due); err != nil {
		return nil, err
	}
	plain, err := v.plainer.Plain(b, &v.plain, MaxPlain)
	if err != nil {
		return nil, err
	}
	it := plain.Iter()
	var r batch.Record
	for it.Next(&r) {
	}
	return b, it.Err()
}

func (w *walker) guardedResync(pos, least, most int64) (at, base int64, err error) {
	defer vfs.Catch(vfs.Arm(), w.f, &err)
	return w.resync(pos, least, most)
}

// indexes checks the files of a segment that is whole, not what is loaded.
func (v *verifier) indexes(s *segment, f vfs.File) {
	v.l.shape.Lock()
	defer v.l.shape.Unlock()
	if !v.l.segments.Load().has(s) || s.swapped {
		return // the files are those of another segment
	}
	for _, suffix := range []string{suffixIndex, suffixTimeIndex} {
		if _, err := v.l.o.FS.Stat(s.name(suffix)); errors.Is(err, fs.ErrNotExist) {
			return // it is made when it is needed
		}
	}
	offsets, oerr := readOffsets(v.l.o.FS, s)
	times, terr := readTimes(v.l.o.FS, s)
	at, pos := s.base, int64(0)
	for i := 0; oerr == nil && i < offsets.Len(); i++ {
		e := offsets.At(i)
		at, pos = e.Offset, int64(i)*index.OffsetEntrySize
		oerr = guardedConfirm(f, e, s.written.Load())
	}
	if terr == nil {
		x := &indexes{offsets: offsets, times: times}
		if oerr != nil {
			x.offsets = index.NewOffsets(s.base)
		}
		_, terr = completeTimes(f, x, s.written.Load())
	}
	if oerr != nil {
		v.hint(s.name(suffixIndex), at, at, pos, oerr)
	}
	if terr != nil {
		v.hint(s.name(suffixTimeIndex), s.base, s.base, 0, terr)
	}
}

func (v *verifier) snapshot(s *segment) {
	name := s.name(suffixSnapshot)
	b, err := readFile(v.l.o.FS, name)
	if b == nil && err == nil || errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		_, _, err = decodeProducers(b)
	}
	if err != nil {
		v.hint(name, s.base, s.base, 0, err)
	}
}
