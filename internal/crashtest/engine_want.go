package crashtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/stream"
)

// A sentRecord is what was given to a producer for one partition. Exported fields, because images are written with gob.
type sentRecord struct {
	Name     string // of a named producer
	Sequence int64
	Key      []byte
	Value    []byte
}

// A partitionWant is what a partition has to hold. Slices of Sent are only ever appended to.
type partitionWant struct {
	Sent    []sentRecord // in the order of their offsets, those in flight included
	Written int64        // what has been acknowledged
	Synced  int64
	Commit  int64   // the group's last acknowledged offset, -1 if there is none
	Asked   int64   // the one in flight, -1 if there is none
	May     []int64 // of an image: what the offset may be beside Commit
	Start   int64   // the log start offset that was last seen
	Trim    int64   // the greatest that was ever asked for
}

// A topicWant is one life of a topic.
type topicWant struct {
	Life       int // tells topics of one name apart
	Partitions int // acknowledged; 0 while it is being made
	Asked      int // while more are being made
	Deleting   bool
	Configs    []string        // what its configuration may be
	Expires    bool            // it has, or had, a retention
	Compacts   bool            // it is, or was, compacted: not every record stays, and each that is sent has a key
	Parts      []partitionWant // as many as may be there
}

// An engineWant is what a directory has to hold.
type engineWant struct {
	Topics map[string]topicWant
	Epoch  int32 // the greatest seen in receipts and records
	Used   bool  // something was written since the engine was opened
	Must   int32 // the least that new records may have
}

func (w *engineWant) image() engineWant {
	c := *w
	c.Topics = maps.Clone(w.Topics)
	for name, t := range c.Topics {
		t.Parts = slices.Clone(t.Parts)
		for i := range t.Parts {
			s := t.Parts[i].Sent
			t.Parts[i].Sent = s[:len(s):len(s)]
		}
		c.Topics[name] = t
	}
	return c
}

// merge joins what was acknowledged before an image was taken with what may have been asked for until after it.
func merge(before, after *engineWant) engineWant {
	c := after.image()
	for name, old := range before.Topics {
		t, there := c.Topics[name]
		if there && t.Life == old.Life {
			continue
		}
		// It has been deleted meanwhile, and what may be of its name again is empty.
		old.Deleting = true
		old.Asked = max(old.Asked, t.Asked)
		old.Configs = append(slices.Clone(old.Configs), t.Configs...)
		old.Expires, old.Compacts = old.Expires || t.Expires, old.Compacts || t.Compacts
		old.Parts = append(slices.Clone(old.Parts), newParts(max(0, old.Asked-len(old.Parts)))...)
		c.Topics[name] = old
	}
	for name, t := range c.Topics {
		old := before.Topics[name]
		t.Partitions = old.Partitions
		for _, s := range old.Configs {
			if !slices.Contains(t.Configs, s) {
				t.Configs = append(slices.Clone(t.Configs), s)
			}
		}
		for i := range t.Parts {
			p := &t.Parts[i]
			o := partitionWant{Commit: -1, Asked: -1}
			if i < len(old.Parts) {
				o = old.Parts[i]
			}
			p.May = []int64{o.Asked, p.Commit, p.Asked}
			p.Written, p.Synced, p.Commit, p.Start = o.Written, o.Synced, o.Commit, o.Start
		}
		c.Topics[name] = t
	}
	c.Epoch, c.Used = before.Epoch, before.Used
	return c
}

func (w *engineWant) part(tp stream.TopicPartition) *partitionWant {
	return &w.Topics[tp.Topic].Parts[tp.Partition]
}

// names returns the topics in order.
func (w *engineWant) names() []string { return slices.Sorted(maps.Keys(w.Topics)) }

func newParts(n int) []partitionWant {
	ps := make([]partitionWant, n)
	for i := range ps {
		ps[i] = partitionWant{Commit: -1, Asked: -1}
	}
	return ps
}

// sequenceHeader is the header in which a named record carries its sequence.
const sequenceHeader = "runnel.seq"

// matches says whether a record is the one that was sent, byte for byte.
func (s *sentRecord) matches(r *stream.Record) error {
	if !bytes.Equal(r.Key, s.Key) || !bytes.Equal(r.Value, s.Value) || (r.Key == nil) != (s.Key == nil) || (r.Value == nil) != (s.Value == nil) {
		return fmt.Errorf("it has key %.20x and %d bytes of value %.20x, sent were key %.20x and %d bytes %.20x",
			r.Key, len(r.Value), r.Value, s.Key, len(s.Value), s.Value)
	}
	seq, err := sequenceOf(r)
	if err != nil {
		return err
	}
	if seq != s.Sequence {
		return fmt.Errorf("it has sequence %d, sent was %d", seq, s.Sequence)
	}
	return nil
}

// sequenceOf reads the sequence of a named record, 0 if it has none.
func sequenceOf(r *stream.Record) (int64, error) {
	i := slices.IndexFunc(r.Headers, func(h kafka.Header) bool { return h.Key == sequenceHeader })
	if i < 0 {
		return 0, nil
	}
	if len(r.Headers[i].Value) != 8 {
		return 0, fmt.Errorf("header %s has %d bytes", sequenceHeader, len(r.Headers[i].Value))
	}
	return int64(binary.BigEndian.Uint64(r.Headers[i].Value)), nil
}

// last returns the greatest sequence of a name among the first n records.
func (p *partitionWant) last(name string, n int64) int64 {
	var last int64
	for _, s := range p.Sent[:n] {
		if s.Name == name {
			last = max(last, s.Sequence)
		}
	}
	return last
}

func (w *engineWant) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "epoch %d used %t", w.Epoch, w.Used)
	for _, name := range w.names() {
		t := w.Topics[name]
		fmt.Fprintf(&b, "; %s %d→%d deleting %t expires %t compacts %t", name, t.Partitions, t.Asked, t.Deleting, t.Expires, t.Compacts)
		for i := range t.Parts {
			p := &t.Parts[i]
			fmt.Fprintf(&b, " [%d sent %d written %d synced %d start %d trim %d commit %d→%d]", i, len(p.Sent), p.Written, p.Synced, p.Start, p.Trim, p.Commit, p.Asked)
		}
	}
	return b.String()
}
