package rlog

import (
	"math"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// Behind says what lies from offset from up to offset to: how many records, and the timestamp in ms of the first of them, kafka.NoTimestamp if there is none. Offsets that hold no record do not count. It goes
// through the batches as far as compaction has come, where there may be holes, and looks at one of those behind.
func (l *Log) Behind(from, to int64) (records, oldest int64, err error) {
	c := l.NewCursor(from)
	defer c.Close()
	oldest = kafka.NoTimestamp
	for {
		at := c.Offset()
		b, err := c.Next(to)
		if b == nil || err != nil {
			return records, oldest, err
		}
		if records > 0 && b.BaseOffset() >= l.cleaned.Load() {
			return records + to - b.BaseOffset(), oldest, nil
		}
		n, first, err := l.recordsIn(c.File(), b, at, to, oldest == kafka.NoTimestamp)
		if err != nil {
			return records, oldest, err
		}
		records += n
		if n > 0 && oldest == kafka.NoTimestamp {
			oldest = first
		}
	}
}

// recordsIn counts a batch's records from offset from up to offset to, and returns the timestamp of the first of them if read is set.
func (l *Log) recordsIn(f vfs.File, b batch.Batch, from, to int64, read bool) (n, first int64, err error) {
	defer vfs.Catch(vfs.Arm(), f, &err)
	if b.Control() {
		return 0, 0, nil
	}
	if !read && b.BaseOffset() >= from && b.LastOffset() < to {
		return int64(b.Count()), 0, nil
	}
	var buf []byte
	plain, err := new(batch.Decompressor).Plain(b, &buf, MaxPlain)
	if err != nil {
		return 0, 0, err
	}
	it := plain.Iter()
	var r batch.Record
	for it.Next(&r) && r.Offset < to {
		if r.Offset < from {
			continue
		}
		if n == 0 {
			first = r.Timestamp
		}
		n++
	}
	return n, first, it.Err()
}

// BytesFrom is how many bytes the log has from the batch that holds an offset on, if that is in its last segment; before, it is more than anybody waits for.
func (l *Log) BytesFrom(offset int64) (int64, error) {
	c := l.NewCursor(offset)
	defer c.Close()
	c.Check = CheckLater
	b, err := c.Next(math.MaxInt64)
	if b == nil || err != nil {
		return 0, err
	}
	if c.s.sealedSize.Load() >= 0 {
		return math.MaxInt64, nil
	}
	return c.s.written.Load() - c.pos + int64(len(b)), nil
}
