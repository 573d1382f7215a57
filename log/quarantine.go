package rlog

import (
	"errors"
	"io/fs"
	"path"

	"github.com/runnelmq/runnel/internal/sabotage"
	"github.com/runnelmq/runnel/internal/vfs"
)

// cut ends the log at the end of s. If anything but zeros lies behind it, that is taken to the quarantine, and the file is trimmed and synced before anything can be
// appended, so that stale bytes never come back. later are the bases of segments behind s.
func (l *Log) cut(s *segment, tail bool, later []int64) error {
	f := *s.file.Load()
	end, pos, size := l.end.Load(), s.written.Load(), f.Size()
	if tail {
		to, err := l.quarantine(f, end, pos, size)
		if err != nil && (l.o.Believe == nil || !vfs.IsNoSpace(err)) {
			return err // but a disk that fails because it is full is not kept from working by what it has lost
		}
		if !sabotage.On(sabotage.KeepTail) {
			if err := f.Truncate(pos); err != nil {
				return err
			}
			s.reserved = pos
		}
		if l.o.Events.TailCut != nil {
			l.o.Events.TailCut(l.o.TopicPartition, end, s.name(suffixLog), pos, size-pos, to)
		}
	}
	for _, base := range later {
		if err := l.moveAway(base, end); err != nil {
			return err
		}
	}
	if len(later) > 0 {
		if err := l.o.FS.SyncDir(l.o.Dir); err != nil {
			return err
		}
	}
	if !tail && len(later) == 0 {
		return nil
	}
	if err := l.syncFile(f); err != nil {
		return err
	}
	l.durable.Store(end)
	return nil
}

// quarantine copies bytes [pos, size) of f away, durably, and returns the copy's name.
func (l *Log) quarantine(f vfs.File, offset, pos, size int64) (string, error) {
	if err := l.makeQuarantine(); err != nil {
		return "", err
	}
	// Zeros at the end are reserved space.
	for size > pos {
		n := min(size-pos, copyChunk)
		dirty, err := nonZero(f, size-n, size)
		if err != nil {
			return "", err
		}
		if dirty {
			break
		}
		size -= n
	}
	name := l.quarantineName(offset, ".tail")
	out, err := createEmpty(l.o.FS, name) // it is there if recovery was cut short before
	if err != nil {
		return "", err
	}
	err = copyRange(out, f, pos, size)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		if vfs.IsNoSpace(err) {
			err = errors.Join(err, l.o.FS.Remove(name))
		}
		return "", err
	}
	return name, l.o.FS.SyncDir(l.o.Quarantine)
}

// makeQuarantine makes the directory, durably; one that is there may be what a stop has left before its name was.
func (l *Log) makeQuarantine() error {
	if err := l.o.FS.Mkdir(l.o.Quarantine); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return l.o.FS.SyncDir(path.Dir(l.o.Quarantine))
}

const copyChunk = 256 << 10

func copyRange(dst, src vfs.File, pos, size int64) error {
	buf := make([]byte, copyChunk)
	for at := pos; at < size; {
		b := buf[:min(size-at, copyChunk)]
		if _, err := src.ReadAt(b, at); err != nil {
			return err
		}
		if _, err := dst.WriteAt(b, at-pos); err != nil {
			return err
		}
		at += int64(len(b))
	}
	return nil
}

// moveAway takes a segment behind the log's end out of the directory; one without bytes is deleted.
func (l *Log) moveAway(base, end int64) error {
	name := fileName(l.o.Dir, base, suffixLog)
	f, err := l.o.FS.OpenRead(name)
	if err != nil {
		return err
	}
	size := f.Size()
	dirty, err := nonZero(f, 0, size)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	for _, suffix := range []string{suffixIndex, suffixTimeIndex} {
		if err := removeFile(l.o.FS, fileName(l.o.Dir, base, suffix)); err != nil {
			return err
		}
	}
	if !dirty {
		return l.o.FS.Remove(name)
	}
	to, err := l.setAside(name, base)
	if err != nil {
		return err
	}
	if l.o.Events.TailCut != nil {
		l.o.Events.TailCut(l.o.TopicPartition, end, name, 0, size, to)
	}
	return nil
}

// setAside moves a file of the partition to the quarantine and returns its name there. The partition's directory is not synced.
func (l *Log) setAside(name string, offset int64) (to string, err error) {
	if err := l.makeQuarantine(); err != nil {
		return "", err
	}
	to = l.quarantineName(offset, suffixLog)
	if err := l.o.FS.Rename(name, to); err != nil {
		return "", err
	}
	return to, l.o.FS.SyncDir(l.o.Quarantine)
}

// nonZero reports whether any byte of f in [pos, size) is not zero.
func nonZero(f vfs.File, pos, size int64) (yes bool, err error) {
	defer vfs.Catch(vfs.Arm(), f, &err)
	var buf []byte
	for pos < size {
		n := min(size-pos, copyChunk)
		b, err := f.Window(pos, int(n), &buf)
		if err != nil {
			return false, err
		}
		if !allZero(b) {
			return true, nil
		}
		pos += n
	}
	return false, nil
}

func allZero(b []byte) bool {
	for len(b) >= 8 {
		if b[0]|b[1]|b[2]|b[3]|b[4]|b[5]|b[6]|b[7] != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
