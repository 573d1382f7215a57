package rlog

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"

	"github.com/runnelmq/runnel/index"
	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/sabotage"
	"github.com/runnelmq/runnel/internal/vfs"
)

// ErrStray is returned by Open for a directory that belongs to another life of the topic.
var ErrStray = errors.New("directory belongs to another topic id")

// Open opens a partition's log; a directory that is missing is a log without records. If the log was not closed in
// order (Options.Dirty) it is recovered first.
//
// Errors: ErrStray; *kafka.CorruptError if the log ends below its recovery point; else those of the file system.
func Open(o Options) (*Log, error) {
	if o.Counts == nil {
		o.Counts = new(Counts)
	}
	l := &Log{o: o}
	if o.Files != nil {
		l.o.FS = patient{o.FS, o.Files}
	}
	l.Configure(o.Settings)
	l.mu.producers = producers{}
	l.mu.extra = -1
	// What lies before the log start was durable when that was recorded.
	l.o.RecoveryPoint = max(o.RecoveryPoint, o.LogStart)
	l.point.at = l.o.RecoveryPoint
	l.cleaned.Store(o.Cleaned)
	l.setSkips(slices.Clone(o.Skips))
	l.flush.running = make(chan struct{}, 1)
	l.segments.Store(newRow())
	if o.ReadOnly {
		if err := l.Refresh(); err != nil {
			l.Abandon()
			return nil, fmt.Errorf("open %s: %w", o.TopicPartition, err)
		}
		return l, nil
	}
	files, err := l.list()
	if err != nil {
		return nil, err
	}
	err = l.load(files)
	if l.opening != nil {
		l.opening.release()
		l.opening = nil
	}
	l.mu.opened = l.end.Load()
	if err != nil {
		l.Abandon()
		return nil, fmt.Errorf("open %s: %w", o.TopicPartition, err)
	}
	return l, nil
}

// hold keeps the file of a segment that Open works on from being closed because others are needed more.
func (l *Log) hold(s *segment) {
	s.acquire()
	if l.opening != nil {
		l.opening.release()
	}
	l.opening = s
}

// contents is what lies in a partition's directory.
type contents struct {
	bases     []int64 // of segments, rising
	snapshots []int64 // rising
	orphans   bool    // there may be files that belong to no segment
	swapped   []int64 // bases of segments whose files are still called .swap: of a log that is read only
}

func (l *Log) list() (c contents, err error) {
	infos, err := l.o.FS.List(l.o.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	have, err := readFile(l.o.FS, path.Join(l.o.Dir, fileMetadata))
	if err != nil {
		return c, err
	}
	// A crash can leave the file missing, torn or zero before anything was acknowledged; another id is never a crash.
	if id, ok := parseMetadata(string(have)); ok && id != l.o.TopicID {
		return c, fmt.Errorf("%s: %w", l.o.Dir, ErrStray)
	}
	if !l.o.ReadOnly {
		if infos, err = l.settleSwaps(infos); err != nil {
			return c, err
		}
	}
	var indexed []int64
	for _, i := range infos {
		offset, suffix, ok := parseName(i.Name)
		switch {
		case !ok:
		case suffix == suffixLog:
			c.bases = append(c.bases, offset)
		case suffix == suffixSnapshot:
			c.snapshots = append(c.snapshots, offset)
		default:
			indexed = append(indexed, offset)
		}
	}
	slices.Sort(c.bases)
	slices.Sort(c.snapshots)
	if l.o.ReadOnly {
		if err := l.swaps(&c, infos); err != nil {
			return c, err
		}
	}
	// Segments before the log start that are still there: their removal was cut short.
	old := 0
	for old+1 < len(c.bases) && c.bases[old+1] <= l.o.LogStart {
		old++
	}
	c.bases = c.bases[old:]
	c.orphans = old > 0 || slices.ContainsFunc(indexed, func(base int64) bool { return !slices.Contains(c.bases, base) })
	return c, nil
}

// load finds the log's end and makes everything before it readable.
func (l *Log) load(c contents) error {
	rp := l.o.RecoveryPoint
	l.start.Store(l.o.LogStart)
	if len(c.bases) == 0 {
		if rp > 0 {
			if err := l.lost(l.newSegment(0), 0, 0); err != nil {
				return err
			}
		}
		return l.loadProducers(c.snapshots)
	}
	l.end.Store(c.bases[0])
	// The segment that holds the recovery point, or the last one below it.
	k, found := slices.BinarySearch(c.bases, rp)
	if !found {
		k = max(k-1, 0)
	}
	r := newRow()
	for i, base := range c.bases[:k] {
		s := l.newSegment(base)
		info, err := l.o.FS.Stat(s.name(suffixLog))
		if err != nil {
			return err
		}
		s.written.Store(info.Size)
		s.seal(c.bases[i+1])
		r = r.with(s)
	}
	l.segments.Store(r)
	for i := k; i < len(c.bases); i++ {
		s := l.newSegment(c.bases[i])
		l.segments.Store(l.segments.Load().with(s))
		more := i+1 < len(c.bases)
		tail, err := l.scan(s)
		if err != nil {
			return err
		}
		if more && !tail && c.bases[i+1] == l.end.Load() {
			s.closeTimes()
			s.seal(l.end.Load())
			continue
		}
		lost := l.end.Load() < rp
		if lost && !l.Skipped(l.end.Load(), rp) {
			return l.lost(s, l.end.Load(), s.written.Load())
		}
		if err := l.cut(s, tail, c.bases[i+1:]); err != nil {
			return err
		}
		if lost {
			if err := l.lost(s, l.end.Load(), s.written.Load()); err != nil {
				return err
			}
		}
		break
	}
	if l.o.Dirty {
		// What was found behind the recovery point may be in the page cache only, and waits for a sync like what is appended. Sealed segments were synced before the one behind
		// them was made.
		storeMax(&l.durable, max(min(rp, l.end.Load()), l.segments.Load().active.base))
	} else {
		l.durable.Store(l.end.Load())
	}
	l.mu.unswept = c.orphans
	if err := l.sweep(); err != nil {
		return err
	}
	return l.loadProducers(c.snapshots)
}

// lost says that the log ends at offset in s, below its recovery point. If that has been given up (Skip), the log goes on behind, in a new segment: no offset is given to two records.
func (l *Log) lost(s *segment, offset, pos int64) error {
	rp := l.o.RecoveryPoint
	if l.o.ReadOnly || !l.Skipped(offset, rp) {
		return l.corrupt(s, offset, rp, pos, errors.New("the log ends below its recovery point"))
	}
	if err := l.makeDir(); err != nil {
		return err
	}
	s.seal(rp)
	l.end.Store(rp)
	_, err := l.roll(nil, 0)
	return err
}

// scan opens the segment for writing, reads its batches from the recovery point on and moves the log end behind the last whole
// one. It reports whether something that is not zero follows.
func (l *Log) scan(s *segment) (tail bool, err error) {
	l.hold(s)
	f, err := s.open()
	if err != nil {
		return false, err
	}
	size := f.Size()
	s.reserved = size
	pos, next, err := l.resume(s, f, size)
	if err != nil {
		return false, err
	}
	if l.o.Dirty {
		// After a failed sync the page cache shows bytes as clean that the disk does not have: what counts is the disk.
		if err := f.DropCache(pos); err != nil {
			return false, err
		}
	}
	if pos, next, err = l.readOn(s, f, pos, next, size); err != nil {
		return false, err
	}
	s.written.Store(pos)
	l.end.Store(next)
	return nonZero(f, pos, size)
}

// readOn reads batches from pos, where offset next is due, and returns where the first one begins that is not whole, and
// which offset is due there. Below the recovery point the bytes are durable and were whole once: what is not is damage, to be reported to its
// readers, and no torn tail. There the log goes on behind it.
func (l *Log) readOn(s *segment, f vfs.File, pos, next, size int64) (_, _ int64, err error) {
	defer vfs.Catch(vfs.Arm(), f, &err)
	w := walker{f: f, limit: size}
	rp := l.o.RecoveryPoint
	for {
		if l.o.Believe != nil && next >= *l.o.Believe {
			return pos, next, nil
		}
		b, err := w.whole(pos)
		if sabotage.On(sabotage.IgnoreCRC) && errors.Is(err, batch.ErrCRC) {
			err = nil
		}
		if err != nil && !isDamage(err) {
			return 0, 0, err
		}
		if err == nil && b.BaseOffset() == next {
			next = b.LastOffset() + 1
			s.note(b, pos, l.settings.Load().IndexInterval)
			pos += int64(len(b))
			continue
		}
		if next >= rp {
			return pos, next, nil
		}
		at, base, err := w.resync(pos, next+1, rp)
		if err != nil {
			return 0, 0, err
		}
		if base < 0 {
			// Nothing whole follows below the recovery point. The damage may be the last batch itself, if its header still says so.
			h, n, err := w.header(pos)
			if err != nil || h.BaseOffset() != next || h.LastOffset()+1 != rp {
				return pos, next, nil
			}
			at, base = pos+n, rp
		}
		pos, next = at, base
	}
}

// resume takes what the index files know below the recovery point and returns where reading has to begin: behind the
// batch of the last entry that the log confirms, or at the segment's start.
func (l *Log) resume(s *segment, f vfs.File, size int64) (pos, next int64, err error) {
	s.indexes.Store(newIndexes(s.base))
	x, err := readIndexes(l.o.FS, s)
	if err == nil {
		pos, next, err = l.trusted(s, x, f, size)
	}
	if err == nil {
		return pos, next, nil
	}
	if !errors.Is(err, errRefuted) && !errors.Is(err, index.ErrBroken) && !isDamage(err) {
		return 0, 0, err
	}
	return 0, s.base, nil
}

// trusted cuts x back to what lies below the recovery point and checks it against the log. Only if all of it holds, the segment takes it over.
func (l *Log) trusted(s *segment, x *indexes, f vfs.File, size int64) (pos, next int64, err error) {
	n := x.offsets.Len()
	for n > 0 && x.offsets.At(n-1).Offset >= l.o.RecoveryPoint {
		n--
	}
	if n == 0 {
		return 0, s.base, nil
	}
	x.offsets.TruncateTo(n)
	e := x.offsets.At(n - 1)
	m := x.times.Len()
	for m > 0 && x.times.At(m-1).Offset > e.Offset {
		m--
	}
	x.times.TruncateTo(m)
	if m == 0 {
		return 0, 0, errRefuted
	}
	var end, firstTime int64
	if end, firstTime, err = l.confirmEnds(s, f, e, size); err != nil {
		return 0, 0, err
	}
	if _, err := completeTimes(f, x, end); err != nil {
		return 0, 0, err
	}
	s.indexes.Store(x)
	s.firstTime = firstTime
	s.maxTime = x.times.At(m - 1)
	s.unindexed = end - int64(e.Pos)
	s.saved.offsets, s.saved.times = n, m
	return end, e.Offset + 1, nil
}

// confirmEnds checks the batch of an index entry and reads the first batch's timestamp.
func (l *Log) confirmEnds(s *segment, f vfs.File, e index.OffsetEntry, size int64) (end, firstTime int64, err error) {
	defer vfs.Catch(vfs.Arm(), f, &err)
	w := walker{f: f, limit: size}
	h, _, err := w.header(0)
	if err != nil {
		return 0, 0, err
	}
	if h.BaseOffset() != s.base {
		return 0, 0, errRefuted
	}
	firstTime = h.MaxTimestamp()
	end, err = confirm(&w, e)
	return end, firstTime, err
}

// loadProducers brings the producer state to the log's end: a snapshot and the batches behind it.
func (l *Log) loadProducers(snapshots []int64) error {
	end := l.end.Load()
	limit := end
	if sabotage.On(sabotage.TrustProducers) {
		limit = math.MaxInt64
	}
	from, err := l.loadSnapshot(snapshots, limit)
	if err != nil {
		return err
	}
	if sabotage.On(sabotage.TrustProducers) && l.mu.extra >= 0 {
		from = end
	}
	for from < end {
		r := l.segments.Load()
		s := r.find(from)
		if s == nil { // the first segments are lost: their readers will hear of it
			s = r.after(from)
			from = s.base
		}
		if from, err = l.replay(s, from); err != nil {
			return err
		}
	}
	return nil
}

// replay notes the producers of the batches of one segment from offset on and returns the first offset behind the
// segment. What damage hides is not known.
func (l *Log) replay(s *segment, offset int64) (next int64, err error) {
	next = s.end(l.end.Load())
	s.acquire()
	defer s.release()
	f, err := s.open()
	if err != nil {
		return 0, err
	}
	pos, due, err := l.locate(s, f, offset)
	if err != nil {
		return 0, err
	}
	_, err = walk(f, pos, due, s.written.Load(), func(b batch.Batch, _ int64) bool {
		if b.LastOffset() >= offset {
			l.mu.producers.note(b)
		}
		return true
	})
	return next, err
}

// locate is position for callers without a cursor.
func (l *Log) locate(s *segment, f vfs.File, offset int64) (pos, due int64, err error) {
	defer vfs.Catch(vfs.Arm(), f, &err)
	return l.position(s, &walker{f: f, limit: s.written.Load()}, offset)
}
