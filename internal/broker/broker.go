// Package broker is the server half of Runnel, in the process: it plugs logs and metadata together behind one struct that
// speaks raw batches. Topics are made and deleted here, appends and reads find their partition here, long polls wait
// here, and in the background what has been written is synced, and old records are removed and compacted, from here.
//
// Invariants
//
//   - One engine owns a directory: LOCK is held from the first byte read to the last byte written. One that is read only
//     (readonly.go) takes no lock and writes no byte.
//   - A topic that a call of CreateTopic has reported is there after a crash; one that DeleteTopic has reported is gone,
//     and so are its records and everybody's offsets in it, also if the same name is made again.
//   - A committed offset is durable only after the log is durable up to it.
//   - A partition that fails, or is damaged, takes no other partition and no host process with it.
//   - A partition that has failed, and the metadata store, are opened again in the same process, by a repair that is tried
//     until it succeeds (healer). What was durable is there again. The partition's leader epoch has risen by then.
//   - Before records go that may be the only ones to say where a named producer stands, that is checkpointed, durably.
//   - Whoever appends, waits or reads does so in one Life of a partition, and is never answered by another.
//
// What happens at open, in order: lock, RUNNEL, metadata, clean mark removed, interrupted deletions finished, foreign
// directories set aside, partitions that were not closed in order recovered. Other partitions are opened when they are first used.
//
// Goroutines: the wheel's clock and the workers that it makes for timers and repairs, the flusher and its helpers while several partitions are flushed, the cleaner, and the
// leaders of syncs whose callers may leave; Close waits for all.
package broker

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/runnelmq/runnel/group"
	rlog "github.com/runnelmq/runnel/log"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/meta"
	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/internal/wheel"
)

// Options configures a broker. All fields are set by the caller, except where zero is said to be good.
type Options struct {
	FS           vfs.FS
	Dir          string
	Logger       *slog.Logger
	SyncInterval time.Duration // from the first unsynced append to the background sync
	SyncBytes    int64         // unsynced bytes of a partition that start it earlier
	MinFree      int64         // bytes of the file system that appends leave free; 0: none
	Clean        CleanOptions
	// OffsetRetention is how long committed offsets are kept that nobody needs; 0: for ever.
	OffsetRetention time.Duration
	ReadOnly        bool
	WallClock       func() time.Time // nil: time.Now
	Events          Events
}

// maxSyncs is how many syncs of an engine run at once: more do not make a disk faster.
const maxSyncs = 4

// maxFiles is how many segment files are open at once, of a process that may have so many (0: nobody counts).
func maxFiles(process int) int {
	const most = 1024
	if process <= 0 {
		return most
	}
	return min(most, process/4)
}

// Broker is an open directory. All methods are safe for concurrent use and return kafka.ErrClosed after Close.
type Broker struct {
	o     Options
	lock  io.Closer
	meta  *meta.Store
	ids   *meta.ProducerIDs
	wheel *wheel.Wheel
	epoch atomic.Int32
	// raising is held to raise the epoch, in meta and here.
	raising sync.Mutex
	heal    *healer // of meta
	// Only heal looks at these: whether the failure of meta has been reported, and whether topics have to be brought in line with it.
	metaFailed, resync bool
	clock              clock
	syncs              chan struct{}
	files              *rlog.Files
	logEvents          rlog.Events
	flush              flusher
	clean              cleaner

	foreign bool // read only, beside somebody who has the directory locked
	// life is held for reading by every call that uses meta, for writing by Close.
	life struct {
		sync.RWMutex
		closed bool
	}
	closed atomic.Bool // life.closed, for those who only look
	// admin is held by calls that change topics, one at a time. Taken before topics.
	admin  sync.Mutex
	topics struct {
		sync.RWMutex
		byName   map[string]*Topic // exact names
		past     Counts            // of topics that have been deleted
		changes  atomic.Int64      // raised after a change
		watchers watchers
		// deleting are topics whose deletion was interrupted by an error, by lower-case name; admin is held.
		deleting map[string]meta.Topic
	}
	names   names
	clamped atomic.Int64
	groups  *group.Coordinator
}

func newBroker(o Options) *Broker {
	b := &Broker{o: o, syncs: make(chan struct{}, maxSyncs), files: rlog.NewFiles(maxFiles(o.FS.MaxOpen())), logEvents: o.logEvents()}
	b.clock.wall = o.WallClock
	return b
}

// Open opens the directory, making it if it is missing.
func Open(o Options) (_ *Broker, err error) {
	if o.ReadOnly {
		return openReadOnly(o)
	}
	lock, err := o.lockDir()
	if err != nil {
		return nil, err
	}
	b := newBroker(o)
	b.lock = lock
	b.life.Lock() // timers wait for the end of Open
	defer func() {
		b.life.closed = err != nil
		b.closed.Store(err != nil)
		b.life.Unlock()
		if err != nil {
			err = errors.Join(err, b.abort())
		}
	}()
	b.wheel = wheel.New(wheel.Options{OnPanic: func(v any) { o.Logger.Error("timer panicked", "panic", v) }})
	b.heal = newHealer(b.wheel, b.healMeta)
	if b.meta, err = o.openMeta(b.heal.need); err != nil {
		return nil, err
	}
	clean, epoch, err := b.meta.Begin()
	if err != nil {
		return nil, err
	}
	b.epoch.Store(epoch)
	b.ids = b.meta.ProducerIDs()
	b.flush.start(b)
	b.clean.start(b)
	if err := b.loadTopics(); err != nil {
		return nil, err
	}
	if !clean {
		o.Logger.Info("last stop was not in order, recovering", "dir", o.Dir, "incarnation", epoch)
	}
	if b.groups, err = b.newCoordinator(); err != nil {
		return nil, err
	}
	b.clean.now()
	return b, b.recover()
}

// abort takes back what Open has done.
func (b *Broker) abort() error {
	for _, t := range b.topics.byName {
		for _, p := range t.Partitions() {
			p.abandon()
		}
	}
	b.stop()
	var err error
	if b.meta != nil {
		err = b.meta.Close()
	}
	return errors.Join(err, b.lock.Close())
}

// stop ends the goroutines.
func (b *Broker) stop() {
	b.clean.stop()
	b.flush.stop()
	if b.groups != nil {
		b.groups.Close()
	}
	if b.wheel != nil {
		b.wheel.Close()
	}
}

// Close makes everything durable and lets go of the directory. It waits for calls that are running; a second one does nothing. An error
// means that something could not be made durable: the next Open recovers.
func (b *Broker) Close() error {
	b.clean.stop() // it may be in the middle of something long
	b.life.Lock()
	if b.life.closed {
		b.life.Unlock()
		return nil
	}
	b.life.closed = true
	b.closed.Store(true)
	b.life.Unlock()
	b.stop()
	if b.meta.Err() != nil {
		_ = b.meta.Heal() // the disk may work again
	}
	if b.o.ReadOnly {
		return b.abort()
	}
	clean := map[meta.PartitionID]int64{}
	all := true
	var errs []error
	var mu sync.Mutex // of the three above
	var ps []*Partition
	for _, t := range b.list() {
		ps = append(ps, t.Partitions()...)
	}
	atOnce(ps, func(p *Partition) {
		end, dirty, err := p.close()
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			all = false
			errs = append(errs, err)
		case dirty:
			clean[p.id] = end
		}
	})
	errs = append(errs, b.meta.MarkClean(clean, all), b.meta.Close(), b.lock.Close())
	return errors.Join(errs...)
}

// atOnce calls fn with every partition, as many at a time as the disk gains from.
func atOnce(ps []*Partition, fn func(p *Partition)) {
	var next atomic.Int64
	work := func() {
		for i := next.Add(1) - 1; i < int64(len(ps)); i = next.Add(1) - 1 {
			fn(ps[i])
		}
	}
	var helpers sync.WaitGroup
	for range min(len(ps), maxSyncs) - 1 {
		helpers.Go(work)
	}
	work()
	helpers.Wait()
}

// enter must succeed before meta is used, and leave follow.
func (b *Broker) enter() error {
	b.life.RLock()
	if b.life.closed {
		b.life.RUnlock()
		return kafka.ErrClosed
	}
	return nil
}

func (b *Broker) leave() { b.life.RUnlock() }

// Wheel carries the timeouts of the engine.
func (b *Broker) Wheel() *wheel.Wheel { return b.wheel }

// NowMillis is the wall clock that feeds timestamps, in milliseconds since 1970.
func (b *Broker) NowMillis() int64 { return b.clock.millis() }

// Epoch is the incarnation of the engine, the leader epoch of the batches that it writes.
func (b *Broker) Epoch() int32 { return b.epoch.Load() }

// NewProducerID returns a producer id that was never used.
func (b *Broker) NewProducerID() (int64, error) {
	if err := b.enterToChange(); err != nil {
		return 0, err
	}
	defer b.leave()
	return b.ids.Next()
}

// recover opens the partitions that were not closed in order. One that cannot be opened is reported when it is used.
func (b *Broker) recover() error {
	dirty, err := b.meta.DirtyPartitions()
	if err != nil {
		return err
	}
	byID := map[meta.TopicID]*Topic{}
	for _, t := range b.list() {
		byID[t.info.ID] = t
	}
	for _, id := range dirty {
		t := byID[id.Topic]
		if t == nil || int(id.Partition) >= len(t.Partitions()) {
			continue
		}
		p := t.Partitions()[id.Partition]
		if _, err := p.opened(); err != nil {
			b.o.Logger.Error("partition cannot be opened", "partition", p.tp, "error", err)
		}
	}
	return nil
}

func unknownTopic(name string) error { return fmt.Errorf("%w: %q", kafka.ErrUnknownTopic, name) }
