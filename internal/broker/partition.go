package broker

import (
	"errors"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"time"

	rlog "github.com/runnelmq/runnel/log"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/meta"
)

// Partition is one partition of one life of a topic. Its log is opened when it is first used. All methods are safe for concurrent use.
type Partition struct {
	b    *Broker
	t    *Topic
	tp   kafka.TopicPartition
	id   meta.PartitionID
	born int64 // see Born

	life     atomic.Pointer[Life]
	unsynced atomic.Int64 // bytes appended since the flusher last took the partition up
	queued   atomic.Bool  // the flusher knows
	watchers watchers
	state    atomic.Int32 // kafka.PartitionState; changed with health locked
	refused  atomic.Int64 // bytes of the batch for which there was no space
	counts   rlog.Counts
	health   health

	mu struct {
		sync.Mutex
		err    error // why the log cannot be opened
		closed bool
	}
	clean cleaning
	// appended is set once this life of the engine has appended: the partition is marked dirty in meta.
	appended atomic.Bool
	named    namedStates
}

func newPartition(b *Broker, t *Topic, n int32) *Partition {
	return &Partition{
		b: b, t: t,
		tp:   kafka.TopicPartition{Topic: t.info.Name, Partition: n},
		id:   meta.PartitionID{Topic: t.info.ID, Partition: n},
		born: b.Changes() + 1,
	}
}

// TopicPartition names the partition.
func (p *Partition) TopicPartition() kafka.TopicPartition { return p.tp }

// Born is after which change of the topics the partition was made: see Changes.
func (p *Partition) Born() int64 { return p.born }

// Topic is the life of the topic that the partition belongs to.
func (p *Partition) Topic() *Topic { return p.t }

// opened returns the partition's log, opening it if nobody has, for a caller that has entered the broker. A partition whose log has lost records stays closed until the
// engine is opened again.
func (p *Partition) opened() (*Life, error) {
	if f := p.life.Load(); f != nil {
		return f, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.life.Load(); f != nil {
		return f, nil
	}
	switch {
	case p.t.Deleted():
		return nil, p.Gone()
	case p.mu.closed:
		return nil, kafka.ErrClosed
	case p.mu.err != nil:
		return nil, p.mu.err
	}
	f, err := p.open(nil)
	if err != nil {
		err = kafka.Storage(err)
		var lost *kafka.CorruptError
		switch {
		case errors.As(err, &lost): // that does not pass; what else is wrong with the disk may
			p.mu.err = err
			p.damaged(err)
		case !errors.Is(err, kafka.ErrMetaFailed):
			p.note(kafka.PartitionFailed, err)
		}
		return nil, err
	}
	p.better(kafka.PartitionFailed) // it could not be opened before
	p.begin(f)
	if !p.b.o.ReadOnly {
		p.forget(f)
	}
	if f.l.DurableEnd() < f.l.EndOffset() { // recovered, and not synced yet
		p.b.flush.add(p, true)
	}
	return f, nil
}

// forgetEvery is the time between two looks for producers that are long gone.
const forgetEvery = time.Hour

// forget drops what the log knows of producers that are long gone, if nobody has for a while.
func (p *Partition) forget(f *Life) {
	now := p.b.clock.millis()
	if last := f.forgot.Load(); now-last < forgetEvery.Milliseconds() || !f.forgot.CompareAndSwap(last, now) {
		return
	}
	if err := f.l.Forget(now, p.settleNames); err != nil {
		p.b.o.Logger.Warn("producers that are long gone are kept", "partition", p.tp, "error", err)
	}
}

// begin makes f the life that the partition is in.
func (p *Partition) begin(f *Life) {
	p.life.Store(f)
	for cfg := (*topicConfig)(nil); cfg != p.t.config.Load(); { // it may change
		cfg = p.t.config.Load()
		f.l.Configure(cfg.Settings)
	}
	p.clean.changed()
	if f.l.StartOffset() > 0 {
		p.clean.trimmed.Store(true)
		p.b.clean.now()
	}
}

// open opens the log. The life before it, if there was one, knows better than meta what is durable, and what of the rest is to be believed.
func (p *Partition) open(last *Life) (*Life, error) {
	b := p.b
	st, err := b.meta.Partition(p.id)
	if err != nil {
		return nil, err
	}
	if st.Dirty {
		p.appended.Store(true)
	}
	skips, err := p.skips()
	if err != nil {
		return nil, err
	}
	o := rlog.Options{
		FS:             b.o.FS,
		Dir:            path.Join(b.o.Dir, dirTopics, p.tp.String()),
		Quarantine:     path.Join(b.o.Dir, dirQuarantine),
		TopicPartition: p.tp,
		TopicID:        meta.TopicID(p.id.Topic).String(),
		Checkpoints:    checkpoints{p},
		Events:         p.logEvents(),
		LogStart:       st.LogStart,
		Cleaned:        st.Cleaned,
		Skips:          skips,
		Dirty:          st.Dirty,
		RecoveryPoint:  st.RecoveryPoint,
		Epoch:          b.epoch.Load(),
		Settings:       p.t.config.Load().Settings,
		MinFree:        b.o.MinFree,
		Syncs:          b.syncs,
		Counts:         &p.counts,
		Now:            b.clock.millis,
		Files:          b.files,
		Advanced:       p.watchers.wake,
	}
	if o.ReadOnly = b.o.ReadOnly; b.foreign {
		o.LogStart, o.RecoveryPoint = rlog.UnknownStart, 0
	}
	f := &Life{p: p, epoch: o.Epoch}
	if last != nil {
		o.Believe = last.l.Believed()
		o.RecoveryPoint = max(o.RecoveryPoint, last.l.DurableEnd())
		f.begins = last.begins
	}
	l, err := rlog.Open(o)
	if errors.Is(err, rlog.ErrStray) && !o.ReadOnly {
		if err := b.setAside(p.tp.String()); err != nil {
			return nil, err
		}
		l, err = rlog.Open(o)
	}
	if err != nil {
		return nil, err
	}
	f.l = l
	f.begins = append(f.begins, begin{o.Epoch, l.EndOffset()})
	return f, nil
}

func (p *Partition) logEvents() rlog.Events {
	ev := p.b.logEvents
	ev.Rolled = func() { p.b.clean.rolled(p) }
	ev.Failed = func(_ kafka.TopicPartition, err error) { p.note(kafka.PartitionFailed, err) }
	return ev
}

// checkpoints keeps a log's checkpoints in meta.
type checkpoints struct{ p *Partition }

func (c checkpoints) MarkDirty(epoch int32, start int64) error {
	if err := c.p.b.meta.MarkDirty(c.p.id, epoch, start); err != nil {
		return certain(err)
	}
	c.p.appended.Store(true)
	return nil
}

func (c checkpoints) SetRecoveryPoint(offset int64, sync bool) error {
	return certain(c.p.b.meta.SetRecoveryPoint(c.p.id, offset, sync))
}

func (c checkpoints) SetLogStart(offset int64) error {
	if err := c.p.settleNames(); err != nil {
		return certain(err)
	}
	return certain(c.p.b.meta.SetLogStart(c.p.id, offset))
}

func (c checkpoints) SetCleaned(offset int64) error {
	return certain(c.p.b.meta.SetCleaned(c.p.id, offset))
}

// certain takes the doubt out of an error of meta: whether a mark has become durable is all the same to the record that asked for it.
func certain(err error) error {
	if errors.Is(err, kafka.ErrOutcomeUnknown) {
		return fmt.Errorf("%w: %s", kafka.ErrMetaFailed, err)
	}
	return err
}

// Life returns the life that the partition is in, opening its log if nobody has.
func (p *Partition) Life() (*Life, error) {
	if p.b.closed.Load() {
		return nil, kafka.ErrClosed
	}
	if f := p.life.Load(); f != nil {
		return f, nil
	}
	if err := p.b.enter(); err != nil {
		return nil, err
	}
	defer p.b.leave()
	return p.opened()
}

// Bounds returns the log start offset, the log end offset and the durable end.
func (p *Partition) Bounds() (start, end, durable int64, err error) {
	f, err := p.Life()
	if err != nil {
		return 0, 0, 0, err
	}
	f.refresh()
	return f.l.StartOffset(), f.l.EndOffset(), f.l.DurableEnd(), nil
}

// OffsetForTime finds the first record at or after t (ms).
func (p *Partition) OffsetForTime(t int64) (rlog.Found, bool, error) {
	f, err := p.Life()
	if err != nil {
		return rlog.Found{}, false, err
	}
	f.refresh()
	found, ok, err := f.l.OffsetForTime(t, f.l.EndOffset())
	return found, ok, f.ReadError(err)
}

// close closes the log in order. dirty reports whether meta has to hear of its end.
func (p *Partition) close() (end int64, dirty bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.closed = true
	f := p.life.Load()
	if f == nil {
		return 0, false, nil
	}
	states := p.named.snapshot(f)
	end, err = f.l.Close()
	p.watchers.wake()
	if err == nil {
		err = p.saveNamed(states)
	}
	return end, p.appended.Load(), err
}

// abandon closes the log without keeping anything of it.
func (p *Partition) abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.closed = true
	if f := p.life.Load(); f != nil {
		f.l.Abandon()
	}
	p.watchers.wake()
}
