package rlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// A cleanRun is a log that is compacted, with what it has to hold. Offsets begin at 0, so a record's place in recs is its offset.
type cleanRun struct {
	r       *rand.Rand
	e       *env
	l       *Log
	step    string
	segment int64
	keys    int // so many different ones
	now     int64
	retain  time.Duration // of tombstones
	mapSize int64

	recs    []cleanRecord
	sent    []batch.Batch // as appended
	horizon map[int64]int64
	next    map[int64]int32 // sequence of each producer
	epoch   map[int64]int16 // of each producer
	last    map[int64][]batch.Batch
	tracked []*tracked
}

type cleanRecord struct {
	key, value []byte
	ts         int64
	header     string // value of its one header, "" if it has none
	batch      int    // in sent
	gone       bool
	maybe      bool // it has a successor that the last pass may have known
}

// packers have one encoder of each codec: they are expensive to make.
var packers = func() (cs []*batch.Compressor) {
	for c := batch.None; c <= batch.Zstd; c++ {
		cs = append(cs, batch.NewCompressor(c, 0))
	}
	return cs
}()

func newCleanRun(t *testing.T, r *rand.Rand) *cleanRun {
	fsys := vfs.NewMemory()
	if err := fsys.Mkdir("/d"); err != nil {
		t.Fatal(err)
	}
	c := &cleanRun{
		r: r, e: newEnv(t, fsys, "/d"), segment: 1 << 10 << r.IntN(4), keys: 1 + r.IntN(20), now: 1000,
		retain: time.Duration(r.IntN(3)) * time.Second, mapSize: int64(r.IntN(1 << 16)),
		horizon: map[int64]int64{}, next: map[int64]int32{}, epoch: map[int64]int16{}, last: map[int64][]batch.Batch{},
	}
	interval := int64(r.IntN(2000))
	c.e.opts = func(o *Options) { o.SegmentBytes, o.IndexInterval = c.segment, 1+interval }
	return c
}

func (c *cleanRun) close() {
	for _, t := range c.tracked {
		t.c.Close()
	}
	if c.l != nil {
		c.l.Abandon()
	}
	c.e.fs.Close()
}

func (c *cleanRun) run() error {
	defer c.close()
	c.l = c.e.open()
	for range 2 + c.r.IntN(4) {
		c.step = "append"
		for range c.r.IntN(25) {
			if err := c.append(1 + c.r.IntN(20)); err != nil {
				return err
			}
		}
		if err := c.act(); err != nil {
			return err
		}
	}
	c.step = "finish"
	return errors.Join(c.compact(), c.reopen(), c.finish())
}

func (c *cleanRun) act() error {
	switch k := c.r.IntN(12); {
	case k < 7:
		return c.compact()
	case k < 10:
		return c.reopen()
	case k < 11:
		c.track()
		return nil
	default:
		return c.trim()
	}
}

// append appends a batch of n records.
func (c *cleanRun) append(n int) error {
	r := c.r
	stamp := batch.NoProducer()
	if r.IntN(3) > 0 {
		stamp.ProducerID = int64(1 + r.IntN(3))
		if id := stamp.ProducerID; r.IntN(15) == 0 && c.last[id] != nil { // of the epoch before nothing is known any more
			c.epoch[id]++
			c.next[id], c.last[id] = 0, nil
		}
		stamp.ProducerEpoch = c.epoch[stamp.ProducerID]
		stamp.BaseSequence = c.next[stamp.ProducerID]
	}
	var b batch.Builder
	b.Reset(nil)
	for range n {
		rec := cleanRecord{ts: c.now - 500 + r.Int64N(1000), batch: len(c.sent)}
		if r.IntN(12) > 0 {
			rec.key = []byte(strconv.Itoa(r.IntN(c.keys)))
		}
		if r.IntN(6) > 0 {
			rec.value = bytes.Repeat([]byte{byte(r.IntN(256))}, r.IntN(60))
		}
		var hs []kafka.Header
		if r.IntN(8) == 0 {
			rec.header = strconv.Itoa(r.IntN(1000))
			hs = []kafka.Header{{Key: "h", Value: []byte(rec.header)}}
		}
		b.Append(rec.ts, rec.key, rec.value, hs)
		c.recs = append(c.recs, rec)
	}
	made := b.Seal(stamp)
	if codec := r.IntN(10); codec < len(packers) && (codec != int(batch.Zstd) || r.IntN(4) == 0) {
		packed, err := packers[codec].Compress(nil, made)
		if err != nil {
			return err
		}
		made = packed
	}
	a, err := c.l.Append(made)
	if err != nil || a.Duplicate || a.Last != int64(len(c.recs))-1 {
		return fmt.Errorf("appended %+v, %v", a, err)
	}
	c.sent = append(c.sent, made)
	if id := stamp.ProducerID; id >= 0 {
		c.next[id] += int32(n)
		c.last[id] = append(c.last[id], made)
	}
	return nil
}

func (c *cleanRun) trim() error {
	c.step = "trim"
	at := c.r.Int64N(int64(len(c.recs)) + 1)
	if c.r.IntN(2) > 0 {
		at /= 4
	}
	if err := c.l.TrimTo(context.Background(), at); err != nil {
		return err
	}
	return c.check()
}

// compact makes one pass while cursors are on their way, and takes from the model what it has to take.
func (c *cleanRun) compact() error {
	c.step = "compact"
	c.now += c.r.Int64N(2000)
	c.track()
	paced := 0
	done, err := c.l.Compact(context.Background(), Compaction{
		Now: c.now, DeleteRetention: c.retain, MapBytes: c.mapSize,
		Pace: func(int) error {
			if paced++; paced == 5 {
				c.track()
			}
			for _, t := range c.tracked {
				if err := t.read(c, c.r.IntN(3)); err != nil {
					return err
				}
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	if len(done.Damaged) > 0 || done.To < done.From || done.Kept > done.Records {
		return fmt.Errorf("%+v", done)
	}
	if done.To > done.From {
		c.predict(done.To)
	}
	if done.More {
		c.guess(done.To)
	}
	return errors.Join(c.checkDirt(!done.More), c.check())
}

// predict is the rule of compaction: of each key below to the last record stays, and if that is a tombstone, until the time that its batch has been given.
func (c *cleanRun) predict(to int64) {
	last := map[string]int64{}
	for o, rec := range c.recs[:to] {
		if !rec.gone && rec.key != nil {
			last[string(rec.key)] = int64(o)
		}
	}
	for o := range c.recs[:to] {
		rec := &c.recs[o]
		b := c.sent[rec.batch].BaseOffset()
		switch {
		case rec.gone:
		case rec.key == nil || last[string(rec.key)] > int64(o):
			rec.gone = true
		case rec.value != nil:
		default:
			// What a pass sets counts from the next one on.
			if at, dated := c.horizon[b]; dated && at <= c.now {
				rec.gone = true
			}
		}
	}
	for _, rec := range c.recs[:to] {
		if b := c.sent[rec.batch].BaseOffset(); !rec.gone && rec.value == nil {
			if _, dated := c.horizon[b]; !dated {
				c.horizon[b] = c.now + c.retain.Milliseconds()
			}
		}
	}
}

// guess finds what may be gone because the batch at which the map was full, at offset to, was looked at in part.
func (c *cleanRun) guess(to int64) {
	keys := map[string]bool{}
	for _, rec := range c.recs[to:] {
		if rec.batch != c.recs[to].batch {
			break
		}
		keys[string(rec.key)] = rec.key != nil
	}
	for o := range c.recs[:to] {
		rec := &c.recs[o]
		rec.maybe = !rec.gone && keys[string(rec.key)]
	}
}

func (c *cleanRun) reopen() error {
	c.step = "close and open"
	for _, t := range c.tracked {
		if err := t.end(c); err != nil {
			return err
		}
	}
	c.tracked = nil
	start := c.l.StartOffset()
	if c.r.IntN(2) == 0 {
		c.e.close(c.l)
	} else {
		c.step = "kill and open"
		c.l.Abandon()
		c.e.epoch++
	}
	drop := func(suffixes ...string) error {
		for _, suffix := range suffixes {
			for _, name := range c.e.list(suffix) {
				if err := c.e.fs.Remove(c.e.options().Dir + "/" + name); err != nil {
					return err
				}
			}
		}
		return nil
	}
	switch c.r.IntN(4) {
	case 0:
		c.step += " without snapshots"
		if err := drop(suffixSnapshot); err != nil {
			return err
		}
	case 1:
		c.step += " without indexes"
		if err := drop(suffixIndex, suffixTimeIndex); err != nil {
			return err
		}
	case 2:
		c.e.cp.cleaned = 0 // the store need not have kept it
	}
	if _, err := c.e.fs.Stat(fileName(c.e.options().Dir, int64(len(c.recs)), suffixSnapshot)); err != nil {
		// Of producers only what lies at the log start and behind it is sure to be known.
		for id, bs := range c.last {
			c.last[id] = slices.DeleteFunc(slices.Clone(bs), func(b batch.Batch) bool { return b.LastOffset() < start })
		}
	}
	l, err := Open(c.e.options())
	if err != nil {
		return err
	}
	c.l = l
	if len(c.e.cuts) > 0 {
		return fmt.Errorf("A1: recovery has cut %v", c.e.cuts)
	}
	return c.check()
}

func (c *cleanRun) finish() error {
	for _, t := range c.tracked {
		if err := t.end(c); err != nil {
			return err
		}
	}
	return nil
}
