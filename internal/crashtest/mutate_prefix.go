package crashtest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/runnelmq/runnel/stream"
)

// lookAtPrefix is look for a metadata store that has lost its end without a word. What it still knows is what it once knew; no record
// that can be read is wrong; and what it does not know any more is set aside and not deleted.
func (t *mutationTrial) lookAtPrefix(ctx context.Context) (err error) {
	eng, err := t.open()
	if err != nil {
		return fmt.Errorf("F7: open: %w", err)
	}
	defer func() {
		if cerr := eng.Close(); cerr != nil && err == nil {
			err = fmt.Errorf("F7: close: %w", cerr)
		}
		if err == nil {
			err = t.checkBytes()
		}
	}()
	infos, err := eng.Admin().Topics(ctx)
	if err != nil {
		return fmt.Errorf("F7: topics: %w", err)
	}
	known := map[string]int{}
	for _, info := range infos {
		known[info.Name] = info.Partitions
		if t.Golden.Want.Topics[info.Name].Partitions == 0 {
			return fmt.Errorf("A10: topic %s never was", info.Name)
		}
	}
	for _, tp := range t.Golden.Want.partitions() {
		if int(tp.Partition) >= known[tp.Topic] {
			t.note("topic lost, directory set aside")
			if _, ok := t.ev.strays[dirOf(tp)]; !ok {
				return fmt.Errorf("A10: %v is not known any more, and its directory not set aside", tp)
			}
			continue
		}
		if err := t.view(tp).askPrefix(ctx, eng); err != nil {
			return fmt.Errorf("%w, in %v", err, tp)
		}
	}
	return nil
}

func (v *partView) askPrefix(ctx context.Context, eng *stream.Engine) error {
	v.hit, v.loose = true, true
	a := partAnswer{Last: map[string]int64{}}
	ends, err := eng.Admin().EndOffsets(ctx, v.tp)
	if err != nil {
		return v.damaged("end offset", err)
	}
	if a.End = ends[v.tp].Offset; a.End != v.end() {
		return fmt.Errorf("A3: the log ends at %d, it ended at %d", a.End, v.end())
	}
	if err := v.askStart(ctx, eng, &a); err != nil {
		return err
	}
	if a.Start > v.part.Start {
		return fmt.Errorf("A11: the log starts at %d, it started at %d", a.Start, v.part.Start)
	}
	if err := v.askRecords(ctx, eng, &a); err != nil {
		return err
	}
	if len(a.Lost) > 0 {
		v.t.note("records reported as damaged")
	}
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Group: engineGroup, ManualCommit: true, MaxWait: -1})
	if err != nil {
		return fmt.Errorf("E3: consumer: %w", err)
	}
	got, err := c.Committed(ctx, v.tp)
	if err := errors.Join(err, c.Close(ctx)); err != nil {
		return v.damaged("committed", err)
	}
	o, ok := got[v.tp]
	if ok && !slices.Contains(v.part.Commits, o.Offset) {
		return fmt.Errorf("E3: committed is %d, which never was: %v", o.Offset, v.part.Commits)
	}
	if o.Offset != v.want.Commit || !ok {
		v.t.note("committed offset went back")
	}
	for _, name := range engineNames {
		p, err := eng.NewProducer(ctx, stream.ProducerConfig{Name: name})
		if err != nil {
			return fmt.Errorf("C1: producer %s: %w", name, err)
		}
		last, err := p.LastSequence(ctx, v.tp)
		if err := errors.Join(err, p.Close(ctx)); err != nil {
			if err := v.damaged("last sequence", err); err != nil {
				return err
			}
			continue
		}
		if want := v.want.last(name, a.End); last > want {
			return fmt.Errorf("C1: last sequence of %s is %d, in the log it is %d", name, last, want)
		} else if last < want {
			v.t.note("sequence of a named producer went back")
		}
	}
	return nil
}
