package rlog

import (
	"errors"
	"fmt"
	"math"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/vfs"
)

// walker reads batches of one segment file. What it returns aliases the file or the walker's buffer and is valid until
// its next call; touching it can fault, so callers are guarded by vfs.Catch.
type walker struct {
	f     vfs.File
	limit int64 // no batch reaches beyond; bytes below never change

	win    []byte // bytes of the file from at on
	at     int64
	buf    []byte
	copied bool // the last window was read into buf: ask for more at a time
}

// readAhead is how much is read at once where the file is not mapped.
const readAhead = 128 << 10

// bytes returns n bytes at pos, all below limit.
func (w *walker) bytes(pos, n int64) ([]byte, error) {
	if off := pos - w.at; off >= 0 && off+n <= int64(len(w.win)) {
		return w.win[off : off+n : off+n], nil
	}
	want := n
	if w.copied {
		want = max(n, min(readAhead, w.limit-pos))
	}
	p, err := w.f.Window(pos, int(want), &w.buf)
	if err != nil {
		return nil, err
	}
	w.copied = len(p) > 0 && len(w.buf) > 0 && &p[0] == &w.buf[0]
	w.win, w.at = p, pos
	return p[:n:n], nil
}

// header returns the header of the batch at pos, and the batch's size. Nothing but magic and length is checked.
func (w *walker) header(pos int64) (batch.Batch, int64, error) {
	left := w.limit - pos
	if left < batch.HeaderSize {
		return nil, 0, fmt.Errorf("%w: %d bytes left", batch.ErrShort, left)
	}
	h, err := w.bytes(pos, batch.HeaderSize)
	if err != nil {
		return nil, 0, err
	}
	n, err := batch.Peek(h)
	if err != nil {
		return nil, 0, err
	}
	if int64(n) > left {
		return nil, 0, fmt.Errorf("%w: %d bytes, %d left", batch.ErrLength, n, left)
	}
	return batch.Batch(h), int64(n), nil
}

// whole returns the batch at pos, checked.
func (w *walker) whole(pos int64) (batch.Batch, error) {
	_, n, err := w.header(pos)
	if err != nil {
		return nil, err
	}
	b, err := w.bytes(pos, n)
	if err != nil {
		return nil, err
	}
	return b, batch.Check(b)
}

// wholeAt returns the batch at pos, checked, also that it is the one that is due there: its offset is outside the checksum.
func (w *walker) wholeAt(pos, due int64) (batch.Batch, error) {
	b, err := w.whole(pos)
	if err == nil && b.BaseOffset() != due {
		return nil, fmt.Errorf("%w: offset %d where %d is due", batch.ErrHeader, b.BaseOffset(), due)
	}
	return b, err
}

// isDamage tells bytes that are not a whole batch from a file that cannot be read.
func isDamage(err error) bool {
	for _, e := range []error{batch.ErrShort, batch.ErrMagic, batch.ErrLength, batch.ErrHeader, batch.ErrCRC} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// walk calls fn with every whole batch from pos on, where offset due is expected (-1: any), until limit is reached or fn returns false. Damage is
// passed over: missed reports that there was some. An offset that does not follow the last one is damage too: it is outside the checksum. fn's
// batch is valid during the call.
func walk(f vfs.File, pos, due, limit int64, fn func(b batch.Batch, pos int64) bool) (missed bool, err error) {
	defer vfs.Catch(vfs.Arm(), f, &err)
	w := walker{f: f, limit: limit}
	for pos < limit {
		b, err := w.whole(pos)
		if isDamage(err) || err == nil && due >= 0 && b.BaseOffset() != due {
			missed = true
			if pos, due, err = w.resync(pos, due+1, math.MaxInt64); err != nil {
				return missed, err
			}
			continue
		}
		if err != nil {
			return missed, err
		}
		if !fn(b, pos) {
			break
		}
		pos += int64(len(b))
		due = b.LastOffset() + 1
	}
	return missed, nil
}

// resync finds the first whole batch behind pos whose base offset is from least to most, and returns limit and -1 if there is none.
func (w *walker) resync(pos, least, most int64) (at, base int64, err error) {
	// Only the bytes of a mapping cost nothing to look at one by one.
	w.copied = true
	for at = pos + 1; at+batch.HeaderSize <= w.limit; at++ {
		h, err := w.bytes(at, batch.HeaderSize)
		if err != nil {
			return 0, 0, err
		}
		// A look that makes no errors: there may be a gigabyte to look at.
		if base = batch.Batch(h).BaseOffset(); base < least || base > most || !batch.Batch(h).Known() {
			continue
		}
		if _, err = w.whole(at); err == nil {
			return at, base, nil
		}
		if !isDamage(err) {
			return 0, 0, err
		}
	}
	return w.limit, -1, nil
}
