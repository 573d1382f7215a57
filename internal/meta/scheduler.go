package meta

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// scheduler lets pebble compact once it is open: one that runs when Open fails is not waited for, and panics when it finds the file cache empty.
//
// Compactions are looked for after each flush and compaction, which is enough. The scheduler that pebble has by itself has a ticker beside that, so an
// idle process would wake ten times a second.
type scheduler struct {
	pebble.CompactionScheduler
	db     pebble.DBForCompaction
	opened atomic.Bool
}

func newScheduler() *scheduler {
	return &scheduler{CompactionScheduler: pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()}
}

// Register is called by pebble's Open.
func (s *scheduler) Register(goroutines int, db pebble.DBForCompaction) {
	s.db = db
	s.CompactionScheduler.Register(goroutines, db)
}

// begin grants what was refused while the store was being opened: without that, a store that is opened and closed again and again is never compacted, until it takes no more writes.
func (s *scheduler) begin() {
	s.opened.Store(true)
	if waiting, _ := s.db.GetWaitingCompaction(); !waiting {
		return
	}
	if ok, grant := s.TrySchedule(); ok && !s.db.Schedule(grant) {
		grant.Done()
	}
}

// TrySchedule is asked before each compaction.
func (s *scheduler) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	if !s.opened.Load() {
		return false, nil
	}
	return s.CompactionScheduler.TrySchedule()
}
