package crashtest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/runnelmq/runnel/stream"
)

// verify checks everything that the engine shows against what it has to hold, and reduces the latter to what is there.
func (w *engineWant) verify(ctx context.Context, eng *stream.Engine, cut bool) error {
	infos, err := eng.Admin().Topics(ctx)
	if err != nil {
		return fmt.Errorf("A10: topics: %w", err)
	}
	there, configs := map[string]int{}, map[string]string{}
	for _, info := range infos {
		if _, known := w.Topics[info.Name]; !known {
			return fmt.Errorf("A10: topic %s with %d partitions is there (%v)", info.Name, info.Partitions, w)
		}
		there[info.Name], configs[info.Name] = info.Partitions, fmt.Sprint(info.Config)
	}
	for _, name := range w.names() {
		t := w.Topics[name]
		n, ok := there[name]
		switch {
		case !ok && t.Partitions > 0 && !t.Deleting:
			return fmt.Errorf("A10: topic %s is not there (%v)", name, w)
		case !ok:
			delete(w.Topics, name)
			continue
		case n != t.Partitions && n != t.Asked:
			return fmt.Errorf("A10: topic %s has %d partitions (%v)", name, n, w)
		case !slices.Contains(t.Configs, configs[name]):
			return fmt.Errorf("A10: topic %s has the configuration %s, not %v", name, configs[name], t.Configs)
		}
		t.Configs = []string{configs[name]}
		if t.Deleting {
			for i := range t.Parts {
				p := &t.Parts[i]
				p.Written, p.Synced, p.May, p.Commit = 0, 0, append(p.May, p.Commit), -1
				p.Start = 0
			}
		}
		t.Parts = t.Parts[:n:n]
		t.Partitions, t.Asked, t.Deleting = n, 0, false
		w.Topics[name] = t
	}
	tps := w.partitions()
	if len(tps) == 0 {
		w.opened()
		return nil
	}
	if err := w.verifyRecords(ctx, eng, tps, cut); err != nil {
		return err
	}
	w.opened()
	if err := w.verifyOffsets(ctx, eng, tps); err != nil {
		return err
	}
	for _, name := range engineNames {
		if err := w.verifySequences(ctx, eng, name, tps); err != nil {
			return err
		}
	}
	return nil
}

func (w *engineWant) partitions() []stream.TopicPartition {
	var tps []stream.TopicPartition
	for _, name := range w.names() {
		for i := range w.Topics[name].Partitions {
			tps = append(tps, stream.TopicPartition{Topic: name, Partition: int32(i)})
		}
	}
	return tps
}

func (w *engineWant) verifyRecords(ctx context.Context, eng *stream.Engine, tps []stream.TopicPartition, cut bool) (err error) {
	ends, err := eng.Admin().EndOffsets(ctx, tps...)
	if err != nil {
		return fmt.Errorf("A1/A2: end offsets: %w", err)
	}
	for _, tp := range tps {
		p, end := w.part(tp), ends[tp].Offset
		lower := p.Written
		if cut {
			lower = p.Synced
		}
		if end < lower || end > int64(len(p.Sent)) {
			return fmt.Errorf("A1/A2/A3: %v ends at %d, acknowledged is %d, sent is %d", tp, end, lower, len(p.Sent))
		}
	}
	got, err := readToEnds(ctx, eng, tps, ends)
	if err != nil {
		return err
	}
	starts, err := eng.Admin().StartOffsets(ctx, tps...)
	if err != nil {
		return fmt.Errorf("A11: start offsets: %w", err)
	}
	for _, tp := range tps {
		p, start, end := w.part(tp), starts[tp].Offset, ends[tp].Offset
		p.Sent = p.Sent[:end:end]
		p.Written, p.Synced = end, min(p.Synced, end)
		if err := w.starts(tp, start); err != nil {
			return err
		}
		if err := p.holds(tp, got[tp], start, end, w.Topics[tp.Topic].Compacts); err != nil {
			return err
		}
		epoch := int32(0)
		for i := range got[tp] {
			r := &got[tp][i]
			if r.LeaderEpoch < epoch {
				return fmt.Errorf("A5: record %d of %v has epoch %d after %d", i, tp, r.LeaderEpoch, epoch)
			}
			epoch = r.LeaderEpoch
		}
		if epoch > w.Epoch { // of a record in flight
			w.Epoch, w.Used = epoch, true
		}
	}
	return nil
}

// readAll reads n records from the start of partitions, which must be all there are.
func readAll(ctx context.Context, eng *stream.Engine, tps []stream.TopicPartition, n int) (got map[stream.TopicPartition][]stream.Record, err error) {
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Reset: stream.ResetNone, MaxWait: -1})
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
		for _, r := range rs {
			tp := stream.TopicPartition{Topic: r.Topic, Partition: r.Partition}
			got[tp] = append(got[tp], r)
		}
		if n -= len(rs); len(rs) == 0 || n < 0 {
			break
		}
	}
	if n != 0 {
		return nil, fmt.Errorf("A3: there are %d records less than the end offsets say", n)
	}
	return got, nil
}

// verifyOffsets checks the group's offsets. (E3)
func (w *engineWant) verifyOffsets(ctx context.Context, eng *stream.Engine, tps []stream.TopicPartition) (err error) {
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Group: engineGroup, ManualCommit: true, MaxWait: -1})
	if err != nil {
		return fmt.Errorf("E3: consumer: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	got, err := c.Committed(ctx, tps...)
	if err != nil {
		return fmt.Errorf("E3: committed: %w", err)
	}
	for _, tp := range tps {
		p := w.part(tp)
		is := int64(-1)
		if o, ok := got[tp]; ok {
			is = o.Offset
		}
		ok := is == p.Commit
		for _, may := range p.May {
			ok = ok || is == may
		}
		if !ok {
			return fmt.Errorf("E3: %v has committed offset %d, acknowledged was %d, in flight %v", tp, is, p.Commit, p.May)
		}
		if is > int64(len(p.Sent)) {
			return fmt.Errorf("E3: %v has committed offset %d behind its end %d", tp, is, len(p.Sent))
		}
		p.Commit, p.Asked, p.May = is, -1, nil
		p.Synced = max(p.Synced, is)
	}
	return nil
}

// verifySequences checks that a named producer's state is that of the log.
func (w *engineWant) verifySequences(ctx context.Context, eng *stream.Engine, name string, tps []stream.TopicPartition) (err error) {
	p, err := eng.NewProducer(ctx, stream.ProducerConfig{Name: name})
	if err != nil {
		return fmt.Errorf("C1: producer %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	for _, tp := range tps {
		last, err := p.LastSequence(ctx, tp)
		if err != nil {
			return fmt.Errorf("C1: last sequence of %s in %v: %w", name, tp, err)
		}
		if want := w.part(tp).last(name, int64(len(w.part(tp).Sent))); last != want {
			return fmt.Errorf("C1: last sequence of %s in %v is %d, in the log it is %d", name, tp, last, want)
		}
	}
	return nil
}
