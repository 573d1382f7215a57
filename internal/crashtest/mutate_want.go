package crashtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// A partView is a partition of a damaged directory: what it held, and what of that the damage can have changed.
type partView struct {
	t    *mutationTrial
	tp   stream.TopicPartition
	want *partitionWant
	part *goldenPart

	hit   bool // the damage is in files that its records depend on
	loose bool // and not confined to bytes: files have come, gone or changed places as a whole
	harm  []goldenBatch
}

func (t *mutationTrial) view(tp stream.TopicPartition) *partView {
	v := &partView{t: t, tp: tp, want: t.Golden.Want.part(tp), part: t.Golden.Parts[tp]}
	if harmless[t.kind] || ofMeta(t.kind) {
		return v
	}
	for _, name := range t.Mutation.names() {
		v.hit = v.hit || touches(name, tp)
	}
	if !v.hit {
		return v
	}
	v.loose = t.kind == kindMetadata || t.Mutation.Op == opSwap || t.Mutation.Op == opCopy
	for _, b := range v.part.Batches {
		is := t.content[b.File]
		if end := b.Pos + b.Size; end > int64(len(is)) || !bytes.Equal(is[b.Pos:end], t.Golden.content[b.File][b.Pos:end]) {
			v.harm = append(v.harm, b)
		}
	}
	return v
}

// short says whether the last batch below the recovery point is damaged: then nothing shows that the log went on to there.
func (v *partView) short() bool {
	for _, b := range v.harm {
		if b.Next == v.part.RecoveryPoint {
			return true
		}
	}
	return false
}

// end is where the partition ended.
func (v *partView) end() int64 { return int64(len(v.want.Sent)) }

// A span is offsets [From, To) that cannot be read.
type span struct{ From, To int64 }

// A partAnswer is what one partition has said.
type partAnswer struct {
	Failed    string // it cannot be opened
	Start     int64
	End       int64
	Lost      []span
	Committed int64            // -1: none, -2: an explicit error
	Last      map[string]int64 // sequences of names; -2: an explicit error
	Foreign   bool
}

func (a partAnswer) String() string {
	return fmt.Sprintf("failed %q start %d end %d lost %v committed %d sequences %v", a.Failed, a.Start, a.End, a.Lost, a.Committed, a.Last)
}

// damaged is nil if err may come of the damage: it is explicit, and the damage is in this partition.
func (v *partView) damaged(what string, err error) error {
	if v.hit && errors.Is(err, stream.ErrCorrupt) {
		v.t.worse(outError)
		v.t.note(what + ": ErrCorrupt")
		return nil
	}
	return fmt.Errorf("F7: %s: %w", what, err)
}

// ask reads the partition and looks everything up in it.
func (v *partView) ask(ctx context.Context, eng *stream.Engine) (a partAnswer, err error) {
	a.Last = map[string]int64{}
	ends, err := eng.Admin().EndOffsets(ctx, v.tp)
	if err != nil {
		var where *stream.CorruptError
		if errors.As(err, &where) && where.File == "" {
			return a, fmt.Errorf("A8: an error without a place: %w", err)
		}
		a.Failed, a.Committed = errorKind(err), -2
		if v.hit && !v.loose && !v.short() {
			return a, fmt.Errorf("A8: the log does not end below its recovery point %d: %w", v.part.RecoveryPoint, err)
		}
		return a, v.damaged("end offset", err)
	}
	a.End = ends[v.tp].Offset
	if err := v.askStart(ctx, eng, &a); err != nil {
		return a, err
	}
	if a.Start != v.part.Start && !v.loose {
		return a, fmt.Errorf("A11: the log starts at %d, it started at %d", a.Start, v.part.Start)
	}
	if err := v.askRecords(ctx, eng, &a); err != nil {
		return a, err
	}
	if err := v.checkEnd(&a); err != nil {
		return a, err
	}
	r := random(v.t.Seed, 40)
	for range 4 {
		if n := len(v.part.Times); n > 0 {
			if err := v.askTime(ctx, eng, &a, v.part.Times[r.IntN(n)]+r.Int64N(3)-1); err != nil {
				return a, err
			}
		}
	}
	return a, v.askCommitted(ctx, eng, &a)
}

// askStart asks for the log start offset.
func (v *partView) askStart(ctx context.Context, eng *stream.Engine, a *partAnswer) error {
	starts, err := eng.Admin().StartOffsets(ctx, v.tp)
	if err != nil {
		return v.damaged("start offset", err)
	}
	a.Start = starts[v.tp].Offset
	return nil
}

// compacts says whether records may be missing, and others there that had been superseded.
func (v *partView) compacts() bool { return v.t.Golden.Want.Topics[v.tp.Topic].Compacts }

// holed says whether files have changed places with those of a compacted topic, or were made of them: then holes are anywhere.
func (v *partView) holed() bool {
	m := v.t.Mutation
	if m.Op != opSwap && m.Op != opCopy {
		return false
	}
	return slices.ContainsFunc(m.names(), func(name string) bool { return touches(name, stream.TopicPartition{Topic: keyedTopic}) })
}

// due is the first record at or behind an offset that has to be there, the end if there is none.
func (v *partView) due(at, end int64) int64 {
	i, _ := slices.BinarySearch(v.part.Offsets, at)
	if i == len(v.part.Offsets) {
		return end
	}
	return min(v.part.Offsets[i], end)
}

// askRecords reads the partition from its start to its end, over all damage that it is told of.
func (v *partView) askRecords(ctx context.Context, eng *stream.Engine, a *partAnswer) (err error) {
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Reset: stream.ResetNone, MaxWait: -1})
	if err != nil {
		return fmt.Errorf("F7: consumer: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	if err := errors.Join(c.Assign(v.tp), c.SeekToStart()); err != nil {
		return fmt.Errorf("F7: assign: %w", err)
	}
	at := a.Start
	for range 1000 {
		rs, err := c.Poll(ctx, 0)
		if err == nil && len(rs) == 0 {
			if at != a.End && !v.holed() && (!v.compacts() || v.due(at, a.End) != a.End) {
				return fmt.Errorf("A3: the records end at %d, the log at %d", at, a.End)
			}
			return nil
		}
		if a.Foreign && errors.Is(err, stream.ErrOffsetOutOfRange) {
			return nil // the other's records go on behind this one's end
		}
		if err != nil {
			s, err := v.hole(err, at, a.End)
			if err != nil {
				return err
			}
			a.Lost = append(a.Lost, s)
			at = s.To
			if err := c.Seek(v.tp, at); err != nil {
				return fmt.Errorf("F7: seek: %w", err)
			}
		}
		for i := range rs {
			if o := rs[i].Offset; o < at || o > at && !v.holed() && (!v.compacts() || o > v.due(at, a.End)) {
				return fmt.Errorf("A5: offset %d is due and %d came", at, o)
			}
			at = rs[i].Offset
			if err := v.matches(&rs[i], a); err != nil {
				return fmt.Errorf("A3/A4: offset %d: %w", at, err)
			}
			at++
		}
	}
	return errors.New("F7: a thousand polls did not come to the end")
}

// hole reads out of an error which offsets are lost. They have to begin where reading stopped, and cover damage only. (A8)
func (v *partView) hole(err error, at, end int64) (span, error) {
	var where *stream.CorruptError
	if !errors.As(err, &where) || !errors.Is(err, stream.ErrCorrupt) {
		return span{}, fmt.Errorf("F7: offset %d: %w", at, err)
	}
	s := span{max(where.From, at), where.To}
	if where.From > at && !v.holed() && (!v.compacts() || where.From > v.due(at, end)) || where.To <= at || where.To > end || where.File == "" {
		return s, fmt.Errorf("A8: offset %d of %d: the error does not say what is damaged: %w", at, end, err)
	}
	if !v.loose {
		for _, b := range v.part.Batches {
			if b.Base < s.To && b.Next > s.From && !v.harmed(b) {
				return s, fmt.Errorf("A8: offsets [%d,%d) are whole, and said to be damaged: %w", b.Base, b.Next, err)
			}
		}
	}
	return s, v.damaged("read", err)
}

func (v *partView) harmed(b goldenBatch) bool {
	for _, h := range v.harm {
		if h == b {
			return true
		}
	}
	return false
}

// matches compares a record with the one that was sent. Files that have changed places hold what was sent to another partition: no
// batch says whose it is.
func (v *partView) matches(r *stream.Record, a *partAnswer) error {
	err := fmt.Errorf("there were %d records", v.end())
	if r.Offset < v.end() {
		err = v.want.Sent[r.Offset].matches(r)
	}
	if err == nil || v.t.Mutation.Op != opSwap && v.t.Mutation.Op != opCopy {
		return err
	}
	for _, tp := range v.t.Golden.Want.partitions() {
		o := v.t.Golden.Want.part(tp)
		if tp != v.tp && r.Offset < int64(len(o.Sent)) && o.Sent[r.Offset].matches(r) == nil {
			a.Foreign = true
			v.t.worse(outForeign)
			return nil
		}
	}
	return err
}

// checkEnd says whether the log may end where it does.
func (v *partView) checkEnd(a *partAnswer) error {
	if a.Foreign || a.End == v.end() {
		return nil
	}
	if a.End > v.end() && v.holed() { // the other's batches may be empty
		a.Foreign = true
		v.t.worse(outForeign)
		return nil
	}
	if a.End > v.end() || !v.hit || v.t.Golden.Clean || a.End < v.part.RecoveryPoint {
		return fmt.Errorf("A3: the log ends at %d, it ended at %d and its recovery point is %d", a.End, v.end(), v.part.RecoveryPoint)
	}
	v.t.worse(outPrefix)
	if v.loose {
		return nil
	}
	for _, b := range v.harm {
		if b.Base < v.part.RecoveryPoint {
			continue
		}
		if b.Base != a.End {
			return fmt.Errorf("A3: the log ends at %d, the first damage above the recovery point %d is at %d", a.End, v.part.RecoveryPoint, b.Base)
		}
		return v.checkTail(b)
	}
	return fmt.Errorf("A3: the log ends at %d of %d, and nothing above the recovery point %d is damaged", a.End, v.end(), v.part.RecoveryPoint)
}

// checkTail looks for what lay from a batch on: it is reported, and in the quarantine, or there was nothing.
func (v *partView) checkTail(b goldenBatch) error {
	is := v.t.content[b.File]
	tail := bytes.TrimRight(is[min(b.Pos, int64(len(is))):], "\x00")
	if len(tail) == 0 {
		return nil
	}
	for _, cut := range v.t.ev.cuts {
		q, err := readWhole(v.t.disk, cut.file)
		if cut.tp == v.tp && cut.end == b.Base && err == nil && bytes.Equal(bytes.TrimRight(q, "\x00"), tail) {
			return nil
		}
	}
	return fmt.Errorf("A8: %d bytes behind offset %d were cut, and no event names a file that has them", len(tail), b.Base)
}

// askTime looks a time up. The answer is the first record that is there, or an earlier one. (A13, A14)
func (v *partView) askTime(ctx context.Context, eng *stream.Engine, a *partAnswer, ms int64) error {
	want := int64(-1)
	for i, t := range v.part.Times {
		if o := v.part.Offsets[i]; t >= ms && o < a.End {
			want = o
			break
		}
	}
	got, err := eng.Admin().OffsetsForTime(ctx, time.UnixMilli(ms), v.tp)
	if err != nil {
		if !v.loose && len(a.Lost) == 0 {
			return fmt.Errorf("A13: time %d: nothing is lost: %w", ms, err)
		}
		return v.damaged("time", err)
	}
	is := int64(-1)
	if o, ok := got[v.tp]; ok {
		is = o.Offset
	}
	if is != want && !a.Foreign && !(v.hit && (v.compacts() || v.holed())) {
		return fmt.Errorf("A13: time %d is found at %d, a scan finds it at %d (lost %v)", ms, is, want, a.Lost)
	}
	return nil
}

// askCommitted asks for the group's offset. (E3)
func (v *partView) askCommitted(ctx context.Context, eng *stream.Engine, a *partAnswer) (err error) {
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Group: engineGroup, ManualCommit: true, MaxWait: -1})
	if err != nil {
		return fmt.Errorf("E3: consumer: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	got, err := c.Committed(ctx, v.tp)
	if err != nil {
		a.Committed = -2
		return v.damaged("committed", err)
	}
	a.Committed = -1
	if o, ok := got[v.tp]; ok {
		a.Committed = o.Offset
	}
	want := v.want.Commit
	if want > a.End {
		want = a.End
		if to, ok := v.t.ev.clamped[v.tp]; !ok || to != want {
			return fmt.Errorf("E3: committed was %d, the log ends at %d, and no event tells", v.want.Commit, a.End)
		}
		v.t.note("committed offset clamped")
	}
	if a.Committed != want {
		return fmt.Errorf("E3: committed is %d, was %d", a.Committed, v.want.Commit)
	}
	return nil
}
