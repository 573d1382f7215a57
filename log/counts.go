package rlog

import "sync/atomic"

// Counts is what has been done in a partition since its engine was opened. It is kept over the lives of the log, and may be read at any time.
type Counts struct {
	Batches, Records, Bytes atomic.Int64 // appended
	Syncs, SyncNanos        atomic.Int64 // of segment files, and the time that they took, waiting for their turn included
}

// appended counts a batch. The log is locked, so that nobody else counts: a load and a store cost less than an addition that is atomic.
func (c *Counts) appended(records int32, bytes int) {
	c.Batches.Store(c.Batches.Load() + 1)
	c.Records.Store(c.Records.Load() + int64(records))
	c.Bytes.Store(c.Bytes.Load() + int64(bytes))
}
