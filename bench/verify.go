package main

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/runnelmq/runnel/stream"
)

// A checker is given the records of one partition in order, and compares every byte of them with what the generator makes. It knows
// that offsets go up by one from 0, that each lane's records come in order, and that there is nothing else.
type checker struct {
	gen      *generator
	first    int       // the lowest lane
	next     []int     // the number of the next record of each lane
	receipts [][]int64 // nil, or the offset that each lane's sender was told for each of its records
	offset   int64     // of the next record
}

// newChecker returns a checker of the lanes from first on.
func newChecker(g *generator, first, lanes int) *checker {
	return &checker{gen: g, first: first, next: make([]int, lanes)}
}

func (c *checker) add(key, value []byte, offset int64) error {
	if offset != c.offset {
		return fmt.Errorf("offset %d follows where %d has to", offset, c.offset)
	}
	c.offset++
	lane, i, ok := origin(key)
	if !ok || lane < c.first || lane-c.first >= len(c.next) {
		return fmt.Errorf("offset %d: key %x is none that was sent here", offset, key)
	}
	want := c.next[lane-c.first]
	if i != want {
		return fmt.Errorf("offset %d: record %d of lane %d where record %d has to be", offset, i, lane, want)
	}
	c.next[lane-c.first]++
	var k [keySize]byte
	c.gen.key(&k, lane, i)
	if !bytes.Equal(key, k[:]) || !bytes.Equal(value, c.gen.value(lane, i)) {
		return fmt.Errorf("offset %d: record %d of lane %d has other bytes than were sent", offset, i, lane)
	}
	if c.receipts != nil {
		told := c.receipts[lane-c.first]
		if i >= len(told) || told[i] != offset {
			return fmt.Errorf("offset %d: its sender has no receipt that says so for record %d of lane %d", offset, i, lane)
		}
	}
	return nil
}

// done says whether each lane has come to its end, perLane records.
func (c *checker) done(perLane int) error {
	for i, n := range c.next {
		if n != perLane {
			return fmt.Errorf("%d records of lane %d where %d were sent", n, c.first+i, perLane)
		}
	}
	return nil
}

// A tally is what the timed passes over records keep: it depends on every record's key, size, offset, place and one byte of its value. It costs
// little, and the same on both sides.
type tally struct {
	records int
	sum     uint64
}

func (t *tally) add(key, value []byte, offset int64) {
	t.records++
	if len(key) < 8 || len(value) == 0 {
		return // and the sum is not the one that is expected
	}
	t.sum = (t.sum ^ binary.BigEndian.Uint64(key)) * 0x9e3779b97f4a7c15
	t.sum += uint64(value[t.records%len(value)]) + uint64(len(value))<<8 + uint64(offset)<<20
}

// expected is the tally of the first n records of a lane that has a partition for itself.
func expected(g *generator, lane, n int) tally {
	var t tally
	var k [keySize]byte
	for i := range n {
		g.key(&k, lane, i)
		t.add(k[:], g.value(lane, i), int64(i))
	}
	return t
}

func (t *tally) addAll(rs []stream.Record) {
	for i := range rs {
		t.add(rs[i].Key, rs[i].Value, rs[i].Offset)
	}
}
