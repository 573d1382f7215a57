package meta

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// PartitionID names a partition of one life of a topic.
type PartitionID struct {
	Topic     TopicID
	Partition int32
}

const (
	kindCleaned  = 'c'
	kindEpoch    = 'e'
	kindName     = 'n'
	kindOffset   = 'o'
	kindRecovery = 'r'
	kindSkip     = 'k'
	kindStart    = 's'
)

const partitionPrefix = 1 + 16 + 4

func (p PartitionID) key(kind byte, suffix string) []byte {
	k := make([]byte, 0, partitionPrefix+1+len(suffix))
	k = append(k, spacePartition)
	k = append(k, p.Topic[:]...)
	k = binary.BigEndian.AppendUint32(k, uint32(p.Partition))
	k = append(k, kind)
	return append(k, suffix...)
}

// splitPartitionKey takes apart what key has put together, without its first byte.
func splitPartitionKey(k []byte) (p PartitionID, kind byte, suffix []byte, ok bool) {
	if len(k) < partitionPrefix {
		return p, 0, nil, false
	}
	n := copy(p.Topic[:], k)
	p.Partition = int32(binary.BigEndian.Uint32(k[n:]))
	return p, k[n+4], k[n+5:], true
}

func (p PartitionID) dirtyKey() []byte {
	k := append([]byte{spaceDirty}, p.Topic[:]...)
	return binary.BigEndian.AppendUint32(k, uint32(p.Partition))
}

// DirtyPartitions returns the partitions that were appended to since they were last closed in order.
func (s *Store) DirtyPartitions() (ps []PartitionID, err error) {
	err = s.scan([]byte{spaceDirty}, func(suffix, v []byte) error {
		if len(suffix) != partitionPrefix-1 {
			return corrupt("dirty partition", suffix)
		}
		p := PartitionID{Partition: int32(binary.BigEndian.Uint32(suffix[16:]))}
		copy(p.Topic[:], suffix)
		ps = append(ps, p)
		return nil
	})
	return ps, err
}

// Partition is what the store knows of a partition's log.
type Partition struct {
	Dirty         bool  // appended to since it was last closed in order
	RecoveryPoint int64 // the log is durable up to this offset
	LogStart      int64
	Cleaned       int64 // compacted up to this offset
}

// Partition reads what is known of p; zero for one that was never appended to.
func (s *Store) Partition(p PartitionID) (st Partition, err error) {
	if st.Dirty, err = s.get(p.dirtyKey(), func([]byte) error { return nil }); err != nil {
		return st, err
	}
	if _, err = s.get(p.key(kindRecovery, ""), func(v []byte) (err error) {
		st.RecoveryPoint, err = getInt64("recovery point", v)
		return err
	}); err != nil {
		return st, err
	}
	if _, err = s.get(p.key(kindStart, ""), func(v []byte) (err error) {
		st.LogStart, err = getInt64("log start offset", v)
		return err
	}); err != nil {
		return st, err
	}
	_, err = s.get(p.key(kindCleaned, ""), func(v []byte) (err error) {
		st.Cleaned, err = getInt64("cleaner point", v)
		return err
	})
	return st, err
}

// MarkDirty records that p is about to be appended to, and that its batches carry this leader epoch from offset start on.
// Durable when it returns nil: until then no append may be acknowledged.
func (s *Store) MarkDirty(p PartitionID, epoch int32, start int64) error {
	b := s.NewBatch()
	b.set(p.dirtyKey(), nil)
	k := p.key(kindEpoch, string(binary.BigEndian.AppendUint32(nil, uint32(epoch))))
	known, err := s.get(k, func([]byte) error { return nil })
	if err != nil {
		return err
	}
	if !known {
		b.set(k, putInt64(start))
	}
	return b.Commit(true)
}

// Epoch is a leader epoch of a partition and the first offset that carries it.
type Epoch struct {
	Epoch int32
	Start int64
}

// Epochs returns p's leader epochs, rising.
func (s *Store) Epochs(p PartitionID) ([]Epoch, error) {
	var es []Epoch
	err := s.scan(p.key(kindEpoch, ""), func(suffix, v []byte) error {
		start, err := getInt64("leader epoch", v)
		if err != nil || len(suffix) != 4 {
			return corrupt("leader epoch", v)
		}
		es = append(es, Epoch{int32(binary.BigEndian.Uint32(suffix)), start})
		return nil
	})
	return es, err
}

// SetRecoveryPoint records that p's log is durable up to offset (exclusive).
func (s *Store) SetRecoveryPoint(p PartitionID, offset int64, sync bool) error {
	return s.set(p.key(kindRecovery, ""), putInt64(offset), sync)
}

// SetLogStart records p's log start offset, durably.
func (s *Store) SetLogStart(p PartitionID, offset int64) error {
	return s.set(p.key(kindStart, ""), putInt64(offset), true)
}

// SetCleaned records that p's log is compacted up to offset (exclusive). Not synced: if it is lost, what was done is done again.
func (s *Store) SetCleaned(p PartitionID, offset int64) error {
	return s.set(p.key(kindCleaned, ""), putInt64(offset), false)
}

// Range is a range of offsets, To exclusive.
type Range struct{ From, To int64 }

// SetSkip records, durably, that damage within r is passed over by p's readers. One call at a time.
func (s *Store) SetSkip(p PartitionID, r Range) error {
	k := p.key(kindSkip, string(putInt64(r.From)))
	if _, err := s.get(k, func(v []byte) error {
		to, err := getInt64("skipped range", v)
		r.To = max(r.To, to)
		return err
	}); err != nil {
		return err
	}
	return s.set(k, putInt64(r.To), true)
}

// Skips returns the ranges of SetSkip, by From.
func (s *Store) Skips(p PartitionID) ([]Range, error) {
	var rs []Range
	err := s.scan(p.key(kindSkip, ""), func(suffix, v []byte) error {
		from, err := getInt64("skipped range", suffix)
		if err != nil {
			return err
		}
		to, err := getInt64("skipped range", v)
		rs = append(rs, Range{from, to})
		return err
	})
	return rs, err
}

// Sync makes everything durable that was written before.
func (s *Store) Sync() error {
	return s.write(func(db *pebble.DB) error { return db.LogData(nil, pebble.Sync) })
}

// Offset is a position that a group has committed.
type Offset struct {
	Offset      int64
	LeaderEpoch int32
	Time        int64 // commit time in ms
	Metadata    string
}

// SetOffset adds the committed offset of a group in p to the batch.
func (b *Batch) SetOffset(p PartitionID, group string, o Offset) {
	v := binary.BigEndian.AppendUint64(nil, uint64(o.Offset))
	v = binary.BigEndian.AppendUint32(v, uint32(o.LeaderEpoch))
	v = binary.BigEndian.AppendUint64(v, uint64(o.Time))
	b.set(p.key(kindOffset, group), append(v, o.Metadata...))
}

// Offset returns the offset that group has committed in p, if any.
func (s *Store) Offset(p PartitionID, group string) (o Offset, ok bool, err error) {
	ok, err = s.get(p.key(kindOffset, group), func(v []byte) (err error) {
		o, err = decodeOffset(v)
		return err
	})
	return o, ok, err
}

func decodeOffset(v []byte) (o Offset, err error) {
	if len(v) < 20 {
		return o, corrupt("committed offset", v)
	}
	o.Offset = int64(binary.BigEndian.Uint64(v))
	o.LeaderEpoch = int32(binary.BigEndian.Uint32(v[8:]))
	o.Time = int64(binary.BigEndian.Uint64(v[12:]))
	o.Metadata = string(v[20:])
	return o, nil
}
