package batch

import (
	"encoding/binary"
	"fmt"

	"github.com/runnelmq/runnel/internal/kafka"
)

// Filter rewrites batches without some of their records, as compaction does. The zero value is ready. It keeps its
// memory from batch to batch and is not safe for concurrent use.
type Filter struct {
	Limit int // greatest size in bytes of a batch's records, decompressed; 0: none but the format's

	plainer Decompressor
	plain   []byte // the records of the batch, decompressed
	out     []byte // the batch with the records that stay
	packed  []byte // out, compressed
	packers [Zstd + 1]*Compressor
}

// Apply returns b, which has passed Check, may have any codec and is not in the filter's memory, with only the records
// for which keep is true, and their number. keep is called once for each record, in order; the record is valid during
// the call and must not be changed.
//
// What stays is as it was: the offsets that the batch takes, those of its records (so that there are gaps), their
// timestamps, keys, values and headers, leader epoch, producer, sequence, attributes and codec. The max timestamp is the
// greatest one of a record that stays; with log append time it is unchanged.
//
// A horizon of 0 or more is set as the batch's delete horizon, unless it has one: that one stays. A batch of which no
// record stays has no delete horizon, the codec none, base timestamp -1, and the max timestamp of b: Kafka keeps such a
// batch for the last sequence of a producer.
//
// If nothing has to change, out is b; otherwise it is in the filter's memory, and valid until the next Apply. It may be
// longer than b: deltas to a horizon are long, and another encoder may have made b. The error matches ErrCodec,
// ErrRecord or ErrTooLarge.
func (f *Filter) Apply(b Batch, keep func(r *Record) bool, horizon int64) (out Batch, kept int, err error) {
	if b.Empty() {
		return b, 0, nil
	}
	limit := f.Limit
	if limit == 0 {
		limit = maxRecords
	}
	plain, err := f.plainer.Plain(b, &f.plain, limit)
	if err != nil {
		return nil, 0, err
	}
	_, has := b.DeleteHorizon()
	setHorizon := horizon >= 0 && !has
	f.out = append(f.out[:0], b[:HeaderSize]...)
	var (
		r        Record
		it       = plain.Iter()
		greatest = kafka.NoTimestamp
		start    = it.pos
		whole    = true // every record stays so far: nothing has been copied, unless for the horizon
	)
	for ; it.Next(&r); start = it.pos {
		timestamp := r.Timestamp
		if !keep(&r) {
			if whole && !setHorizon {
				f.out = append(f.out, plain[HeaderSize:start]...)
			}
			whole = false
			continue
		}
		if kept == 0 || timestamp > greatest {
			greatest = timestamp
		}
		kept++
		switch {
		case setHorizon:
			f.out = appendRebased(f.out, plain[start:it.pos], timestamp-horizon)
		case !whole:
			f.out = append(f.out, plain[start:it.pos]...)
		}
	}
	if err := it.Err(); err != nil {
		return nil, 0, err
	}
	if whole && !setHorizon {
		return b, kept, nil
	}
	if out, err = f.seal(b, kept, greatest, setHorizon, horizon); err != nil {
		return nil, 0, err
	}
	return out, kept, nil
}

// seal completes the batch in f.out: the header of b, and the records that stay.
func (f *Filter) seal(b Batch, kept int, greatest int64, setHorizon bool, horizon int64) (Batch, error) {
	if len(f.out)-lengthEnd > maxLength {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(f.out))
	}
	out := Batch(f.out)
	binary.BigEndian.PutUint32(out[posCount:], uint32(kept))
	out.setCodec(None)
	if kept == 0 {
		out.setAttributes(out.Attributes() &^ AttrDeleteHorizon)
		out.setTimestamps(kafka.NoTimestamp, b.MaxTimestamp())
		out.finish()
		return out, nil
	}
	base := b.BaseTimestamp()
	if setHorizon {
		out.setAttributes(out.Attributes() | AttrDeleteHorizon)
		base = horizon
	}
	out.setTimestamps(base, greatest)
	codec := b.Codec()
	if codec == None {
		out.finish()
		return out, nil
	}
	if f.packers[codec] == nil {
		f.packers[codec] = NewCompressor(codec, 0)
	}
	packed, err := f.packers[codec].Compress(f.packed, out)
	if err == nil {
		f.packed = packed
	}
	return packed, err
}

// appendRebased appends a whole record, which Next has read, with another timestamp delta.
func appendRebased(dst, record []byte, delta int64) []byte {
	_, body := varint(record, 0)
	_, rest := uvarint(record, body+1, 64)
	stored := zigzag(delta)
	var head [20]byte
	i := putUvarint(head[:], 0, uint64(1+uvarintSize(stored)+len(record)-rest)<<1)
	head[i] = record[body] // attributes
	i = putUvarint(head[:], i+1, stored)
	dst = append(dst, head[:i]...)
	return append(dst, record[rest:]...)
}

// Filler returns a batch without records, producer and timestamp that takes the offsets [from, to): at least one and at
// most 2^31. It is in the memory of dst, contents ignored, which is grown if it is too small. Where compaction has
// removed whole batches, a filler lets the next one follow the one before.
func Filler(dst []byte, from, to int64, epoch int32) Batch {
	stamp := NoProducer()
	stamp.BaseOffset, stamp.LeaderEpoch = from, epoch
	var empty Builder
	empty.Reset(dst)
	b := empty.Seal(stamp)
	binary.BigEndian.PutUint32(b[posLastOffsetDelta:], uint32(to-from-1))
	b.finish()
	return b
}
