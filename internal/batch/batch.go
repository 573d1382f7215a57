package batch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// HeaderSize is the size in bytes of a batch without records.
const HeaderSize = 61

// PeekSize is the number of bytes that Peek needs to see.
const PeekSize = 17

// Where the fields lie, and what they say.
const (
	posBaseOffset      = 0
	posLength          = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21 // the checksum covers this and all that follows
	posLastOffsetDelta = 23
	posBaseTimestamp   = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posBaseSequence    = 53
	posCount           = 57

	lengthEnd = posLength + 4 // the length field counts from here
	magic     = 2
)

// Bits of the attributes.
const (
	codecMask = 7

	// AttrLogAppendTime says that every record has the batch's max timestamp.
	AttrLogAppendTime int16 = 1 << 3
	// AttrTransactional says that the records are part of a transaction.
	AttrTransactional int16 = 1 << 4
	// AttrControl says that the records are markers, never shown to a consumer.
	AttrControl int16 = 1 << 5
	// AttrDeleteHorizon says that the base timestamp is the time from which tombstones may go.
	AttrDeleteHorizon int16 = 1 << 6
)

// Codec names how the records of a batch are compressed.
type Codec uint8

// The codecs of Kafka. 5 to 7 are free.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// String returns the codec's name as Kafka's compression.type spells it.
func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("Codec(%d)", uint8(c))
}

// Batch is the bytes of one whole batch, header and records. The methods read the fields at their fixed places and
// check nothing: they panic if there are fewer than HeaderSize bytes, and mean something only once Check has passed.
// Methods that read may run at the same time; SetOffset is a write.
type Batch []byte

func (b Batch) i16(at int) int16 { return int16(binary.BigEndian.Uint16(b[at:])) }
func (b Batch) i32(at int) int32 { return int32(binary.BigEndian.Uint32(b[at:])) }
func (b Batch) i64(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }

// Size returns the size of the batch in bytes as its length field tells it.
func (b Batch) Size() int { return lengthEnd + int(b.i32(posLength)) }

// Known reports whether the magic byte is that of this format.
func (b Batch) Known() bool { return b[posMagic] == magic }

// BaseOffset returns the offset that deltas are relative to. It stays when compaction removes the first record.
func (b Batch) BaseOffset() int64 { return b.i64(posBaseOffset) }

// LeaderEpoch returns the partition leader epoch.
func (b Batch) LeaderEpoch() int32 { return b.i32(posLeaderEpoch) }

// CRC returns the stored CRC-32C.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[posCRC:]) }

// Attributes returns the attribute bits.
func (b Batch) Attributes() int16 { return b.i16(posAttributes) }

// LastOffsetDelta returns the delta of the last offset that the batch takes, whether or not a record has it.
func (b Batch) LastOffsetDelta() int32 { return b.i32(posLastOffsetDelta) }

// LastOffset returns the last offset that the batch takes.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) }

// BaseTimestamp returns the time in ms that timestamp deltas are relative to.
func (b Batch) BaseTimestamp() int64 { return b.i64(posBaseTimestamp) }

// MaxTimestamp returns the greatest timestamp in ms of a record, or the append time.
func (b Batch) MaxTimestamp() int64 { return b.i64(posMaxTimestamp) }

// ProducerID returns the producer id, -1 if there is none.
func (b Batch) ProducerID() int64 { return b.i64(posProducerID) }

// ProducerEpoch returns the producer's epoch, -1 if there is none.
func (b Batch) ProducerEpoch() int16 { return b.i16(posProducerEpoch) }

// BaseSequence returns the sequence number of the first record, -1 if there is none.
func (b Batch) BaseSequence() int32 { return b.i32(posBaseSequence) }

// LastSequence returns the sequence number of the last offset that the batch takes; 0 follows 2^31-1. It is -1 if the
// batch has no sequence numbers.
func (b Batch) LastSequence() int32 {
	base := b.BaseSequence()
	if base < 0 {
		return base
	}
	return int32((int64(base) + int64(b.LastOffsetDelta())) & math.MaxInt32)
}

// Count returns the number of records.
func (b Batch) Count() int32 { return b.i32(posCount) }

// Empty reports whether the batch has no records. It takes its offsets nevertheless.
func (b Batch) Empty() bool { return b.Count() == 0 }

// Codec returns how the records are compressed.
func (b Batch) Codec() Codec { return Codec(b.Attributes() & codecMask) }

// LogAppendTime reports whether every record has MaxTimestamp as its timestamp.
func (b Batch) LogAppendTime() bool { return b.Attributes()&AttrLogAppendTime != 0 }

// Transactional reports whether the batch is part of a transaction.
func (b Batch) Transactional() bool { return b.Attributes()&AttrTransactional != 0 }

// Control reports whether the batch holds markers and no records of a user.
func (b Batch) Control() bool { return b.Attributes()&AttrControl != 0 }

// DeleteHorizon returns the time in ms from which the batch's tombstones may go, and whether it has one.
func (b Batch) DeleteHorizon() (ms int64, ok bool) {
	return b.BaseTimestamp(), b.Attributes()&AttrDeleteHorizon != 0
}

// finish stores the length and the checksum of b, whose other fields and records are complete.
func (b Batch) finish() {
	binary.BigEndian.PutUint32(b[posLength:], uint32(len(b)-lengthEnd))
	binary.BigEndian.PutUint32(b[posCRC:], crc32.Checksum(b[posAttributes:], castagnoli))
}

func (b Batch) setAttributes(a int16) { binary.BigEndian.PutUint16(b[posAttributes:], uint16(a)) }

func (b Batch) setCodec(c Codec) { b.setAttributes(b.Attributes()&^codecMask | int16(c)) }

func (b Batch) setTimestamps(base, greatest int64) {
	binary.BigEndian.PutUint64(b[posBaseTimestamp:], uint64(base))
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(greatest))
}

// SetAppendTime gives every record the time ms, at which the batch is appended, whatever its own was.
func (b Batch) SetAppendTime(ms int64) {
	b.setAttributes(b.Attributes() | AttrLogAppendTime)
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(ms))
	b.finish()
}

// SetOffset stores base offset and leader epoch. Neither is covered by the checksum.
func (b Batch) SetOffset(base int64, epoch int32) {
	binary.BigEndian.PutUint64(b[posBaseOffset:], uint64(base))
	binary.BigEndian.PutUint32(b[posLeaderEpoch:], uint32(epoch))
}
