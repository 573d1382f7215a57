package rlog

import (
	"errors"
	"fmt"

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

// isDamage tells bytes that are not a whole batch from a file that cannot be read.
func isDamage(err error) bool {
	for _, e := range []error{batch.ErrShort, batch.ErrMagic, batch.ErrLength, batch.ErrHeader, batch.ErrCRC} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// walk calls fn with the header of every batch from pos on until fn returns false or limit is reached. fn's header is valid during the
// call. It returns the position behind the last batch that fn accepted. Damage is an error as the checks report it.
func walk(f vfs.File, pos, limit int64, fn func(h batch.Batch, pos int64) bool) (end int64, err error) {
	defer vfs.Catch(vfs.Arm(), f, &err)
	w := walker{f: f, limit: limit}
	for pos < limit {
		h, n, err := w.header(pos)
		if err != nil {
			return pos, err
		}
		if !fn(h, pos) {
			break
		}
		pos += n
	}
	return pos, nil
}
