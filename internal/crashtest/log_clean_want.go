package crashtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/vfs"
	rlog "github.com/runnelmq/runnel/log"
)

// earliest is the least timestamp of a record; all lie within a second.
const earliest = 1_700_000_000_000

// A logPass is a compaction that has begun. Exported fields, because images are written with gob.
type logPass struct {
	To      int64 // it looks at the keys below
	Now     int64 // ms
	Horizon int64 // what it gives to tombstones
	Done    bool
}

// successors say of the records below an offset what compaction may make of them.
type successors struct {
	to   int64
	next []int64 // the next one of the same key; its own offset if it has no key; -1 if it is the last one, -2 if that is a tombstone
}

const (
	isLast      = -1
	isTombstone = -2
)

// begin notes that a pass over the offsets below to begins.
func (w *logWant) begin(to, now int64, retention time.Duration) {
	w.Passes = append(slices.Clip(w.Passes), logPass{To: to, Now: now, Horizon: now + retention.Milliseconds()})
	w.known = nil
}

// ended notes that it has ended: what it looked at is as it should be. One that found nothing to do was none.
func (w *logWant) ended(done rlog.Compacted) error {
	w.Passes = slices.Clone(w.Passes)
	last := len(w.Passes) - 1
	p := &w.Passes[last]
	if done.To <= done.From {
		w.Passes = w.Passes[:last]
		w.known = nil
		return nil
	}
	if done.To != p.To || done.More || len(done.Damaged) > 0 {
		return fmt.Errorf("A12: the pass up to %d did %+v", p.To, done)
	}
	p.Done = true
	return nil
}

// compact makes a pass, and reads the log.
func (w *logWant) compact(l *rlog.Log, r *rand.Rand, to int64) error {
	now := earliest + 1000 + int64(len(w.Passes))*1000
	retention := time.Duration(r.IntN(3)) * time.Second
	w.begin(to, now, retention)
	done, err := l.Compact(context.Background(), rlog.Compaction{Now: now, DeleteRetention: retention, MapBytes: 1 << 20})
	if err != nil {
		return fmt.Errorf("A12: compact: %w", err)
	}
	if err := w.ended(done); err != nil {
		return err
	}
	_, err = w.verify(l, w.Written, w.Written)
	return err
}

// trim makes an offset the log start.
func (w *logWant) trim(l *rlog.Log, r *rand.Rand) error {
	at := w.Start + r.Int64N(w.Written-w.Start+1)
	if err := l.TrimTo(context.Background(), at); err != nil {
		return fmt.Errorf("A11: trim to %d: %w", at, err)
	}
	w.Start = max(w.Start, at)
	w.claim(at)
	_, err := w.verify(l, w.Written, w.Written)
	return err
}

// retain removes what is too much or too old.
func (w *logWant) retain(l *rlog.Log, r *rand.Rand) error {
	c := rlog.Retention{Now: earliest + 1000, Age: -1, Bytes: -1, Most: 10}
	switch r.IntN(4) {
	case 0:
		c.Age = time.Duration(r.Int64N(1200)) * time.Millisecond
	case 1:
		c.Now += 8 * 24 * 3_600_000 // all have come of age
	default:
		c.Bytes = r.Int64N(20_000)
	}
	gone, err := l.Retain(c)
	if err != nil {
		return fmt.Errorf("A11: retain %+v: %w", c, err)
	}
	if gone.LogStart < w.Start || gone.LogStart > w.Written {
		return fmt.Errorf("A11: retain %+v moved the log start from %d to %d of %d", c, w.Start, gone.LogStart, w.Written)
	}
	w.Start = gone.LogStart
	w.claim(gone.LogStart)
	_, err = w.verify(l, w.Written, w.Written)
	return err
}

// tidy takes something away that the log need not keep; the last segment begins at active.
func (w *logWant) tidy(l *rlog.Log, r *rand.Rand, active int64) error {
	switch n := r.IntN(10); {
	case n < 6 && active > w.Start:
		return w.compact(l, r, active)
	case n < 8:
		return w.trim(l, r)
	default:
		return w.retain(l, r)
	}
}

// looked is the offset below which some pass has begun to look at keys, and below which one has ended.
func (w *logWant) looked() (begun, ended int64) {
	for _, p := range w.Passes {
		begun = max(begun, p.To)
		if p.Done {
			ended = max(ended, p.To)
		}
	}
	return begun, ended
}

// successors returns what is known of the records that passes have looked at.
func (w *logWant) successors() *successors {
	to, _ := w.looked()
	if w.known != nil && w.known.to == to {
		return w.known
	}
	s := &successors{to: to, next: make([]int64, to)}
	last := map[string]int64{}
	w.records(0, to, func(r *batch.Record) {
		if r.Key == nil {
			s.next[r.Offset] = r.Offset
			return
		}
		if before, ok := last[string(r.Key)]; ok {
			s.next[before] = r.Offset
		}
		last[string(r.Key)] = r.Offset
		s.next[r.Offset] = isLast
		if r.Value == nil {
			s.next[r.Offset] = isTombstone
		}
	})
	w.known = s
	return s
}

// records calls fn with the records of the batches that begin at from and behind it, below to.
func (w *logWant) records(from, to int64, fn func(r *batch.Record)) {
	for _, b := range w.Sent {
		if b.BaseOffset() < from || b.BaseOffset() >= to {
			continue
		}
		it := b.Iter()
		for r := (batch.Record{}); it.Next(&r); {
			fn(&r)
		}
	}
}

// fate says whether a record may be gone, and whether it has to be.
func (w *logWant) fate(offset int64) (may, must bool) {
	begun, ended := w.looked()
	if offset < w.Start {
		return true, false
	}
	if offset >= begun {
		return false, false
	}
	s := w.successors()
	switch next := s.next[offset]; next {
	case isLast:
		return false, false
	case isTombstone:
		return w.expired(offset, false), w.expired(offset, true)
	default:
		return true, next < ended
	}
}

// expired reports whether a tombstone has met a pass after its time; of passes that have ended only, if done is set.
func (w *logWant) expired(offset int64, done bool) bool {
	horizon := int64(-1)
	for _, p := range w.Passes {
		if p.To <= offset || done && !p.Done {
			continue
		}
		if horizon >= 0 && horizon <= p.Now {
			return true
		}
		if horizon < 0 {
			horizon = p.Horizon
		}
	}
	return false
}

// A cleanScan reads a log that may have been compacted.
type cleanScan struct {
	w *logWant
	// found are the offsets of the keys that have been read, as far as passes have looked.
	found map[string]int64
}

// take compares a batch of the log with what was sent from Sent[i] on, and returns for how many of those it stands.
func (c *cleanScan) take(b batch.Batch, i int) (n int, err error) {
	w := c.w
	if i >= len(w.Sent) {
		return 0, fmt.Errorf("A4/A6: %s is not what was sent", describe(b))
	}
	begun, _ := w.looked()
	sent := w.Sent[i]
	if sent.BaseOffset() >= begun {
		if !bytes.Equal(b, sent) {
			return 0, fmt.Errorf("A4/A6: batch %d, at offset %d, is not what was sent: %s, want %s", i, sent.BaseOffset(), describe(b), describe(sent))
		}
		return 1, nil
	}
	for n = 1; w.Sent[i+n-1].LastOffset() < b.LastOffset() && i+n < len(w.Sent); n++ {
	}
	if w.Sent[i+n-1].LastOffset() != b.LastOffset() || b.LastOffset() >= begun {
		return 0, fmt.Errorf("A12: %s has parts of batches, or was not looked at: %s", describe(b), describe(w.Sent[i+n-1]))
	}
	filler := b.Count() == 0 && b.ProducerID() < 0
	if !filler && (n > 1 || b.LeaderEpoch() != sent.LeaderEpoch() || b.ProducerID() != sent.ProducerID() ||
		b.ProducerEpoch() != sent.ProducerEpoch() || b.BaseSequence() != sent.BaseSequence()) {
		return 0, fmt.Errorf("A12: %s stands where %s was sent", describe(b), describe(sent))
	}
	if at, dated := b.DeleteHorizon(); dated && !slices.ContainsFunc(w.Passes, func(p logPass) bool { return p.Horizon == at }) {
		return 0, fmt.Errorf("A12: %s has the horizon %d, which no pass gave", describe(b), at)
	}
	return n, c.records(b, w.Sent[i:i+n])
}

// records compares the records of b with those of the batches for which it stands.
func (c *cleanScan) records(b batch.Batch, sent []batch.Batch) error {
	it := b.Iter()
	var have batch.Record
	more := it.Next(&have)
	for _, s := range sent {
		is := s.Iter()
		for r := (batch.Record{}); is.Next(&r); {
			for more && have.Offset < r.Offset {
				return fmt.Errorf("A12: record %d was not sent", have.Offset)
			}
			if !more || have.Offset > r.Offset {
				if err := c.absent(&r); err != nil {
					return err
				}
				continue
			}
			if !bytes.Equal(have.Key, r.Key) || !bytes.Equal(have.Value, r.Value) || (have.Value == nil) != (r.Value == nil) || have.Timestamp != r.Timestamp {
				return fmt.Errorf("A12: record %d is not what was sent", r.Offset)
			}
			if err := c.present(&r); err != nil {
				return err
			}
			more = it.Next(&have)
		}
	}
	if err := it.Err(); err != nil || more {
		return fmt.Errorf("A12: %s: more records than were sent, error %v", describe(b), err)
	}
	return nil
}

func (c *cleanScan) present(r *batch.Record) error {
	if _, must := c.w.fate(r.Offset); must {
		return fmt.Errorf("A12: record %d of %s is there, though passes %+v took it", r.Offset, strconv.Quote(string(r.Key)), c.w.Passes)
	}
	if r.Offset >= c.w.Start && r.Key != nil {
		c.found[string(r.Key)] = r.Offset
	}
	return nil
}

func (c *cleanScan) absent(r *batch.Record) error {
	if may, _ := c.w.fate(r.Offset); !may {
		return fmt.Errorf("A12: record %d of %s is gone, with the log start at %d and passes %+v", r.Offset, strconv.Quote(string(r.Key)), c.w.Start, c.w.Passes)
	}
	if r.Offset < c.w.Start {
		return nil
	}
	if at, ok := c.found[string(r.Key)]; ok && r.Key != nil && c.w.successors().next[r.Offset] == isTombstone {
		return fmt.Errorf("A12: the tombstone %d is gone, and the record %d of its key is there", r.Offset, at)
	}
	return nil
}

// checkFiles says what lies in a partition's directory and belongs to no segment of a log that starts at this offset.
func checkFiles(fsys vfs.FS, dir string, start int64) error {
	infos, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var bases []int64
	for _, i := range infos {
		if name, ok := strings.CutSuffix(i.Name, ".log"); ok {
			base, _ := strconv.ParseInt(name, 10, 64)
			bases = append(bases, base)
		}
	}
	if len(bases) == 0 {
		return nil
	}
	if len(bases) > 1 && bases[1] <= start {
		return fmt.Errorf("A10: the log starts at %d, and there are segments %v", start, bases)
	}
	extra := 0
	for _, i := range infos {
		num, suffix, _ := strings.Cut(i.Name, ".")
		base, _ := strconv.ParseInt(num, 10, 64)
		switch known := slices.Contains(bases, base); {
		case suffix == "snapshot" && !known:
			extra++
		case suffix == "log" || suffix == "metadata" || known && (suffix == "index" || suffix == "timeindex" || suffix == "snapshot"):
			continue
		default:
			return fmt.Errorf("A10: %s belongs to none of the segments %v", i.Name, bases)
		}
	}
	if extra > 1 {
		return fmt.Errorf("A10: %d snapshots belong to none of the segments %v", extra, bases)
	}
	return nil
}

// activeBase is the base offset of the last segment, -1 if there is none.
func activeBase(disk *vfs.Sim, dir string) int64 {
	base := int64(-1)
	files, _ := disk.List(dir)
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name, ".log"); ok {
			n, _ := strconv.ParseInt(name, 10, 64)
			base = max(base, n)
		}
	}
	return base
}
