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
	opened atomic.Bool
}

func newScheduler() *scheduler {
	return &scheduler{CompactionScheduler: pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()}
}

func (s *scheduler) begin() { s.opened.Store(true) }

// TrySchedule is asked before each compaction.
func (s *scheduler) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	if !s.opened.Load() {
		return false, nil
	}
	return s.CompactionScheduler.TrySchedule()
}
