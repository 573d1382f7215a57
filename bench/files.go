package main

import (
	"errors"
	"fmt"
	"path/filepath"
)

// logFiles are the bytes of an engine's segments of one partition, as they lie on the disk, for limits that work on the same bytes.
type logFiles struct {
	logs   [][]byte // of whole batches
	unmaps []func() error
}

// openLog maps the segments of a partition of the engine in dir.
func openLog(dir string, partition int) (_ *logFiles, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "topics", fmt.Sprintf("%s-%d", topic, partition), "*.log")) // in order
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s has no segments of %s-%d", dir, topic, partition)
	}
	f := &logFiles{}
	for _, name := range names {
		b, unmap, err := mapFile(name)
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		f.logs = append(f.logs, batches(b))
		f.unmaps = append(f.unmaps, unmap)
	}
	return f, nil
}

func (f *logFiles) close() error {
	errs := make([]error, len(f.unmaps))
	for i, unmap := range f.unmaps {
		errs[i] = unmap()
	}
	return errors.Join(errs...)
}
