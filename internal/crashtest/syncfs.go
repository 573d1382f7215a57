package crashtest

import "github.com/runnelmq/runnel/internal/vfs"

// syncFS tells when a Sync of a file is about to begin and when it is done but has not returned yet: the two moments at
// which another goroutine's append must not count as durable.
type syncFS struct {
	vfs.FS
	around func(name string, done bool)
}

func (s syncFS) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return syncFile{f, s.around}, nil
}

func (s syncFS) Create(name string, limit int64) (vfs.File, error) {
	return s.wrap(s.FS.Create(name, limit))
}

func (s syncFS) Open(name string, limit int64) (vfs.File, error) {
	return s.wrap(s.FS.Open(name, limit))
}

type syncFile struct {
	vfs.File
	around func(name string, done bool)
}

func (f syncFile) Sync() error {
	f.around(f.Name(), false)
	err := f.File.Sync()
	f.around(f.Name(), true)
	return err
}
