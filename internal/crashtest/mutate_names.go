package crashtest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/runnelmq/runnel/stream"
)

// askNames asks where the named producers stand, and sends the last record of each again. (C1, C3)
func (t *mutationTrial) askNames(ctx context.Context, eng *stream.Engine, a *answers) error {
	for _, name := range engineNames {
		p, err := eng.NewProducer(ctx, stream.ProducerConfig{Name: name, Partitioner: stream.ManualPartitioner()})
		if err != nil {
			return fmt.Errorf("C1: producer %s: %w", name, err)
		}
		for tp, is := range a.parts {
			if is.Failed != "" || is.Foreign {
				continue
			}
			v := t.view(tp)
			last, err := v.askSequence(ctx, p, name, &is)
			if err != nil {
				return errors.Join(err, p.Close(ctx))
			}
			is.Last[name] = last
		}
		if err := p.Close(ctx); err != nil {
			return fmt.Errorf("F7: close producer: %w", err)
		}
	}
	return nil
}

func (v *partView) askSequence(ctx context.Context, p stream.Producer, name string, a *partAnswer) (int64, error) {
	last, err := p.LastSequence(ctx, v.tp)
	if err != nil {
		return -2, v.damaged("last sequence", err)
	}
	want := v.want.last(name, a.End)
	if last > want && a.End < v.end() && !v.shows(name, a) {
		v.t.note("sequence of a named producer ahead of a log that was cut, and shows no record of it")
		want = last
	}
	if last != want {
		return last, fmt.Errorf("C1: last sequence of %s in %v is %d, in the log it is %d (lost %v)", name, v.tp, last, want, a.Lost)
	}
	if want == 0 {
		return 0, nil
	}
	s := sentRecord{Name: name, Sequence: want, Key: []byte("k")}
	rc, err := p.ProduceSync(ctx, s.record(v.tp, stream.AcksWritten))
	if err != nil || !rc.Duplicate {
		return last, fmt.Errorf("C1: sequence %d of %s is in %v and got %+v, error %v", want, name, v.tp, rc, err)
	}
	return last, nil
}

// shows says whether the log has a record of a named producer.
func (v *partView) shows(name string, a *partAnswer) bool {
	return slices.ContainsFunc(v.want.Sent[a.Start:a.End], func(s sentRecord) bool { return s.Name == name })
}

// append appends a record and reads it back.
func (v *partView) append(ctx context.Context, eng *stream.Engine, a partAnswer) (err error) {
	p, err := eng.NewProducer(ctx, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
	if err != nil {
		return fmt.Errorf("F7: producer: %w", err)
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	s := sentRecord{Key: []byte("k"), Value: []byte("appended to a directory that was damaged")}
	rc, err := p.ProduceSync(ctx, s.record(v.tp, stream.AcksSynced))
	if err != nil {
		return v.damaged("append", err)
	}
	if a.Failed != "" || rc.Offset != a.End {
		return fmt.Errorf("A5: the new record is at %d, the log ended at %d, failed %q", rc.Offset, a.End, a.Failed)
	}
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Reset: stream.ResetNone, MaxWait: -1})
	if err != nil {
		return fmt.Errorf("F7: consumer: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	if err := errors.Join(c.Assign(v.tp), c.Seek(v.tp, rc.Offset)); err != nil {
		return fmt.Errorf("F7: seek: %w", err)
	}
	rs, err := c.Poll(ctx, 0)
	if err != nil || len(rs) != 1 || s.matches(&rs[0]) != nil {
		return fmt.Errorf("A4: the new record at %d reads as %d records, error %v", rc.Offset, len(rs), err)
	}
	return nil
}
