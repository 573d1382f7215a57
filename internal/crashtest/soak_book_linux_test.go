package crashtest

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// A soakBook is what was sent to the topics that stay, and what the answers were, as far as policies leave it there: it does not grow while they do not. Values are
// those of a killID whose worker is "role:topic". Safe for concurrent use.
type soakBook struct {
	mu    sync.Mutex
	parts map[stream.TopicPartition]*soakPartition
}

// A soakPartition is what is known of a partition.
type soakPartition struct {
	kind    soakKind
	start   int64               // log start offset, as last seen
	entries []soakEntry         // of dense topics: of the offsets from start on
	keys    map[string]soakKey  // of the others: the last that was acknowledged
	unknown map[string]struct{} // ids that may or may not be there, since the last full check
	trimmed int64               // the greatest offset given to DeleteRecords
}

// A soakEntry is a record at an offset: acknowledged, or only seen by a reader yet; the zero value is neither.
type soakEntry struct {
	hash        uint64
	acked, seen bool
	time        int64 // of an acknowledged one, in ms
}

type soakKey struct {
	offset    int64
	hash      uint64
	tombstone bool
	time      int64
}

func newSoakBook() *soakBook {
	b := &soakBook{parts: map[stream.TopicPartition]*soakPartition{}}
	for k, name := range soakTopics {
		for i := range int32(2) {
			b.parts[part(name, i)] = &soakPartition{kind: soakKind(k), keys: map[string]soakKey{}, unknown: map[string]struct{}{}}
		}
	}
	return b
}

// soakRecord is the record with an id. In compacted topics the id decides the key, and whether there is a value.
func soakRecord(id killID, kind soakKind) *stream.Record {
	r := &stream.Record{Partition: id.partition, Key: []byte(id.worker), Value: id.value()}
	_, r.Topic, _ = strings.Cut(id.worker, ":")
	if !kind.dense() {
		h := fnv.New64a()
		io.WriteString(h, id.String())
		r.Key = strconv.AppendUint([]byte("key-"), h.Sum64()%soakKeys, 10)
		if h.Sum64()/soakKeys%16 == 0 {
			r.Value = nil
		}
	}
	return r
}

// parseSoak is the id of a record that was read, which has to be the one that was sent; ok is false for a tombstone, which has none.
func parseSoak(r *stream.Record, kind soakKind) (id killID, ok bool, err error) {
	if r.Value == nil && !kind.dense() {
		return id, false, nil
	}
	if id, err = parseKillID(r.Value); err != nil {
		return id, false, err
	}
	if want := soakRecord(id, kind); want.Topic != r.Topic || id.partition != r.Partition || !bytes.Equal(want.Key, r.Key) {
		return id, false, fmt.Errorf("A4: %v is in %s, partition %d, with key %q", id, r.Topic, r.Partition, r.Key)
	}
	return id, true, nil
}

// at is the entry of an offset of a dense topic, nil if the log began behind it when that was last looked at.
func (p *soakPartition) at(offset int64) (*soakEntry, error) {
	i := offset - p.start
	if i < 0 {
		return nil, nil
	}
	if i > 1<<22 {
		return nil, fmt.Errorf("A5: offset %d, and the log began at %d", offset, p.start)
	}
	for int64(len(p.entries)) <= i {
		p.entries = append(p.entries, soakEntry{})
	}
	return &p.entries[i], nil
}

// acked enters an acknowledgement.
func (b *soakBook) acked(r *stream.Record, rc stream.Receipt) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.parts[part(r.Topic, r.Partition)]
	if rc.Topic != r.Topic || rc.Partition != r.Partition || rc.Offset < 0 || rc.Duplicate {
		return fmt.Errorf("A5/C1: a record for partition %d of %s has the receipt %+v", r.Partition, r.Topic, rc)
	}
	h := hashRecord(r.Key, r.Value)
	if !p.kind.dense() {
		if old, ok := p.keys[string(r.Key)]; !ok || old.offset < rc.Offset {
			p.keys[string(r.Key)] = soakKey{rc.Offset, h, r.Value == nil, rc.Timestamp.UnixMilli()}
		} else if old.offset == rc.Offset {
			return fmt.Errorf("A5: offset %d of %v was given twice", rc.Offset, part(r.Topic, r.Partition))
		}
		return nil
	}
	e, err := p.at(rc.Offset)
	if e == nil || err != nil {
		return err
	}
	if e.acked || e.seen && e.hash != h {
		return fmt.Errorf("A5: offset %d of %v, acknowledged for one record, is another's (acknowledged %t, seen %t)", rc.Offset, part(r.Topic, r.Partition), e.acked, e.seen)
	}
	e.acked, e.hash, e.time = true, h, rc.Timestamp.UnixMilli()
	return nil
}

// soakSize is what a record takes in the log at most, alone in its batch.
func soakSize(r *stream.Record) int64 { return int64(len(r.Key) + len(r.Value) + 61 + 32) }

// doubt enters a record of which nobody knows whether it is there.
func (b *soakBook) doubt(tp stream.TopicPartition, id killID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parts[tp].unknown[id.String()] = struct{}{}
}

// saw compares a record that was read.
func (b *soakBook) saw(r *stream.Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	tp := part(r.Topic, r.Partition)
	p := b.parts[tp]
	if _, _, err := parseSoak(r, p.kind); err != nil {
		return fmt.Errorf("%v: offset %d: %w", tp, r.Offset, err)
	}
	h := hashRecord(r.Key, r.Value)
	if !p.kind.dense() {
		if k, ok := p.keys[string(r.Key)]; ok && k.offset == r.Offset && k.hash != h {
			return fmt.Errorf("A1: %v: offset %d holds another record of key %s than was acknowledged", tp, r.Offset, r.Key)
		}
		return nil
	}
	e, err := p.at(r.Offset)
	if e == nil || err != nil {
		return err
	}
	if (e.acked || e.seen) && e.hash != h {
		return fmt.Errorf("A1: %v: offset %d holds another record than before (acknowledged %t, seen %t)", tp, r.Offset, e.acked, e.seen)
	}
	e.seen, e.hash = true, h
	return nil
}

// started enters a log start offset that was just looked up, and checks that policy allows it.
func (b *soakBook) started(tp stream.TopicPartition, start int64, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.parts[tp]
	if start <= p.start {
		return nil // of a reader that was slow
	}
	young := func(offset, at int64, age time.Duration) error {
		if was := now.Sub(time.UnixMilli(at)); at != 0 && was < age {
			return fmt.Errorf("A11: %v: the log starts at %d, offset %d was %v old", tp, start, offset, was)
		}
		return nil
	}
	switch p.kind {
	case soakTime:
		for i, e := range p.entries[:min(start-p.start, int64(len(p.entries)))] {
			if err := young(p.start+int64(i), e.time, soakAge); err != nil {
				return err
			}
		}
	case soakTrimmed:
		if start > p.trimmed {
			return fmt.Errorf("A11: %v: the log starts at %d, records up to %d were to be deleted", tp, start, p.trimmed)
		}
	case soakCompacted:
		return fmt.Errorf("A11: %v: the log starts at %d", tp, start)
	case soakBoth:
		for k, e := range p.keys {
			if e.offset >= start {
				continue
			}
			// A tombstone may have been compacted away before: its age does not hold its segment then.
			if err := young(e.offset, e.time, soakBothAge); err != nil && !e.tombstone {
				return err
			}
			delete(p.keys, k)
		}
	}
	p.entries = append([]soakEntry(nil), p.entries[min(start-p.start, int64(len(p.entries))):]...)
	p.start = start
	return nil
}

// whole compares everything that is in a partition, read while nobody wrote, with what was acknowledged. What nobody knew of is known then.
func (b *soakBook) whole(tp stream.TopicPartition, got []stream.Record, end int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.parts[tp]
	defer clear(p.unknown)
	numbers := map[string]int64{}
	for i := range got {
		id, ok, err := parseSoak(&got[i], p.kind)
		if err != nil || !ok {
			continue // saw has said so
		}
		last, before := numbers[id.worker]
		if before && (id.number <= last || p.kind.dense() && strings.HasPrefix(id.worker, "named:") && id.number != last+1) {
			return fmt.Errorf("A3/C1: %v: %v at offset %d follows number %d", tp, id, got[i].Offset, last)
		}
		numbers[id.worker] = id.number
	}
	if p.kind.dense() {
		return p.wholeDense(tp, got, end)
	}
	return p.wholeKeys(tp, got)
}

func (p *soakPartition) wholeDense(tp stream.TopicPartition, got []stream.Record, end int64) error {
	there := map[int64]struct{}{}
	size := int64(0)
	for i := range got {
		r := &got[i]
		there[r.Offset] = struct{}{}
		e, err := p.at(r.Offset)
		if e == nil || err != nil {
			continue
		}
		size += soakSize(r)
		if id, _, _ := parseSoak(r, p.kind); !e.acked {
			if _, ok := p.unknown[id.String()]; !ok {
				return fmt.Errorf("A1: %v: %v is at offset %d, and its append had failed", tp, id, r.Offset)
			}
			e.acked, e.time = true, r.Timestamp.UnixMilli()
		}
	}
	for i, e := range p.entries {
		if _, ok := there[p.start+int64(i)]; e.acked && !ok {
			return fmt.Errorf("A1: %v: offset %d was acknowledged, the log holds %d to %d and of that %d records", tp, p.start+int64(i), p.start, end, len(got))
		}
	}
	if p.kind == soakBytes && p.start > 0 && size < soakRetained {
		return fmt.Errorf("A11: %v: %d bytes are left, %d are to be kept", tp, size, soakRetained)
	}
	return nil
}

func (p *soakPartition) wholeKeys(tp stream.TopicPartition, got []stream.Record) error {
	last := map[string]*stream.Record{}
	for i := range got {
		last[string(got[i].Key)] = &got[i]
	}
	for key, is := range last {
		want, ok := p.keys[key]
		if ok && is.Offset <= want.offset {
			continue
		}
		id, named, _ := parseSoak(is, p.kind)
		if _, doubt := p.unknown[id.String()]; named && !doubt || !named && len(p.unknown) == 0 {
			if is.Offset >= p.start {
				return fmt.Errorf("A1: %v: the last record of %s is %v at offset %d, whose append had failed; acknowledged was %+v", tp, key, id, is.Offset, want)
			}
			continue
		}
		p.keys[key] = soakKey{is.Offset, hashRecord(is.Key, is.Value), is.Value == nil, is.Timestamp.UnixMilli()}
	}
	for key, want := range p.keys {
		is, ok := last[key]
		switch {
		case !ok && want.tombstone:
		case !ok:
			return fmt.Errorf("A12: %v: nothing is left of %s, at offset %d there was a record; the log starts at %d", tp, key, want.offset, p.start)
		case is.Offset != want.offset:
			return fmt.Errorf("A12: %v: the last record of %s is at offset %d, acknowledged was one at %d", tp, key, is.Offset, want.offset)
		case hashRecord(is.Key, is.Value) != want.hash:
			return fmt.Errorf("A12: %v: the last record of %s, at offset %d, is not the acknowledged one", tp, key, is.Offset)
		}
	}
	return nil
}

// trimming enters an offset that is about to be given to DeleteRecords.
func (b *soakBook) trimming(tp stream.TopicPartition, to int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parts[tp].trimmed = max(b.parts[tp].trimmed, to)
}

func (b *soakBook) kind(tp stream.TopicPartition) soakKind { return b.parts[tp].kind }

// partitions are those of the topics that stay.
func (b *soakBook) partitions() []stream.TopicPartition { return slices.Collect(maps.Keys(b.parts)) }
