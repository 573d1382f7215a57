package crashtest

import (
	"context"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// pause waits a moment and reports whether the producers still work.
func (s *soaker) pause(r *rand.Rand, most time.Duration, done <-chan struct{}) bool {
	t := time.NewTimer(time.Duration(1 + r.Int64N(int64(most))))
	defer t.Stop()
	select {
	case <-done:
		return false
	case <-t.C:
		return !s.t.Failed()
	}
}

// reads checks the records of a poll; next has the offsets that are due.
func (s *soaker) reads(ctx context.Context, rs []stream.Record, next map[stream.TopicPartition]int64, generation int64) bool {
	s.counts.read.Add(int64(len(rs)))
	for i := range rs {
		r := &rs[i]
		tp := part(r.Topic, r.Partition)
		if r.Topic == soakChurn {
			if id, err := parseKillID(r.Value); err != nil || int64(id.round) < generation {
				s.t.Errorf("A10: generation %d of the topic holds %v of an earlier one, %v", generation, id, err)
			}
			continue
		}
		if due, ok := next[tp]; ok && r.Offset != due {
			if r.Offset < due {
				s.t.Errorf("A3: %v: offset %d follows %d", tp, r.Offset, due-1)
			} else if s.book.kind(tp).dense() && !s.startsAt(ctx, tp, r.Offset) {
				return false
			}
		}
		next[tp] = r.Offset + 1
		if err := s.book.saw(r); err != nil {
			s.t.Error(err)
		}
	}
	return !s.t.Failed()
}

// borrows says whether a consumer borrows: not in a life in which others close the engine, since that takes the bytes away.
func (s *soaker) borrows(r *rand.Rand) bool { return chance(r, 0.3) && !s.under }

// startsAt checks that a partition's log starts at an offset or behind it: that is why a reader has come there.
func (s *soaker) startsAt(ctx context.Context, tp stream.TopicPartition, offset int64) bool {
	starts, err := s.eng.Admin().StartOffsets(ctx, tp)
	if err == nil && starts[tp].Offset < offset {
		s.t.Errorf("A5: %v: records before offset %d are missing, the log starts at %d", tp, offset, starts[tp].Offset)
	}
	return s.expected("start offset", err)
}

// follow reads everything with a group that commits. (E3)
func (s *soaker) follow(ctx context.Context, r *rand.Rand, done <-chan struct{}) {
	c, err := s.eng.NewConsumer(ctx, stream.ConsumerConfig{
		Group: "g", ManualCommit: true, Reset: stream.ResetEarliest, MaxWait: 5 * time.Millisecond, Borrow: s.borrows(r),
	})
	if err == nil {
		err = c.SubscribeRegexp(regexp.MustCompile(".*"))
	}
	if !s.expected("consumer", err) {
		return
	}
	next := map[stream.TopicPartition]int64{}
	for tp, o := range s.commits {
		if len(o.may) == 0 {
			next[tp] = o.acked
		}
	}
	for going := true; going; {
		select {
		case <-done:
			going = false
		default:
		}
		rs, err := c.Poll(ctx, between(r, 1, 1000))
		if !s.expected("poll", err, stream.ErrUnknownTopic) || !s.reads(ctx, rs, next, 0) {
			return
		}
		if chance(r, 0.2) && !s.commit(ctx, c, next) {
			return
		}
	}
	s.expected("close of a consumer", c.Close(ctx))
}

func (s *soaker) commit(ctx context.Context, c stream.Consumer, next map[stream.TopicPartition]int64) bool {
	for tp, at := range next {
		o := s.commits[tp]
		o.may = append(o.may, at)
		s.commits[tp] = o
	}
	err := c.Commit(ctx)
	if err == nil {
		s.counts.commits.Add(1)
		for tp, at := range next {
			s.commits[tp] = ledgerCommit{acked: at}
		}
	}
	return s.expected("commit", err, stream.ErrUnknownTopic)
}

// checkCommits compares what the group has committed. (E3)
func (s *soaker) checkCommits(ctx context.Context) {
	c, err := s.eng.NewConsumer(ctx, stream.ConsumerConfig{Group: "g", ManualCommit: true})
	if err != nil {
		s.t.Fatalf("E3: consumer: %v", err)
	}
	tps := s.book.partitions()
	got, err := c.Committed(ctx, tps...)
	if err != nil {
		s.t.Fatalf("E3: committed: %v", err)
	}
	starts, err := s.eng.Admin().StartOffsets(ctx, tps...)
	if err != nil {
		s.t.Fatalf("start offsets: %v", err)
	}
	for tp, want := range s.commits {
		is := got[tp].Offset
		// A consumer that was moved to the log start may have committed that.
		if is != want.acked && !slices.Contains(want.may, is) && (is < want.acked || is > starts[tp].Offset) {
			s.t.Errorf("E3: %v: committed is %d, acknowledged was %d, sent %d", tp, is, want.acked, want.may)
		}
	}
	if err := c.Close(ctx); err != nil {
		s.t.Errorf("E3: close of a consumer: %v", err)
	}
}

// reread reads partitions from their starts, or from anywhere.
func (s *soaker) reread(ctx context.Context, r *rand.Rand, done <-chan struct{}) {
	for s.pause(r, 2*time.Millisecond, done) {
		tp, generation := s.partition(r), s.generation.Load()
		if chance(r, 0.1) {
			tp = part(soakChurn, 0)
		}
		if !s.rereadOne(ctx, r, tp, generation, done) {
			return
		}
	}
}

func (s *soaker) rereadOne(ctx context.Context, r *rand.Rand, tp stream.TopicPartition, generation int64, done <-chan struct{}) bool {
	var may []error
	if tp.Topic == soakChurn {
		may = append(may, stream.ErrUnknownTopic)
	}
	cfg := stream.ConsumerConfig{Reset: stream.ResetEarliest, MaxWait: -1, Borrow: s.borrows(r)}
	if chance(r, 0.3) {
		cfg.Visibility = stream.Durable
	}
	c, err := s.eng.NewConsumer(ctx, cfg)
	if !s.expected("consumer", err) {
		return false
	}
	defer c.Close(ctx)
	if err = c.Assign(tp); err == nil && chance(r, 0.3) {
		var ends stream.Offsets
		if ends, err = s.eng.Admin().EndOffsets(ctx, tp); err == nil {
			err = c.Seek(tp, r.Int64N(ends[tp].Offset+1))
		}
	}
	for next := map[stream.TopicPartition]int64{}; err == nil; {
		select {
		case <-done:
			return true
		default:
		}
		var rs []stream.Record
		rs, err = c.Poll(ctx, between(r, 1, 2000))
		if err == nil && !s.reads(ctx, rs, next, generation) {
			return false
		}
		if len(rs) == 0 {
			break
		}
	}
	return s.expected("read", err, may...)
}

// trim deletes records. (A11)
func (s *soaker) trim(ctx context.Context, r *rand.Rand, done <-chan struct{}) {
	for s.pause(r, 30*time.Millisecond, done) {
		tp := part(soakTopics[soakTrimmed], int32(r.IntN(2)))
		starts, err := s.eng.Admin().StartOffsets(ctx, tp)
		if !s.expected("start offset", err) {
			return
		}
		ends, err := s.eng.Admin().EndOffsets(ctx, tp)
		if !s.expected("end offset", err) {
			return
		}
		to := starts[tp].Offset + r.Int64N(ends[tp].Offset-starts[tp].Offset+1)
		s.book.trimming(tp, to)
		if err = s.eng.Admin().DeleteRecords(ctx, map[stream.TopicPartition]int64{tp: to}); err == nil {
			s.counts.trimmed.Add(1)
			s.startsAt(ctx, tp, to)
		}
		if !s.expected("delete records", err) {
			return
		}
	}
}

// observe looks where logs start, soon after that has changed. (A11)
func (s *soaker) observe(ctx context.Context, r *rand.Rand, done <-chan struct{}) {
	for s.pause(r, 10*time.Millisecond, done) {
		starts, err := s.eng.Admin().StartOffsets(ctx, s.book.partitions()...)
		now := time.Now()
		if !s.expected("start offsets", err) {
			return
		}
		for tp, o := range starts {
			if err := s.book.started(tp, o.Offset, now); err != nil {
				s.t.Error(err)
			}
		}
	}
}

// alter changes a policy again and again, also in the middle of a pass.
func (s *soaker) alter(ctx context.Context, r *rand.Rand, done <-chan struct{}) {
	for s.pause(r, 100*time.Millisecond, done) {
		policy := []string{"compact", "delete", "compact,delete"}[r.IntN(3)]
		if !s.expected("alter topic", s.eng.Admin().AlterTopic(ctx, soakTopics[soakBoth], map[string]string{"cleanup.policy": policy})) {
			return
		}
	}
}

// churn makes a topic, uses it and deletes it: of an earlier one of the same name nothing is ever seen. (A10)
func (s *soaker) churn(ctx context.Context, r *rand.Rand, done <-chan struct{}) {
	p := s.producer(ctx, "")
	c, err := s.eng.NewConsumer(ctx, stream.ConsumerConfig{Group: "churn", ManualCommit: true, MaxWait: -1})
	if p == nil || !s.expected("consumer", err) {
		return
	}
	for s.pause(r, 20*time.Millisecond, done) {
		if !s.expected("delete topic", s.eng.Admin().DeleteTopic(ctx, soakChurn), stream.ErrUnknownTopic) || !s.churnOne(ctx, r, p, c) {
			return
		}
	}
}

func (s *soaker) churnOne(ctx context.Context, r *rand.Rand, p stream.Producer, c stream.Consumer) bool {
	generation := s.generation.Add(1)
	kind, tp := soakKind(r.IntN(len(soakTopics))), part(soakChurn, 0)
	cfg := soakConfig(kind)
	cfg.Partitions = 1
	if !s.expected("create topic", s.eng.Admin().CreateTopic(ctx, soakChurn, cfg)) {
		return false
	}
	s.counts.made.Add(1)
	got, err := c.Committed(ctx, tp)
	if err != nil {
		return s.expected("committed", err)
	}
	if len(got) > 0 {
		return s.wrong("E3/A10: a new topic has committed offsets %v", got)
	}
	var kept []uint64
	for i := range r.IntN(400) {
		rec := &stream.Record{Topic: soakChurn, Key: []byte(strconv.Itoa(r.IntN(20))), Acks: stream.AcksWritten}
		rec.Value = killID{"churn", int(generation), int64(i), 0}.value()
		rc, err := p.ProduceSync(ctx, rec)
		if !s.expected("append", err, stream.ErrDiskFull) {
			return false
		}
		if err != nil {
			continue
		}
		if rc.Offset != int64(len(kept)) {
			return s.wrong("A5/A10: record %d of a new topic is at offset %d", len(kept), rc.Offset)
		}
		kept = append(kept, hashRecord(rec.Key, rec.Value))
	}
	if kind == soakTrimmed {
		got, err := readFrom(ctx, s.eng, tp, 0)
		if err != nil {
			return s.expected("read", err)
		}
		for i := range got {
			if hashRecord(got[i].Key, got[i].Value) != kept[i] {
				return s.wrong("A1/A10: offset %d of a new topic holds another record", i)
			}
		}
		if len(got) != len(kept) {
			return s.wrong("A1/A10: a new topic has %d of %d records", len(got), len(kept))
		}
	}
	return s.expected("commit", c.CommitOffsets(ctx, stream.Offsets{tp: {Offset: int64(len(kept)), LeaderEpoch: -1}}))
}

// wrong reports what is not as promised; it is false.
func (s *soaker) wrong(format string, args ...any) bool {
	s.t.Errorf(format, args...)
	return false
}
