package batch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// castagnoli is never written after it is made.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maxLength is the greatest value of the length field: the size of a batch fits an int32, as positions in a segment do.
const maxLength = math.MaxInt32 - lengthEnd

// Peek returns the size in bytes of the batch that begins in p, of which it reads the first PeekSize bytes. The batch
// may be longer than p. The error matches ErrShort, ErrMagic or ErrLength; zeroed space gives ErrMagic.
func Peek(p []byte) (size int, err error) {
	if len(p) < PeekSize {
		return 0, fmt.Errorf("%w: %d bytes of %d", ErrShort, len(p), PeekSize)
	}
	if p[posMagic] != magic {
		return 0, fmt.Errorf("%w: %d", ErrMagic, int8(p[posMagic]))
	}
	n := int32(binary.BigEndian.Uint32(p[posLength:]))
	if n < HeaderSize-lengthEnd || n > maxLength {
		return 0, fmt.Errorf("%w: %d", ErrLength, n)
	}
	return lengthEnd + int(n), nil
}

// Check returns nil if b is exactly one batch whose checksum matches and whose offsets make sense. It parses no record,
// so its cost is that of the checksum: it serves every read and recovery. Empty, compressed and control batches pass.
func Check(b []byte) error {
	size, err := Peek(b)
	if err != nil {
		return err
	}
	if size > len(b) {
		return fmt.Errorf("%w: %d bytes of %d", ErrShort, len(b), size)
	}
	if size < len(b) {
		return fmt.Errorf("%w: %d bytes after a batch of %d", ErrLength, len(b)-size, size)
	}
	h := Batch(b)
	if sum := crc32.Checksum(b[posAttributes:], castagnoli); sum != h.CRC() {
		return fmt.Errorf("%w: %#08x is stored, the bytes give %#08x", ErrCRC, h.CRC(), sum)
	}
	switch {
	case h.BaseOffset() < 0:
		return fmt.Errorf("%w: base offset %d", ErrHeader, h.BaseOffset())
	case h.LastOffsetDelta() < 0:
		return fmt.Errorf("%w: last offset delta %d", ErrHeader, h.LastOffsetDelta())
	case h.LastOffset() < 0:
		return fmt.Errorf("%w: base offset %d and last offset delta %d overflow", ErrHeader, h.BaseOffset(), h.LastOffsetDelta())
	case h.Count() < 0:
		return fmt.Errorf("%w: %d records", ErrHeader, h.Count())
	}
	return nil
}

// Validate returns an error unless b is a batch that a client may append: it passes Check, it uses no bit that is the
// broker's to set, it has at least one record, its producer fields agree, and each record parses, has the offset of its
// place and a timestamp that the header knows. Every byte is read. buf and limit are Plain's, and so is the batch that is
// returned: its records can be read.
//
// As in Kafka, a base sequence without a producer id means nothing and may be anything: clients do send 0 there.
func Validate(b []byte, buf *[]byte, limit int) (plain Batch, err error) {
	if err := Check(b); err != nil {
		return nil, err
	}
	if err := validateHeader(b); err != nil {
		return nil, err
	}
	if plain, err = new(Decompressor).Plain(Batch(b), buf, limit); err != nil {
		return nil, err
	}
	if err := validateRecords(plain); err != nil {
		return nil, err
	}
	return plain, nil
}

func validateHeader(h Batch) error {
	attributes := h.Attributes()
	hasProducer := h.ProducerID() >= 0
	switch {
	case attributes&^(codecMask|AttrLogAppendTime|AttrTransactional|AttrControl|AttrDeleteHorizon) != 0:
		return fmt.Errorf("%w: attributes %#04x have bits that mean nothing", ErrHeader, uint16(attributes))
	case h.Control():
		return fmt.Errorf("%w: a client cannot append control records", ErrHeader)
	case attributes&AttrDeleteHorizon != 0:
		return fmt.Errorf("%w: a client cannot set the delete horizon", ErrHeader)
	case h.LogAppendTime():
		return fmt.Errorf("%w: a client cannot set log append time", ErrTimestamp)
	case h.Count() == 0:
		return fmt.Errorf("%w: no records", ErrHeader)
	case int64(h.Count()) != int64(h.LastOffsetDelta())+1:
		return fmt.Errorf("%w: %d records and last offset delta %d", ErrHeader, h.Count(), h.LastOffsetDelta())
	case h.ProducerID() < -1:
		return fmt.Errorf("%w: producer id %d", ErrHeader, h.ProducerID())
	case hasProducer && h.BaseSequence() < 0:
		return fmt.Errorf("%w: producer id %d and base sequence %d", ErrHeader, h.ProducerID(), h.BaseSequence())
	case hasProducer && h.ProducerEpoch() < 0:
		return fmt.Errorf("%w: producer id %d and epoch %d", ErrHeader, h.ProducerID(), h.ProducerEpoch())
	case !hasProducer && h.Transactional():
		return fmt.Errorf("%w: transactional without a producer id", ErrHeader)
	}
	return nil
}

func validateRecords(h Batch) error {
	var (
		base, offset = h.BaseTimestamp(), h.BaseOffset()
		greatest     = int64(math.MinInt64)
		it           = h.Iter()
		r            Record
	)
	for ; it.Next(&r); offset++ {
		if r.Offset != offset {
			return fmt.Errorf("%w: offset delta %d in place %d", ErrRecord, r.Offset-h.BaseOffset(), offset-h.BaseOffset())
		}
		// Iter's sum wraps, so the difference is the delta as it was stored: it tells an overflow by its sign.
		if delta := r.Timestamp - base; (delta < 0) != (r.Timestamp < base) {
			return fmt.Errorf("%w: base timestamp %d and delta %d overflow", ErrTimestamp, base, delta)
		}
		greatest = max(greatest, r.Timestamp)
	}
	if err := it.Err(); err != nil {
		return err
	}
	if greatest != h.MaxTimestamp() {
		return fmt.Errorf("%w: max timestamp is %d, the greatest of a record %d", ErrTimestamp, h.MaxTimestamp(), greatest)
	}
	return nil
}
