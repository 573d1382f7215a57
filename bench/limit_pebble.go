package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
)

// What Runnel's store has for a committed offset: the key has the topic's id, the partition and the group, the value has the offset, the epoch and the time.
const (
	offsetKeySize   = 22 // and the group's name
	offsetValueSize = 20
)

// quiet is a logger for a database that nobody watches.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}

// Fatalf is called where pebble cannot go on.
func (quiet) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func openPebble(dir string) (*pebble.DB, error) {
	return pebble.Open(dir, &pebble.Options{Logger: quiet{}})
}

func (c *commitWork) pebble(context.Context) (_ sample, err error) {
	dir, remove, err := c.e.scratch()
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	dir = filepath.Join(dir, "pebble")
	db, err := openPebble(dir)
	if err != nil {
		return sample{}, err
	}
	calls := make([]call, c.w.lanes)
	for lane := range calls {
		calls[lane] = setCall(db, c.offsetKey(lane))
	}
	taken, err := c.run(calls)
	if err = errors.Join(err, db.Close()); err != nil {
		return sample{}, err
	}
	if db, err = openPebble(dir); err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for lane := range c.w.lanes {
		at, err := getOffset(db, c.offsetKey(lane))
		if err = errors.Join(err, c.last(lane, at)); err != nil {
			return sample{}, err
		}
	}
	taken.read = c.w.records(c.e)
	return taken, nil
}

// offsetKey is a key of a lane's own, as long as Runnel's.
func (c *commitWork) offsetKey(lane int) []byte {
	key := make([]byte, offsetKeySize, offsetKeySize+len(c.groupOf(lane)))
	binary.BigEndian.PutUint32(key[17:], uint32(lane))
	return append(key, c.groupOf(lane)...)
}

// setCall is commitCall for pebble.
func setCall(db *pebble.DB, key []byte) call {
	value := make([]byte, offsetValueSize)
	next := int64(0)
	return func(_, _ []byte) (int64, error) {
		next++
		binary.BigEndian.PutUint64(value, uint64(next))
		if err := db.Set(key, value, pebble.Sync); err != nil {
			return 0, err
		}
		return getOffset(db, key)
	}
}

func getOffset(db *pebble.DB, key []byte) (int64, error) {
	value, closer, err := db.Get(key)
	if err != nil {
		return 0, err
	}
	defer closer.Close()
	if len(value) != offsetValueSize {
		return 0, fmt.Errorf("a value of %d bytes", len(value))
	}
	return int64(binary.BigEndian.Uint64(value)), nil
}
