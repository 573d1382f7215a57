package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/internal/wheel"
)

// Defaults of Options.
const (
	defaultSyncInterval = time.Second
	defaultSyncBytes    = 64 << 20
	defaultMinFree      = 64 << 20
	defaultCloseTimeout = 30 * time.Second

	defaultCleanInterval = 30 * time.Second
	defaultCleanRate     = 32 << 20
	defaultCleanMemory   = 16 << 20
)

// Engine is an open directory. It implements Client and is safe for concurrent use.
type Engine struct {
	o  Options
	b  *broker.Broker
	fs vfs.FS // to be closed with the engine; nil if it is the caller's

	mu struct {
		sync.Mutex
		closed  bool
		clients map[closer]struct{}        // open producers and consumers
		past    map[string]ProducerMetrics // of producers that have been closed, by name
	}
	ended chan struct{} // closed when Close has ended
}

type closer interface {
	Close(ctx context.Context) error
}

var _ Client = (*Engine)(nil)

// Open opens the engine in a directory, making it if it is missing; nil options are good options. The directory is locked: a second opener, in this or
// another process, gets ErrLocked at once. After a crash Open recovers what was being written; see Events.TailCut.
//
// Other errors: ErrCorrupt if the metadata is missing or damaged, ErrInvalidConfig, those of the file system.
func Open(dir string, o *Options) (*Engine, error) {
	if dir == "" {
		return nil, fmt.Errorf("%w: the directory has no name", kafka.ErrInvalidConfig)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.FS != nil {
		return open(opts, filepath.ToSlash(dir), nil)
	}
	opts.FS = vfs.NewDisk()
	return open(opts, filepath.ToSlash(abs), opts.FS)
}

// OpenMemory opens an engine whose storage is the heap: the same engine, and nothing of it is left after Close. For tests, and for streams that need
// not survive.
func OpenMemory(o *Options) (*Engine, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	opts.FS = vfs.NewMemory()
	if opts.MinFree == 0 {
		opts.MinFree = -1
	}
	return open(opts, "/runnel", opts.FS)
}

func open(o Options, dir string, own vfs.FS) (_ *Engine, err error) {
	defer func() {
		if err != nil && own != nil {
			err = errors.Join(err, own.Close())
		}
	}()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.SyncInterval == 0 {
		o.SyncInterval = defaultSyncInterval
	}
	if o.SyncBytes == 0 {
		o.SyncBytes = defaultSyncBytes
	}
	if o.CloseTimeout == 0 {
		o.CloseTimeout = defaultCloseTimeout
	}
	if o.MinFree == 0 {
		o.MinFree = minFree(o.FS, dir)
	}
	if o.CleanInterval == 0 {
		o.CleanInterval = defaultCleanInterval
	}
	if o.CleanRate == 0 {
		o.CleanRate = defaultCleanRate
	}
	if o.CleanMemory == 0 {
		o.CleanMemory = defaultCleanMemory
	}
	b, err := broker.Open(broker.Options{
		FS: o.FS, Dir: dir, Logger: o.Logger,
		SyncInterval: o.SyncInterval, SyncBytes: o.SyncBytes, MinFree: max(o.MinFree, 0), WallClock: o.WallClock,
		Clean:  broker.CleanOptions{Interval: o.CleanInterval, Rate: max(o.CleanRate, 0), Memory: o.CleanMemory},
		Events: broker.Events(o.Events), ReadOnly: o.ReadOnly, OffsetRetention: o.OffsetRetention,
	})
	if err != nil {
		return nil, err
	}
	e := &Engine{o: o, b: b, fs: own, ended: make(chan struct{})}
	e.mu.clients, e.mu.past = map[closer]struct{}{}, map[string]ProducerMetrics{}
	return e, nil
}

// minFree is the default of Options.MinFree: of the file system that will hold dir.
func minFree(fsys vfs.FS, dir string) int64 {
	for {
		if _, total, err := fsys.Free(dir); err == nil {
			return min(defaultMinFree, total/20)
		}
		parent := path.Dir(dir)
		if parent == dir {
			return defaultMinFree
		}
		dir = parent
	}
}

// Broker is the engine's server half, for the other faces in this module.
func (e *Engine) Broker() *broker.Broker { return e.b }

// Close flushes producers for up to Options.CloseTimeout and fails the rest of their records with ErrClosed, closes consumers, makes everything durable
// and unlocks the directory. It is idempotent and waits for calls that are running. An error means that the next Open has to recover.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.mu.closed {
		e.mu.Unlock()
		<-e.ended
		return nil
	}
	defer close(e.ended)
	e.mu.closed = true
	clients := slices.Collect(maps.Keys(e.mu.clients))
	e.mu.Unlock()

	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	timeout := wheel.NewTimer(func() { cancel(fmt.Errorf("%w: Options.CloseTimeout has passed", kafka.ErrTimeout)) })
	e.b.Wheel().Schedule(timeout, e.o.CloseTimeout)
	defer e.b.Wheel().Cancel(timeout)
	var errs []error
	for _, c := range clients {
		errs = append(errs, c.Close(ctx))
	}
	errs = append(errs, e.b.Close())
	if e.fs != nil {
		errs = append(errs, e.fs.Close())
	}
	return errors.Join(errs...)
}

// waitFor waits for a Close that runs already.
func waitFor(ctx context.Context, ended chan struct{}) error {
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return kafka.ContextError(ctx)
	}
}

// register adds a producer or consumer that Close has to close.
func (e *Engine) register(c closer) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.closed {
		return kafka.ErrClosed
	}
	e.mu.clients[c] = struct{}{}
	return nil
}

func (e *Engine) unregister(c closer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.mu.clients, c)
	if p, ok := c.(*producer); ok {
		m := p.Metrics()
		m.BufferMemory = 0
		sum := e.mu.past[p.c.Name]
		sum.add(m)
		e.mu.past[p.c.Name] = sum
	}
}

// topic finds a topic, making it if Options.AutoCreate says so.
func (e *Engine) topic(name string) (*broker.Topic, error) {
	t, err := e.b.Topic(name)
	if err == nil || e.o.AutoCreate == nil {
		return t, err
	}
	c := e.o.AutoCreate
	if err := e.b.CreateTopic(name, max(c.Partitions, 1), c.settings()); err != nil && !errors.Is(err, kafka.ErrTopicExists) {
		return nil, err
	}
	return e.b.Topic(name)
}

// Process runs consume, transform, produce exactly once. In this version: ErrUnsupported.
func (e *Engine) Process(context.Context, ProcessConfig, func(context.Context, Txn, []Record) error) error {
	return unsupported("Process")
}

// Backup copies the engine into a directory. In this version: ErrUnsupported.
func (e *Engine) Backup(ctx context.Context, dir string) error { return unsupported("Backup") }

// SkipCorrupt gives up what is damaged in offsets [from, to) of a partition, those of a CorruptError, durably: consumers pass over it in silence from now on, and those that have paused the
// partition for it go on. Bytes stay in place, and records in the range that can be read are read. A partition whose end is lost can be used again, if all that is lost is given
// up; no offset is used twice.
//
// Errors: ErrUnknownTopic; ErrOffsetOutOfRange if that is no range; the partition's own, if it cannot be opened for another reason.
func (e *Engine) SkipCorrupt(ctx context.Context, tp TopicPartition, from, to int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p, err := e.b.Partition(tp)
	if err != nil {
		return err
	}
	if err := p.SkipCorrupt(from, to); err != nil {
		return kafka.Storage(err)
	}
	e.mu.Lock()
	clients := slices.Collect(maps.Keys(e.mu.clients))
	e.mu.Unlock()
	for _, c := range clients {
		if c, ok := c.(*consumer); ok {
			c.forgive(tp)
		}
	}
	return nil
}

// Verify reads everything that the engine has stored, records, indexes, producer snapshots and metadata, and calls report for all damage, one call at a time. Damage of a file that
// only helps to find records has no offsets (From equals To); that of the metadata has neither partition nor offsets (-1). The engine is used as before meanwhile. An error says why
// Verify did not come to the end; nil says that everything was read, and whatever is wrong reported.
func (e *Engine) Verify(ctx context.Context, report func(*CorruptError)) error {
	return kafka.Storage(e.b.Verify(ctx, report))
}
