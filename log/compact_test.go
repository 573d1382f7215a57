package rlog

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

var cleanLogs = flag.Int("cleanlogs", 2000, "random logs that TestCompactAsAModel compacts; CI: 10000")

// A12, C1, C3, A13: random logs are compacted, opened again and read as a map of their keys says. Nothing goes but what has a successor, has no key, or is a
// tombstone whose time is over; all else is at its offset as it was written, and a producer's last batches are known again.
func TestCompactAsAModel(t *testing.T) {
	n := *cleanLogs
	if testing.Short() {
		n /= 20
	}
	s, r := seed(t)
	for i := range n {
		c := newCleanRun(t, rand.New(rand.NewPCG(r.Uint64(), 1)))
		if err := c.run(); err != nil {
			t.Fatalf("log %d from seed %d: %s: %v", i, s, c.step, err)
		}
	}
}

// A12: a key map that is too small for a log takes several passes, which lead to what one would.
func TestCompactWithASmallMap(t *testing.T) {
	n := max(*cleanLogs/500, 4)
	if testing.Short() {
		n = 2
	}
	s, r := seed(t)
	for i := range n {
		c := newCleanRun(t, rand.New(rand.NewPCG(r.Uint64(), 2)))
		c.keys, c.segment = 2000+c.r.IntN(4000), 32<<10
		if err := c.narrow(); err != nil {
			t.Fatalf("log %d from seed %d: %s: %v", i, s, c.step, err)
		}
	}
}

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
		horizon: map[int64]int64{}, next: map[int64]int32{}, last: map[int64][]batch.Batch{},
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
		stamp.ProducerEpoch = 0
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

// checkDirt holds what Dirty says against the batch at which the next pass begins.
func (c *cleanRun) checkDirt(clean bool) error {
	d := c.l.Dirty(c.now, 0)
	if (d.Dirty == 0) != (d.Oldest < 0) || clean && d.Dirty > 0 {
		return fmt.Errorf("it is clean (%t), and there is %+v", clean, d)
	}
	if d.Dirty == 0 {
		return nil
	}
	cur := c.l.NewCursor(max(c.l.cleaned.Load(), c.l.StartOffset()))
	defer cur.Close()
	if b, err := cur.Next(c.l.EndOffset()); err != nil || b.MaxTimestamp() != d.Oldest {
		return fmt.Errorf("there is %+v, the first dirty batch is of %d, %v", d, b.MaxTimestamp(), err)
	}
	return nil
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

// check reads the whole log and holds it against the model.
func (c *cleanRun) check() error {
	start, end := c.l.StartOffset(), int64(len(c.recs))
	if c.l.EndOffset() != end {
		return fmt.Errorf("A1: the log ends at %d, want %d", c.l.EndOffset(), end)
	}
	cur := c.l.NewCursor(start)
	defer cur.Close()
	due := int64(-1)
	at := start
	for at < end {
		b, err := cur.Next(end)
		if err != nil || b == nil {
			return fmt.Errorf("A12: at offset %d of %d: %d bytes, %w", at, end, len(b), err)
		}
		if due >= 0 && b.BaseOffset() != due || b.BaseOffset() > at {
			return fmt.Errorf("A12: a batch begins at %d, due is %d", b.BaseOffset(), max(due, at))
		}
		due = b.LastOffset() + 1
		if err := c.checkBatch(b); err != nil {
			return err
		}
		for err := range c.between(b, &at, due) {
			return err
		}
	}
	for o := range c.recs {
		c.recs[o].maybe = false
	}
	c.e.whole(c.l)
	return errors.Join(c.checkProducers(), c.checkTimes())
}

// checkBatch holds what a batch says of itself against the ones that were appended.
func (c *cleanRun) checkBatch(b batch.Batch) error {
	if err := batch.Check(b); err != nil {
		return fmt.Errorf("A4: batch at %d: %w", b.BaseOffset(), err)
	}
	of := c.sent[c.recs[b.BaseOffset()].batch]
	if b.Count() == 0 && b.ProducerID() < 0 {
		if to := c.sent[c.recs[b.LastOffset()].batch]; of.BaseOffset() != b.BaseOffset() || to.LastOffset() != b.LastOffset() {
			return fmt.Errorf("A12: a filler takes offsets %d to %d: parts of batches", b.BaseOffset(), b.LastOffset())
		}
		return nil
	}
	if b.BaseOffset() != of.BaseOffset() || b.LastOffset() != of.LastOffset() || b.LeaderEpoch() != of.LeaderEpoch() ||
		b.ProducerID() != of.ProducerID() || b.ProducerEpoch() != of.ProducerEpoch() || b.BaseSequence() != of.BaseSequence() {
		return fmt.Errorf("A12: the batch at %d has another header than when it was appended", of.BaseOffset())
	}
	if b.Count() > 0 && b.Codec() != of.Codec() {
		return fmt.Errorf("A12: the batch at %d has turned from %v to %v", of.BaseOffset(), of.Codec(), b.Codec())
	}
	at, dated := b.DeleteHorizon()
	want, should := c.horizon[b.BaseOffset()]
	if dated && (!should || at != want) {
		return fmt.Errorf("A12: the batch at %d has the horizon %d, want %d (%t)", b.BaseOffset(), at, want, should)
	}
	for o := b.BaseOffset(); o <= b.LastOffset() && should && !dated; o++ {
		if rec := c.recs[o]; !rec.gone && !rec.maybe && rec.value == nil && o >= c.l.StartOffset() {
			return fmt.Errorf("A12: the batch at %d with the tombstone %d has no horizon", b.BaseOffset(), o)
		}
	}
	return nil
}

// between compares the records of b from *at on with those that have to be there up to offset to.
func (c *cleanRun) between(b batch.Batch, at *int64, to int64) func(yield func(error) bool) {
	return func(yield func(error) bool) {
		var buf []byte
		plain, err := b.Plain(&buf, math.MaxInt32)
		if err != nil {
			yield(err)
			return
		}
		it := plain.Iter()
		for r := (batch.Record{}); it.Next(&r); {
			if err := c.absent(at, r.Offset); err != nil {
				yield(err)
				return
			}
			if r.Offset < *at {
				continue // before the wanted one
			}
			if err := c.same(&r); err != nil {
				yield(err)
				return
			}
			if c.recs[r.Offset].gone {
				yield(fmt.Errorf("A12: record %d should be gone", r.Offset))
				return
			}
			*at++
		}
		if err := it.Err(); err != nil {
			yield(err)
			return
		}
		if err := c.absent(at, to); err != nil {
			yield(err)
		}
	}
}

// absent moves *at over records that are not in the log.
func (c *cleanRun) absent(at *int64, to int64) error {
	for ; *at < to; *at++ {
		rec := &c.recs[*at]
		rec.gone = rec.gone || rec.maybe
		if !rec.gone {
			return fmt.Errorf("A12: record %d is missing", *at)
		}
	}
	return nil
}

// same reports a record that is not what was appended at its offset.
func (c *cleanRun) same(r *batch.Record) error {
	want := c.recs[r.Offset]
	h, _ := r.Header("h")
	if !bytes.Equal(r.Key, want.key) || (r.Key == nil) != (want.key == nil) || !bytes.Equal(r.Value, want.value) || (r.Value == nil) != (want.value == nil) ||
		r.Timestamp != want.ts || string(h) != want.header {
		return fmt.Errorf("A12: record %d is %q %q at %d with header %q, want %q %q at %d with %q",
			r.Offset, r.Key, r.Value, r.Timestamp, h, want.key, want.value, want.ts, want.header)
	}
	return nil
}

// checkProducers sends the last batches of each producer again.
func (c *cleanRun) checkProducers() error {
	for id, bs := range c.last {
		for _, b := range bs[max(0, len(bs)-remembered):] {
			again := batch.Batch(bytes.Clone(b))
			again.SetOffset(-7, -7)
			a, err := c.l.Append(again)
			if err != nil || !a.Duplicate || a.Base != b.BaseOffset() || a.Last != b.LastOffset() {
				return fmt.Errorf("C1: producer %d sent %d to %d again: %+v, %v", id, b.BaseOffset(), b.LastOffset(), a, err)
			}
		}
	}
	return nil
}

// checkTimes looks for times.
func (c *cleanRun) checkTimes() error {
	for range 4 {
		at := c.r.Int64N(c.now + 1500)
		limit := c.r.Int64N(int64(len(c.recs)) + 1)
		got, ok, err := c.l.OffsetForTime(at, limit)
		if err != nil {
			return fmt.Errorf("A13: %w", err)
		}
		want := int64(-1)
		for o := c.l.StartOffset(); o < limit; o++ {
			if rec := c.recs[o]; !rec.gone && rec.ts >= at {
				want = o
				break
			}
		}
		if ok != (want >= 0) || ok && (got.Offset != want || got.Timestamp != c.recs[want].ts) {
			return fmt.Errorf("A13: the first record at %d below %d is %+v (%t), want %d", at, limit, got, ok, want)
		}
	}
	return nil
}

// tracked is a cursor that reads on while the log is compacted.
type tracked struct {
	c    *Cursor
	from int64
	at   int64  // next offset
	gone []bool // by offset, from base on, when it began
	seen []bool // by offset, from base on
	base int64
}

func (c *cleanRun) track() {
	start, end := c.l.StartOffset(), c.l.EndOffset()
	from := start + c.r.Int64N(end-start+1)
	if c.r.IntN(2) == 0 {
		from = start
	}
	t := &tracked{c: c.l.NewCursor(from), at: from, from: from, base: from, gone: make([]bool, end-from), seen: make([]bool, end-from)}
	for o := from; o < end; o++ {
		t.gone[o-from] = c.recs[o].gone
	}
	if len(c.tracked) > 5 {
		c.tracked[0].c.Close()
		c.tracked = c.tracked[1:]
	}
	c.tracked = append(c.tracked, t)
}

// read reads n batches on.
func (t *tracked) read(c *cleanRun, n int) error {
	for range n {
		if t.at < c.l.StartOffset() {
			t.at, t.from = c.l.StartOffset(), c.l.StartOffset()
			t.c.MoveTo(t.at)
		}
		b, err := t.c.Next(c.l.EndOffset())
		if err != nil {
			return fmt.Errorf("A12: a cursor on its way at %d: %w", t.at, err)
		}
		if b == nil {
			return nil
		}
		if b.BaseOffset() > t.at || b.LastOffset() < t.at {
			return fmt.Errorf("A12: a cursor at %d found the batch from %d to %d", t.at, b.BaseOffset(), b.LastOffset())
		}
		var buf []byte
		plain, err := b.Plain(&buf, math.MaxInt32)
		if err != nil {
			return err
		}
		it := plain.Iter()
		for r := (batch.Record{}); it.Next(&r); {
			if r.Offset < t.at {
				continue
			}
			if err := c.same(&r); err != nil {
				return err
			}
			o := int(r.Offset - t.base)
			if o < len(t.gone) && t.gone[o] {
				return fmt.Errorf("A12: a cursor found record %d, which was gone when it began", r.Offset)
			}
			if o >= len(t.seen) {
				t.seen = append(t.seen, make([]bool, len(c.recs)-int(t.base)-len(t.seen))...)
			}
			t.seen[o] = true
		}
		if err := it.Err(); err != nil {
			return err
		}
		t.at = b.LastOffset() + 1
	}
	return nil
}

// end reads to the log's end: everything that is there now was seen.
func (t *tracked) end(c *cleanRun) error {
	defer t.c.Close()
	if err := t.read(c, len(c.sent)+1); err != nil {
		return err
	}
	for o := max(t.from, c.l.StartOffset()); o < c.l.EndOffset(); o++ {
		if !c.recs[o].gone && (int(o-t.base) >= len(t.seen) || !t.seen[o-t.base]) {
			return fmt.Errorf("A12: a cursor from %d has not seen record %d", t.from, o)
		}
	}
	return nil
}

// narrow fills the map again and again.
func (c *cleanRun) narrow() error {
	defer c.close()
	c.mapSize = 0
	c.l = c.e.open()
	for range 2 {
		c.step = "append"
		for range 200 + c.r.IntN(200) {
			if err := c.append(20); err != nil {
				return err
			}
		}
		passes := 0
		for {
			from := c.l.cleaned.Load()
			if err := c.compact(); err != nil {
				return err
			}
			if c.l.cleaned.Load() == from {
				break
			}
			passes++
			if c.r.IntN(4) == 0 {
				if err := c.reopen(); err != nil {
					return err
				}
			}
		}
		if passes < 2 {
			return fmt.Errorf("%d passes", passes)
		}
	}
	last := map[string]int{}
	for o, rec := range c.recs[:c.l.cleaned.Load()] {
		if old, ok := last[string(rec.key)]; ok && !rec.gone {
			return fmt.Errorf("A12: a key is at offsets %d and %d", old, o)
		}
		if !rec.gone {
			last[string(rec.key)] = o
		}
	}
	return c.finish()
}
