package crashtest

import "math/rand/v2"

// marks is what a log keeps outside of its files. Exported fields, because images are written with gob.
type marks struct {
	Dirty         bool
	Epoch         int32
	RecoveryPoint int64
	LogStart      int64
	Cleaned       int64
}

// A store is rlog.Checkpoints as the metadata store behaves: one sequence of writes, of which those before the last
// synced one survive anything, and of those after it a prefix. Also the end of the process can lose them, because pebble
// buffers what is not synced.
type store struct {
	Durable marks
	Pending []marks // after each write since, in order

	reached func(op string)       // an operation is about to end, or has ended
	claimed func(durable int64)   // the log says that it is durable up to there
	failing func(op string) error // the write fails with this error, without an effect
}

func (s *store) now() marks {
	if n := len(s.Pending); n > 0 {
		return s.Pending[n-1]
	}
	return s.Durable
}

func (s *store) write(m marks, sync bool, op string) error {
	if s.failing != nil {
		if err := s.failing(op); err != nil {
			return err
		}
	}
	if !sync {
		s.Pending = append(s.Pending, m)
	} else {
		s.at("before " + op) // in flight: the write has no effect yet
		s.Durable, s.Pending = m, nil
	}
	s.at(op)
	return nil
}

func (s *store) at(op string) {
	if s.reached != nil {
		s.reached(op)
	}
}

// MarkDirty implements rlog.Checkpoints.
func (s *store) MarkDirty(epoch int32, _ int64) error {
	m := s.now()
	m.Dirty, m.Epoch = true, epoch
	return s.write(m, true, "mark dirty")
}

// SetRecoveryPoint implements rlog.Checkpoints.
func (s *store) SetRecoveryPoint(offset int64, sync bool) error {
	if s.claimed != nil {
		s.claimed(offset)
	}
	m := s.now()
	m.RecoveryPoint = offset
	return s.write(m, sync, "recovery point")
}

// SetLogStart implements rlog.Checkpoints.
func (s *store) SetLogStart(offset int64) error {
	m := s.now()
	m.LogStart = offset
	return s.write(m, true, "log start")
}

// SetCleaned implements rlog.Checkpoints.
func (s *store) SetCleaned(offset int64) error {
	m := s.now()
	m.Cleaned = offset
	return s.write(m, false, "cleaned")
}

// closed records that the log was closed in order, as the broker does.
func (s *store) closed(end int64, sync bool) error {
	m := s.now()
	m.Dirty, m.RecoveryPoint = false, end
	return s.write(m, sync, "mark clean")
}

// image is the store after a stop that keeps this share of the pending writes; a negative share is drawn.
func (s *store) image(r *rand.Rand, keep float64) *store {
	n := len(s.Pending)
	if keep < 0 {
		n = r.IntN(n + 1)
	} else {
		n = int(keep*float64(n) + 0.5)
	}
	if n == 0 {
		return &store{Durable: s.Durable}
	}
	return &store{Durable: s.Pending[n-1]}
}
