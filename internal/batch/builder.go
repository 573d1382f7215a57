package batch

import (
	"encoding/binary"

	"github.com/runnelmq/runnel/internal/kafka"
)

// Stamp is what a batch's header says beside what its records tell.
type Stamp struct {
	ProducerID    int64 // -1 if there is none
	ProducerEpoch int16 // -1 if there is none
	BaseSequence  int32 // of the first record; -1 if there is none
	Attributes    int16 // the bits Attr...; the codec must be none
	BaseOffset    int64
	LeaderEpoch   int32
}

// NoProducer returns the stamp of a batch without producer id.
func NoProducer() Stamp {
	return Stamp{ProducerID: kafka.NoProducer, ProducerEpoch: kafka.NoEpoch, BaseSequence: kafka.NoSequence}
}

// Builder encodes records into one batch. Call Reset first, then Append, then Seal. It does not allocate while the
// buffer has room. It is not safe for concurrent use.
//
// The builder does not limit the size: whoever appends keeps Len plus SizeOf within what the log takes, and in any case
// within 2^31-1.
type Builder struct {
	buf           []byte // header's space, then the records so far
	count         int32
	baseTimestamp int64 // that of the first record
	maxTimestamp  int64
}

// Reset begins a batch in the memory of buf, contents ignored. The builder owns that memory until the next Reset, and
// allocates larger memory when it runs out.
func (b *Builder) Reset(buf []byte) {
	var room [HeaderSize]byte
	b.buf = append(buf[:0], room[:]...)
	b.count = 0
	b.baseTimestamp, b.maxTimestamp = kafka.NoTimestamp, kafka.NoTimestamp
}

// Count returns the number of records.
func (b *Builder) Count() int { return int(b.count) }

// Len returns the size in bytes of the batch so far, header included.
func (b *Builder) Len() int { return len(b.buf) }

// Buffer takes the memory of the batch back, for another Reset; nil if its capacity is above most.
func (b *Builder) Buffer(most int) []byte {
	if cap(b.buf) > most {
		return nil
	}
	return b.buf[:0]
}

// Append adds a record with the timestamp ts in ms. A nil key or value is null. Nothing of the arguments is kept.
func (b *Builder) Append(ts int64, key, value []byte, headers []kafka.Header) {
	if b.count == 0 {
		b.baseTimestamp, b.maxTimestamp = ts, ts
	} else if ts > b.maxTimestamp {
		b.maxTimestamp = ts
	}
	delta, offset := zigzag(ts-b.baseTimestamp), uint64(b.count)<<1
	if b.appendShort(delta, offset, key, value, headers) {
		b.count++
		return
	}
	body := bodySize(uvarintSize(delta)+uvarintSize(offset), key, value, headers)

	i := len(b.buf)
	end := i + lengthSize(body) + body
	if end > cap(b.buf) {
		b.buf = append(b.buf, make([]byte, end-i)...)
	}
	p := b.buf[:end]
	i = putUvarint(p, i, uint64(body)<<1)
	p[i] = 0 // attributes
	i = putUvarint(p, i+1, delta)
	i = putUvarint(p, i, offset)
	i = putField(p, i, key)
	i = putField(p, i, value)
	i = putUvarint(p, i, uint64(len(headers))<<1)
	for h := range headers {
		i = putUvarint(p, i, uint64(len(headers[h].Key))<<1)
		i += copy(p[i:], headers[h].Key)
		i = putField(p, i, headers[h].Value)
	}
	b.buf = p
	b.count++
}

// appendShort writes a record without headers whose body is sure to take 64 bytes to 8 KiB, whatever its deltas are:
// then its length takes two bytes, and the record need not be measured before it is written.
func (b *Builder) appendShort(delta, offset uint64, key, value []byte, headers []kafka.Header) bool {
	i, n := len(b.buf), len(key)+len(value)
	if n < 64 || n > 8<<10-64 || len(headers) != 0 || cap(b.buf)-i < n+64 {
		return false
	}
	p := b.buf[i : i+n+64]
	p[2] = 0 // attributes
	i = putUvarint(p, 3, delta)
	i = putUvarint(p, i, offset)
	i = putField(p, i, key)
	i = putField(p, i, value)
	p[i] = 0 // headers
	body := uint(i+1-2) << 1
	p[0], p[1] = byte(body)|0x80, byte(body>>7)
	b.buf = b.buf[:len(b.buf)+i+1]
	return true
}

// SizeOf returns the number of bytes by which Append of the same arguments would make the batch longer.
func (b *Builder) SizeOf(ts int64, key, value []byte, headers []kafka.Header) int {
	delta := zigzag(ts - b.baseTimestamp)
	if b.count == 0 {
		delta = 0
	}
	body := bodySize(uvarintSize(delta)+uvarintSize(uint64(b.count)<<1), key, value, headers)
	return lengthSize(body) + body
}

// SizeBound returns the greatest number of bytes that a record can take in any batch, whatever its place and timestamp.
func SizeBound(key, value []byte, headers []kafka.Header) int {
	const widestDeltas = 10 + 5
	body := bodySize(widestDeltas, key, value, headers)
	return lengthSize(body) + body
}

// Seal writes the header and the checksum and returns the batch, which aliases the builder's memory: it is valid until
// the next Reset or Append. Sealing again, with another stamp, or after more records, is allowed. A batch without
// records can be sealed, but Validate refuses it.
func (b *Builder) Seal(s Stamp) Batch {
	p := b.buf
	h := p[:HeaderSize:HeaderSize]
	binary.BigEndian.PutUint64(h[posBaseOffset:], uint64(s.BaseOffset))
	binary.BigEndian.PutUint32(h[posLeaderEpoch:], uint32(s.LeaderEpoch))
	h[posMagic] = magic
	binary.BigEndian.PutUint16(h[posAttributes:], uint16(s.Attributes))
	binary.BigEndian.PutUint32(h[posLastOffsetDelta:], uint32(max(b.count-1, 0)))
	binary.BigEndian.PutUint64(h[posBaseTimestamp:], uint64(b.baseTimestamp))
	binary.BigEndian.PutUint64(h[posMaxTimestamp:], uint64(b.maxTimestamp))
	binary.BigEndian.PutUint64(h[posProducerID:], uint64(s.ProducerID))
	binary.BigEndian.PutUint16(h[posProducerEpoch:], uint16(s.ProducerEpoch))
	binary.BigEndian.PutUint32(h[posBaseSequence:], uint32(s.BaseSequence))
	binary.BigEndian.PutUint32(h[posCount:], uint32(b.count))
	Batch(p).finish()
	return p
}

// bodySize returns the size of a record behind its length, whose two deltas take the given number of bytes.
func bodySize(deltas int, key, value []byte, headers []kafka.Header) int {
	n := 1 + deltas + fieldSize(key) + fieldSize(value) + lengthSize(len(headers))
	for i := range headers {
		n += lengthSize(len(headers[i].Key)) + len(headers[i].Key) + fieldSize(headers[i].Value)
	}
	return n
}

// fieldSize returns the size of f with its length. Null's length, -1, takes one byte as 0 does.
func fieldSize(f []byte) int { return lengthSize(len(f)) + len(f) }

// putField stores f with its length in p from i on and returns the position behind it.
func putField(p []byte, i int, f []byte) int {
	if f == nil {
		p[i] = null
		return i + 1
	}
	i = putUvarint(p, i, uint64(len(f))<<1)
	return i + copy(p[i:], f)
}
