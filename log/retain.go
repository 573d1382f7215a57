package rlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
)

// Retention says which segments are too old, or too many.
type Retention struct {
	Now   int64         // wall clock in ms
	Age   time.Duration // segments whose greatest timestamp is older go (retention.ms); negative: none does
	Bytes int64         // the oldest segments go while the others hold so many bytes (retention.bytes); negative: none does
	// Doubt is by how much Now may be too late. What would not have to go at Now-Doubt yet goes slowly: Most segments at a time, and never the active one.
	Doubt time.Duration
	Most  int
}

// Removed says what Retain has removed.
type Removed struct {
	Segments int
	Bytes    int64
	LogStart int64 // log start offset now
	Held     int   // segments that stay because the clock is in doubt
	// Next is the time in ms before which Retain would remove nothing for its age and roll nothing, unless records are appended that are older than now.
	Next int64
}

// Retain removes the segments that may go, from the oldest on: those before the log start offset, those that the others leave no room for, and those that are too
// old. The last segment goes too, if it is full of records that are too old. A timestamp from the far future does not count: then the time of the file's last change does. The log
// start offset is durable before anything is removed; who reads a segment keeps it. Run again at the same moment it removes nothing more, except what Doubt has held.
//
// It also rolls a segment of the age that Settings say, so that one that nobody appends to can go, or be compacted.
func (l *Log) Retain(r Retention) (Removed, error) {
	l.shape.Lock()
	defer l.shape.Unlock()
	if err := l.usable(); err != nil {
		return Removed{}, err
	}
	rerr := l.rollIdle(r) // of a full disk, for one: what is sealed can go all the same
	if l.segments.Load().active == nil {
		return Removed{Next: math.MaxInt64}, rerr
	}
	sealed := l.segments.Load().sealed()
	n, held := l.expired(sealed, r)
	gone := Removed{LogStart: l.start.Load()}
	var err error
	if n > 0 {
		gone, err = l.removeUpTo(max(l.start.Load(), sealed[n-1].next))
	} else {
		err = l.sweep()
	}
	gone.Held, gone.Next = held, l.nextDue(r)
	return gone, l.pressed(errors.Join(err, rerr))
}

// nextDue is when there is something to do again.
func (l *Log) nextDue(r Retention) int64 {
	next := int64(math.MaxInt64)
	rw := l.segments.Load()
	if sealed := rw.sealed(); len(sealed) > 0 && r.Age >= 0 {
		t, _ := l.greatestTime(sealed[0], r.Now)
		next = after(t, r.Age)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	began, last := r.Now, r.Now // of what is appended from now on
	if s := rw.active; s != nil && s.written.Load() > 0 {
		began, last = s.began(r.Now), l.lastTime(s, r.Now)
	}
	next = min(next, after(began, l.settings.Load().SegmentAge))
	if r.Age >= 0 {
		next = min(next, after(last, r.Age))
	}
	return next
}

// after is the first millisecond at which more than d has passed since t, both in ms.
func after(t int64, d time.Duration) int64 {
	if ms := d.Milliseconds(); t <= math.MaxInt64-ms-1 {
		return t + ms + 1
	}
	return math.MaxInt64
}

// Segments is how many segments the log has.
func (l *Log) Segments() int { return l.segments.Load().len() }

// TrimTo makes offset the log start offset, and removes the segments before it: Kafka's DeleteRecords. Records that are not durable yet are made durable
// first, so that the log start never leads the log's end. An offset before the log start changes nothing; one behind the log end is kafka.ErrOffsetOutOfRange.
func (l *Log) TrimTo(ctx context.Context, offset int64) error {
	if offset <= l.start.Load() {
		return nil
	}
	if err := l.WaitDurable(ctx, offset); err != nil {
		return err
	}
	l.shape.Lock()
	defer l.shape.Unlock()
	if offset <= l.start.Load() {
		return nil
	}
	_, err := l.removeUpTo(offset)
	return l.pressed(err)
}

// usable returns why the segments cannot be changed, nil if they can. shape is held.
func (l *Log) usable() error {
	if l.closing.Load() {
		return l.closedErr()
	}
	if l.o.ReadOnly {
		return fmt.Errorf("%s: %w", l.o.TopicPartition, kafka.ErrReadOnly)
	}
	return l.Err()
}

// expired returns how many of the sealed segments go, and how many more would if the clock were not in doubt.
func (l *Log) expired(sealed []*segment, r Retention) (n, held int) {
	start := l.start.Load()
	for n < len(sealed) && sealed[n].next <= start {
		n++
	}
	if r.Bytes >= 0 && n < len(sealed) {
		total := l.segments.Load().active.written.Load()
		for _, s := range sealed[n:] {
			total += s.sealedSize.Load()
		}
		for ; n < len(sealed) && total-sealed[n].sealedSize.Load() >= r.Bytes; n++ {
			total -= sealed[n].sealedSize.Load()
		}
	}
	if r.Age < 0 {
		return n, 0
	}
	sure, maybe := n, n
	for i := n; i < len(sealed); i++ {
		s := sealed[i]
		t, ok := l.greatestTime(s, r.Now)
		if !ok {
			continue // what cannot be read goes with the one behind it
		}
		if r.Now-t <= r.Age.Milliseconds() {
			break
		}
		maybe = i + 1
		if r.Now-t-r.Doubt.Milliseconds() > r.Age.Milliseconds() {
			sure = i + 1
		}
	}
	n = min(maybe, sure+r.Most)
	return n, maybe - n
}

// greatestTime is the greatest timestamp in a sealed segment, in ms; ok is false if nobody knows.
func (l *Log) greatestTime(s *segment, now int64) (t int64, ok bool) {
	if t, ok := l.recordedTime(s); ok && credible(t, now) {
		return t, true
	}
	info, err := l.o.FS.Stat(s.name(suffixLog))
	return info.ModTime.UnixMilli(), err == nil
}

// recordedTime is what the segment's records say; ok is false if they say nothing, or some of them cannot be read.
func (l *Log) recordedTime(s *segment) (t int64, ok bool) {
	if !s.acquire() {
		return 0, false
	}
	defer s.release()
	f, err := s.open()
	if err != nil {
		return 0, false
	}
	x, err := l.loaded(s, f)
	if err != nil || x.holes {
		return 0, false
	}
	last, ok := x.times.Last()
	return last.Timestamp, ok
}

// rollIdle seals the active segment if it has come of age, or if all that it holds may go.
func (l *Log) rollIdle(r Retention) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.segments.Load().active
	if s == nil || s.written.Load() == 0 {
		return nil
	}
	if s.seen == 0 {
		s.seen = r.Now
	}
	if due := r.Now-s.began(r.Now)-r.Doubt.Milliseconds() > l.settings.Load().SegmentAge.Milliseconds(); !due && !l.allGone(s, r) {
		return nil
	}
	return l.rollNow(s)
}

// began is the time from which the age of the active segment counts: that of its first record, if that is credible.
func (s *segment) began(now int64) int64 {
	if !credible(s.firstTime, now) {
		return s.seen
	}
	return s.firstTime
}

// lastTime is the greatest timestamp of the active segment; if that is not credible, the time of its last change, which stores into a mapped file do not show at once.
func (l *Log) lastTime(s *segment, now int64) int64 {
	if t := s.maxTime.Timestamp; credible(t, now) {
		return t
	}
	info, err := l.o.FS.Stat(s.name(suffixLog))
	if err != nil {
		return now
	}
	return info.ModTime.Add(unseenChange).UnixMilli()
}

const (
	// farFuture is how far ahead of the wall clock a timestamp may be: clocks differ, and time goes on.
	farFuture = time.Hour
	// unseenChange is by how much the time of a mapped file's last change may be behind.
	unseenChange = time.Minute
)

// credible reports whether t, in ms, can be the time of a record.
func credible(t, now int64) bool { return t >= 0 && t-now <= farFuture.Milliseconds() }

// rollNow begins a new segment though the active one has room.
func (l *Log) rollNow(s *segment) error {
	if !l.mu.marked {
		if err := l.begin(); err != nil {
			return err
		}
	}
	_, err := l.roll(s, 0)
	return err
}

// allGone reports whether nothing that the active segment holds is to be kept.
func (l *Log) allGone(s *segment, r Retention) bool {
	if l.start.Load() == l.end.Load() && s.written.Load() >= reserveMin { // for less it would not be worth a new file
		return true
	}
	if r.Age < 0 {
		return false
	}
	return r.Now-l.lastTime(s, r.Now)-r.Doubt.Milliseconds() > r.Age.Milliseconds()
}

// removeUpTo makes start the log start offset and removes the segments before it. shape is held.
func (l *Log) removeUpTo(start int64) (Removed, error) {
	if err := l.usable(); err != nil {
		return Removed{}, err
	}
	if start > l.start.Load() {
		if err := l.o.Checkpoints.SetLogStart(start); err != nil {
			return Removed{}, err
		}
		l.start.Store(start)
	}
	gone := Removed{LogStart: start}
	var old []*segment
	for _, s := range l.segments.Load().sealed() {
		if s.next > start {
			break
		}
		old = append(old, s)
		gone.Segments++
		gone.Bytes += s.sealedSize.Load()
	}
	if len(old) > 0 {
		l.mu.Lock()
		l.segments.Store(l.segments.Load().without(old))
		l.mu.unswept = true
		l.mu.Unlock()
		for _, s := range old {
			s.disown()
		}
	}
	err := l.sweep()
	for _, s := range old {
		s.retire()
	}
	return gone, err
}

// sweep removes files that belong to no segment any more, if there may be some. shape is held.
func (l *Log) sweep() error {
	l.mu.Lock()
	due, extra, r := l.mu.unswept, l.mu.extra, l.segments.Load()
	l.mu.Unlock()
	if !due || r.active == nil {
		return nil
	}
	infos, err := l.o.FS.List(l.o.Dir)
	if err != nil {
		return err
	}
	for _, i := range infos {
		base, suffix, ok := parseName(i.Name)
		// From the active segment on, the writer makes files before anybody knows of them.
		if !ok || base >= r.active.base || l.isBase(base) || suffix == suffixSnapshot && base == extra {
			continue
		}
		if err := removeFile(l.o.FS, fileName(l.o.Dir, base, suffix)); err != nil {
			return err
		}
	}
	if err := l.o.FS.SyncDir(l.o.Dir); err != nil {
		return err
	}
	l.mu.Lock()
	l.mu.unswept = false
	l.mu.Unlock()
	return nil
}
