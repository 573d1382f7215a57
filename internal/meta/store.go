package meta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"

	"github.com/runnelmq/runnel/internal/kafka"
)

// Store is the open key space. All methods are safe for concurrent use; none may be called after Close.
type Store struct {
	db  *pebble.DB
	log *logger
}

// Open opens the store in dir, making it if create is set; without create a missing store is an error.
func Open(fs pebblevfs.FS, dir string, create bool) (*Store, error) {
	l := &logger{}
	db, err := pebble.Open(dir, &pebble.Options{
		FS:                    fs,
		FormatMajorVersion:    pebble.FormatNewest,
		ErrorIfNotExists:      !create,
		Logger:                l,
		MemTableSize:          1 << 20,
		MaxOpenFiles:          64,
		DisableTableStats:     true,
		L0StopWritesThreshold: 1000,
		// A commit must fail and not stall when pebble cannot flush.
		MemTableStopWritesThreshold: 1000,
	})
	if err != nil {
		kind := kafka.ErrMetaFailed
		if errors.Is(err, pebble.ErrDBDoesNotExist) || pebble.IsCorruptionError(err) {
			kind = kafka.ErrCorrupt
		}
		return nil, fmt.Errorf("open metadata store: %w: %w", kind, err)
	}
	return &Store{db: db, log: l}, nil
}

// Close closes the store. Writes that were not synced are flushed to the write-ahead log.
func (s *Store) Close() error { return s.wrap(s.db.Close()) }

// logger keeps pebble from ending the process: its default Fatalf calls os.Exit. The first fatal message fails every
// later call.
type logger struct{ fatal atomic.Pointer[string] }

func (l *logger) Infof(string, ...any)  {}
func (l *logger) Errorf(string, ...any) {}
func (l *logger) Fatalf(format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	l.fatal.CompareAndSwap(nil, &msg)
}

func (s *Store) wrap(err error) error {
	if err == nil {
		if msg := s.log.fatal.Load(); msg != nil {
			err = errors.New(*msg)
		}
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", kafka.ErrMetaFailed, err)
}

func writeOptions(sync bool) *pebble.WriteOptions {
	if sync {
		return pebble.Sync
	}
	return pebble.NoSync
}

func (s *Store) set(k, v []byte, sync bool) error { return s.wrap(s.db.Set(k, v, writeOptions(sync))) }

// get calls fn with the value of k, which is valid during the call only, and reports whether it is there.
func (s *Store) get(k []byte, fn func(v []byte) error) (bool, error) {
	v, c, err := s.db.Get(k)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, s.wrap(err)
	}
	err = fn(v)
	if cerr := c.Close(); err == nil {
		err = s.wrap(cerr)
	}
	return err == nil, err
}

// scan calls fn for every key with the prefix, in order; key (without the prefix) and value are valid during the call.
func (s *Store) scan(prefix []byte, fn func(suffix, v []byte) error) error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefixEnd(prefix)})
	if err != nil {
		return s.wrap(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		if err := fn(it.Key()[len(prefix):], it.Value()); err != nil {
			return errors.Join(err, it.Close())
		}
	}
	return s.wrap(it.Close())
}

// prefixEnd returns the first key after all keys with the prefix.
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
	b *pebble.Batch
}

// NewBatch begins a batch. It ends with Commit.
func (s *Store) NewBatch() *Batch { return &Batch{s: s, b: s.db.NewBatch()} }

// Commit applies the batch; with sync it is durable when Commit returns nil.
func (b *Batch) Commit(sync bool) error {
	err := b.b.Commit(writeOptions(sync))
	return b.s.wrap(errors.Join(err, b.b.Close()))
}

func (b *Batch) set(k, v []byte) {
	// A batch in memory cannot fail to take a key.
	_ = b.b.Set(k, v, nil)
}

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
