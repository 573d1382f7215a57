package rlog

import (
	"errors"
	"fmt"
	"io/fs"
	"math"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/sabotage"
	"github.com/runnelmq/runnel/internal/vfs"
)

// cleaner writes the segment that takes the place of a group.
type cleaner struct {
	p *pass
	t *segment
	// f is nil while what stays is what is there: up to pos, byte for byte, of the group's only segment.
	f    vfs.File
	src  vfs.File // of the group's first segment
	size int64    // of the group
	pos  int64    // behind what was written
	buf  []byte   // and not written yet
	// Offsets [gap, due) are those of batches that are gone; gap is due where there are none.
	gap, due int64
	epoch    int32 // of the last batch that is gone
	filler   []byte
}

const cleanerBuffer = 256 << 10

// rewriteGroup writes what stays of a group and swaps it in. Of a segment from which nothing goes nothing is written.
func (p *pass) rewriteGroup(group []*segment) (err error) {
	l, first, last := p.l, group[0], group[len(group)-1]
	c := &cleaner{p: p, t: l.newSegment(first.base), gap: first.base, due: first.base}
	c.t.indexes.Store(newIndexes(first.base))
	c.t.next = last.next
	// Whoever reads the sources, now or later, does so by files that are open: their names are about to be others'.
	pinned := 0
	defer func() {
		for _, s := range group[:pinned] {
			s.release()
		}
	}()
	for i, s := range group {
		if !s.acquire() {
			return errMoved
		}
		pinned++
		f, err := s.open()
		if err != nil {
			if p.deleted(s) {
				return errMoved
			}
			if vfs.IsTooManyOpen(err) {
				return err
			}
			return &damage{s, err}
		}
		if i == 0 {
			c.src = f
		}
		c.size += s.sealedSize.Load()
	}
	if len(group) > 1 {
		err = c.begin()
	}
	if err == nil {
		err = c.run(group)
	}
	if c.f == nil {
		return err
	}
	if err == nil && !sabotage.On(sabotage.SwapNoSync) {
		err = l.syncFile(c.f)
	}
	if err = errors.Join(err, c.f.Close()); err == nil {
		err = l.swap(group, c.t, p.c.Ready)
	}
	if err != nil {
		return errors.Join(err, l.removeCleaned(c.t.name(suffixCleaned)))
	}
	p.done.Segments += len(group)
	p.done.Read += c.size
	p.done.Written += c.pos
	return nil
}

// begin makes the file, with what has been found to stay as it is; if it is there already, it does nothing.
func (c *cleaner) begin() (err error) {
	if c.f != nil {
		return nil
	}
	if c.f, err = c.p.l.createCleaned(c.t.name(suffixCleaned)); err != nil {
		return err
	}
	if c.pos == 0 {
		return nil
	}
	if err := c.p.l.room(c.pos); err != nil {
		return err
	}
	if err := copyRange(c.f, c.src, 0, c.pos); err != nil {
		return err
	}
	return c.p.pace(int(c.pos))
}

// createCleaned makes the file that compaction writes to. A log that is closed has no directory any more that is its own.
func (l *Log) createCleaned(name string) (vfs.File, error) {
	l.shape.Lock()
	defer l.shape.Unlock()
	if err := l.usable(); err != nil {
		return nil, err
	}
	return createEmpty(l.o.FS, name)
}

func (l *Log) removeCleaned(name string) error {
	l.shape.Lock()
	defer l.shape.Unlock()
	if l.closing.Load() {
		return nil // Open does it
	}
	return removeFile(l.o.FS, name)
}

// pressed gives an error of a full disk its kind.
func (l *Log) pressed(err error) error {
	if vfs.IsNoSpace(err) {
		return l.diskFull(err)
	}
	return err
}

// room refuses to write so many bytes if they would leave too little of the file system free. Compaction may take most of what appends leave: a disk that they have filled gets space
// again in no other way.
func (l *Log) room(size int64) error {
	if l.o.MinFree <= 0 {
		return nil
	}
	free, _, err := l.o.FS.Free(l.o.Dir)
	if keep := l.o.MinFree / 4; err == nil && free-size < keep {
		err = l.diskFull(fmt.Errorf("%d bytes free, compaction leaves %d", free, keep))
	}
	return err
}

func (c *cleaner) run(group []*segment) error {
	for _, s := range group {
		if err := c.p.each(s, c.take); err != nil {
			return err
		}
	}
	if err := c.fill(); err != nil {
		return err
	}
	c.t.closeTimes()
	c.t.written.Store(c.pos + int64(len(c.buf)))
	return c.write()
}

// take writes what stays of a batch.
func (c *cleaner) take(b batch.Batch) error {
	filler := b.Count() == 0 && b.ProducerID() < 0
	out, kept := b, -1
	if !filler {
		var err error
		if out, kept, err = c.p.compacted(b); err != nil {
			return err
		}
	}
	gone := filler || out.Count() == 0 && !c.repeatable(b)
	// A filler alone is written again as it is.
	if kept >= 0 || gone && !filler || filler && c.gap < b.BaseOffset() {
		if err := c.begin(); err != nil {
			return err
		}
	}
	if gone {
		c.due, c.epoch = b.LastOffset()+1, b.LeaderEpoch()
		return nil
	}
	c.due = b.BaseOffset()
	if err := c.fill(); err != nil {
		return err
	}
	if err := c.append(out); err != nil {
		return err
	}
	c.due = b.LastOffset() + 1
	c.gap = c.due
	return nil
}

// repeatable reports whether b's producer may send it again: it is known by its sequence, so its header stays.
func (c *cleaner) repeatable(b batch.Batch) bool {
	_, yes := c.p.repeatable[b.LastOffset()]
	return yes && b.ProducerID() >= 0
}

// fill writes an empty batch for the offsets of those that are gone.
func (c *cleaner) fill() error {
	if c.gap == c.due {
		return nil
	}
	c.filler = batch.Filler(c.filler, c.gap, c.due, c.epoch)
	c.gap = c.due
	return c.append(c.filler)
}

func (c *cleaner) append(b batch.Batch) error {
	pos := c.pos + int64(len(c.buf))
	if pos+int64(len(b)) > math.MaxInt32 {
		return fmt.Errorf("%s: segment %d would be larger after compaction than a segment can be", c.p.l.o.TopicPartition, c.t.base)
	}
	c.t.note(b, pos, c.p.l.settings.Load().IndexInterval)
	if c.f == nil {
		c.pos += int64(len(b))
		return nil
	}
	c.buf = append(c.buf, b...)
	if len(c.buf) < cleanerBuffer {
		return nil
	}
	return c.write()
}

func (c *cleaner) write() error {
	if len(c.buf) == 0 {
		return nil
	}
	if err := c.p.l.room(int64(len(c.buf))); err != nil {
		return err
	}
	if _, err := c.f.WriteAt(c.buf, c.pos); err != nil {
		return err
	}
	c.pos += int64(len(c.buf))
	n := len(c.buf)
	c.buf = c.buf[:0]
	return c.p.pace(n)
}

// swap puts t, which is complete and durable as .cleaned, in the place of the group. From the moment that its name is .swap, and that is durable, the next Open would finish
// what this begins.
func (l *Log) swap(group []*segment, t *segment, ready func() error) error {
	l.shape.Lock()
	defer l.shape.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	for _, s := range group {
		if !l.segments.Load().has(s) {
			return errMoved
		}
	}
	if ready != nil {
		if err := ready(); err != nil {
			return err
		}
	}
	fsys, dir := l.o.FS, l.o.Dir
	info, err := fsys.Stat(group[len(group)-1].name(suffixLog))
	if err != nil {
		return err
	}
	if err := fsys.SetModTime(t.name(suffixCleaned), info.ModTime); err != nil {
		return err
	}
	if sabotage.On(sabotage.DirSyncFirst) {
		if err := fsys.SyncDir(dir); err != nil {
			return err
		}
	}
	if err := fsys.Rename(t.name(suffixCleaned), t.name(suffixSwap)); err != nil {
		return err
	}
	// From here on only recovery could tell what the directory holds if something fails.
	bases := make([]int64, len(group))
	for i, s := range group {
		bases[i] = s.base
		s.disown()
	}
	if err := finishSwap(fsys, dir, bases); err != nil {
		return l.fail(err)
	}
	_ = t.writeIndexes(fsys, true) // hints: without the files the next Open makes them
	t.seal(t.next)
	l.mu.Lock()
	l.segments.Store(l.segments.Load().swapped(group, t))
	l.mu.unswept = true
	l.mu.Unlock()
	for _, s := range group {
		s.retire()
	}
	return nil
}

// finishSwap makes the .swap file of the first of bases, whose segments it stands for, their only one.
func finishSwap(fsys vfs.FS, dir string, bases []int64) error {
	first := bases[0]
	if !sabotage.On(sabotage.DirSyncFirst) {
		if err := fsys.SyncDir(dir); err != nil {
			return err
		}
	}
	for _, base := range bases {
		for _, suffix := range []string{suffixLog, suffixIndex, suffixTimeIndex} {
			if base == first && suffix == suffixLog {
				continue // replaced
			}
			if err := removeFile(fsys, fileName(dir, base, suffix)); err != nil {
				return err
			}
		}
	}
	if err := fsys.SyncDir(dir); err != nil {
		return err
	}
	if err := fsys.Rename(fileName(dir, first, suffixSwap), fileName(dir, first, suffixLog)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fsys.SyncDir(dir)
}
