package main

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// An appender is the call shape that a client has: a call a record, and a callback with the record's offset.
type appender interface {
	Append(key, value []byte, promise func(offset int64, err error)) error
	AppendOne(key, value []byte) (offset int64, err error)
	Flush()
}

var errSpace = errors.New("the limit's file is full")

// limitLog is the least that a log of RecordBatch v2 does for AcksWritten: records are encoded where they stay, batches get their header and checksum, and one
// atomic store publishes them. No segments, no indexes, no sequences.
type limitLog struct {
	s   *space
	end atomic.Int64 // bytes that are published

	mu       sync.Mutex // guards what follows
	start    int        // of the open batch
	at       int        // where its next record goes
	base     int64      // offset of its first record
	promises []func(int64, error)
}

var _ appender = (*limitLog)(nil)

func newLimitLog(s *space) *limitLog {
	return &limitLog{s: s, at: batchHeader}
}

// limitLogSize is the room that n records need whose keys and values have size bytes together, in batches of perBatch.
func limitLogSize(n, size, perBatch int) int {
	const page = 4 << 10
	need := n*recordBound(size) + (n/perBatch+2)*batchHeader + batchTarget
	return (need + page - 1) &^ (page - 1)
}

func (l *limitLog) Append(key, value []byte, promise func(int64, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at-l.start+recordBound(len(key)+len(value)) > batchTarget {
		l.seal()
	}
	if l.at+recordBound(len(key)+len(value)) > len(l.s.bytes) {
		return errSpace
	}
	l.at = putRecord(l.s.bytes, l.at, len(l.promises), key, value)
	l.promises = append(l.promises, promise)
	return nil
}

// seal ends the open batch.
func (l *limitLog) seal() {
	count := len(l.promises)
	if count == 0 {
		return
	}
	l.publish(count)
	for i, promise := range l.promises {
		promise(l.base+int64(i), nil)
	}
	l.promises = l.promises[:0]
	l.base += int64(count)
}

// publish closes the open batch, of count records, and begins the next. The clock is read once a batch.
func (l *limitLog) publish(count int) {
	seal(l.s.bytes[l.start:l.at], l.base, count, time.Now().UnixMilli())
	l.end.Store(int64(l.at))
	l.s.reached(l.at)
	l.start = l.at
	l.at += batchHeader
}

// AppendOne makes a batch of one record.
func (l *limitLog) AppendOne(key, value []byte) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at+recordBound(len(key)+len(value)) > len(l.s.bytes) {
		return 0, errSpace
	}
	offset := l.base
	l.at = putRecord(l.s.bytes, l.at, 0, key, value)
	l.publish(1)
	l.base++
	return offset, nil
}

func (l *limitLog) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seal()
}

// published returns the bytes of the log.
func (l *limitLog) published() []byte { return l.s.bytes[:l.end.Load()] }
