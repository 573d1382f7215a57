package crashtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// A KillLoop starts a child process on a directory again and again, kills it at a random moment, opens the directory and
// holds against it what the child has said.
type KillLoop struct {
	Dir   string
	Seed  uint64
	Kills int
	// Child returns the command of a child of a round. It has to run RunKillChild with its standard output, then wait for the
	// end of its standard input, so that no child outlives its parent.
	Child func(round int) *exec.Cmd
}

// KillStats says what a loop has done.
type KillStats struct {
	Kills, Checks, Early int // Early: killed before the engine was open
	Acked, Records       int
	Commits, Given       int
}

// A killPartition is what is known of a partition.
type killPartition struct {
	hashes    []uint64         // of every record that was seen or acknowledged so far
	acked     map[int64]uint64 // since the last check
	commit    int64            // the greatest offset that a commit has been acknowledged for
	delivered int64            // up to which members of the group have been given records
	last      map[string]killID
}

type killState struct {
	loop  KillLoop
	r     *rand.Rand
	parts [killPartitions]killPartition
	stats KillStats
	made  bool // a child has been ready, so that the topic is there
}

// Run returns after the wanted number of kills, or with a *Failure.
func (l KillLoop) Run() (KillStats, error) {
	s := &killState{loop: l, r: random(l.Seed, 5)}
	for i := range s.parts {
		s.parts[i].acked = map[int64]uint64{}
		s.parts[i].last = map[string]killID{}
	}
	for round := 1; round <= l.Kills; round++ {
		err := s.round(round)
		if err == nil && (chance(s.r, 0.6) || round == l.Kills) {
			err = s.check(round%25 == 0 || round == l.Kills)
		}
		if err != nil {
			return s.stats, &Failure{Seed: l.Seed, Where: fmt.Sprintf("kill %d of %d, directory %s", round, l.Kills, l.Dir), Err: err}
		}
	}
	return s.stats, nil
}

// round runs one child until it is killed.
func (s *killState) round(round int) error {
	cmd := s.loop.Child(round)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	// The moment: some time after the start, which may be before the engine is open, or some lines after it.
	lines := s.r.IntN(2000)
	if chance(s.r, 0.3) {
		kill := time.AfterFunc(time.Duration(s.r.IntN([]int{8_000, 40_000}[s.r.IntN(2)]))*time.Microsecond, func() { cmd.Process.Kill() })
		defer kill.Stop()
	} else if chance(s.r, 0.2) {
		lines = 1
	}
	ready := false
	err = readKillLines(stdout, func(l killLine) error {
		if lines--; lines == 0 || l.kind == "done" {
			cmd.Process.Kill()
		}
		switch l.kind {
		case "ready":
			ready, s.made = true, true
		case "record":
			s.stats.Acked++
			p := &s.parts[l.partition]
			if _, twice := p.acked[l.offset]; twice {
				return fmt.Errorf("A5: offset %d of partition %d was given twice", l.offset, l.partition)
			}
			p.acked[l.offset] = l.hash
		case "read":
			s.stats.Given += int(l.to - l.offset)
			if err := s.parts[l.partition].given(l.offset, l.to); err != nil {
				return fmt.Errorf("partition %d, records %d to %d: %w", l.partition, l.offset, l.to, err)
			}
		case "commit":
			s.stats.Commits++
			p := &s.parts[l.partition]
			p.commit = max(p.commit, l.offset)
		case "error":
			return errors.New(l.text)
		}
		return nil
	})
	cmd.Process.Kill()
	if err != nil {
		// The rest has to be read for Wait to return.
		io.Copy(io.Discard, stdout)
	}
	cmd.Wait() // its error is that it was killed
	s.stats.Kills++
	if !ready {
		s.stats.Early++
	}
	return err
}

// check opens the directory and compares. Unless it is a full one, records that earlier checks have seen are only read
// again where something was acknowledged since.
func (s *killState) check(full bool) (err error) {
	ctx := context.Background()
	s.stats.Checks++
	eng, err := openKill(s.loop.Dir)
	if err != nil {
		return fmt.Errorf("A1: open: %w", err)
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	infos, err := eng.Admin().Topics(ctx)
	if err != nil {
		return fmt.Errorf("A10: topics: %w", err)
	}
	if len(infos) == 0 && !s.made {
		return nil
	}
	if len(infos) != 1 || infos[0].Name != killTopic || infos[0].Partitions != killPartitions {
		return fmt.Errorf("A10: topics are %+v", infos)
	}
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Group: killGroup, ManualCommit: true, Reset: stream.ResetNone, MaxWait: -1})
	if err != nil {
		return fmt.Errorf("A1: consumer: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	for i := range s.parts {
		if err := s.checkPartition(ctx, eng, c, int32(i), full); err != nil {
			return fmt.Errorf("partition %d: %w", i, err)
		}
	}
	return nil
}

func (s *killState) checkPartition(ctx context.Context, eng *stream.Engine, c stream.Consumer, i int32, full bool) error {
	p := &s.parts[i]
	tp := stream.TopicPartition{Topic: killTopic, Partition: i}
	ends, err := eng.Admin().EndOffsets(ctx, tp)
	if err != nil {
		return fmt.Errorf("A1: end: %w", err)
	}
	end := ends[tp].Offset
	if end < int64(len(p.hashes)) {
		return fmt.Errorf("A1: the log ends at %d, an earlier check has seen %d records", end, len(p.hashes))
	}
	for offset := range p.acked {
		if offset >= end {
			return fmt.Errorf("A1: offset %d was acknowledged, the log ends at %d", offset, end)
		}
		if offset < int64(len(p.hashes)) {
			return fmt.Errorf("A5: offset %d was given again, an earlier check had seen it", offset)
		}
	}
	from := int64(len(p.hashes))
	if full {
		from = 0
	}
	if err := errors.Join(c.Assign(tp), c.Seek(tp, from)); err != nil {
		return fmt.Errorf("A1: assign: %w", err)
	}
	for at := from; at < end; {
		rs, err := c.Poll(ctx, 1000)
		if err != nil {
			return fmt.Errorf("A1: poll at %d: %w", at, err)
		}
		if len(rs) == 0 {
			return fmt.Errorf("A3: nothing at %d, the log ends at %d", at, end)
		}
		for j := range rs {
			if err := p.seen(&rs[j], at); err != nil {
				return fmt.Errorf("offset %d: %w", at, err)
			}
			at++
		}
		s.stats.Records += len(rs)
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
	for _, name := range []string{"source-a", "source-b"} {
		if err := checkKillSequence(ctx, eng, name, tp, p.last[name].number); err != nil {
			return err
		}
	}
	return nil
}

// checkKillSequence checks that a named producer knows the last record of its in the log. (C1)
func checkKillSequence(ctx context.Context, eng *stream.Engine, name string, tp stream.TopicPartition, want int64) (err error) {
	p, err := eng.NewProducer(ctx, stream.ProducerConfig{Name: name})
	if err != nil {
		return fmt.Errorf("C1: producer: %w", err)
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	last, err := p.LastSequence(ctx, tp)
	if err != nil || last != want {
		return fmt.Errorf("C1: last sequence of %s is %d, in the log it is %d, error %v", name, last, want, err)
	}
	return nil
}

// seen checks one record.
func (p *killPartition) seen(r *stream.Record, at int64) error {
	if r.Offset != at {
		return fmt.Errorf("A5: the record is at offset %d", r.Offset)
	}
	h := hashRecord(r.Key, r.Value)
	if at < int64(len(p.hashes)) {
		if p.hashes[at] != h {
			return errors.New("A1/A6: the record has changed since the last check")
		}
		return nil
	}
	id, err := parseKillID(r.Value)
	if err != nil {
		return err
	}
	if id.worker != string(r.Key) || id.partition != r.Partition {
		return fmt.Errorf("A4: record %v has key %q in partition %d", id, r.Key, r.Partition)
	}
	if want, acked := p.acked[at]; acked && want != h {
		return fmt.Errorf("A1: record %v is not the acknowledged one", id)
	}
	seq, err := sequenceOf(r)
	if err != nil {
		return fmt.Errorf("C1: %w", err)
	}
	last, before := p.last[id.worker]
	if id.round == 0 {
		if seq != id.number || id.number != last.number+1 {
			return fmt.Errorf("C1: record %v with sequence %d follows %v", id, seq, last)
		}
	} else if before && (id.round < last.round || id.round == last.round && id.number <= last.number) {
		return fmt.Errorf("A3/C1: record %v follows %v", id, last)
	}
	p.last[id.worker] = id
	p.hashes = append(p.hashes, h)
	return nil
}
