package crashtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
	rlog "github.com/runnelmq/runnel/log"
)

var readerRounds = flag.Int("readerrounds", 2, "lives of a log whose segments are taken away under its readers")

const (
	readers     = 8
	readerReads = 200 // runs of reads that each reader makes at least
)

// lockedStore is a store for several goroutines.
type lockedStore struct {
	mu sync.Mutex
	st store
}

func (s *lockedStore) do(fn func(st *store) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fn(&s.st)
}

func (s *lockedStore) MarkDirty(epoch int32, start int64) error {
	return s.do(func(st *store) error { return st.MarkDirty(epoch, start) })
}

func (s *lockedStore) SetRecoveryPoint(offset int64, sync bool) error {
	return s.do(func(st *store) error { return st.SetRecoveryPoint(offset, sync) })
}

func (s *lockedStore) SetLogStart(offset int64) error {
	return s.do(func(st *store) error { return st.SetLogStart(offset) })
}

func (s *lockedStore) SetCleaned(offset int64) error {
	return s.do(func(st *store) error { return st.SetCleaned(offset) })
}

// ownRecord is the record of an offset: whoever reads it knows what it has to be.
func ownRecord(o int64) record {
	r := record{key: strconv.AppendInt(nil, o*o%61, 10), timestamp: earliest + o}
	if o%13 > 0 {
		r.value = binary.BigEndian.AppendUint64(nil, uint64(o))
		r.value = append(r.value, bytes.Repeat([]byte{byte(o), byte(o >> 8), byte(o * 7)}, int(20+o%60))...)
	}
	return r
}

// B1: readers of a log whose segments are compacted, retained, trimmed and closed under them meet no fault and no wrong byte: on a real disk, where what is gone is
// unmapped, and in memory, which the race detector sees.
func TestReadersOfSegmentsThatAreTakenAway(t *testing.T) {
	start := startSeed(t)
	for _, ground := range []struct {
		name    string
		fs      vfs.FS
		dir     string
		batches int // appended in a round, of 20 records
	}{{"disk", vfs.NewDisk(), t.TempDir(), 150}, {"memory", vfs.NewMemory(), "/d", 1500}} {
		t.Run(ground.name, func(t *testing.T) {
			defer ground.fs.Close()
			if err := ground.fs.Mkdir(ground.dir); err != nil && !errors.Is(err, fs.ErrExist) {
				t.Fatal(err)
			}
			st := &lockedStore{}
			s := shape{SegmentBytes: 8 << 10, IndexInterval: 1 << 10}
			var read atomic.Int64
			for round := range *readerRounds {
				m := st.st.now()
				m.Epoch++
				o := s.options(ground.fs, &st.st, m)
				o.Dir, o.Quarantine, o.Checkpoints = ground.dir+"/t-0", ground.dir+"/q", st
				l, err := rlog.Open(o)
				if err != nil {
					t.Fatal(err)
				}
				x := &takenAway{log: l, batches: ground.batches, read: &read}
				if err := x.run(start + uint64(round)); err != nil {
					t.Fatalf("seed %d, round %d: B1: %v", start, round, err)
				}
			}
			t.Logf("%d batches read", read.Load())
		})
	}
}

type takenAway struct {
	log     *rlog.Log
	batches int // to append
	read    *atomic.Int64
	done    atomic.Bool // the appender has ended
	closed  atomic.Bool
}

func (x *takenAway) run(seed uint64) error {
	actors := []func(r *rand.Rand) error{x.append, x.compact, x.remove}
	for range readers {
		actors = append(actors, x.follow)
	}
	errs := make([]error, len(actors))
	var wg, busy sync.WaitGroup
	for i, act := range actors {
		wg.Add(1)
		if i < 3 {
			busy.Add(1)
		}
		go func() {
			defer wg.Done()
			errs[i] = contain(func() error { return act(random(seed, uint64(i))) })
			if i == 0 {
				x.done.Store(true)
			}
			if i < 3 {
				busy.Done()
			}
		}()
	}
	busy.Wait()
	// Under the readers, which keep what they stand in.
	var closed error
	if seed%2 == 0 {
		_, closed = x.log.Close()
	} else {
		x.log.Abandon()
	}
	x.closed.Store(true)
	wg.Wait()
	return errors.Join(append(errs, closed)...)
}

func (x *takenAway) append(r *rand.Rand) error {
	pack := batch.NewCompressor(batch.LZ4, 0)
	for i := range x.batches {
		var rs []record
		for o := x.log.EndOffset(); len(rs) < 20; o++ {
			rs = append(rs, ownRecord(o))
		}
		b := buildAll(rs, batch.NoProducer())
		if i%4 == 0 {
			var err error
			if b, err = pack.Compress(nil, b); err != nil {
				return err
			}
		}
		if _, err := x.log.Append(b); err != nil {
			return err
		}
	}
	return nil
}

func (x *takenAway) compact(*rand.Rand) error {
	for now := int64(earliest); !x.done.Load(); now += 1000 {
		done, err := x.log.Compact(context.Background(), rlog.Compaction{Now: now, MapBytes: 1 << 20})
		if err != nil || len(done.Damaged) > 0 {
			return fmt.Errorf("compact: %+v, %v", done, err)
		}
	}
	return nil
}

func (x *takenAway) remove(r *rand.Rand) error {
	for !x.done.Load() {
		from, end := x.log.StartOffset(), x.log.DurableEnd()
		var err error
		if end > from && r.IntN(4) == 0 {
			err = x.log.TrimTo(context.Background(), from+r.Int64N(end-from)/8)
		} else {
			_, err = x.log.Retain(rlog.Retention{Now: earliest, Age: -1, Bytes: 32<<10 + r.Int64N(256<<10)})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// follow reads from random offsets on until the log is closed.
func (x *takenAway) follow(r *rand.Rand) error {
	c := x.log.NewCursor(0)
	defer c.Close()
	for left := readerReads; left > 0 || !x.closed.Load(); left-- {
		from, end := x.log.StartOffset(), x.log.EndOffset()
		c.MoveTo(from + r.Int64N(end-from+1))
		for range 1 + r.IntN(30) {
			err := x.readOne(c, r)
			if errors.Is(err, kafka.ErrOffsetOutOfRange) {
				break
			}
			if errors.Is(err, kafka.ErrClosed) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("reading offset %d: %w", c.Offset(), err)
			}
		}
		if r.IntN(20) == 0 {
			if err := x.find(r); err != nil && !errors.Is(err, kafka.ErrClosed) {
				return err
			}
		}
		if left <= 0 {
			runtime.Gosched() // the others have the processors
		}
	}
	return nil
}

func (x *takenAway) readOne(c *rlog.Cursor, r *rand.Rand) (err error) {
	want := c.Offset()
	b, err := c.Next(x.log.EndOffset())
	if err != nil {
		return err
	}
	if b == nil {
		runtime.Gosched()
		return nil
	}
	// As a consumer does: some time passes before the bytes are touched.
	defer vfs.Catch(vfs.Arm(), c.File(), &err)
	for range r.IntN(4) {
		runtime.Gosched()
	}
	if err := batch.Check(b); err != nil {
		return err
	}
	if b.BaseOffset() > want || b.LastOffset() < want {
		return fmt.Errorf("looking for %d found %s", want, describe(b))
	}
	var buf []byte
	plain, err := new(batch.Decompressor).Plain(b, &buf, 1<<20)
	if err != nil {
		return err
	}
	it := plain.Iter()
	for rec := (batch.Record{}); it.Next(&rec); {
		own := ownRecord(rec.Offset)
		if !bytes.Equal(rec.Key, own.key) || !bytes.Equal(rec.Value, own.value) || (rec.Value == nil) != (own.value == nil) || rec.Timestamp != own.timestamp {
			return fmt.Errorf("the record at %d is %q %q", rec.Offset, rec.Key, rec.Value)
		}
	}
	x.read.Add(1)
	return it.Err()
}

// find looks for a time, which loads indexes.
func (x *takenAway) find(r *rand.Rand) error {
	end := x.log.EndOffset()
	at := earliest + r.Int64N(end+1)
	found, ok, err := x.log.OffsetForTime(at, end)
	if err == nil && ok && (found.Timestamp < at || found.Timestamp != earliest+found.Offset) {
		err = fmt.Errorf("the first record at %d is %+v", at, found)
	}
	return err
}
