package meta

import "encoding/binary"

// Name is the producer id and epoch of a named producer.
type Name struct {
	ProducerID int64
	Epoch      int16
}

func nameKey(name string) []byte { return append([]byte{spaceName}, name...) }

// Name returns the producer id and the last epoch of a named producer, if it was ever opened.
func (s *Store) Name(name string) (n Name, ok bool, err error) {
	ok, err = s.get(nameKey(name), func(v []byte) error {
		if len(v) != 10 {
			return corrupt("producer name", v)
		}
		n = Name{int64(binary.BigEndian.Uint64(v)), int16(binary.BigEndian.Uint16(v[8:]))}
		return nil
	})
	return n, ok, err
}

// NamedProducer is a named producer and what is known of it.
type NamedProducer struct {
	Name       string
	ProducerID int64
}

// Names returns the named producers.
func (s *Store) Names() (ns []NamedProducer, err error) {
	err = s.scan([]byte{spaceName}, func(suffix, v []byte) error {
		if len(v) != 10 {
			return corrupt("producer name", v)
		}
		ns = append(ns, NamedProducer{string(suffix), int64(binary.BigEndian.Uint64(v))})
		return nil
	})
	return ns, err
}

// SetName records the producer id and epoch of a named producer, durably.
func (s *Store) SetName(name string, n Name) error {
	v := binary.BigEndian.AppendUint64(nil, uint64(n.ProducerID))
	return s.set(nameKey(name), binary.BigEndian.AppendUint16(v, uint16(n.Epoch)), true)
}

// Sequence is where a named producer stood in a partition: Sequence is the source's number of its last record
// below offset Next. Records from Next on have to be looked at to know more.
type Sequence struct {
	Sequence int64
	Next     int64
}

// SetSequence adds a named producer's checkpoint in p to the batch. Next must not lead the durable end.
func (b *Batch) SetSequence(p PartitionID, name string, q Sequence) {
	v := binary.BigEndian.AppendUint64(nil, uint64(q.Sequence))
	b.set(p.key(kindName, name), binary.BigEndian.AppendUint64(v, uint64(q.Next)))
}

// Sequence returns a named producer's checkpoint in p; zero if there is none.
func (s *Store) Sequence(p PartitionID, name string) (q Sequence, err error) {
	_, err = s.get(p.key(kindName, name), func(v []byte) error {
		if len(v) != 16 {
			return corrupt("producer sequence", v)
		}
		q = Sequence{int64(binary.BigEndian.Uint64(v)), int64(binary.BigEndian.Uint64(v[8:]))}
		return nil
	})
	return q, err
}
