package rlog

import (
	"errors"
	"fmt"

	"github.com/runnelmq/runnel/index"
	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/vfs"
)

// errRefuted is the reason when the log contradicts an index.
var errRefuted = errors.New("the log does not confirm the index")

// loaded returns the segment's indexes. Those of a sealed segment are read from their files when they are first needed; files that are
// missing, broken or refuted by the log are made anew from it. The caller holds a reference.
func (l *Log) loaded(s *segment, f vfs.File) (*indexes, error) {
	if x := s.indexes.Load(); x != nil {
		return x, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.indexes.Load(); x != nil {
		return x, nil
	}
	x, err := readIndexes(l.o.FS, s)
	if err == nil {
		var end int64
		end, err = completeTimes(f, x, s.written.Load())
		if err == nil && s.sealedSize.Load() >= 0 && end != s.next {
			err = errRefuted
		}
	}
	if vfs.IsTooManyOpen(err) {
		return nil, err
	}
	if err != nil {
		if x, err = l.rebuild(s, f, err); err != nil {
			return nil, err
		}
	}
	s.indexes.Store(x)
	return x, nil
}

// rebuilt replaces indexes that the log has refuted.
func (l *Log) rebuilt(s *segment, f vfs.File, refuted *indexes) (*indexes, error) {
	if s.sealedSize.Load() < 0 {
		// The writer adds to the active segment's indexes; it waits.
		l.mu.Lock()
		defer l.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.indexes.Load(); x != refuted {
		return x, nil
	}
	x, err := l.rebuild(s, f, errRefuted)
	if err != nil {
		return nil, err
	}
	s.indexes.Store(x)
	return x, nil
}

// rebuild makes the indexes of a segment, whose mu is held, from its batches. Damaged stretches have no entries.
func (l *Log) rebuild(s *segment, f vfs.File, reason error) (*indexes, error) {
	t := l.newSegment(s.base)
	t.indexes.Store(newIndexes(s.base))
	limit := s.written.Load()
	end := s.base
	missed, err := walk(f, 0, s.base, limit, func(b batch.Batch, pos int64) bool {
		t.note(b, pos, l.settings.Load().IndexInterval)
		end = b.LastOffset() + 1
		return true
	})
	if err != nil {
		return nil, err
	}
	x := t.indexes.Load()
	sealed := s.sealedSize.Load() >= 0
	x.holes = missed || sealed && end != s.next
	if sealed {
		t.closeTimes()
	}
	if s.mu.disowned {
		return x, nil // the files that were missed or did not fit were not its own
	}
	if !l.closing.Load() && !l.o.ReadOnly {
		if err := t.writeIndexes(l.o.FS, false); err != nil {
			// Hints: without the files the next Open does this again.
			reason = errors.Join(reason, err)
		}
	}
	s.saved = t.saved
	if l.o.Events.IndexRebuilt != nil {
		l.o.Events.IndexRebuilt(l.o.TopicPartition, s.base, reason)
	}
	return x, nil
}

func readIndexes(fsys vfs.FS, s *segment) (*indexes, error) {
	offsets, err := readOffsets(fsys, s)
	if err != nil {
		return nil, err
	}
	times, err := readTimes(fsys, s)
	if err != nil {
		return nil, err
	}
	return &indexes{offsets: offsets, times: times}, nil
}

func readOffsets(fsys vfs.FS, s *segment) (*index.Offsets, error) {
	b, err := readFile(fsys, s.name(suffixIndex))
	if err != nil {
		return nil, err
	}
	return index.LoadOffsets(s.base, b)
}

func readTimes(fsys vfs.FS, s *segment) (*index.Times, error) {
	b, err := readFile(fsys, s.name(suffixTimeIndex))
	if err != nil {
		return nil, err
	}
	return index.LoadTimes(s.base, b)
}

// confirm returns the position behind the batch that an offset index entry names, if that batch is whole and ends at the entry's offset.
func confirm(w *walker, e index.OffsetEntry) (end int64, err error) {
	b, err := w.whole(int64(e.Pos))
	if err != nil {
		if isDamage(err) {
			err = fmt.Errorf("%w: %w", errRefuted, err)
		}
		return 0, err
	}
	if !index.Confirms(b, e) {
		return 0, fmt.Errorf("%w: the batch at %d ends at offset %d, the index says %d", errRefuted, e.Pos, b.LastOffset(), e.Offset)
	}
	return int64(e.Pos) + int64(len(b)), nil
}

// completeTimes checks that the time index knows the greatest timestamp below limit: that its last entry is right, and that no batch
// behind it is later. Timestamps mostly rise, so that is a short walk.
func completeTimes(f vfs.File, x *indexes, limit int64) (end int64, err error) {
	last := greatest(x)
	pos, due := int64(0), x.offsets.Base()
	if i, ok := x.offsets.Lookup(last.Offset - 1); ok {
		e := x.offsets.At(i)
		if err := guardedConfirm(f, e, limit); err != nil {
			return 0, err
		}
		pos, due = int64(e.Pos), -1
	}
	seen := x.times.Len() == 0
	refuted := false
	missed, err := walk(f, pos, due, limit, func(b batch.Batch, _ int64) bool {
		end = b.LastOffset() + 1
		t := b.MaxTimestamp()
		if b.LastOffset() == last.Offset && t == last.Timestamp {
			seen = true
		}
		if t > last.Timestamp {
			refuted = true
		}
		return !refuted
	})
	if err != nil {
		return 0, err
	}
	if refuted || missed || !seen {
		return 0, errRefuted
	}
	return end, nil
}

func guardedConfirm(f vfs.File, e index.OffsetEntry, limit int64) (err error) {
	defer vfs.Catch(vfs.Arm(), f, &err)
	_, err = confirm(&walker{f: f, limit: limit}, e)
	return err
}

// named returns the batch that entry i names, if that is the one that holds offset: the commonest of all, where batches are as large as the interval between entries. Its reader checks it.
func named(x *indexes, w *walker, i int, offset int64) (pos, due int64, ok bool) {
	if i >= x.offsets.Len() {
		return 0, 0, false
	}
	e := x.offsets.At(i)
	if int64(e.Pos) >= w.limit {
		return 0, 0, false
	}
	h, _, err := w.header(int64(e.Pos))
	if err != nil || !index.Confirms(h, e) || h.BaseOffset() > offset {
		return 0, 0, false
	}
	return int64(e.Pos), h.BaseOffset(), true
}

// position returns where reading has to begin for offset: the start of a batch at or before the one that holds it, and the
// offset that is due there (-1: not known). The caller holds a reference and has armed the goroutine.
func (l *Log) position(s *segment, w *walker, offset int64) (pos, due int64, err error) {
	x, err := l.loaded(s, w.f)
	if err != nil {
		return 0, 0, err
	}
	for {
		i, ok := x.offsets.Lookup(offset)
		if !ok {
			i = -1
		}
		if pos, due, ok := named(x, w, i+1, offset); ok {
			return pos, due, nil
		}
		// Entries of batches that are being published at this moment lie behind the limit.
		for ok && int64(x.offsets.At(i).Pos) >= w.limit {
			i--
			ok = i >= 0
		}
		if !ok {
			return 0, s.base, nil
		}
		e := x.offsets.At(i)
		end, err := confirm(w, e)
		switch {
		case err == nil && e.Offset < offset:
			return end, e.Offset + 1, nil
		case err == nil:
			return int64(e.Pos), -1, nil
		case !errors.Is(err, errRefuted):
			return 0, 0, err
		}
		next, err := l.rebuilt(s, w.f, x)
		if err != nil {
			return 0, 0, err
		}
		if next == x {
			return 0, 0, errRefuted // cannot be: rebuilt returns what it has replaced x by
		}
		x = next
	}
}
