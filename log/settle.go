package rlog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/vfs"
)

// settleSwaps brings to an end what compaction had begun when the log was closed: what was being written is removed, what was complete takes the place of its sources. It
// returns what is in the directory then.
func (l *Log) settleSwaps(infos []vfs.Info) ([]vfs.Info, error) {
	changed := false
	for _, i := range infos {
		base, suffix, ok := parseName(i.Name)
		if !ok || suffix != suffixCleaned && suffix != suffixSwap {
			continue
		}
		changed = true
		var err error
		if suffix == suffixCleaned {
			err = removeFile(l.o.FS, fileName(l.o.Dir, base, suffix))
		} else {
			err = l.settleSwap(infos, base)
		}
		if err != nil {
			return nil, err
		}
	}
	if !changed {
		return infos, nil
	}
	return l.o.FS.List(l.o.Dir)
}

func (l *Log) settleSwap(infos []vfs.Info, base int64) error {
	name := fileName(l.o.Dir, base, suffixSwap)
	end, err := l.wholeUpTo(name, base)
	if err != nil && !isDamage(err) {
		return err
	}
	if err == nil && !followed(infos, base, end) {
		err = fmt.Errorf("%w: it ends at offset %d, where no segment begins", batch.ErrShort, end)
	}
	if isDamage(err) && l.sourcesAreThere(infos, base) {
		// It was durable and whole before it got this name, so the disk has damaged it.
		to, aerr := l.setAside(name, base)
		if aerr == nil && l.o.Events.Quarantined != nil {
			l.o.Events.Quarantined(l.o.TopicPartition, name, to, err)
		}
		return aerr
	}
	bases := []int64{base}
	for _, i := range infos {
		if b, suffix, ok := parseName(i.Name); ok && suffix == suffixLog && b > base && b < end {
			bases = append(bases, b)
		}
	}
	return finishSwap(l.o.FS, l.o.Dir, bases)
}

// sourcesAreThere reports whether no source of a swap has been removed yet: they go in order, but for the first, which is replaced at last.
func (l *Log) sourcesAreThere(infos []vfs.Info, base int64) bool {
	end, err := l.wholeUpTo(fileName(l.o.Dir, base, suffixLog), base)
	return err == nil && followed(infos, base, end)
}

// followed reports whether a segment begins where one from base on ends.
func followed(infos []vfs.Info, base, end int64) bool {
	return end > base && slices.ContainsFunc(infos, func(i vfs.Info) bool {
		b, suffix, ok := parseName(i.Name)
		return ok && suffix == suffixLog && b == end
	})
}

// wholeUpTo reads a file of batches and returns the offset behind its last; with an error that isDamage knows, behind the last one before the damage.
func (l *Log) wholeUpTo(name string, base int64) (end int64, err error) {
	f, err := l.o.FS.OpenRead(name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return walkWhole(f, base)
}

func walkWhole(f vfs.File, due int64) (end int64, err error) {
	defer vfs.Catch(vfs.Arm(), f, &err)
	w := walker{f: f, limit: f.Size()}
	for pos := int64(0); pos < w.limit; {
		b, err := w.wholeAt(pos, due)
		if err != nil {
			return due, err
		}
		pos += int64(len(b))
		due = b.LastOffset() + 1
	}
	return due, nil
}
