package crashtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/runnelmq/runnel/stream"
)

// A fate is what has been answered for a record.
type fate uint8

const (
	fatePending fate = iota // nothing yet, or that nobody knows: it may be there
	fateFailed              // it has not been appended
	fateKept                // it is at its offset
)

// A ledgerRecord is a record that was sent once, and perhaps again with the same name and sequence.
type ledgerRecord struct {
	id     uint64
	client int
	tp     stream.TopicPartition
	name   string // of a named producer
	fate   fate
	acks   stream.Acks
	offset int64 // -1 if it is not known
	fails  int   // of the partition before the record was sent
	again  bool  // it was sent more than once: its place among others is not known
	doubt  bool  // an earlier answer left it open
}

// A faultLedger is what some clients were told of an engine whose disk fails now and then. Partitions that fail may lose what was
// not synced, so that offsets are given again: it goes by what is in the records.
type faultLedger struct {
	mu struct {
		sync.Mutex
		records map[uint64]*ledgerRecord
		fails   map[stream.TopicPartition]int
		commits map[stream.TopicPartition]ledgerCommit
		last    map[ledgerName]int64 // sequence of the last record that a name has sent
		bad     []error
	}
}

type ledgerName struct {
	name string
	tp   stream.TopicPartition
}

// A ledgerCommit is what a group's offset may be.
type ledgerCommit struct {
	acked int64
	may   []int64 // asked for since, without an answer that it is done
}

func newFaultLedger() *faultLedger {
	l := &faultLedger{}
	l.mu.records = map[uint64]*ledgerRecord{}
	l.mu.fails = map[stream.TopicPartition]int{}
	l.mu.commits = map[stream.TopicPartition]ledgerCommit{}
	l.mu.last = map[ledgerName]int64{}
	return l
}

// ledgerValue is the value of a record: its id and what follows from that.
func ledgerValue(id uint64) []byte {
	r := random(id, 11)
	return append(binary.BigEndian.AppendUint64(nil, id), fill(r, r.IntN(400))...)
}

func (l *faultLedger) wrong(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.bad = append(l.mu.bad, err)
}

func (l *faultLedger) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.mu.bad...)
}

// failed notes that a partition has failed: what it holds beyond its durable end may go.
func (l *faultLedger) failed(tp stream.TopicPartition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.fails[tp]++
}

// sending enters a record that is about to be sent.
func (l *faultLedger) sending(client int, name string, tp stream.TopicPartition, acks stream.Acks) *ledgerRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &ledgerRecord{id: uint64(len(l.mu.records) + 1), client: client, name: name, tp: tp, acks: acks, fails: l.mu.fails[tp]}
	l.mu.records[r.id] = r
	return r
}

// answered enters what was said of a record.
func (l *faultLedger) answered(r *ledgerRecord, rc stream.Receipt, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case r.acks == stream.AcksNone: // no answer says anything
	case err == nil:
		r.fate, r.offset, r.acks = fateKept, rc.Offset, rc.Acks // a duplicate's offset is not known
	case errors.Is(err, stream.ErrOutcomeUnknown):
		r.fate, r.doubt = fatePending, true
	case r.fate == fatePending && !r.doubt:
		r.fate = fateFailed
	}
}

// nameOf is the name of the producer of a record that has been checked.
func (l *faultLedger) nameOf(r *stream.Record) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.records[binary.BigEndian.Uint64(r.Value)].name
}

// next returns a sequence for a name, behind all that it has sent.
func (l *faultLedger) next(name string, tp stream.TopicPartition) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := ledgerName{name, tp}
	l.mu.last[k]++
	return l.mu.last[k]
}

// committing and committed enter offsets before and after a commit.
func (l *faultLedger) committing(o stream.Offsets) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for tp, at := range o {
		c, known := l.mu.commits[tp]
		if !known {
			c.acked = -1
		}
		c.may = append(c.may, at.Offset)
		l.mu.commits[tp] = c
	}
}

func (l *faultLedger) committed(o stream.Offsets) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for tp, at := range o {
		l.mu.commits[tp] = ledgerCommit{acked: at.Offset}
	}
}

// checkCommits compares a group's offsets with what was acknowledged. (E3)
func (l *faultLedger) checkCommits(got stream.Offsets, ends stream.Offsets) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for tp, c := range l.mu.commits {
		is := int64(-1)
		if o, ok := got[tp]; ok {
			is = o.Offset
		}
		if is != c.acked && !slices.Contains(c.may, is) {
			return fmt.Errorf("E3: %v has committed offset %d, acknowledged was %d, without an answer %d", tp, is, c.acked, c.may)
		}
		if end, ok := ends[tp]; ok && is > end.Offset {
			return fmt.Errorf("E3: %v has committed offset %d behind its end %d", tp, is, end.Offset)
		}
	}
	return nil
}

// checkRecords compares what is in partitions with what was acknowledged; after a loss of power what was only written may be gone.
func (l *faultLedger) checkRecords(got map[stream.TopicPartition][]stream.Record, cut bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for tp, rs := range got {
		seen := map[uint64]bool{}
		last := map[int]uint64{}
		epoch := int32(0)
		for i := range rs {
			r := &rs[i]
			if r.Offset != int64(i) || r.LeaderEpoch < epoch {
				return fmt.Errorf("A5: record %d of %v is at offset %d, epoch %d after %d", i, tp, r.Offset, r.LeaderEpoch, epoch)
			}
			epoch = r.LeaderEpoch
			if len(r.Value) < 8 || !bytes.Equal(r.Value, ledgerValue(binary.BigEndian.Uint64(r.Value))) {
				return fmt.Errorf("A4: record %d of %v is not what was sent", i, tp)
			}
			id := binary.BigEndian.Uint64(r.Value)
			sent := l.mu.records[id]
			switch {
			case sent == nil || sent.tp != tp:
				return fmt.Errorf("A4: record %d of %v was never sent there", i, tp)
			case sent.fate == fateFailed:
				return fmt.Errorf("F4: record %d of %v is there, but its append had failed: %+v", i, tp, *sent)
			case seen[id]:
				return fmt.Errorf("C1: record %d of %v is there twice: %+v", i, tp, *sent)
			case sent.fate == fateKept && sent.offset >= 0 && sent.offset != r.Offset:
				return fmt.Errorf("A1: record %d of %v was acknowledged otherwise: %+v", i, tp, *sent)
			case id < last[sent.client] && !sent.again:
				return fmt.Errorf("A3: record %d of %v, %+v, comes after number %d of the same client", i, tp, *sent, last[sent.client])
			}
			seen[id] = true
			if !sent.again {
				last[sent.client] = id
			}
		}
		for _, id := range slices.Sorted(maps.Keys(l.mu.records)) {
			r := l.mu.records[id]
			if r.tp != tp || r.fate != fateKept || seen[id] {
				continue
			}
			if r.acks == stream.AcksSynced {
				return fmt.Errorf("A2: of %d records in %v this one is missing: %+v", len(rs), tp, *r)
			}
			if !cut && r.fails == l.mu.fails[tp] {
				return fmt.Errorf("A1: of %d records in %v, which has failed %d times, this one is missing: %+v", len(rs), tp, r.fails, *r)
			}
		}
	}
	return nil
}
