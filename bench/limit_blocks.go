package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// syncedBlock is the size of one write of the limit.
const syncedBlock = 4 << 10

func (r *rebalanceWork) limit(context.Context) (_ sample, err error) {
	dir, remove, err := r.e.scratch()
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	n := r.w.records(r.e)
	f, how, err := openReserved(filepath.Join(dir, "limit"), n*syncedBlock)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	gen := newGenerator(syncedBlock)
	took := make([]time.Duration, n)
	c := startClock()
	for i := range took {
		begin := time.Now()
		if _, err := f.Write(gen.value(0, i)); err != nil {
			return sample{}, err
		}
		if err := datasync(f); err != nil {
			return sample{}, err
		}
		took[i] = time.Since(begin)
	}
	taken := c.stop(n)
	taken.percentiles(took)
	taken.how = how
	written, err := os.ReadFile(f.Name())
	if err != nil {
		return sample{}, err
	}
	taken.read, err = sameBlocks(written, gen, n)
	return taken, err
}

// sameBlocks says whether a file is the first n values of the generator.
func sameBlocks(file []byte, g *generator, n int) (int, error) {
	for i := range n {
		if len(file) < g.size || !slices.Equal(file[:g.size], g.value(0, i)) {
			return i, fmt.Errorf("block %d of %d has other bytes than were written", i, n)
		}
		file = file[g.size:]
	}
	return n, nil
}
