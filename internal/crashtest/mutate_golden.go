package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/meta"
	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// A golden is a directory before it is damaged, and what it holds. Exported fields, because images are written with gob.
type golden struct {
	Name  string
	Clean bool // the engine had been closed in order
	Cut   bool
	Want  engineWant
	Parts map[stream.TopicPartition]*goldenPart

	disk    *vfs.Sim
	tree    []treeFile
	content map[string][]byte
}

// A goldenPart is a partition of a golden directory.
type goldenPart struct {
	RecoveryPoint int64
	Start         int64   // log start offset
	Offsets       []int64 // of the records that are there
	Times         []int64 // of the same, in ms
	Commits       []int64 // all offsets that the group ever had
	Batches       []goldenBatch
}

// A goldenBatch is where the records [Base, Next) lie.
type goldenBatch struct {
	File       string
	Pos, Size  int64
	Base, Next int64
}

// goldenDisk is the size of a disk: one that ends has a ballast, of a sixteenth of it.
const goldenDisk = 4 << 20

// goldenTime is the first record's, and about the time at which directories are made and looked at.
const goldenTime = 1_700_000_000_000

// openQuiet opens an engine that writes nothing by itself: its compaction stops to leave the disk to others, for ever.
func openQuiet(disk *vfs.Sim, ev stream.Events) (*stream.Engine, error) {
	return openAtRate(disk, 1, ev)
}

func openAtRate(disk *vfs.Sim, rate int64, ev stream.Events) (*stream.Engine, error) {
	return stream.Open(engineDir, &stream.Options{FS: disk, SyncInterval: time.Hour, MinFree: -1, CleanRate: rate, Events: ev,
		WallClock: func() time.Time { return time.UnixMilli(goldenTime) }})
}

// A goldenMaker drives an engine through three lives: closed in order, killed, and one that is still running.
type goldenMaker struct {
	r       *rand.Rand
	disk    *vfs.Sim
	want    engineWant
	commits map[stream.TopicPartition][]int64
	times   int64
	lives   int
	passed  chan struct{} // a pass of compaction has ended
}

// Topics with a part of their records: one that is compacted, and one whose log start has moved.
const (
	keyedTopic   = "keys"
	trimmedTopic = "events"
)

// makeGoldens makes the directories of a seed: closed in order, killed, cut off its power, and killed in the middle of a compaction, before and after its segment is complete.
func makeGoldens(ctx context.Context, seed uint64) ([]*golden, error) {
	g := &goldenMaker{r: random(seed, 20), commits: map[stream.TopicPartition][]int64{}, times: goldenTime}
	g.disk = vfs.NewSim(g.r.Uint64())
	g.disk.SetFree(goldenDisk)
	g.want.Topics = map[string]topicWant{}
	if err := g.life(ctx, func(*stream.Engine) error { return nil }); err != nil {
		return nil, err
	}
	g.want.closed()
	var killed *vfs.Sim
	if err := g.life(ctx, func(*stream.Engine) error { killed = g.disk.Crash(); return nil }); err != nil {
		return nil, err
	}
	g.disk = killed
	var goldens []*golden
	add := func(name string, disk *vfs.Sim) {
		gd := &golden{Name: name, Clean: name == "closed", Cut: name == "cut", Want: g.want.image(), disk: disk}
		goldens = append(goldens, gd)
	}
	if err := g.life(ctx, func(eng *stream.Engine) error {
		for _, tp := range g.want.partitions() {
			if tp.Topic == trimmedTopic {
				if err := g.trim(ctx, eng, tp); err != nil {
					return err
				}
			}
		}
		add("killed", g.disk.Crash())
		add("cut", g.disk.Cut(vfs.Cut{Seed: g.r.Uint64(), Keep: -1}))
		cleaned, swapped, err := g.compact(ctx, eng)
		if err != nil {
			return err
		}
		add("cleaning", cleaned)
		add("swapping", swapped)
		return nil
	}); err != nil {
		return nil, err
	}
	add("closed", g.disk)
	for _, gd := range goldens {
		if err := gd.explore(ctx, g.commits); err != nil {
			return nil, fmt.Errorf("directory that was %s: %w", gd.Name, err)
		}
	}
	return goldens, nil
}

// life opens the engine, writes, calls stop and closes the engine.
func (g *goldenMaker) life(ctx context.Context, stop func(*stream.Engine) error) error {
	g.passed = make(chan struct{}, 100)
	eng, err := openAtRate(g.disk, -1, stream.Events{Compacted: func(stream.TopicPartition, int64, int64, int64, int64) { g.passed <- struct{}{} }})
	if err != nil {
		return err
	}
	g.want.opened()
	g.lives++
	err = g.act(ctx, &engineLife{eng: eng, w: &g.want, names: map[string]stream.Producer{}})
	if err == nil {
		err = stop(eng)
	}
	return errors.Join(err, eng.Close())
}

func (g *goldenMaker) act(ctx context.Context, e *engineLife) error {
	// The last life has a topic and a name of its own: the store has them in its log only.
	for i, name := range []string{"orders", trimmedTopic, keyedTopic, "late"} {
		if _, there := g.want.Topics[name]; there || name == "late" && g.lives < 3 {
			continue
		}
		n := []int{2, 1, 1, 1}[i]
		c := stream.TopicConfig{Partitions: n, Config: map[string]string{"segment.bytes": "2048", "index.interval.bytes": "256"}}
		if err := e.eng.Admin().CreateTopic(ctx, name, c); err != nil {
			return err
		}
		t := topicWant{Life: len(g.want.Topics) + 1, Partitions: n, Parts: newParts(n)}
		t.follow(c.Config)
		g.want.Topics[name] = t
	}
	for range 8 {
		for _, tp := range g.want.partitions() {
			if err := g.write(ctx, e, tp); err != nil {
				return err
			}
		}
	}
	for _, tp := range g.want.partitions() {
		if err := g.commit(ctx, e, tp); err != nil {
			return err
		}
	}
	for _, tp := range g.want.partitions() { // above the last commit, which has synced
		if err := g.write(ctx, e, tp); err != nil {
			return err
		}
	}
	return nil
}

// write sends a few records to a partition, of a named producer or in one batch.
func (g *goldenMaker) write(ctx context.Context, e *engineLife, tp stream.TopicPartition) error {
	name, n := "", between(g.r, 1, 5)
	if chance(g.r, 0.4) {
		names := engineNames
		if g.lives < 3 {
			names = names[:1]
		}
		name = names[g.r.IntN(len(names))]
	}
	p, err := e.producer(ctx, name)
	if err != nil {
		return err
	}
	part := g.want.part(tp)
	acks := stream.AcksWritten
	if chance(g.r, 0.2) {
		acks = stream.AcksSynced
	}
	var rs []stream.Record
	base, last := int64(len(part.Sent)), part.last(name, int64(len(part.Sent)))
	for range n {
		s := sentRecord{Name: name, Value: fill(g.r, between(g.r, 10, 150))}
		if chance(g.r, 0.5) {
			s.Key = fill(g.r, between(g.r, 1, 10)) // not empty: gob cannot tell that from null
		}
		if tp.Topic == keyedTopic {
			s.Key = []byte{byte('a' + g.r.IntN(6))}
		}
		if name != "" {
			last++
			s.Sequence = last
		}
		part.Sent = append(part.Sent, s)
		r := *s.record(tp, acks)
		g.times += g.r.Int64N(2000)
		r.Timestamp = time.UnixMilli(g.times - g.r.Int64N(5000))
		rs = append(rs, r)
	}
	out, err := p.ProduceAll(ctx, rs, nil)
	for i, o := range out {
		if o.Err == nil {
			o.Err = g.want.receipt(tp, base+int64(i), acks, o.Receipt)
		}
		if o.Err != nil {
			return o.Err
		}
		g.want.ack(tp, o.Receipt)
	}
	return err
}

// trim moves the log start of a partition to somewhere in its first half.
func (g *goldenMaker) trim(ctx context.Context, eng *stream.Engine, tp stream.TopicPartition) error {
	p := g.want.part(tp)
	at := int64(between(g.r, len(p.Sent)/4, len(p.Sent)/2))
	if err := eng.Admin().DeleteRecords(ctx, map[stream.TopicPartition]int64{tp: at}); err != nil {
		return err
	}
	p.Start, p.Trim, p.Synced = at, at, max(p.Synced, at)
	return nil
}

// compact has the keyed topic compacted, and returns the disk as it was when the first new segment was being written, and when its name said that it was complete.
func (g *goldenMaker) compact(ctx context.Context, eng *stream.Engine) (cleaned, swapped *vfs.Sim, err error) {
	t := g.want.Topics[keyedTopic]
	config := map[string]string{"segment.bytes": "2048", "index.interval.bytes": "256", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
	t.follow(config)
	g.want.Topics[keyedTopic] = t
	g.disk.OnOp(func(op vfs.Op) {
		switch {
		case cleaned == nil && op.Kind == vfs.OpWrite && path.Ext(op.Name) == kindCleaned:
			cleaned = g.disk.Crash()
		case swapped == nil && op.Kind == vfs.OpRename && path.Ext(op.To) == kindSwap:
			swapped = g.disk.Crash()
		}
	})
	defer g.disk.OnOp(nil)
	if err := eng.Admin().AlterTopic(ctx, keyedTopic, map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}); err != nil {
		return nil, nil, err
	}
	select {
	case <-g.passed:
		return cleaned, swapped, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-time.After(hangs):
		return nil, nil, errors.New("no pass of compaction has ended")
	}
}

func (g *goldenMaker) commit(ctx context.Context, e *engineLife, tp stream.TopicPartition) (err error) {
	c, err := e.eng.NewConsumer(ctx, stream.ConsumerConfig{Group: engineGroup, ManualCommit: true, MaxWait: -1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	part := g.want.part(tp)
	at := int64(len(part.Sent))
	if chance(g.r, 0.4) {
		at = g.r.Int64N(at + 1)
	}
	if err := errors.Join(c.Assign(tp), c.CommitOffsets(ctx, stream.Offsets{tp: {Offset: at, LeaderEpoch: -1}})); err != nil {
		return err
	}
	part.Commit = at
	part.Synced = max(part.Synced, at)
	g.commits[tp] = append(g.commits[tp], at)
	return nil
}

// explore opens a copy and notes what is there, which has to be what was acknowledged.
func (g *golden) explore(ctx context.Context, commits map[stream.TopicPartition][]int64) (err error) {
	g.Parts = map[stream.TopicPartition]*goldenPart{}
	if g.tree, g.content, err = readTree(g.disk, engineDir); err != nil {
		return err
	}
	for _, tp := range g.Want.partitions() {
		g.Parts[tp] = &goldenPart{Commits: commits[tp]}
	}
	if err := g.readMarks(); err != nil {
		return err
	}
	eng, err := openQuiet(g.disk.Crash(), stream.Events{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	if err := g.Want.verify(ctx, eng, g.Cut); err != nil {
		return err
	}
	for tp, p := range g.Parts {
		end := len(g.Want.part(tp).Sent)
		p.Start = g.Want.part(tp).Start
		got, err := readToEnds(ctx, eng, []stream.TopicPartition{tp}, stream.Offsets{tp: {Offset: int64(end)}})
		if err != nil {
			return err
		}
		for _, r := range got[tp] {
			p.Offsets, p.Times = append(p.Offsets, r.Offset), append(p.Times, r.Timestamp.UnixMilli())
		}
		p.Batches = findBatches(g.tree, g.content, dirOf(tp), int64(end))
		if last := lastBase(g.tree, tp); p.RecoveryPoint < last {
			return fmt.Errorf("A8: the recovery point of %v is %d, below its last segment, which was made when it had moved to %d", tp, p.RecoveryPoint, last)
		}
		if n := len(p.Batches); n == 0 || p.Batches[n-1].Next != int64(end) {
			return fmt.Errorf("%v ends at %d, and has %d batches in its files", tp, end, n)
		}
	}
	return nil
}

// readMarks reads the recovery points out of the store.
func (g *golden) readMarks() (err error) {
	s, err := meta.Open(meta.Options{FS: g.disk.Crash(), Dir: path.Join(engineDir, "meta")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	topics, err := s.Topics()
	if err != nil {
		return err
	}
	for _, t := range topics {
		for i := range int32(t.Partitions) {
			st, err := s.Partition(meta.PartitionID{Topic: t.ID, Partition: i})
			if err != nil {
				return err
			}
			g.Parts[stream.TopicPartition{Topic: t.Name, Partition: i}].RecoveryPoint = st.RecoveryPoint
		}
	}
	return nil
}

// lastBase is the base offset of a partition's last segment.
func lastBase(tree []treeFile, tp stream.TopicPartition) (last int64) {
	for _, f := range tree {
		if path.Dir(f.Name) == dirOf(tp) && path.Ext(f.Name) == kindLog {
			base, err := strconv.ParseInt(strings.TrimSuffix(path.Base(f.Name), kindLog), 10, 64)
			if err == nil {
				last = max(last, base)
			}
		}
	}
	return last
}

// findBatches walks the segments of a partition up to its end. A segment that takes the place of others is walked instead of them.
func findBatches(tree []treeFile, content map[string][]byte, dir string, end int64) (bs []goldenBatch) {
	next := int64(-1)
	for _, f := range segmentsOf(tree, dir) {
		b := content[f]
		for pos := 0; next < end; {
			n, err := batch.Peek(b[min(pos, len(b)):])
			if err != nil || pos+n > len(b) {
				break
			}
			at := batch.Batch(b[pos : pos+n])
			if next < 0 {
				next = at.BaseOffset()
			}
			if at.BaseOffset() != next {
				break
			}
			bs = append(bs, goldenBatch{File: f, Pos: int64(pos), Size: int64(n), Base: next, Next: at.LastOffset() + 1})
			next = at.LastOffset() + 1
			pos += n
		}
	}
	return bs
}

// segmentsOf returns the files that hold a partition's records, in order.
func segmentsOf(tree []treeFile, dir string) (names []string) {
	there := map[string]bool{}
	for _, f := range tree {
		there[f.Name] = true
	}
	for _, f := range tree {
		if path.Dir(f.Name) != dir {
			continue
		}
		switch path.Ext(f.Name) {
		case kindLog:
			if !there[f.Name+kindSwap] {
				names = append(names, f.Name)
			}
		case kindSwap:
			names = append(names, f.Name)
		}
	}
	return names
}
