package main

import (
	"errors"
	"time"
)

// A call sends one record and returns its offset when its level is reached.
type call func(key, value []byte) (offset int64, err error)

// callers are goroutines, one a lane, each of which sends the next record of its lane when the one before is acknowledged.
type callers struct {
	gen      *generator
	calls    []call
	receipts [][]int64 // the offsets that each lane was told
}

// newCallers makes as many callers as calls; each has room for n receipts.
func newCallers(g *generator, calls []call, n int) *callers {
	c := &callers{gen: g, calls: calls, receipts: make([][]int64, len(calls))}
	for lane := range c.receipts {
		c.receipts[lane] = make([]int64, 0, n)
	}
	return c
}

// run has each caller send its next n records. Only if each is set, the clock is read for every call.
func (c *callers) run(n int, each bool) (sample, error) {
	errs := make([]error, len(c.calls))
	took := make([]time.Duration, 0)
	if each {
		took = make([]time.Duration, n*len(c.calls))
	}
	clock := startClock()
	lanes(len(c.calls), func(lane int) {
		if each {
			errs[lane] = c.sendTimed(lane, took[lane*n:][:n])
		} else {
			errs[lane] = c.send(lane, n)
		}
	})
	taken := clock.stop(n * len(c.calls))
	if err := errors.Join(errs...); err != nil {
		return sample{}, err
	}
	if each {
		taken.percentiles(took)
	}
	return taken, nil
}

func (c *callers) send(lane, n int) error {
	call, told := c.calls[lane], c.receipts[lane]
	defer func() { c.receipts[lane] = told }()
	var key [keySize]byte
	for range n {
		i := len(told)
		c.gen.key(&key, lane, i)
		offset, err := call(key[:], c.gen.value(lane, i))
		if err != nil {
			return err
		}
		told = append(told, offset)
	}
	return nil
}

// sendTimed is send that fills took with the time of each call, the reading of the clock included.
func (c *callers) sendTimed(lane int, took []time.Duration) error {
	last := time.Now()
	for i := range took {
		if err := c.send(lane, 1); err != nil {
			return err
		}
		now := time.Now()
		took[i], last = now.Sub(last), now
	}
	return nil
}

// checker returns a checker that expects what was sent where the receipts say.
func (c *callers) checker() *checker {
	check := newChecker(c.gen, 0, len(c.calls))
	check.receipts = c.receipts
	return check
}
