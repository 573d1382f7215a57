package batch

import (
	"encoding/binary"
	"fmt"

	"github.com/runnelmq/runnel/internal/kafka"
)

// Marker is a control record: it ends the transaction that its batch's producer has open in the partition.
type Marker struct {
	Commit           bool  // or abort
	CoordinatorEpoch int32 // of the transaction coordinator that wrote it
}

// What a control record of a marker holds. Later versions may append to it.
//
//	key   +---------+-----------------------+    value  +---------+-------------+
//	      | version | type                  |           | version | coordinator |
//	      | int16=0 | int16: 0 abort,       |           | int16=0 | epoch       |
//	      |         |        1 commit       |           |         | int32       |
//	      +---------+-----------------------+           +---------+-------------+
const (
	controlKeySize  = 4
	markerValueSize = 6

	controlAbort  = 0
	controlCommit = 1
)

// Seal returns the batch of the marker: one control record of that producer and time in ms, without a sequence, for the
// log to give it an offset. It is in the memory of dst, contents ignored, which is grown if it is too small.
func (m Marker) Seal(dst []byte, producerID int64, producerEpoch int16, timestamp int64) Batch {
	var (
		b     Builder
		key   [controlKeySize]byte
		value [markerValueSize]byte
	)
	if m.Commit {
		binary.BigEndian.PutUint16(key[2:], controlCommit)
	}
	binary.BigEndian.PutUint32(value[2:], uint32(m.CoordinatorEpoch))
	b.Reset(dst)
	b.Append(timestamp, key[:], value[:], nil)
	return b.Seal(Stamp{
		ProducerID:    producerID,
		ProducerEpoch: producerEpoch,
		BaseSequence:  kafka.NoSequence,
		Attributes:    AttrTransactional | AttrControl,
	})
}

// Marker reads the marker of a control batch. The error matches ErrHeader if b is not a control batch of one record,
// and ErrRecord if that is not the end of a transaction.
func (b Batch) Marker() (Marker, error) {
	if !b.Control() || b.Count() != 1 {
		return Marker{}, fmt.Errorf("%w: attributes %#04x and %d records are not a marker's", ErrHeader, uint16(b.Attributes()), b.Count())
	}
	var r Record
	it := b.Iter()
	it.Next(&r)
	it.Next(&r) // finds what follows the record
	if err := it.Err(); err != nil {
		return Marker{}, err
	}
	if len(r.Key) < controlKeySize || len(r.Value) < markerValueSize {
		return Marker{}, fmt.Errorf("%w: control record of %d and %d bytes", ErrRecord, len(r.Key), len(r.Value))
	}
	kind := int16(binary.BigEndian.Uint16(r.Key[2:]))
	if int16(binary.BigEndian.Uint16(r.Key)) < 0 || int16(binary.BigEndian.Uint16(r.Value)) < 0 || kind != controlAbort && kind != controlCommit {
		return Marker{}, fmt.Errorf("%w: control record of type %d with key %x and value %x", ErrRecord, kind, r.Key, r.Value)
	}
	return Marker{Commit: kind == controlCommit, CoordinatorEpoch: int32(binary.BigEndian.Uint32(r.Value[2:]))}, nil
}
