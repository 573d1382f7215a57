package rlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/runnelmq/runnel/internal/kafka"
)

// A producer snapshot holds the state of all producers before the offset in its name. It is Kafka's file, version 1,
// with the older remembered batches behind the entries and under the same checksum; Kafka's tools stop reading at count.
//
//	+-------------+-----------+-----------+----------------------------------+
//	| version i16 | crc u32   | count i32 | count entries of 46 bytes        |
//	| = 1         | CRC-32C   |           |                                  |
//	+-------------+-----------+-----------+----------------------------------+
//	| for each entry: n i8, then n older batches of 24 bytes, oldest first   |
//	+------------------------------------------------------------------------+
//	| owner: topic id, 22 characters; partition i32; offset i64              |
//	+------------------------------------------------------------------------+
//
//	entry: producer id i64, epoch i16, last sequence i32, last offset i64, offset delta i32, timestamp i64,
//	       coordinator epoch i32 (-1), first offset of the open transaction i64 (-1: none)
//	older: last sequence i32, last offset i64, offset delta i32, timestamp i64
//
// The checksum covers everything behind it. A snapshot that does not check, or is not the one that its place and name say, is deleted: it
// only saves time. Kafka's own have no owner.
const (
	snapshotVersion = 1
	snapshotHeader  = 10
	snapshotEntry   = 46
	snapshotOlder   = 24
	snapshotOwner   = metadataID + 12
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errSnapshot = errors.New("broken producer snapshot")

func (q *sequenced) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(q.lastSequence))
	b = binary.BigEndian.AppendUint64(b, uint64(q.lastOffset))
	b = binary.BigEndian.AppendUint32(b, uint32(q.offsetDelta))
	return binary.BigEndian.AppendUint64(b, uint64(q.timestamp))
}

func readSequenced(b []byte) sequenced {
	be := binary.BigEndian
	return sequenced{int32(be.Uint32(b)), int64(be.Uint64(b[4:])), int32(be.Uint32(b[12:])), int64(be.Uint64(b[16:]))}
}

// owner says whose state a snapshot holds, and up to where: a file that was copied, or that has changed places with another, is not believed.
// It stands behind the older batches, under the checksum.
func (l *Log) owner(offset int64) []byte {
	b := append(make([]byte, 0, snapshotOwner), l.o.TopicID...)
	b = binary.BigEndian.AppendUint32(b, uint32(l.o.TopicPartition.Partition))
	return binary.BigEndian.AppendUint64(b, uint64(offset))
}

func (ps producers) encode(owner []byte) []byte {
	be := binary.BigEndian
	all := ps.sorted()
	b := make([]byte, snapshotHeader, snapshotHeader+len(all)*(snapshotEntry+1+(remembered-1)*snapshotOlder))
	be.PutUint16(b, snapshotVersion)
	be.PutUint32(b[6:], uint32(len(all)))
	for _, p := range all {
		q := sequenced{lastSequence: kafka.NoSequence, lastOffset: -1, timestamp: kafka.NoTimestamp}
		if p.n > 0 {
			q = *p.last()
		}
		b = be.AppendUint64(b, uint64(p.id))
		b = be.AppendUint16(b, uint16(p.epoch))
		b = q.appendTo(b)
		b = be.AppendUint32(b, ^uint32(0))
		b = be.AppendUint64(b, ^uint64(0))
	}
	for _, p := range all {
		older := max(p.n-1, 0)
		b = append(b, byte(older))
		for i := remembered - p.n; i < remembered-1; i++ {
			b = p.batches[i].appendTo(b)
		}
	}
	b = append(b, owner...)
	be.PutUint32(b[2:], crc32.Checksum(b[6:], castagnoli))
	return b
}

// decodeProducers reads a snapshot; owner is what encode was given, empty in Kafka's own.
func decodeProducers(b []byte) (ps producers, owner []byte, err error) {
	be := binary.BigEndian
	if len(b) < snapshotHeader {
		return nil, nil, fmt.Errorf("%w: %d bytes", errSnapshot, len(b))
	}
	if v := be.Uint16(b); v != snapshotVersion {
		return nil, nil, fmt.Errorf("%w: version %d", errSnapshot, v)
	}
	if crc32.Checksum(b[6:], castagnoli) != be.Uint32(b[2:]) {
		return nil, nil, fmt.Errorf("%w: checksum", errSnapshot)
	}
	count := int64(int32(be.Uint32(b[6:])))
	entries := b[snapshotHeader:]
	if count < 0 || count*snapshotEntry > int64(len(entries)) {
		return nil, nil, fmt.Errorf("%w: %d entries in %d bytes", errSnapshot, count, len(b))
	}
	older := entries[count*snapshotEntry:]
	ps = make(producers, count)
	for i := range count {
		e := entries[i*snapshotEntry:]
		p := &producer{id: int64(be.Uint64(e)), epoch: int16(be.Uint16(e[8:]))}
		ps[p.id] = p
		n := 0
		if len(older) > 0 { // Kafka's own snapshots end with the entries
			n, older = int(older[0]), older[1:]
			if n >= remembered || n*snapshotOlder > len(older) {
				return nil, nil, fmt.Errorf("%w: %d older batches", errSnapshot, n)
			}
		}
		for j := range n {
			p.remember(readSequenced(older[j*snapshotOlder:]))
		}
		older = older[n*snapshotOlder:]
		if q := readSequenced(e[10:]); q.lastSequence != kafka.NoSequence {
			p.remember(q)
		}
	}
	if len(older) != 0 && len(older) != snapshotOwner {
		return nil, nil, fmt.Errorf("%w: %d bytes behind the end", errSnapshot, len(older))
	}
	return ps, older, nil
}

// snapshot is the producer state at an offset.
type snapshot struct {
	end   int64
	state []byte // encoded; nil: not taken
}

// writeSnapshot writes producer state. The log is durable up to there: a snapshot must not hold what a power cut could take. Of snapshots at the bases of segments the newest few
// stay (dropSnapshot); of the others the newest does.
func (l *Log) writeSnapshot(snap snapshot, sync bool) error {
	end := snap.end
	if err := writeFile(l.o.FS, fileName(l.o.Dir, end, suffixSnapshot), snap.state, sync); err != nil {
		return err
	}
	if old := l.mu.extra; old >= 0 && old != end && !l.isBase(old) {
		if err := removeFile(l.o.FS, fileName(l.o.Dir, old, suffixSnapshot)); err != nil {
			return err
		}
	}
	l.mu.extra = end
	return nil
}

// keptSnapshots is how many snapshots at the bases of segments are kept: the newest is read, and the others if it is damaged. All of them would take more space than the records where
// there are many producers.
const keptSnapshots = 3

// dropSnapshot removes the snapshot that has become one too many, now that there is one behind s.
func (l *Log) dropSnapshot(s *segment) error {
	old := l.segments.Load().before(s.base, keptSnapshots-1)
	if old == nil {
		return nil
	}
	return removeFile(l.o.FS, fileName(l.o.Dir, old.base, suffixSnapshot))
}

func (l *Log) isBase(offset int64) bool { return l.segments.Load().at(offset) != nil }

// loadSnapshot takes the newest readable snapshot at or below end. It deletes those above it, those that cannot be read, and of the older ones those that are
// not at a segment's base, and those that are too many. offsets are those of the snapshots that are there, rising. It returns the offset from which batches have to be replayed.
func (l *Log) loadSnapshot(offsets []int64, end int64) (from int64, err error) {
	from = -1
	kept := 0
	for i := len(offsets) - 1; i >= 0; i-- {
		at := offsets[i]
		name := fileName(l.o.Dir, at, suffixSnapshot)
		if at <= end && from < 0 {
			b, err := readFile(l.o.FS, name)
			if err != nil {
				return 0, err
			}
			if ps, owner, err := decodeProducers(b); err == nil && (len(owner) == 0 || bytes.Equal(owner, l.owner(at))) {
				l.mu.producers, l.mu.extra, from = ps, at, at
				kept = 1
				continue
			}
		}
		if kept++; from < 0 || !l.isBase(at) || kept > keptSnapshots {
			if err := removeFile(l.o.FS, name); err != nil {
				return 0, err
			}
		}
	}
	if from < 0 {
		l.mu.producers = producers{}
		from = l.start.Load()
		// The log start may lie within its segment.
		if first := l.segments.Load().first(); first != nil {
			from = min(from, first.base)
		}
	}
	return from, nil
}
