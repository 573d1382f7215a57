package crashtest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	rlog "github.com/runnelmq/runnel/log"
)

// A logWant is what a partition's log has to hold. Slices of Sent are only ever appended to, so that images can share
// them.
type logWant struct {
	Sent    []batch.Batch // as the log has to hold them, in the order of their offsets, the one in flight included
	Written int64         // the end of what Append has acknowledged
	Synced  int64         // the end of what the log has called durable
	Start   int64         // the log start that has been acknowledged
	Passes  []logPass     // compactions that have begun, shared as Sent is

	known *successors // follows from the rest
}

func (w *logWant) end() int64 {
	if len(w.Sent) == 0 {
		return 0
	}
	return w.Sent[len(w.Sent)-1].LastOffset() + 1
}

// image returns a copy whose Sent can be appended to without disturbing w.
func (w *logWant) image() logWant {
	c := *w
	c.Sent = c.Sent[:len(c.Sent):len(c.Sent)]
	return c
}

// cut returns what is left after recovery has found n batches.
func (w *logWant) cut(n int) logWant {
	c := *w
	c.Sent = w.Sent[:n:n]
	c.Written = c.end()
	c.Synced = min(w.Synced, c.Written)
	return c
}

func (w *logWant) claim(durable int64) { w.Synced = max(w.Synced, durable) }

// verify reads the whole log, compares it with what was sent, and returns how many batches, from the first offset on, it holds or has held.
func (w *logWant) verify(l *rlog.Log, lower, upper int64) (n int, err error) {
	start, end := l.StartOffset(), l.EndOffset()
	if start < w.Start || start > w.end() {
		return 0, fmt.Errorf("A11: the log starts at %d, acknowledged is %d", start, w.Start)
	}
	w.Start = start
	if end < max(lower, start) {
		return 0, fmt.Errorf("A1/A2: the log ends at %d and starts at %d, acknowledged is %d", end, start, lower)
	}
	if end > upper {
		return 0, fmt.Errorf("A3/A6: the log ends at %d, sent is %d", end, upper)
	}
	if d := l.DurableEnd(); d > end {
		return 0, fmt.Errorf("A3: durable end %d behind log end %d", d, end)
	}
	c := l.NewCursor(start)
	defer c.Close()
	n = w.index(start)
	scan := cleanScan{w: w, found: map[string]int64{}}
	for at := start; at < end; {
		b, err := c.Next(end)
		if err != nil {
			return n, fmt.Errorf("A1/A2: reading offset %d of %d: %w", at, end, err)
		}
		if b == nil {
			return n, fmt.Errorf("A3: nothing at offset %d, the log ends at %d", at, end)
		}
		if err := batch.Check(b); err != nil {
			return n, fmt.Errorf("A4: batch at offset %d: %w", at, err)
		}
		if at == start {
			n = w.index(b.BaseOffset()) // compaction may have made one of it and those before it
		}
		took, err := scan.take(b, n)
		if err != nil {
			return n, err
		}
		if base := b.BaseOffset(); base != w.Sent[n].BaseOffset() || at > start && base != at || base > at {
			return n, fmt.Errorf("A5: batch %d is at offset %d, expected %d", n, base, at)
		}
		n += took
		at = b.LastOffset() + 1
		if at > end {
			return n, fmt.Errorf("A4: the log ends at %d, inside the batch %s", end, describe(b))
		}
	}
	if b, err := c.Next(end + 1); err != nil {
		return n, fmt.Errorf("A4: reading at the end %d: %w", end, err)
	} else if b != nil {
		return n, fmt.Errorf("A4: behind the end %d there is %s", end, describe(b))
	}
	return n, nil
}

// index is the number of the batch that holds an offset; at the end, how many there are.
func (w *logWant) index(offset int64) int {
	i, _ := slices.BinarySearchFunc(w.Sent, offset, func(b batch.Batch, o int64) int { return cmp.Compare(b.LastOffset(), o) })
	return i
}

// probe reads one batch in the middle through the indexes.
func (w *logWant) probe(l *rlog.Log, offset int64) error {
	if offset < w.Start {
		return nil
	}
	c := l.NewCursor(offset)
	defer c.Close()
	b, err := c.Next(l.EndOffset())
	if err != nil {
		return fmt.Errorf("A14: reading offset %d: %w", offset, err)
	}
	if b == nil || b.BaseOffset() > offset || b.LastOffset() < offset {
		return fmt.Errorf("A14: looking for offset %d found %s", offset, describe(b))
	}
	scan := cleanScan{w: w, found: map[string]int64{}}
	if _, err := scan.take(b, w.index(b.BaseOffset())); err != nil {
		return fmt.Errorf("looking for offset %d: %w", offset, err)
	}
	return nil
}

func describe(b batch.Batch) string {
	if b == nil {
		return "nothing"
	}
	return fmt.Sprintf("[%d-%d epoch %d, producer %d/%d sequence %d, %d bytes, crc %08x]",
		b.BaseOffset(), b.LastOffset(), b.LeaderEpoch(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), len(b), b.CRC())
}

// remembered is how many batches of each producer the log knows again.
const remembered = 5

// A producer is the state of one producer id, as it follows from the batches.
type producer struct {
	id    int64
	epoch int16
	next  int32         // sequence
	last  []batch.Batch // of this epoch, the newest last
}

// producer derives the state of a producer id; nil if there are no batches of it.
func (w *logWant) producer(id int64) *producer {
	var p *producer
	for _, b := range w.Sent {
		if b.ProducerID() != id {
			continue
		}
		if p == nil || b.ProducerEpoch() != p.epoch {
			p = &producer{id: id, epoch: b.ProducerEpoch()}
		}
		p.last = append(p.last, b)
		p.next = after(b.LastSequence(), 1)
	}
	return p
}

// after is the sequence number n records later; 0 follows 2^31-1.
func after(seq int32, n int) int32 { return int32((int64(seq) + int64(n)) & 0x7fffffff) }

// next draws the next batch, of one of the producers or of none, about as large as one of sizes.
func (w *logWant) next(r *rand.Rand, sizes ...int) batch.Batch {
	stamp := batch.NoProducer()
	if i := r.IntN(len(producerIDs) + 1); i < len(producerIDs) {
		stamp.ProducerID = producerIDs[i]
		p := w.producer(stamp.ProducerID)
		switch {
		case p == nil:
			stamp.ProducerEpoch = int16(r.IntN(2))
			stamp.BaseSequence = 0
			if chance(r, 0.2) {
				stamp.BaseSequence = 1<<31 - 1 - int32(r.IntN(4)) // it wraps soon
			}
		case chance(r, 0.05):
			stamp.ProducerEpoch, stamp.BaseSequence = p.epoch+1, 0
		default:
			stamp.ProducerEpoch, stamp.BaseSequence = p.epoch, p.next
		}
	}
	largest := sizes[r.IntN(len(sizes))]
	rs := make([]record, between(r, 1, []int{1, 4, 20}[r.IntN(3)]))
	for i := range rs {
		rs[i].timestamp = earliest + r.Int64N(1000)
		if n := r.IntN(largest/len(rs) + 1); chance(r, 0.95) {
			rs[i].value = fill(r, n)
		}
		switch {
		case chance(r, 0.3):
			rs[i].key = fill(r, r.IntN(20))
		case chance(r, 0.6):
			rs[i].key = []byte{byte('a' + r.IntN(12))}
		}
	}
	return buildAll(rs, stamp)
}

// again returns the bytes of a batch as a client sends them: without what the log has filled in.
func again(b batch.Batch) batch.Batch {
	c := bytes.Clone(b)
	batch.Batch(c).SetOffset(-7, -7)
	return c
}

// checkProducers retries, skips and goes back in time with every known producer. (C1, C2)
func (w *logWant) checkProducers(l *rlog.Log, ids []int64) error {
	end := l.EndOffset()
	for _, id := range ids {
		p := w.producer(id)
		if p == nil || p.last[len(p.last)-1].LastOffset() < w.Start {
			continue // it may be forgotten
		}
		for i, b := range p.last {
			if b.LastOffset() < w.Start {
				continue
			}
			a, err := l.Append(again(b))
			switch recent := i >= len(p.last)-remembered; {
			case recent && (err != nil || !a.Duplicate || a.Base != b.BaseOffset() || a.Last != b.LastOffset()):
				return fmt.Errorf("C1: the retry of %s, number %d of %d, was answered %+v, error %v", describe(b), i, len(p.last), a, err)
			case !recent && err == nil && !a.Duplicate:
				return fmt.Errorf("C1: the late retry of %s was appended: %+v", describe(b), a)
			}
		}
		gap := build(record{value: []byte("gap")}, batch.Stamp{ProducerID: id, ProducerEpoch: p.epoch, BaseSequence: after(p.next, 1)})
		if a, err := l.Append(gap); !errors.Is(err, kafka.ErrOutOfOrderSequence) {
			return fmt.Errorf("C2: producer %d, after sequence %d, sent %d and got %+v, error %v", id, p.next, after(p.next, 1), a, err)
		}
		if p.epoch > 0 {
			old := build(record{value: []byte("old")}, batch.Stamp{ProducerID: id, ProducerEpoch: p.epoch - 1, BaseSequence: p.next})
			if a, err := l.Append(old); !errors.Is(err, kafka.ErrFenced) {
				return fmt.Errorf("C2: producer %d of epoch %d sent in epoch %d and got %+v, error %v", id, p.epoch, p.epoch-1, a, err)
			}
		}
	}
	if l.EndOffset() != end {
		return fmt.Errorf("C1/C2: refused and repeated batches moved the log end from %d to %d", end, l.EndOffset())
	}
	return nil
}

// A record is what one record of a batch carries.
type record struct {
	key, value []byte
	timestamp  int64
}

// build seals one record.
func build(r record, s batch.Stamp) batch.Batch { return buildAll([]record{r}, s) }

func buildAll(rs []record, s batch.Stamp) batch.Batch {
	var b batch.Builder
	b.Reset(nil)
	for _, r := range rs {
		b.Append(r.timestamp, r.key, r.value, nil)
	}
	return b.Seal(s)
}

// twin returns a batch of the same size, count and producer fields with other contents.
func twin(b batch.Batch, noise func(n int) []byte) (batch.Batch, error) {
	var rs []record
	it := b.Iter()
	for r := (batch.Record{}); it.Next(&r); {
		t := record{timestamp: r.Timestamp}
		if r.Key != nil {
			t.key = noise(len(r.Key))
		}
		if r.Value != nil {
			t.value = noise(len(r.Value))
		}
		rs = append(rs, t)
	}
	if err := it.Err(); err != nil {
		return nil, err
	}
	t := buildAll(rs, batch.Stamp{ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence()})
	if len(t) != len(b) {
		return nil, fmt.Errorf("the twin of %s is %s", describe(b), describe(t))
	}
	return t, nil
}
