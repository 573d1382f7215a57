package meta

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/runnelmq/runnel/internal/kafka"
)

// Verify reads every table and every key; what is damaged on the way matches kafka.ErrCorrupt.
func (s *Store) Verify(ctx context.Context) error {
	if err := s.verifyTables(ctx); err != nil {
		return err
	}
	return s.scan(nil, func(_, _ []byte) error { return ctx.Err() })
}

// verifyTables checks the tables as they are on the disk: what the database reads may be in its cache.
func (s *Store) verifyTables(ctx context.Context) error {
	return s.read(func(db *pebble.DB) error {
		levels, err := db.SSTables()
		if err != nil {
			return readError(err)
		}
		for _, tables := range levels {
			for _, t := range tables {
				if err := ctx.Err(); err != nil {
					return err
				}
				name := path.Join(s.o.Dir, t.BackingSSTNum.String()+".sst")
				if err := s.verifyTable(ctx, name); err != nil && !errors.Is(err, fs.ErrNotExist) { // compacted meanwhile
					return fmt.Errorf("%w: %s: %w", kafka.ErrCorrupt, name, err)
				}
			}
		}
		return nil
	})
}

func (s *Store) verifyTable(ctx context.Context, name string) error {
	f, err := s.o.FS.Pebble().Open(name)
	if err != nil {
		return err
	}
	table, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	o := &pebble.Options{}
	o.EnsureDefaults()
	r, err := sstable.NewReader(ctx, table, o.MakeReaderOptions())
	if err != nil {
		return err // it has closed the table
	}
	return errors.Join(r.ValidateBlockChecksums(), r.Close())
}
