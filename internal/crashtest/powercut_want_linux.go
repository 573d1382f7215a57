package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/runnelmq/runnel/stream"
)

// A cutAck is what was acknowledged of an offset.
type cutAck struct {
	hash  uint64
	epoch int32
}

// A cutPart is what is known of a partition.
type cutPart struct {
	acked   map[int64]cutAck
	start   int64 // where the log ended when the engine was opened
	durable int64 // what is below it was promised to survive a loss of power
	end     int64 // behind the greatest offset that was acknowledged
	commit  int64 // the greatest offset that a commit has been acknowledged for
	epoch   int32 // the greatest that was heard of
	must    int32 // the least that new records may have
	used    bool  // something was acknowledged, and the engine has not begun to close since

	seen []uint64          // the hashes of all records, as the last check has found them
	last map[string]killID // of each worker, among them
	// readEpoch is that of the last of them.
	readEpoch int32
}

// A cutWant is what a directory has to hold.
type cutWant struct {
	stats *PowerCutStats
	made  bool // a child has been ready, so that the topics are there
	parts [cutPartitions]cutPart

	topics map[string]cutTopic // that come and go
	clean  []cleanPart         // of cutCleaned
}

func newCutWant(stats *PowerCutStats) *cutWant {
	w := &cutWant{stats: stats, topics: map[string]cutTopic{}, clean: newCleanParts()}
	for i := range w.parts {
		w.parts[i].acked = map[int64]cutAck{}
		w.parts[i].last = map[string]killID{}
	}
	return w
}

// heard takes down a line of the child.
func (w *cutWant) heard(k killLine) error {
	switch k.kind {
	case "ready":
		w.made = true
		ends := strings.Fields(k.text)
		if len(ends) != cutPartitions {
			return fmt.Errorf("line %q", k.text)
		}
		for i := range w.parts {
			end, err := strconv.ParseInt(ends[i], 10, 64)
			if err == nil {
				err = w.opened(int32(i), end)
			}
			if err != nil {
				return fmt.Errorf("partition %v: %w", cutTP(int32(i)), err)
			}
		}
	case "record":
		a, level := cutAck{hash: k.hash}, ""
		if _, err := fmt.Sscanf(k.text, "%d %d %x %d %s", &k.partition, &k.offset, &a.hash, &a.epoch, &level); err != nil {
			return fmt.Errorf("line %q: %w", k.text, err)
		}
		w.stats.Acked++
		if level == "synced" {
			w.stats.Synced++
		}
		if err := w.parts[k.partition].ack(k.offset, a, level == "synced"); err != nil {
			return fmt.Errorf("partition %v, offset %d: %w", cutTP(k.partition), k.offset, err)
		}
	case "commit":
		w.stats.Commits++
		p := &w.parts[k.partition]
		p.commit = max(p.commit, k.offset)
		p.durable = max(p.durable, k.offset) // E3
	case "done":
		return w.heardDone(k.text)
	}
	return nil
}

// heardDone takes down what the child has done to the engine as a whole, or to a topic.
func (w *cutWant) heardDone(text string) error {
	switch what, list, _ := strings.Cut(text, " "); what {
	case "closing", "closed":
		for i := range w.parts {
			p := &w.parts[i]
			p.used = false // also if it closes while the power fails: then it may have come to its end
			if what == "closed" {
				p.durable = max(p.durable, p.end)
			}
		}
		if what == "closed" {
			for i := range w.clean {
				w.clean[i].durable = w.clean[i].end
			}
		}
		return nil
	case "clean":
		return w.heardClean(list)
	case "topics":
		parts := map[string]int{}
		for _, f := range strings.Fields(list) {
			name, n, _ := strings.Cut(f, "=")
			parts[name], _ = strconv.Atoi(n)
		}
		return w.found(parts)
	}
	return w.heardTopic(text)
}

// relaxes says whether a line makes less certain what must be there. Such a line counts also when the power is failing.
func relaxes(k killLine) bool {
	what, _, _ := strings.Cut(k.text, " ")
	return k.kind == "done" && (what == "closing" || what == "making" || what == "deleting" || strings.HasPrefix(k.text, "clean trimming "))
}

// opened takes down where the log of a partition ends when the engine has been opened. What is left of it has survived a
// loss of power, so another cannot take it.
func (w *cutWant) opened(i int32, end int64) error {
	p := &w.parts[i]
	if end < p.durable {
		return fmt.Errorf("A2: the log ends at %d, durable was %d", end, p.durable)
	}
	for offset := range p.acked {
		if offset >= end {
			w.stats.Lost++
			delete(p.acked, offset)
			p.must = p.epoch + 1
		}
	}
	p.start, p.durable, p.end = end, end, end
	return nil
}

// ack takes down that a new record is at an offset. Acknowledgements come in any order.
func (p *cutPart) ack(offset int64, a cutAck, synced bool) error {
	if old, again := p.acked[offset]; again || offset < p.start {
		return fmt.Errorf("A5: it was given to %x in epoch %d, and now to %x in epoch %d; the log began to grow at %d", old.hash, old.epoch, a.hash, a.epoch, p.start)
	}
	if a.epoch < p.must || a.epoch < p.epoch {
		return fmt.Errorf("A5: epoch %d, after epoch %d; it must be at least %d", a.epoch, p.epoch, p.must)
	}
	p.acked[offset] = a
	p.used = true
	p.epoch = a.epoch
	p.end = max(p.end, offset+1)
	if synced {
		p.durable = max(p.durable, offset+1)
	}
	return nil
}

// cut takes down that the power has failed.
func (w *cutWant) cut() {
	for i := range w.parts {
		p := &w.parts[i]
		if p.used {
			p.must = p.epoch + 1
		}
		p.used = false
	}
}

// check opens the directory and compares. Unless it is a full one, what earlier checks have seen is only counted.
func (w *cutWant) check(dir string, r *rand.Rand, full bool) (err error) {
	ctx := context.Background()
	w.stats.Checks++
	var clamped atomic.Pointer[error]
	var tails atomic.Int64
	eng, err := openCut(dir, r, stream.Events{
		TailCut: func(stream.TopicPartition, int64, int64, string) { tails.Add(1) },
		OffsetClamped: func(_ string, tp stream.TopicPartition, from, to int64) {
			err := fmt.Errorf("E3: the offset of %v was clamped from %d to %d", tp, from, to)
			clamped.Store(&err)
		},
	})
	if err != nil {
		return fmt.Errorf("A2: open: %w", err)
	}
	defer func() {
		err = errors.Join(err, eng.Close())
		if c := clamped.Load(); c != nil {
			err = errors.Join(err, *c)
		}
		w.stats.Tails += int(tails.Load())
	}()
	infos, err := eng.Admin().Topics(ctx)
	if err != nil {
		return fmt.Errorf("A10: topics: %w", err)
	}
	have := map[string]int{}
	for _, t := range infos {
		have[t.Name] = t.Partitions
	}
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Group: killGroup, ManualCommit: true, Reset: stream.ResetNone, MaxWait: -1})
	if err != nil {
		return fmt.Errorf("A2: consumer: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	if err := w.checkTopics(ctx, eng, c, infos); err != nil {
		return err
	}
	if err := w.checkClean(ctx, eng, c); err != nil {
		return err
	}
	for i := range int32(cutPartitions) {
		tp := cutTP(i)
		if int(tp.Partition) >= have[tp.Topic] && !w.made {
			continue // the child had not come so far
		}
		if err := w.checkPart(ctx, eng, c, i, full); err != nil {
			return fmt.Errorf("partition %v: %w", tp, err)
		}
	}
	return nil
}

func (w *cutWant) checkPart(ctx context.Context, eng *stream.Engine, c stream.Consumer, i int32, full bool) error {
	p, tp := &w.parts[i], cutTP(i)
	ends, err := eng.Admin().EndOffsets(ctx, tp)
	if err != nil {
		return fmt.Errorf("A2: end: %w", err)
	}
	end := ends[tp].Offset
	if err := w.opened(i, end); err != nil {
		return err
	}
	from := int64(len(p.seen))
	if full {
		from = 0
	}
	if err := errors.Join(c.Assign(tp), c.Seek(tp, from)); err != nil {
		return fmt.Errorf("A2: assign: %w", err)
	}
	for at := from; at < end; {
		rs, err := c.Poll(ctx, 1000)
		if err != nil {
			return fmt.Errorf("A2: poll at %d: %w", at, err)
		}
		if len(rs) == 0 {
			return fmt.Errorf("A3: nothing at %d, the log ends at %d", at, end)
		}
		for j := range rs {
			if err := p.read(&rs[j], i, at); err != nil {
				return fmt.Errorf("offset %d of %d: %w", at, end, err)
			}
			at++
		}
		w.stats.Records += len(rs)
	}
	clear(p.acked)

	got, err := c.Committed(ctx, tp)
	if err != nil {
		return fmt.Errorf("E3: committed: %w", err)
	}
	if is := got[tp].Offset; is < p.commit || is > end {
		return fmt.Errorf("E3: committed offset is %d, acknowledged was %d, the log ends at %d", is, p.commit, end)
	}
	p.commit = got[tp].Offset
	for _, name := range cutNames {
		if err := checkKillSequence(ctx, eng, name, tp, p.last[name].number); err != nil {
			return err
		}
	}
	return nil
}

// read compares one record.
func (p *cutPart) read(r *stream.Record, partition int32, at int64) error {
	if r.Offset != at {
		return fmt.Errorf("A5: the record is at offset %d", r.Offset)
	}
	h := hashRecord(r.Key, r.Value)
	if at < int64(len(p.seen)) {
		if p.seen[at] != h {
			return errors.New("A2/A6: the record has changed since a check has seen it")
		}
		return nil
	}
	id, err := parseKillID(r.Value)
	if err != nil {
		return err
	}
	if id.worker != string(r.Key) || id.partition != partition {
		return fmt.Errorf("A4: record %v has key %q", id, r.Key)
	}
	if a, acked := p.acked[at]; acked && (a.hash != h || a.epoch != r.LeaderEpoch) {
		return fmt.Errorf("A2/A3: record %v of epoch %d is not the acknowledged one, of epoch %d", id, r.LeaderEpoch, a.epoch)
	}
	if r.LeaderEpoch < p.readEpoch {
		return fmt.Errorf("A5: record %v has epoch %d, the one before has %d", id, r.LeaderEpoch, p.readEpoch)
	}
	p.readEpoch, p.epoch = r.LeaderEpoch, max(p.epoch, r.LeaderEpoch)
	seq, err := sequenceOf(r)
	if err != nil {
		return fmt.Errorf("C1: %w", err)
	}
	// A worker's records come whole and in order: the next of the same life, or the first of a later one.
	last := p.last[id.worker]
	want := last.number + 1
	if id.round > last.round {
		want = 1
	}
	if id.round < last.round || id.number != want || (id.round == 0 && seq != id.number) {
		return fmt.Errorf("A3/C1: record %v with sequence %d follows %v", id, seq, last)
	}
	p.last[id.worker] = id
	p.seen = append(p.seen, h)
	return nil
}
