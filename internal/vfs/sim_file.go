package vfs

import (
	"errors"
	"io"
	"io/fs"
	"syscall"
)

// simHandle is an open file of a Sim. Its methods take the locks of the Sim; closed is guarded by fs.mu.
type simHandle struct {
	fs     *Sim
	node   *simNode
	name   string
	write  bool
	closed bool
}

func (h *simHandle) Name() string { return h.name }

// check is called with fs.mu held.
func (h *simHandle) check(op string, write bool) error {
	if h.closed {
		return pathError(op, h.name, fs.ErrClosed)
	}
	if write && !h.write {
		return errReadOnly(op, h.name)
	}
	return nil
}

// mutate is Sim.mutate for an operation on this file.
func (h *simHandle) mutate(kind OpKind, off int64, n int, do func() error, fail func(error) error) error {
	checked := func() error {
		err := h.check(kind.String(), true)
		if err == nil && off < 0 {
			err = pathError(kind.String(), h.name, syscall.EINVAL)
		}
		if err != nil {
			return err
		}
		return do()
	}
	return h.fs.mutate(func() Op {
		return Op{Kind: kind, Name: h.node.path(), Off: off, Len: n}
	}, checked, fail)
}

func (h *simHandle) ReadAt(p []byte, off int64) (int, error) {
	if err := h.fs.reading(OpRead, h, off, len(p)); err != nil {
		return 0, err
	}
	return h.readAt(p, off)
}

func (h *simHandle) readAt(p []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("read", h.name, syscall.EINVAL)
	}
	n := min(int64(len(p)), max(0, h.node.size-off))
	readPages(h.node.pages, p[:n], off)
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

func (h *simHandle) WriteAt(p []byte, off int64) (n int, err error) {
	store := func(p []byte) error {
		if len(p) == 0 {
			return nil
		}
		st := h.fs.mu.simState
		if err := st.grow("write", h.node, off+int64(len(p))); err != nil {
			return err
		}
		h.node.write(p, off, st.owner)
		st.touch(h.node)
		n = len(p)
		return nil
	}
	err = h.mutate(OpWrite, off, len(p), func() error { return store(p) }, func(injected error) error {
		if t := (Torn{}); errors.As(injected, &t) && h.check("write", true) == nil {
			_ = store(p[:min(max(t.N, 0), len(p))])
		}
		return injected
	})
	return n, err
}

// Window always copies: the pages of a Sim change in place.
func (h *simHandle) Window(off int64, n int, buf *[]byte) ([]byte, error) {
	if err := h.fs.reading(OpWindow, h, off, n); err != nil {
		return nil, err
	}
	if size := h.Size(); off < 0 || n < 0 || off > size || int64(n) > size-off {
		return nil, errBeyond(h.name, off, n, size)
	}
	return readWindow(windowReader{h}, h.name, off, n, buf)
}

// windowReader reads without asking the rule a second time.
type windowReader struct{ h *simHandle }

func (r windowReader) ReadAt(p []byte, off int64) (int, error) { return r.h.readAt(p, off) }

// Fault: nothing is mapped.
func (h *simHandle) Fault(uintptr) (int64, bool) { return 0, false }

func (h *simHandle) Size() int64 {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	return h.node.size
}

func (h *simHandle) Reserve(size int64) error {
	return h.mutate(OpReserve, size, 0, func() error { return h.fs.mu.grow("reserve", h.node, size) }, nil)
}

func (h *simHandle) Truncate(size int64) error {
	return h.mutate(OpTruncate, size, 0, func() error {
		st := h.fs.mu.simState
		if size > h.node.size {
			return st.grow("truncate", h.node, size)
		}
		h.node.shrink(size, st.owner)
		st.setSize(h.node, size)
		return nil
	}, nil)
}

func (h *simHandle) Sync() error {
	return h.mutate(OpSync, 0, 0, func() error {
		h.node.sync()
		return nil
	}, func(injected error) error {
		h.node.lose()
		return injected
	})
}

func (h *simHandle) DropCache(int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check("dropcache", false); err != nil {
		return err
	}
	h.node.dropCache()
	return nil
}

func (h *simHandle) Close() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check("close", false); err != nil {
		return err
	}
	h.closed = true
	h.node.opens--
	h.fs.openFiles.open.Add(-1)
	h.fs.mu.free(h.node)
	return nil
}
