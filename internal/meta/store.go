package meta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// Options says where a store lies.
type Options struct {
	FS      vfs.FS
	Dir     string
	Create  bool   // make the store if it is missing; else a missing one is kafka.ErrCorrupt
	Ballast string // file that holds space back for the store; it is made, and missing now and then
	// Trouble is called, from any goroutine and with locks held, when Heal has something to do. nil: nobody heals.
	Trouble func()
}

// Store is the open key space. All methods are safe for concurrent use; none may be called after Close.
//
// A storage error ends the database, not the store: every call is kafka.ErrMetaFailed until Heal has opened it again.
type Store struct {
	o       Options
	ballast ballast
	failure atomic.Pointer[error] // why db is not to be used
	// life is held for reading while db is used, for writing while it is exchanged.
	life struct {
		sync.RWMutex
		db    *pebble.DB // nil: closed, to be opened again
		guard *guard
	}
}

// Open opens the store.
func Open(o Options) (*Store, error) {
	s := &Store{o: o, ballast: ballast{fs: o.FS, name: o.Ballast}}
	if err := s.ballast.fill(); err != nil {
		s.trouble() // the store itself may fit
	}
	if err := s.open(o.Create); err != nil {
		return nil, fmt.Errorf("open metadata store: %w", err)
	}
	return s, nil
}

// open opens the database; s.life is held, or nobody else knows s.
func (s *Store) open(create bool) (err error) {
	g := &guard{FS: s.o.FS.Pebble(), full: s.giveSpace}
	g.failed = func(err error) { s.fail(g, err) }
	l := &logger{g}
	defer func() {
		// Of a disk that fails, or a damaged file, pebble may make a panic while it opens. Nobody else holds what it has locked.
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v\n%s", kafka.ErrMetaFailed, v, debug.Stack())
		}
	}()
	s.life.guard = g
	files := pebble.NewFileCache(1, maxOpenFiles) // our own: of one that pebble makes a failed Open leaves a goroutine behind
	defer files.Unref()
	o := &pebble.Options{
		FS:                    g,
		FormatMajorVersion:    pebble.FormatNewest,
		ErrorIfNotExists:      !create,
		Logger:                l,
		EventListener:         &pebble.EventListener{BackgroundError: g.freeze},
		MemTableSize:          memTableSize,
		FileCache:             files,
		MaxOpenFiles:          maxOpenFiles,
		DisableTableStats:     true,
		L0StopWritesThreshold: 1000,
		// A commit must fail and not stall when pebble cannot flush.
		MemTableStopWritesThreshold: 1000,
	}
	compactions := newScheduler()
	o.Experimental.CompactionScheduler = compactions
	db, err := pebble.Open(s.o.Dir, o)
	if err == nil {
		if err = g.err(); err != nil {
			_ = db.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", g.kind(err), err)
	}
	compactions.begin()
	s.life.db = db
	return nil
}

// kind tells damage from a disk that fails, of an error of pebble's Open. Pebble marks only some damage as such; what did not come from the file system, or says that a
// file is missing, is damage too.
func (g *guard) kind(err error) error {
	var failed *fs.PathError
	switch {
	case errors.Is(err, kafka.ErrLocked):
		return kafka.ErrLocked
	case pebble.IsCorruptionError(err):
		return kafka.ErrCorrupt
	case g.err() != nil:
		return kafka.ErrMetaFailed
	case errors.Is(err, fs.ErrNotExist), !errors.As(err, &failed):
		return kafka.ErrCorrupt
	}
	return kafka.ErrMetaFailed
}

const maxOpenFiles = 64

// memTableSize is how much is written between two flushes. Smaller in tests.
var memTableSize uint64 = 1 << 20

// logger keeps pebble from ending the process: its default Fatalf calls os.Exit. One that panics would end it too, on one of pebble's goroutines.
type logger struct{ g *guard }

func (l *logger) Infof(string, ...any)              {}
func (l *logger) Errorf(string, ...any)             {}
func (l *logger) Fatalf(format string, args ...any) { l.g.freeze(fmt.Errorf(format, args...)) }

// fail ends the database behind g.
func (s *Store) fail(g *guard, err error) {
	err = fmt.Errorf("%w: %w", kafka.ErrMetaFailed, err)
	if s.failure.CompareAndSwap(nil, &err) {
		s.trouble()
	}
}

func (s *Store) trouble() {
	if s.o.Trouble != nil {
		s.o.Trouble()
	}
}

// giveSpace is what the guard does about a full disk.
func (s *Store) giveSpace() {
	if s.ballast.release() {
		s.trouble()
	}
}

// Err is why the store cannot be used, matching kafka.ErrMetaFailed, or nil.
func (s *Store) Err() error {
	if p := s.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// Heal opens the database again after a failure and takes the ballast back that was given away. It returns what could not be done yet: then it
// is to be called again, some time later.
//
// What was synced before the failure is there again; of the rest a prefix. The outcome of a commit that failed is known only by reading.
func (s *Store) Heal() error {
	if s.Err() != nil {
		if err := s.reopen(); err != nil {
			return err
		}
	}
	return s.ballast.fill()
}

func (s *Store) reopen() error {
	s.life.Lock()
	defer s.life.Unlock()
	s.closeDB()
	if _, err := s.o.FS.Stat(s.o.Dir); err != nil {
		return err // somebody has removed it: pebble would begin to make it anew
	}
	if err := s.open(false); err != nil {
		return err
	}
	s.failure.Store(nil)
	// A failure between the two is one of the new database.
	if err := s.life.guard.err(); err != nil {
		s.fail(s.life.guard, err)
		return err
	}
	return nil
}

func (s *Store) closeDB() (err error) {
	if s.life.db == nil {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("close: %v", v)
		}
	}()
	db := s.life.db
	s.life.db = nil
	return db.Close()
}

// Close makes everything durable and closes the store. Nothing is left to the write-ahead log alone: pebble takes damage at its end for the end.
func (s *Store) Close() error {
	err := s.read(func(db *pebble.DB) error { return readError(db.Flush()) })
	s.life.Lock()
	defer s.life.Unlock()
	cerr := s.closeDB()
	if ferr := s.Err(); ferr != nil {
		return ferr
	}
	if err == nil {
		err = readError(cerr)
	}
	return err
}

// read calls fn with the database.
func (s *Store) read(fn func(db *pebble.DB) error) error {
	if err := s.Err(); err != nil {
		return err
	}
	s.life.RLock()
	defer s.life.RUnlock()
	if err := s.Err(); err != nil {
		return err
	}
	return fn(s.life.db)
}

// write is read for changes. Once a change has reached the database, an error matches kafka.ErrOutcomeUnknown too: it may have become durable.
func (s *Store) write(fn func(db *pebble.DB) error) error {
	return s.read(func(db *pebble.DB) error { return s.wrote(fn(db)) })
}

// wrote is the error of a change, which err came from; the life is held.
func (s *Store) wrote(err error) error {
	if gerr := s.life.guard.err(); gerr != nil {
		err = gerr
	}
	if err == nil {
		return nil
	}
	s.life.guard.freeze(err)
	return kafka.OutcomeUnknown(fmt.Errorf("%w: %w", kafka.ErrMetaFailed, err))
}

// readError is an error of pebble while it reads.
func readError(err error) error {
	if err == nil {
		return nil
	}
	if pebble.IsCorruptionError(err) {
		return fmt.Errorf("%w: %w: %w", kafka.ErrMetaFailed, kafka.ErrCorrupt, err)
	}
	return fmt.Errorf("%w: %w", kafka.ErrMetaFailed, err)
}

func writeOptions(sync bool) *pebble.WriteOptions {
	if sync {
		return pebble.Sync
	}
	return pebble.NoSync
}

func (s *Store) set(k, v []byte, sync bool) error {
	return s.write(func(db *pebble.DB) error { return db.Set(k, v, writeOptions(sync)) })
}

// get calls fn with the value of k, which is valid during the call only, and reports whether it is there. fn must not use the store.
func (s *Store) get(k []byte, fn func(v []byte) error) (found bool, err error) {
	err = s.read(func(db *pebble.DB) error {
		v, c, err := db.Get(k)
		if errors.Is(err, pebble.ErrNotFound) {
			return nil
		}
		if err != nil {
			return readError(err)
		}
		found = true
		err = fn(v)
		if cerr := c.Close(); err == nil {
			err = readError(cerr)
		}
		return err
	})
	return found && err == nil, err
}

// scan calls fn for every key with the prefix, in order; key (without the prefix) and value are valid during the call. fn must not use the store.
func (s *Store) scan(prefix []byte, fn func(suffix, v []byte) error) error {
	return s.read(func(db *pebble.DB) error {
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefixEnd(prefix)})
		if err != nil {
			return readError(err)
		}
		for ok := it.First(); ok; ok = it.Next() {
			if err := fn(it.Key()[len(prefix):], it.Value()); err != nil {
				return errors.Join(err, it.Close())
			}
		}
		return readError(it.Close())
	})
}

// prefixEnd returns the first key after all keys with the prefix, nil if there is none.
func prefixEnd(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		end[i]++
		if end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// Batch collects writes that become visible, and durable, together. Not safe for concurrent use.
type Batch struct {
	s *Store
	b pebble.Batch // of no database: the store may open another before it is committed
}

// NewBatch begins a batch. It ends with Commit.
func (s *Store) NewBatch() *Batch { return &Batch{s: s} }

// Commit applies the batch; with sync it is durable when Commit returns nil.
func (b *Batch) Commit(sync bool) error {
	return b.s.write(func(db *pebble.DB) error { return db.Apply(&b.b, writeOptions(sync)) })
}

// Begin is the first half of Commit(true): when it returns nil, the batch is visible, and will be durable before every batch that begins later. wait is the second half, and must be
// called, by the same goroutine.
func (b *Batch) Begin() (wait func() error, err error) {
	if err := b.s.Err(); err != nil {
		return nil, err
	}
	b.s.life.RLock()
	if err := b.s.Err(); err != nil {
		b.s.life.RUnlock()
		return nil, err
	}
	if err := b.s.wrote(b.s.life.db.ApplyNoSyncWait(&b.b, pebble.Sync)); err != nil {
		b.s.life.RUnlock()
		return nil, err
	}
	return func() error {
		defer b.s.life.RUnlock()
		return b.s.wrote(b.b.SyncWait())
	}, nil
}

// A batch in memory cannot fail to take a key.

func (b *Batch) set(k, v []byte)       { _ = b.b.Set(k, v, nil) }
func (b *Batch) delete(k []byte)       { _ = b.b.Delete(k, nil) }
func (b *Batch) deletePrefix(k []byte) { _ = b.b.DeleteRange(k, prefixEnd(k), nil) }

func corrupt(key string, v []byte) error {
	return fmt.Errorf("%w: metadata key %s holds %d unexpected bytes", kafka.ErrCorrupt, key, len(v))
}

func getInt64(key string, v []byte) (int64, error) {
	if len(v) != 8 {
		return 0, corrupt(key, v)
	}
	return int64(binary.BigEndian.Uint64(v)), nil
}

func putInt64(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
