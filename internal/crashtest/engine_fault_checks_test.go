package crashtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/runnelmq/runnel/stream"
)

// use does everything once, and nothing of it may fail.
func (x *engineFaultRun) use(ctx context.Context) error {
	for i, tp := range faultParts {
		rec := x.led.sending(0, "", tp, stream.AcksSynced)
		p, err := x.producer(ctx)
		if err != nil {
			return fmt.Errorf("F4: %w", err)
		}
		if err := x.send(ctx, p, rec, 0); err != nil {
			return err
		}
		name := engineNames[i%len(engineNames)]
		if err := x.produceNamed(ctx, i, x.r, tp, name); err != nil {
			return err
		}
	}
	if err := x.consume(ctx, x.r); err != nil {
		return err
	}
	const topic = "last"
	return errors.Join(x.eng.Admin().CreateTopic(ctx, topic, stream.TopicConfig{}), x.eng.Admin().DeleteTopic(ctx, topic))
}

// check compares what the engine holds with what it has acknowledged.
func (x *engineFaultRun) check(ctx context.Context, cut bool) error {
	infos, err := x.eng.Admin().Topics(ctx)
	if err != nil {
		return err
	}
	there := map[string]int{}
	for _, info := range infos {
		there[info.Name] = info.Partitions
	}
	if b := there[faultTopicB]; there[faultTopicA] != 2 || b != 1 && !(x.grown && b == 2) || x.third == 2 && there[faultTopicC] != 1 || x.third == 0 && there[faultTopicC] != 0 {
		return fmt.Errorf("A10: there are %v (%t, %d)", there, x.grown, x.third)
	}
	ends, err := x.eng.Admin().EndOffsets(ctx, faultParts...)
	if err != nil {
		return err
	}
	total := 0
	for _, o := range ends {
		total += int(o.Offset)
	}
	got, err := readAll(ctx, x.eng, faultParts, total)
	if err != nil {
		return err
	}
	for _, tp := range faultParts {
		got[tp] = got[tp][:len(got[tp]):len(got[tp])]
	}
	if err := x.led.checkRecords(got, cut); err != nil {
		return err
	}
	return x.checkState(ctx, got, ends)
}

// checkState checks the offsets of the group and the sequences of the names.
func (x *engineFaultRun) checkState(ctx context.Context, got map[stream.TopicPartition][]stream.Record, ends stream.Offsets) (err error) {
	c, err := x.eng.NewConsumer(ctx, stream.ConsumerConfig{Group: faultGroup, ManualCommit: true, MaxWait: -1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	is, err := c.Committed(ctx, faultParts...)
	if err != nil {
		return err
	}
	if err := x.led.checkCommits(is, ends); err != nil {
		return err
	}
	for _, name := range engineNames {
		p, err := x.named(ctx, name)
		if err != nil {
			return fmt.Errorf("C1: %w", err)
		}
		for _, tp := range faultParts {
			last := int64(0)
			for i := range got[tp] {
				r := &got[tp][i]
				seq, err := sequenceOf(r)
				if err != nil {
					return err
				}
				if seq > 0 && x.led.nameOf(r) == name {
					last = max(last, seq)
				}
			}
			is, err := p.LastSequence(ctx, tp)
			if err == nil && is != last {
				err = fmt.Errorf("it is %d", is)
			}
			if err != nil {
				return fmt.Errorf("C1: last sequence of %s in %v, in the log %d: %w", name, tp, last, err)
			}
		}
	}
	return nil
}
