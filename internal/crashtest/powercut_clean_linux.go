package crashtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/runnelmq/runnel/stream"
)

// cutCleaned are the topics that the cleaner works on while the power fails, each of one partition: one is compacted, one has retention by bytes, and of one records are deleted. One worker
// sends to all of them, one record after the other.
var cutCleaned = []struct {
	name string
	c    stream.TopicConfig
}{
	{"keys", stream.TopicConfig{
		SegmentBytes: 2 << 10, Cleanup: stream.CleanupCompact,
		Config: map[string]string{"min.cleanable.dirty.ratio": "0.05"},
	}},
	{"aged", stream.TopicConfig{SegmentBytes: 2 << 10, RetentionBytes: cutRetention}},
	{"trimmed", stream.TopicConfig{SegmentBytes: 2 << 10}},
}

const (
	cutCompacted = 0 // in cutCleaned
	cutAged      = 1
	cutTrimmed   = 2

	cutRetention = 6 << 10
	cutKeys      = 12
	// cutMost is more than a batch of one record takes in a segment.
	cutMost = 350
)

func cutCleanTP(i int) stream.TopicPartition { return stream.TopicPartition{Topic: cutCleaned[i].name} }

func cutCleanTPs() (tps []stream.TopicPartition) {
	for i := range cutCleaned {
		tps = append(tps, cutCleanTP(i))
	}
	return tps
}

// A cutID says which record it is: that of a round with this number in its partition. Later ones are greater.
type cutID struct {
	round  int
	number int64
}

func (id cutID) less(than cutID) bool {
	return id.round < than.round || id.round == than.round && id.number < than.number
}

func (id cutID) String() string { return fmt.Sprintf("%d.%d", id.round, id.number) }

func parseCutID(text string) (id cutID, err error) {
	_, err = fmt.Sscanf(text, "%d.%d", &id.round, &id.number)
	return id, err
}

// key is what the record's key is, and whether it is a tombstone.
func (id cutID) key() (key string, tombstone bool) {
	h := hashRecord(nil, []byte(id.String()))
	return fmt.Sprint(h % cutKeys), h%29 == 0
}

func (id cutID) record(i int) *stream.Record {
	key, tombstone := id.key()
	r := &stream.Record{
		Topic: cutCleaned[i].name, Key: []byte(key),
		Headers: []stream.Header{{Key: "id", Value: []byte(id.String())}},
	}
	if !tombstone || i != cutCompacted {
		r.Value = []byte(id.String() + strings.Repeat("v", 200))
	}
	return r
}

// cleanID reads a record and compares it with what it has to be.
func cleanID(r *stream.Record, i int) (id cutID, err error) {
	if len(r.Headers) == 1 {
		id, err = parseCutID(string(r.Headers[0].Value))
	}
	want := id.record(i)
	if err != nil || len(r.Headers) != 1 || hashRecord(r.Key, r.Value) != hashRecord(want.Key, want.Value) || (r.Value == nil) != (want.Value == nil) {
		return id, fmt.Errorf("A4: a record with key %q, headers %q and value %.40q", r.Key, r.Headers, r.Value)
	}
	return id, nil
}

// openClean makes the topics that are not there, and says where their logs begin and end:
//
//	done clean bounds START END...
func (c *cutChild) openClean(ctx context.Context) error {
	for _, t := range cutCleaned {
		if err := c.eng.Admin().CreateTopic(ctx, t.name, t.c); err != nil && !errors.Is(err, stream.ErrTopicExists) {
			return fmt.Errorf("A10: create topic: %w", err)
		}
	}
	starts, err := c.eng.Admin().StartOffsets(ctx, cutCleanTPs()...)
	if err != nil {
		return fmt.Errorf("A11: start: %w", err)
	}
	ends, err := c.eng.Admin().EndOffsets(ctx, cutCleanTPs()...)
	if err != nil {
		return fmt.Errorf("A2: end: %w", err)
	}
	line := "done clean bounds"
	for _, tp := range cutCleanTPs() {
		line += fmt.Sprintf(" %d %d", starts[tp].Offset, ends[tp].Offset)
	}
	c.line("%s", line)
	return nil
}

// clean sends to the topics that are cleaned, and deletes records:
//
//	done clean sent TOPIC OFFSET ID LEVEL   a record is at this offset; level as for record
//	done clean trimming OFFSET              the records before this offset are about to be deleted
//	done clean trimmed OFFSET               they are
//	done clean passed WHAT                  the cleaner has done something
func (c *cutChild) clean(ctx context.Context, r *rand.Rand, count int) error {
	return c.produce(ctx, "", func(p stream.Producer) error {
		for range 2 * count {
			i := r.IntN(len(cutCleaned))
			c.cleaned[i]++
			id := cutID{c.round, c.cleaned[i]}
			rec, level := id.record(i), "written"
			if rec.Acks = mostlyWritten(r); rec.Acks == stream.AcksSynced {
				level = "synced"
			}
			rc, err := p.ProduceSync(ctx, rec)
			if err != nil {
				return fmt.Errorf("A2: clean: %w", err)
			}
			c.line("done clean sent %d %d %v %s", i, rc.Offset, id, level)
			if i != cutTrimmed || !chance(r, 0.05) {
				continue
			}
			to := max(0, rc.Offset+1-int64(r.IntN(30)))
			c.line("done clean trimming %d", to)
			if err := c.eng.Admin().DeleteRecords(ctx, map[stream.TopicPartition]int64{cutCleanTP(i): to}); err != nil {
				return fmt.Errorf("A11: delete records: %w", err)
			}
			c.line("done clean trimmed %d", to)
		}
		return nil
	})
}

// A cleanPart is what is known of a partition that is cleaned.
type cleanPart struct {
	start    int64 // the greatest log start that was seen
	trimming int64 // the greatest that was asked for by deleting records
	durable  int64
	end      int64           // behind the greatest offset that was heard of
	most     int64           // the same, of lives before the last loss too
	known    map[int64]cutID // what was acknowledged, or seen by the last check
}

func newCleanParts() []cleanPart {
	ps := make([]cleanPart, len(cutCleaned))
	for i := range ps {
		ps[i].known = map[int64]cutID{}
	}
	return ps
}

// heardClean takes down what the child says of cleaning.
func (w *cutWant) heardClean(text string) error {
	what, rest, _ := strings.Cut(text, " ")
	switch what {
	case "bounds":
		f := strings.Fields(rest)
		for i := range w.clean {
			var start, end int64
			if _, err := fmt.Sscan(strings.Join(f[2*i:2*i+2], " "), &start, &end); err != nil {
				return fmt.Errorf("line %q: %w", text, err)
			}
			if err := w.clean[i].opened(i, start, end); err != nil {
				return fmt.Errorf("partition %v: %w", cutCleanTP(i), err)
			}
		}
	case "sent":
		var i int
		var offset int64
		var name, level string
		if _, err := fmt.Sscan(rest, &i, &offset, &name, &level); err != nil {
			return fmt.Errorf("line %q: %w", text, err)
		}
		id, err := parseCutID(name)
		if err != nil {
			return fmt.Errorf("line %q: %w", text, err)
		}
		p := &w.clean[i]
		if offset < p.end {
			return fmt.Errorf("A5: partition %v: offset %d of %v was given before, the log ended at %d", cutCleanTP(i), offset, id, p.end)
		}
		p.known[offset] = id
		p.end = offset + 1
		p.most = max(p.most, p.end)
		if level == "synced" {
			p.durable = p.end
		}
	case "trimming", "trimmed":
		var to int64
		if _, err := fmt.Sscan(rest, &to); err != nil {
			return fmt.Errorf("line %q: %w", text, err)
		}
		p := &w.clean[cutTrimmed]
		p.trimming = max(p.trimming, to)
		if what == "trimmed" {
			p.start = max(p.start, to)
			w.stats.Trims++
		}
	case "passed":
		w.stats.Passes++
	default:
		return fmt.Errorf("line %q", text)
	}
	return nil
}

// opened takes down where the log begins and ends when the engine has been opened.
func (p *cleanPart) opened(i int, start, end int64) error {
	switch {
	case end < p.durable:
		return fmt.Errorf("A2: the log ends at %d, durable was %d", end, p.durable)
	case start < p.start:
		return fmt.Errorf("A11: the log begins at %d, it has begun at %d", start, p.start)
	case start > end:
		return fmt.Errorf("A11: the log begins at %d and ends at %d", start, end)
	case i == cutCompacted && start > 0:
		return fmt.Errorf("A12: the log begins at %d", start)
	case i == cutTrimmed && start > p.trimming:
		return fmt.Errorf("A11: the log begins at %d, records were deleted up to %d", start, p.trimming)
	case i == cutAged && start > 0 && (max(p.most, end)+1-start)*cutMost < cutRetention:
		return fmt.Errorf("A10: the log begins at %d and has ended at %d: retention has removed too much", start, p.most)
	}
	maps.DeleteFunc(p.known, func(offset int64, _ cutID) bool { return offset >= end })
	p.start, p.durable, p.end = start, end, end
	p.most = max(p.most, end)
	return nil
}

// checkClean reads the partitions that are cleaned: what was acknowledged as durable is there, unless a later record of its key, retention or a deletion has taken its place.
func (w *cutWant) checkClean(ctx context.Context, eng *stream.Engine, c stream.Consumer) error {
	for i := range w.clean {
		if err := w.checkCleanPart(ctx, eng, c, i); err != nil {
			return fmt.Errorf("partition %v: %w", cutCleanTP(i), err)
		}
	}
	return nil
}

func (w *cutWant) checkCleanPart(ctx context.Context, eng *stream.Engine, c stream.Consumer, i int) error {
	p, tp := &w.clean[i], cutCleanTP(i)
	if _, err := eng.Admin().Topics(ctx, tp.Topic); errors.Is(err, stream.ErrUnknownTopic) && !w.made {
		return nil // the child had not come so far
	}
	ends, err := eng.Admin().EndOffsets(ctx, tp)
	if err != nil {
		return fmt.Errorf("A2: end: %w", err)
	}
	end := ends[tp].Offset
	have, start, err := readClean(ctx, eng, c, i, end)
	if err != nil {
		return err
	}
	w.stats.Records += len(have)
	if err := p.opened(i, start, end); err != nil {
		return err
	}
	offsets := slices.Sorted(maps.Keys(have))
	last := map[string]int64{}
	for j, offset := range offsets {
		if j > 0 && !have[offsets[j-1]].less(have[offset]) {
			return fmt.Errorf("A3: record %v at offset %d follows %v at %d", have[offset], offset, have[offsets[j-1]], offsets[j-1])
		}
		key, _ := have[offset].key()
		last[key] = offset
	}
	for offset, id := range p.known {
		got, ok := have[offset]
		key, _ := id.key()
		switch {
		case ok && got != id:
			return fmt.Errorf("A2: offset %d holds %v, not %v", offset, got, id)
		case !ok && i == cutCompacted && last[key] <= offset:
			return fmt.Errorf("A12: %v at offset %d is gone, and there is no later record of key %s", id, offset, key)
		case !ok && i != cutCompacted && offset >= start:
			return fmt.Errorf("A2: %v at offset %d is gone, the log begins at %d", id, offset, start)
		}
	}
	if i != cutCompacted && int64(len(have)) != end-start {
		return fmt.Errorf("A3: %d records between %d and %d", len(have), start, end)
	}
	p.known = have
	return nil
}

// readClean reads a partition from its start to an end.
func readClean(ctx context.Context, eng *stream.Engine, c stream.Consumer, i int, end int64) (have map[int64]cutID, start int64, err error) {
	tp := cutCleanTP(i)
	for {
		have = map[int64]cutID{}
		starts, err := eng.Admin().StartOffsets(ctx, tp)
		if err != nil {
			return nil, 0, fmt.Errorf("A11: start: %w", err)
		}
		start = starts[tp].Offset
		if err := errors.Join(c.Assign(tp), c.Seek(tp, start)); err != nil {
			return nil, 0, fmt.Errorf("A2: assign: %w", err)
		}
		moved := false
		for at := start; at < end && !moved; {
			rs, err := c.Poll(ctx, 1000)
			if moved = errors.Is(err, stream.ErrOffsetOutOfRange); moved {
				break // retention has come by
			}
			if err != nil {
				return nil, 0, fmt.Errorf("A2: poll at %d: %w", at, err)
			}
			for j := range rs {
				id, err := cleanID(&rs[j], i)
				if err != nil {
					return nil, 0, fmt.Errorf("offset %d: %w", rs[j].Offset, err)
				}
				if rs[j].Offset < at {
					return nil, 0, fmt.Errorf("A5: offset %d where %d is due", rs[j].Offset, at)
				}
				have[rs[j].Offset], at = id, rs[j].Offset+1
			}
			if len(rs) == 0 { // the last ones have been compacted away
				if at, err = c.Position(tp); err != nil || at < end {
					return nil, 0, fmt.Errorf("A3: nothing at %d, the log ends at %d: %v", at, end, err)
				}
			}
		}
		if !moved {
			return have, start, nil
		}
	}
}
