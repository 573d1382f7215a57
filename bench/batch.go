package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// The limit loops have an encoder and a decoder of their own for RecordBatch v2, so that nothing of what they are a limit for is in them.

const (
	batchHeader = 61       // bytes before the first record
	batchTarget = 16 << 10 // size at which a batch is sealed

	lengthEnd = 12 // the length field counts from here
	crcAt     = 17
	crcFrom   = 21 // what the checksum covers begins here
	timeAt    = 27 // of the first record
	countAt   = 57
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// recordBound is the greatest size of an encoded record whose key and value have size bytes together.
func recordBound(size int) int { return size + 24 }

func uvarintSize(v uint) int {
	switch {
	case v < 1<<7:
		return 1
	case v < 1<<14:
		return 2
	case v < 1<<21:
		return 3
	case v < 1<<28:
		return 4
	}
	return 5
}

func putUvarint(b []byte, at int, v uint) int {
	if v < 1<<7 {
		b[at] = byte(v)
		return at + 1
	}
	if v < 1<<14 {
		b[at+1] = byte(v >> 7)
		b[at] = byte(v) | 1<<7
		return at + 2
	}
	for ; v >= 1<<7; v >>= 7 {
		b[at] = byte(v) | 1<<7
		at++
	}
	b[at] = byte(v)
	return at + 1
}

func uvarint(b []byte, at int) (v uint, end int) {
	x := uint(b[at])
	if x < 1<<7 {
		return x, at + 1
	}
	y := uint(b[at+1])
	if y < 1<<7 {
		return x&0x7f | y<<7, at + 2
	}
	v, at = x&0x7f|(y&0x7f)<<7, at+2
	for shift := 14; shift < 35; shift += 7 {
		x = uint(b[at])
		at++
		v |= (x & 0x7f) << shift
		if x < 1<<7 {
			break
		}
	}
	return v, at
}

// putRecord encodes record number n of a batch at b[at:], with the batch's own timestamp, and returns where it ends.
func putRecord(b []byte, at, n int, key, value []byte) int {
	delta, k, v := uint(n)<<1, uint(len(key))<<1, uint(len(value))<<1
	body := 3 + uvarintSize(delta) + uvarintSize(k) + len(key) + uvarintSize(v) + len(value)
	at = putUvarint(b, at, uint(body)<<1)
	b[at+1] = 0 // difference to the batch's timestamp
	b[at] = 0   // attributes
	at = putUvarint(b, at+2, delta)
	at = putUvarint(b, at, k)
	at += copy(b[at:], key)
	at = putUvarint(b, at, v)
	at += copy(b[at:], value)
	b[at] = 0 // headers
	return at + 1
}

// seal writes the header of the batch b, which has count records, and its checksum.
func seal(b []byte, base int64, count int, ms int64) {
	h := b[:batchHeader]
	be := binary.BigEndian
	be.PutUint64(h, uint64(base))
	be.PutUint32(h[8:], uint32(len(b)-lengthEnd))
	be.PutUint32(h[12:], 0) // leader epoch
	h[16] = 2               // magic
	be.PutUint16(h[21:], 0) // attributes
	be.PutUint32(h[23:], uint32(count-1))
	be.PutUint64(h[timeAt:], uint64(ms))
	be.PutUint64(h[35:], uint64(ms))
	be.PutUint64(h[43:], 1<<64-1) // producer id: none
	be.PutUint16(h[51:], 1<<16-1) // its epoch
	be.PutUint32(h[53:], 1<<32-1) // sequence
	be.PutUint32(h[countAt:], uint32(count))
	be.PutUint32(h[crcAt:], crc32.Checksum(b[crcFrom:], castagnoli))
}

// nextBatch returns the batch with which b begins, or nil if there is none: reserved space is zero.
func nextBatch(b []byte) []byte {
	if len(b) < batchHeader {
		return nil
	}
	n := int(binary.BigEndian.Uint32(b[8:])) + lengthEnd
	if n < batchHeader || n > len(b) {
		return nil
	}
	return b[:n:n]
}

var errChecksum = errors.New("a batch's checksum is wrong")

// checkBatch compares a batch's checksum.
func checkBatch(b []byte) error {
	if crc32.Checksum(b[crcFrom:], castagnoli) != binary.BigEndian.Uint32(b[crcAt:]) {
		return errChecksum
	}
	return nil
}

// decode decodes the records of a batch into rs, grown as needed, as a poll would fill them in. They alias b.
func decode(b []byte, topic string, partition int32, rs []stream.Record) []stream.Record {
	count := int(binary.BigEndian.Uint32(b[countAt:]))
	if cap(rs) < count {
		rs = make([]stream.Record, count)
	}
	rs = rs[:count]
	base := int64(binary.BigEndian.Uint64(b))
	epoch := int32(binary.BigEndian.Uint32(b[12:]))
	ms := int64(binary.BigEndian.Uint64(b[timeAt:]))
	first := time.UnixMilli(ms)
	at := batchHeader
	var v uint
	for i := range rs {
		r := &rs[i]
		_, at = uvarint(b, at)
		v, at = uvarint(b, at+1)
		r.Timestamp = first
		if v != 0 {
			r.Timestamp = time.UnixMilli(ms + (int64(v>>1) ^ -int64(v&1)))
		}
		v, at = uvarint(b, at)
		r.Offset = base + int64(v>>1)
		v, at = uvarint(b, at)
		n := int(v >> 1)
		r.Key = b[at : at+n : at+n]
		v, at = uvarint(b, at+n)
		n = int(v >> 1)
		r.Value = b[at : at+n : at+n]
		_, at = uvarint(b, at+n)
		r.Topic, r.Partition, r.LeaderEpoch = topic, partition, epoch
	}
	return rs
}

// batches returns the bytes of a log file up to where its batches end.
func batches(log []byte) []byte {
	end := 0
	for b := nextBatch(log); b != nil; b = nextBatch(log[end:]) {
		end += len(b)
	}
	return log[:end]
}

// checkLog compares the checksums of a log's batches and gives all records to c.
func checkLog(log []byte, c *checker) error {
	var rs []stream.Record
	for b := nextBatch(log); b != nil; b = nextBatch(log) {
		if err := checkBatch(b); err != nil {
			return fmt.Errorf("offset %d: %w", c.offset, err)
		}
		rs = decode(b, topic, 0, rs)
		for i := range rs {
			if err := c.add(rs[i].Key, rs[i].Value, rs[i].Offset); err != nil {
				return err
			}
		}
		log = log[len(b):]
	}
	return nil
}
