package stream

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
)

// entry is a record in a batch, or one that waits for it.
type entry struct {
	promise  func(Receipt, error) // nil: none
	call     *call                // nil: none
	ms       int64                // timestamp
	sequence int64                // of a named producer, or 0
	at       int32                // place in the call's results
	acks     Acks
	bytes    bool // it has bytes in the batch; others are duplicates of records in the log, or in a batch before
	told     bool // it has got its answer
	gone     bool // and is not to be sent
}

// producerBatch is a batch of one partition from its first record to its last promise. Until it is popped to be handed over, and again from its answer on, the lane's lock guards it.
type producerBatch struct {
	ln   *lane
	b    batch.Builder
	buf  *[]byte // of the builder, from the producer's pool; nil: the batch is larger than those
	full int     // size at which it is full
	most int     // entries with which it is
	bulk bool    // it has become full, like one before
	// The records. Most have nothing but a promise, the batch's clock and acks: as long as all have, there are no entries.
	plain    []func(Receipt, error)
	acks     Acks
	entries  []entry
	contexts contexts // of the records
	clock    int64    // wall clock when it was opened, in ms
	opened   time.Time
	handed   time.Time // to the log, the last time
	held     int64     // bytes of the producer's memory
	missing  int       // entries with bytes that are gone
	synced   bool      // a record asks to be durable
	called   bool      // some entry has a call
	tries    int
	seen     bool    // watchAll has been here
	flushes  []*call // that wait for the batch
	turn     int64   // place among those in flight, which full batches that follow each other share: see joins

	// The answer.
	life    *broker.Life // that the batch went to
	err     error
	base    int64 // offset of the first record
	epoch   int32
	time    int64 // that the log has given the records, in ms; 0: they keep their own
	written int64 // bytes in the log
	upto    int64 // offset that has to be durable before the promises run, 0: none
}

// count is the number of records.
func (b *producerBatch) count() int { return len(b.plain) + len(b.entries) }

// expand makes entries of all records.
func (b *producerBatch) expand() {
	for _, promise := range b.plain {
		b.entries = append(b.entries, entry{promise: promise, ms: b.clock, acks: b.acks, bytes: true})
	}
	clear(b.plain)
	b.plain = b.plain[:0]
}

// add enters a record whose bytes, if it has some, are in the builder.
func (b *producerBatch) add(ctx context.Context, e entry) {
	if b.count() == 0 {
		b.acks, b.synced = e.acks, e.acks == AcksSynced
	}
	b.contexts.add(ctx, b.count())
	if len(b.entries) == 0 && e.call == nil && e.sequence == 0 && e.bytes && !e.told && e.ms == b.clock && e.acks == b.acks {
		b.plain = append(b.plain, e.promise)
		return
	}
	b.expand()
	b.called = b.called || e.call != nil
	b.synced = b.synced || e.acks == AcksSynced
	b.entries = append(b.entries, e)
}

// drop answers the i-th entry, which is not sent.
func (b *producerBatch) drop(p *producer, i int, err error) {
	b.expand()
	e := &b.entries[i]
	if e.gone {
		return
	}
	if e.bytes {
		b.missing++
	}
	b.ln.mu.counts.failed++
	if !e.told {
		p.answer(e, Receipt{}, err)
	}
	*e = entry{bytes: e.bytes, told: true, gone: true}
}

// miss is drop of a record that could have been sent.
func (b *producerBatch) miss(p *producer, i int, err error) {
	b.expand()
	if e := &b.entries[i]; e.bytes && !e.gone {
		b.ln.mu.missed.note(e.sequence, err)
	}
	b.drop(p, i, err)
}

// prune takes the bytes of those that are gone out of the batch, by encoding the others anew.
func (b *producerBatch) prune() error {
	if b.missing == 0 {
		return nil
	}
	var others batch.Builder
	others.Reset(make([]byte, 0, b.b.Len()))
	it := b.b.Seal(batch.NoProducer()).Iter()
	kept, ctxs := b.entries[:0], b.contexts.each[:0]
	for i, e := range b.entries {
		var r batch.Record
		if e.bytes && !it.Next(&r) {
			return it.Err()
		}
		if e.gone {
			continue
		}
		if e.bytes {
			others.Append(r.Timestamp, r.Key, r.Value, r.AppendHeaders(nil))
		}
		kept = append(kept, e)
		if i < len(b.contexts.each) {
			ctxs = append(ctxs, b.contexts.each[i])
		}
	}
	clear(b.entries[len(kept):])
	b.entries, b.contexts.each, b.b, b.missing = kept, ctxs, others, 0
	return nil
}

// onlyCalls reports whether no promise is to run.
func (b *producerBatch) onlyCalls() bool {
	return len(b.plain) == 0 && !slices.ContainsFunc(b.entries, func(e entry) bool { return e.call == nil && !e.told })
}

// resolve answers the entries with a call.
func (b *producerBatch) resolve() {
	if !b.called {
		return
	}
	offset := b.base
	for i := range b.entries {
		e := &b.entries[i]
		if e.call != nil {
			e.call.resolve(int(e.at), b.receipt(e, offset), b.err)
		}
		if e.bytes && !e.gone {
			offset++
		}
	}
}

// receipt is that of an entry whose record has this offset, empty if the batch has failed.
func (b *producerBatch) receipt(e *entry, offset int64) Receipt {
	if b.err != nil {
		return Receipt{}
	}
	tp := b.ln.p.TopicPartition()
	rec := Receipt{Topic: tp.Topic, Partition: tp.Partition, LeaderEpoch: b.epoch, Offset: offset, Timestamp: time.UnixMilli(e.ms), Acks: e.acks}
	if b.time > 0 && e.bytes {
		rec.Timestamp = time.UnixMilli(b.time)
	}
	switch {
	case !e.bytes:
		rec.LeaderEpoch, rec.Offset, rec.Duplicate = -1, -1, true
	case e.acks == AcksNone:
		rec.Offset = -1
	}
	return rec
}

// dropMissed answers records of a named producer that wait behind one that was not written, and duplicates of such ones; last is the sequence before the batch. It returns the last one in it that is left.
func (b *producerBatch) dropMissed(p *producer, last int64) int64 {
	for i := range b.entries {
		e := &b.entries[i]
		if e.sequence == 0 {
			continue
		}
		err := b.ln.mu.missed.refuse(e.sequence, last)
		if err == nil && !e.bytes && e.sequence > last {
			err = fmt.Errorf("%s: %w: what sequence %d repeats was lost", b.ln.p.TopicPartition(), kafka.ErrPartitionFailed, e.sequence)
		}
		if err != nil {
			b.drop(p, i, err)
			continue
		}
		last = max(last, e.sequence)
	}
	return last
}

// sequences returns the first and the last sequence of the records of a named producer that have bytes, 0 if none has one.
func (b *producerBatch) sequences() (first, last int64) {
	for i := range b.entries {
		e := &b.entries[i]
		if e.sequence == 0 || !e.bytes || e.gone {
			continue
		}
		if first == 0 {
			first = e.sequence
		}
		last = e.sequence
	}
	return first, last
}

// note tells m what became of the records that have a sequence.
func (b *producerBatch) note(m *missed) {
	for i := range b.entries {
		if e := &b.entries[i]; !e.gone && e.bytes {
			m.note(e.sequence, b.err)
		}
	}
}
