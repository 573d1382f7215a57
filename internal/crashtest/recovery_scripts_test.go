package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"

	"github.com/runnelmq/runnel/internal/vfs"
	rlog "github.com/runnelmq/runnel/log"
)

// A recoveryScript is a small history of one or two logs that ends in a stop from which recovery has something to do.
type recoveryScript struct {
	name string
	logs int
	play func(s *scripted) error
}

// stops plays the script and returns the moments at which it can be stopped: those that it has watched, else its end.
func (c recoveryScript) stops(seed uint64) (*scripted, error) {
	r := random(seed, 9)
	s := &scripted{r: r, disk: vfs.NewSim(r.Uint64()), shape: shape{SegmentBytes: 4 << 10, IndexInterval: 512}}
	s.disk.SetWriteBack([]float64{0, 0.1, 0.4}[r.IntN(3)])
	if err := errors.Join(s.disk.Mkdir(root), s.disk.SyncDir(".")); err != nil {
		return nil, err
	}
	for range c.logs {
		s.logs = append(s.logs, nil)
		s.stores = append(s.stores, &store{})
		s.wants = append(s.wants, logWant{})
		s.epochs = append(s.epochs, 0)
	}
	err := contain(func() error { return c.play(s) })
	for _, l := range s.logs {
		if l != nil {
			l.Abandon()
		}
	}
	if err == nil && len(s.stops) == 0 {
		s.stop("at the end")
	}
	return s, err
}

// A scripted is a script that is being played.
type scripted struct {
	r       *rand.Rand
	disk    *vfs.Sim
	shape   shape
	logs    []*rlog.Log
	stores  []*store
	wants   []logWant
	epochs  []int32
	stops   []recoveryStop
	damaged bool
}

func (s *scripted) stop(place string) {
	p := recoveryStop{disk: s.disk.Crash(), place: place}
	for i, st := range s.stores {
		p.stores = append(p.stores, &store{Durable: st.Durable, Pending: st.Pending[:len(st.Pending):len(st.Pending)]})
		p.wants = append(p.wants, s.wants[i].image())
	}
	s.stops = append(s.stops, p)
}

// watch plays a part of the script that may be stopped after every operation.
func (s *scripted) watch(play func() error) error {
	n := 0
	reached := func(op string) {
		n++
		s.stop(fmt.Sprintf("operation %d, %s", n, op))
	}
	s.disk.OnOp(func(op vfs.Op) { reached(op.String()) })
	for i, st := range s.stores {
		st.reached, st.claimed = reached, s.wants[i].claim
	}
	err := play()
	s.disk.OnOp(nil)
	for _, st := range s.stores {
		st.reached = nil
	}
	return err
}

// open opens log i in a new life.
func (s *scripted) open(i int) (err error) {
	m := s.stores[i].now()
	m.Epoch++
	s.epochs[i] = m.Epoch
	if s.logs[i], err = rlog.Open(s.shape.of(i, s.disk, s.stores[i], m)); err != nil {
		return err
	}
	n, err := s.wants[i].verify(s.logs[i], s.wants[i].Synced, s.wants[i].end())
	s.wants[i] = s.wants[i].cut(n)
	s.wants[i].claim(s.logs[i].DurableEnd())
	return err
}

// append appends n batches of up to about this size.
func (s *scripted) append(i, n, size int) error {
	for range n {
		if err := appendTo(s.logs[i], &s.wants[i], s.wants[i].next(s.r, size), s.epochs[i]); err != nil {
			return err
		}
		s.wants[i].claim(s.logs[i].DurableEnd())
	}
	return nil
}

// roll appends until a new segment has been begun, and watches the append that does it.
func (s *scripted) roll(i int) error {
	for n := s.segments(i); s.segments(i) == n; {
		s.stops = nil
		if err := s.watch(func() error { return s.append(i, 1, 1500) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *scripted) segments(i int) (n int) {
	infos, _ := s.disk.List(partitionDir(i))
	for _, f := range infos {
		if strings.HasSuffix(f.Name, ".log") {
			n++
		}
	}
	return n
}

// compact makes a pass over all but the last segment.
func (s *scripted) compact(i int) error {
	return s.wants[i].compact(s.logs[i], s.r, activeBase(s.disk, partitionDir(i)))
}

// wait makes durable what has been appended.
func (s *scripted) wait(i int) error {
	err := s.logs[i].WaitDurable(context.Background(), s.wants[i].Written)
	if err == nil {
		s.wants[i].claim(s.wants[i].Written)
	}
	return err
}

// flush is what the engine does in the background.
func (s *scripted) flush(i int) error {
	upto := s.wants[i].Written
	err := s.logs[i].Flush(context.Background())
	if err == nil {
		s.wants[i].claim(upto)
	}
	return err
}

// abandon is the end of a process that takes nothing with it but the log's memory.
func (s *scripted) abandon(i int) {
	s.logs[i].Abandon()
	s.logs[i] = nil
}

// close closes a log in order. The marks stay dirty: the stop comes before the clean mark.
func (s *scripted) close(i int) error {
	_, err := s.logs[i].Close()
	s.wants[i].claim(s.logs[i].DurableEnd())
	s.logs[i] = nil
	return err
}

// hole makes up to a sector of what log i has not called durable zero, in a way that leaves something behind it. There is one segment.
func (s *scripted) hole(i int) error {
	w := &s.wants[i]
	var from, end int64
	for _, b := range w.Sent {
		if end += int64(len(b)); b.BaseOffset() < w.Synced {
			from = end
		}
	}
	last := int64(len(w.Sent[len(w.Sent)-1]))
	at := from + s.r.Int64N(end-last-from)
	w.Written = w.Synced
	return zeros(s.disk, path.Join(partitionDir(i), strings.Repeat("0", 20)+".log"), at, int(min(512, end-last-at)))
}

// forget takes the recovery point of log i back to the start, where an older copy of the marks has it.
func (s *scripted) forget(i int) {
	s.stores[i].Durable.RecoveryPoint = 0
	s.stores[i].Pending = nil
}

var recoveryScripts = []recoveryScript{
	{"first append", 1, func(s *scripted) error {
		if err := s.open(0); err != nil {
			return err
		}
		return s.watch(func() error { return errors.Join(s.append(0, 2, 900), s.wait(0)) })
	}},
	{"torn tail", 1, func(s *scripted) error {
		if err := errors.Join(s.open(0), s.append(0, 3, 300), s.wait(0)); err != nil {
			return err
		}
		return s.watch(func() error { return s.append(0, 5, 300) })
	}},
	{"torn large batch", 1, func(s *scripted) error {
		s.shape.SegmentBytes = 1 << 20
		if err := errors.Join(s.open(0), s.append(0, 1, 300), s.wait(0)); err != nil {
			return err
		}
		return s.watch(func() error { return s.append(0, 2, 40_000) })
	}},
	{"roll in progress", 1, func(s *scripted) error {
		return errors.Join(s.open(0), s.append(0, 2, 300), s.roll(0))
	}},
	{"second roll in progress", 1, func(s *scripted) error {
		return errors.Join(s.open(0), s.roll(0), s.append(0, 1, 300), s.wait(0), s.roll(0))
	}},
	{"several segments and an old recovery point", 1, func(s *scripted) error {
		if err := errors.Join(s.open(0), s.roll(0), s.roll(0), s.wait(0), s.append(0, 2, 600)); err != nil {
			return err
		}
		s.stops = nil
		s.forget(0)
		return nil
	}},
	{"damage in front of later segments", 1, func(s *scripted) error {
		if err := errors.Join(s.open(0), s.roll(0), s.roll(0), s.append(0, 1, 300)); err != nil {
			return err
		}
		s.stops, s.damaged = nil, true
		s.forget(0)
		first := s.wants[0].Sent[0]
		name := path.Join(partitionDir(0), strings.Repeat("0", 20)+".log")
		return zeros(s.disk, name, int64(len(first)), 100)
	}},
	{"half a snapshot", 1, func(s *scripted) error {
		if err := errors.Join(s.open(0), s.roll(0), s.append(0, 4, 200)); err != nil {
			return err
		}
		s.stops = nil
		return s.watch(func() error { return s.close(0) })
	}},
	{"a broken snapshot", 1, func(s *scripted) error {
		if err := errors.Join(s.open(0), s.roll(0), s.append(0, 4, 200), s.close(0)); err != nil {
			return err
		}
		s.stops = nil
		end := s.wants[0].end()
		return zeros(s.disk, path.Join(partitionDir(0), fmt.Sprintf("%020d.snapshot", end)), 4, 8)
	}},
	{"a hole in the tail", 1, func(s *scripted) error {
		s.shape.SegmentBytes = 1 << 20
		return errors.Join(s.open(0), s.append(0, 2, 300), s.wait(0), s.append(0, 6, 900), s.hole(0))
	}},
	{"a second tail for the quarantine", 1, func(s *scripted) error {
		s.shape.SegmentBytes = 1 << 20
		if err := errors.Join(s.open(0), s.append(0, 2, 300), s.wait(0), s.append(0, 4, 900), s.hole(0)); err != nil {
			return err
		}
		s.abandon(0)
		return errors.Join(s.open(0), s.append(0, 1, 300), s.wait(0), s.append(0, 4, 900), s.hole(0))
	}},
	{"two partitions", 2, func(s *scripted) error {
		s.shape.SegmentBytes = 1 << 20
		if err := errors.Join(s.open(0), s.open(1), s.append(0, 2, 300), s.wait(0)); err != nil {
			return err
		}
		err := s.watch(func() error {
			return errors.Join(s.append(1, 2, 300), s.append(0, 3, 900), s.wait(1), s.append(1, 2, 900))
		})
		if err == nil && chance(s.r, 0.5) {
			s.stops = nil
			err = errors.Join(s.hole(0), s.hole(1))
		}
		return err
	}},
	{"a sync that failed", 1, func(s *scripted) error {
		if err := errors.Join(s.open(0), s.append(0, 2, 300), s.wait(0), s.append(0, 4, 600)); err != nil {
			return err
		}
		s.disk.Inject(func(op vfs.Op) error {
			if op.Kind == vfs.OpSync {
				return errors.New("bad sector")
			}
			return nil
		})
		err := s.wait(0)
		s.disk.Inject(nil)
		if err == nil {
			return errors.New("a sync that failed was believed")
		}
		s.abandon(0)
		s.wants[0].Written = s.wants[0].Synced // the page cache lies
		return nil
	}},
	{"a compaction in progress", 1, func(s *scripted) error {
		if err := errors.Join(s.open(0), s.roll(0), s.roll(0), s.compact(0), s.roll(0), s.roll(0), s.append(0, 1, 300)); err != nil {
			return err
		}
		s.stops = nil
		return s.watch(func() error { return s.compact(0) })
	}},
	{"a compaction in progress and an old recovery point", 1, func(s *scripted) error {
		s.shape.SegmentBytes = 2 << 10
		if err := errors.Join(s.open(0), s.roll(0), s.roll(0), s.roll(0), s.append(0, 1, 300)); err != nil {
			return err
		}
		s.stops = nil
		s.forget(0)
		return s.watch(func() error { return s.compact(0) })
	}},
	{"a trim in progress", 1, func(s *scripted) error {
		if err := errors.Join(s.open(0), s.roll(0), s.roll(0), s.roll(0), s.append(0, 1, 300)); err != nil {
			return err
		}
		s.stops = nil
		return s.watch(func() error { return s.wants[0].trim(s.logs[0], s.r) })
	}},
	{"index files behind", 1, func(s *scripted) error {
		s.shape.SegmentBytes = 1 << 20
		if err := errors.Join(s.open(0), s.append(0, 4, 900)); err != nil {
			return err
		}
		return s.watch(func() error { return errors.Join(s.append(0, 3, 900), s.flush(0), s.append(0, 2, 600)) })
	}},
}
