package rlog

import (
	"context"
	"errors"
	"fmt"
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
	for v.due < v.to {
		r := l.segments.Load()
		s := r.find(v.due)
		if s == nil || s.end(v.to) <= v.due {
			n := r.after(v.due)
			if n == nil || n.base >= v.to {
				v.found(v.l.newSegment(v.due), v.due, v.to, 0, errMissing)
				break
			}
			v.found(n, v.due, n.base, 0, errors.New("the segment before this one is missing"))
			v.due = n.base
			continue
		}
		err := v.segment(s)
		if errors.Is(err, errMoved) && !l.closing.Load() {
			v.due = max(v.due, l.start.Load())
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

type verifier struct {
	l       *Log
	ctx     context.Context
	report  func(*kafka.CorruptError)
	due, to int64
	plain   []byte
}

func (v *verifier) found(s *segment, from, to, pos int64, reason error) {
	v.hint(s.name(suffixLog), from, to, pos, reason)
}

func (v *verifier) hint(file string, from, to, pos int64, reason error) {
	v.report(&kafka.CorruptError{TopicPartition: v.l.o.TopicPartition, From: from, To: to, File: file, Pos: pos, Reason: reason})
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
		v.due = end
		return nil
	}
	if err := v.batches(s, f, end); err != nil {
		return err
	}
	if s.sealedSize.Load() >= 0 {
		v.indexes(s, f)
	}
	v.snapshot(s)
	v.due = end
	return nil
}

// batches reads a segment from its start. What lies before the log start is passed over.
func (v *verifier) batches(s *segment, f vfs.File, end int64) error {
	w := walker{f: f, limit: s.written.Load()}
	due := s.base
	for pos := int64(0); due < end; {
		if err := v.ctx.Err(); err != nil {
			return kafka.ContextError(v.ctx)
		}
		b, err := v.batch(&w, pos, due)
		if err == nil {
			pos += int64(len(b))
			due = b.LastOffset() + 1
			continue
		}
		at, base, rerr := w.guardedResync(pos, due+1, end)
		if rerr != nil || base < 0 {
			base = end
		}
		if base > v.l.start.Load() {
			v.found(s, due, base, pos, err)
		}
		pos, due = at, base
	}
	return nil
}

// batch checks the batch at pos and its records.
func (v *verifier) batch(w *walker, pos, due int64) (b batch.Batch, err error) {
	defer vfs.Catch(vfs.Arm(), w.f, &err)
	if b, err = w.whole(pos); err != nil {
		return nil, err
	}
	if b.BaseOffset() != due {
		return nil, fmt.Errorf("%w: offset %d where %d is due", batch.ErrHeader, b.BaseOffset(), due)
	}
	plain, err := b.Plain(&v.plain, MaxPlain)
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

// indexes checks the files, not what is loaded.
func (v *verifier) indexes(s *segment, f vfs.File) {
	x, err := readIndexes(v.l.o.FS, s)
	if err != nil {
		v.hint(s.name(suffixIndex), s.base, s.base, 0, err)
		return
	}
	for i := range x.offsets.Len() {
		e := x.offsets.At(i)
		if err := guardedConfirm(f, e, s.written.Load()); err != nil {
			v.hint(s.name(suffixIndex), e.Offset, e.Offset, int64(i)*index.OffsetEntrySize, err)
			break
		}
	}
	if _, err := completeTimes(f, x, s.written.Load()); err != nil {
		v.hint(s.name(suffixTimeIndex), s.base, s.base, 0, err)
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
