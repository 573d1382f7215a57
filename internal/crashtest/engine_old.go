package crashtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/runnelmq/runnel/stream"
)

// Settings with which old records go, by a topic's configuration. Segments are small, passes are made whatever there is to do.
var policies = []map[string]string{
	{},
	{},
	{"retention.bytes": "3000"},
	{"retention.ms": "1"},
	{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
	{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"},
	{"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0", "retention.bytes": "4000"},
}

// policyNames are the settings that policies have.
var policyNames = []string{"retention.bytes", "retention.ms", "cleanup.policy", "min.cleanable.dirty.ratio", "delete.retention.ms"}

// follow notes a configuration that a topic may have from now on.
func (t *topicWant) follow(config map[string]string) {
	policy := config["cleanup.policy"]
	t.Compacts = t.Compacts || strings.Contains(policy, "compact")
	t.Expires = t.Expires || (policy == "" || strings.Contains(policy, "delete")) && (config["retention.bytes"] != "" || config["retention.ms"] != "")
	if s := fmt.Sprint(config); !slices.Contains(t.Configs, s) {
		t.Configs = append(slices.Clone(t.Configs), s)
	}
}

// alter gives a topic another policy.
func (h *engineHistory) alter(ctx context.Context, w *engineWant) error {
	names := w.names()
	name := names[h.r.IntN(len(names))]
	infos, err := h.life.eng.Admin().Topics(ctx, name)
	if err != nil {
		return fmt.Errorf("A10: topic %s: %w", name, err)
	}
	set := policies[h.r.IntN(len(policies))]
	var unset []string
	config := infos[0].Config
	for _, n := range policyNames {
		if v, ok := set[n]; ok {
			config[n] = v
		} else {
			unset = append(unset, n)
			delete(config, n)
		}
	}
	h.update(func(w *engineWant) {
		t := w.Topics[name]
		t.follow(config)
		w.Topics[name] = t
	})
	if err := h.life.eng.Admin().AlterTopic(ctx, name, set, unset...); err != nil {
		return err
	}
	h.update(func(w *engineWant) {
		t := w.Topics[name]
		t.Configs = []string{fmt.Sprint(config)}
		w.Topics[name] = t
	})
	return nil
}

// trim deletes records. (A11)
func (h *engineHistory) trim(ctx context.Context, tps []stream.TopicPartition) error {
	before := map[stream.TopicPartition]int64{}
	h.update(func(w *engineWant) {
		for range between(h.r, 1, 2) {
			tp := tps[h.r.IntN(len(tps))]
			p := w.part(tp)
			before[tp] = h.r.Int64N(int64(len(p.Sent)) + 1)
			p.Trim = max(p.Trim, before[tp])
			if chance(h.r, 0.2) {
				before[tp], p.Trim = -1, int64(len(p.Sent))
			}
		}
	})
	if err := h.life.eng.Admin().DeleteRecords(ctx, before); err != nil {
		return fmt.Errorf("A11: delete records %v: %w", before, err)
	}
	h.update(func(w *engineWant) {
		for tp, at := range before {
			p := w.part(tp)
			if at < 0 {
				at = int64(len(p.Sent))
			}
			p.Start = max(p.Start, at)
			p.Synced = max(p.Synced, at) // the log start never leads the log
		}
	})
	return h.look(ctx, tps)
}

// look asks where logs start: what has been seen once holds for ever. (A11)
func (h *engineHistory) look(ctx context.Context, tps []stream.TopicPartition) (err error) {
	starts, serr := h.life.eng.Admin().StartOffsets(ctx, tps...)
	if serr != nil {
		return fmt.Errorf("A11: start offsets: %w", serr)
	}
	h.update(func(w *engineWant) {
		for tp, at := range starts {
			if err = w.starts(tp, at.Offset); err != nil {
				return
			}
		}
	})
	return err
}

// starts holds a log start offset against what it may be, and keeps it.
func (w *engineWant) starts(tp stream.TopicPartition, at int64) error {
	t, p := w.Topics[tp.Topic], w.part(tp)
	most := max(p.Start, p.Trim)
	if t.Expires {
		most = int64(len(p.Sent))
	}
	if at < p.Start || at > most {
		return fmt.Errorf("A11: %v starts at %d, it started at %d, asked for were at most %d (%v)", tp, at, p.Start, most, w)
	}
	p.Start = at
	return nil
}

// keyed is the record with a key: the topic may be compacted by now.
func (s sentRecord) keyed() sentRecord {
	if s.Key == nil {
		s.Key = []byte("k")
	}
	return s
}

// holds checks the records that a reader has seen of a partition, from its start to its end. The log starts at start, perhaps since the reader began.
func (p *partitionWant) holds(tp stream.TopicPartition, rs []stream.Record, start, end int64, compacts bool) error {
	next := int64(0)
	for i := range rs {
		r := &rs[i]
		if r.Offset < next || r.Offset >= end {
			return fmt.Errorf("A5: offset %d of %v where %d is due, which ends at %d", r.Offset, tp, next, end)
		}
		if !compacts && r.Offset > max(next, start) {
			return fmt.Errorf("A3: offset %d of %v where %d is due, which starts at %d", r.Offset, tp, max(next, start), start)
		}
		next = r.Offset + 1
		if err := p.Sent[r.Offset].matches(r); err != nil {
			return fmt.Errorf("A3/A4/A6: offset %d of %v is not what was sent: %w", r.Offset, tp, err)
		}
	}
	if !compacts && max(next, start) != end {
		return fmt.Errorf("A3: the records of %v end at %d, the log at %d", tp, next, end)
	}
	if compacts {
		return p.holdsKeys(tp, rs, start, end)
	}
	return nil
}

// holdsKeys checks that the last value of each key is there, and of a key that was deleted none. (A12)
func (p *partitionWant) holdsKeys(tp stream.TopicPartition, rs []stream.Record, start, end int64) error {
	want, is := map[string]int64{}, map[string]int64{}
	for o := range end {
		if k := p.Sent[o].Key; k != nil {
			want[string(k)] = o
		}
	}
	for i := range rs {
		if rs[i].Key != nil {
			is[string(rs[i].Key)] = rs[i].Offset
		}
	}
	for k, o := range want {
		at, there := is[k]
		switch {
		case there && at != o && o >= start:
			return fmt.Errorf("A12: key %.20x of %v is at offset %d, its last record is %d (a value %t)", k, tp, at, o, p.Sent[o].Value != nil)
		case !there && o >= start && p.Sent[o].Value != nil:
			return fmt.Errorf("A12: the last value of key %.20x of %v, at offset %d, is not there; the log is [%d,%d)", k, tp, o, start, end)
		}
	}
	return nil
}

// readToEnds reads partitions to their ends. Where the log start moves meanwhile it goes on from there.
func readToEnds(ctx context.Context, eng *stream.Engine, tps []stream.TopicPartition, ends stream.Offsets) (got map[stream.TopicPartition][]stream.Record, err error) {
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Reset: stream.ResetEarliest, MaxWait: -1})
	if err != nil {
		return nil, fmt.Errorf("A1/A2: consumer: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	if err := errors.Join(c.Assign(tps...), c.SeekToStart()); err != nil {
		return nil, fmt.Errorf("A1/A2: assign: %w", err)
	}
	got = map[stream.TopicPartition][]stream.Record{}
	for {
		rs, err := c.Poll(ctx, 0)
		if err != nil {
			return nil, fmt.Errorf("A1/A2: poll: %w", err)
		}
		if len(rs) == 0 {
			break
		}
		for _, r := range rs {
			tp := stream.TopicPartition{Topic: r.Topic, Partition: r.Partition}
			got[tp] = append(got[tp], r)
		}
	}
	for _, tp := range tps {
		if at, err := c.Position(tp); err != nil || at != ends[tp].Offset {
			return nil, fmt.Errorf("A3: nothing comes of %v any more at %d, which ends at %d, error %v", tp, at, ends[tp].Offset, err)
		}
	}
	return got, nil
}
