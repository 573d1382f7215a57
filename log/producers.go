package rlog

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
)

// remembered is how many batches of a producer are known, so that a repeated one is answered and not appended.
const remembered = 5

// producers is what a log knows of the producers that wrote to it, by producer id. Only the writer touches it.
type producers map[int64]*producer

type producer struct {
	id      int64
	epoch   int16
	batches [remembered]sequenced // oldest first; the last n are in use
	n       int
	// How far it was when Forget last saw it further than before, and when that was; zero of a producer that has not appended since the log was opened.
	seen  int64
	since time.Time
}

// sequenced is one remembered batch.
type sequenced struct {
	lastSequence int32
	lastOffset   int64
	offsetDelta  int32
	timestamp    int64
}

func (q *sequenced) base() int64 { return q.lastOffset - int64(q.offsetDelta) }

// firstSequence undoes the wrap behind 2^31-1.
func (q *sequenced) firstSequence() int32 { return (q.lastSequence - q.offsetDelta) & math.MaxInt32 }

func (p *producer) last() *sequenced { return &p.batches[remembered-1] }

func (p *producer) remember(q sequenced) {
	copy(p.batches[:], p.batches[1:])
	p.batches[remembered-1] = q
	p.n = min(p.n+1, remembered)
}

// nextSequence follows seq, wrapping as Kafka does.
func nextSequence(seq int32) int32 {
	if seq == 1<<31-1 {
		return 0
	}
	return seq + 1
}

// check applies Kafka's rules for an append by a client. A batch that is there already is returned.
func (p *producer) check(b batch.Batch) (dup *sequenced, err error) {
	if p == nil {
		return nil, nil // without an id, unknown, or forgotten: any sequence is taken
	}
	id := p.id
	epoch, first := b.ProducerEpoch(), b.BaseSequence()
	switch {
	case epoch < p.epoch:
		return nil, fmt.Errorf("%w: producer %d has epoch %d, the batch %d", kafka.ErrFenced, id, p.epoch, epoch)
	case epoch > p.epoch:
		if first != 0 {
			return nil, fmt.Errorf("%w: producer %d begins epoch %d with sequence %d", kafka.ErrOutOfOrderSequence, id, epoch, first)
		}
		return nil, nil
	case p.n == 0:
		return nil, nil
	}
	last := b.LastSequence()
	for i := remembered - p.n; i < remembered; i++ {
		if q := &p.batches[i]; q.lastSequence == last && q.firstSequence() == first {
			return q, nil
		}
	}
	if want := nextSequence(p.last().lastSequence); first != want {
		return nil, fmt.Errorf("%w: producer %d sent sequence %d, %d is next", kafka.ErrOutOfOrderSequence, id, first, want)
	}
	return nil, nil
}

// note enters a batch that is in the log. It is also the replay of recovery, which checks no sequences.
func (ps producers) note(b batch.Batch) { ps.noteOf(ps[b.ProducerID()], b) }

// noteOf is note for a producer that has been looked up; nil: it is not known. It returns the producer, nil for a batch that has none.
func (ps producers) noteOf(p *producer, b batch.Batch) *producer {
	id := b.ProducerID()
	if id == kafka.NoProducer {
		return nil
	}
	if p == nil {
		p = &producer{id: id, epoch: b.ProducerEpoch()}
		ps[id] = p
	}
	if p.epoch != b.ProducerEpoch() {
		p.epoch, p.n = b.ProducerEpoch(), 0
	}
	if b.BaseSequence() != kafka.NoSequence {
		p.remember(sequenced{b.LastSequence(), b.LastOffset(), b.LastOffsetDelta(), b.MaxTimestamp()})
	}
	return p
}

// LastOffset is the offset of a producer's last record, as far as the log remembers; -1 if it knows nothing of the producer.
func (l *Log) LastOffset(producerID int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.mu.producers[producerID]; p != nil && p.n > 0 {
		return p.last().lastOffset
	}
	return -1
}

// NextSequence is the sequence that follows the last batch of a producer in this epoch; 0 if the log remembers none.
func (l *Log) NextSequence(producerID int64, epoch int16) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.mu.producers[producerID]; p != nil && p.epoch == epoch && p.n > 0 {
		return nextSequence(p.last().lastSequence)
	}
	return 0
}

// ProducerExpiry is the time after its last batch in which a producer may repeat it (producer.id.expiration.ms).
const ProducerExpiry = 24 * time.Hour

// Forget drops what is known of producers that have not appended for ProducerExpiry, now being the wall clock in ms; it is called now and then. Of those that have not appended since
// the log was opened the timestamp of the last batch tells. If there are any, settle is called before: what only their state tells has to be known elsewhere then.
func (l *Log) Forget(now int64, settle func() error) error {
	old := l.forgettable(now)
	if len(old) == 0 {
		return nil
	}
	if err := settle(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, last := range old {
		if p.last().lastOffset == last && p != l.mu.recent {
			delete(l.mu.producers, p.id)
		}
	}
	return nil
}

// forgettable returns the producers that have not appended for so long, and how far they are.
func (l *Log) forgettable(now int64) map[*producer]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := map[*producer]int64{}
	for _, p := range l.mu.producers {
		if l.longGone(p, now) {
			old[p] = p.last().lastOffset
		}
	}
	return old
}

// longGone reports whether a producer has not appended for ProducerExpiry. mu is held.
func (l *Log) longGone(p *producer, now int64) bool {
	last := p.last().lastOffset
	switch {
	case p.n == 0:
		return false
	case last < l.mu.opened:
		return now-p.last().timestamp > ProducerExpiry.Milliseconds()
	case p.since.IsZero() || p.seen != last:
		p.seen, p.since = last, time.Now()
		return false
	}
	return time.Since(p.since) > ProducerExpiry
}

// sorted returns the producers by id, for a snapshot that is the same every time.
func (ps producers) sorted() []*producer {
	all := make([]*producer, 0, len(ps))
	for _, p := range ps {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *producer) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	return all
}
