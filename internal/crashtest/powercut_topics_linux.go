package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/runnelmq/runnel/stream"
)

// cutTopics are small, so that their segments are rolled all the time. Lines and ids count partitions through all of them.
var cutTopics = []struct {
	name         string
	partitions   int32
	segmentBytes int64
}{
	{"t", 2, 64 << 10},
	{"u", 2, 4 << 10},
}

// cutPartitions is how many partitions there are.
const cutPartitions = 4

// cutTPs returns the partitions in their order.
func cutTPs() (tps []stream.TopicPartition) {
	for _, t := range cutTopics {
		for p := range t.partitions {
			tps = append(tps, stream.TopicPartition{Topic: t.name, Partition: p})
		}
	}
	return tps
}

func cutTP(i int32) stream.TopicPartition { return cutTPs()[i] }

func cutIndex(topic string, partition int32) int32 {
	for _, t := range cutTopics {
		if t.name == topic {
			return partition
		}
		partition += t.partitions
	}
	panic("no such topic")
}

// cutPassing is how many topics come and go beside those that stay.
const cutPassing = 3

func cutPassingName(i int) string { return fmt.Sprintf("passing-%d", i) }

// churn makes topics, puts one record into each, and deletes them. It tells of each step before and after:
//
//	done topics NAME=PARTITIONS...     these are there; said once an engine is open
//	done making NAME PARTITIONS MARK   a topic is about to be made, and a record with this value to be put into it
//	done made NAME                     the topic is there
//	done filled NAME                   the record is synced
//	done deleting NAME                 the topic is about to be deleted
//	done deleted NAME                  it is gone
func (c *cutChild) churn(ctx context.Context, r *rand.Rand, count int) error {
	for range 1 + count/20 {
		name := cutPassingName(r.IntN(cutPassing))
		infos, err := c.eng.Admin().Topics(ctx)
		if err != nil {
			return fmt.Errorf("A10: topics: %w", err)
		}
		if passingTopics(infos)[name] > 0 {
			c.line("done deleting %s", name)
			if err := c.eng.Admin().DeleteTopic(ctx, name); err != nil {
				return fmt.Errorf("A10: delete: %w", err)
			}
			c.line("done deleted %s", name)
			continue
		}
		parts, mark := between(r, 1, 3), fmt.Sprintf("%d-%x", c.round, r.Uint64())
		c.line("done making %s %d %s", name, parts, mark)
		if err := c.eng.Admin().CreateTopic(ctx, name, stream.TopicConfig{Partitions: parts}); err != nil {
			return fmt.Errorf("A10: create: %w", err)
		}
		c.line("done made %s", name)
		err = c.produce(ctx, "", func(p stream.Producer) error {
			_, err := p.ProduceSync(ctx, &stream.Record{Topic: name, Value: []byte(mark), Acks: stream.AcksSynced})
			return err
		})
		if err != nil {
			return fmt.Errorf("A10: %s: %w", name, err)
		}
		c.line("done filled %s", name)
	}
	return nil
}

// passingTopics returns how many partitions each topic has of those that come and go.
func passingTopics(infos []stream.TopicInfo) map[string]int {
	parts := map[string]int{}
	for _, t := range infos {
		if strings.HasPrefix(t.Name, "passing-") {
			parts[t.Name] = t.Partitions
		}
	}
	return parts
}

// A cutTopic is what is known of a topic that comes and goes.
type cutTopic struct {
	must  bool      // it is there
	lives []cutLife // what may be there, as a whole; more than one if the power failed between its end and another beginning
}

// A cutLife is a topic from when it is made until it is deleted.
type cutLife struct {
	parts  int
	mark   string // the value of the only record that may be in it
	filled bool   // which is synced
}

// heardTopic takes down what the child says of a topic.
func (w *cutWant) heardTopic(text string) error {
	what, name, _ := strings.Cut(text, " ")
	name, _, _ = strings.Cut(name, " ")
	t := w.topics[name]
	now := len(t.lives) - 1
	if now < 0 && what != "making" {
		return fmt.Errorf("line %q: there is no such topic", text)
	}
	switch what {
	case "making":
		var l cutLife
		if _, err := fmt.Sscanf(text, "making %s %d %s", &name, &l.parts, &l.mark); err != nil {
			return fmt.Errorf("line %q: %w", text, err)
		}
		t.lives = append(t.lives, l)
	case "made":
		t.must, t.lives = true, t.lives[now:]
		w.stats.Topics++
	case "filled":
		t.lives[now].filled = true
	case "deleting":
		t.must = false
	case "deleted":
		t = cutTopic{}
	default:
		return fmt.Errorf("line %q", text)
	}
	w.topics[name] = t
	return nil
}

// found holds what is there against what may and must be. (A10)
func (w *cutWant) found(parts map[string]int) error {
	for i := range cutPassing {
		name := cutPassingName(i)
		t, n := w.topics[name], parts[name]
		if n == 0 && t.must {
			return fmt.Errorf("A10: topic %s is gone", name)
		}
		had := t.lives
		t.must, t.lives = n > 0, lives(had, func(l cutLife) bool { return l.parts == n })
		if t.must && len(t.lives) == 0 {
			return fmt.Errorf("A10: topic %s is there with %d partitions, it may have been one of %+v", name, n, had)
		}
		w.topics[name] = t
	}
	return nil
}

// lives returns those that can be.
func lives(ls []cutLife, can func(cutLife) bool) (left []cutLife) {
	for _, l := range ls {
		if can(l) {
			left = append(left, l)
		}
	}
	return left
}

// checkTopics reads the topics that come and go: a record that was put in is there, and nothing of an earlier life is.
func (w *cutWant) checkTopics(ctx context.Context, eng *stream.Engine, c stream.Consumer, infos []stream.TopicInfo) error {
	parts := passingTopics(infos)
	if err := w.found(parts); err != nil {
		return err
	}
	for name, n := range parts {
		t := w.topics[name]
		had := t.lives
		for i := range int32(n) {
			tp := stream.TopicPartition{Topic: name, Partition: i}
			ends, err := eng.Admin().EndOffsets(ctx, tp)
			if err == nil {
				err = errors.Join(c.Assign(tp), c.Seek(tp, 0))
			}
			var rs []stream.Record
			if err == nil {
				rs, err = c.Poll(ctx, 10)
			}
			if err != nil {
				return fmt.Errorf("A10: topic %s: %w", name, err)
			}
			if ends[tp].Offset != int64(len(rs)) || i > 0 && len(rs) > 0 || len(rs) > 1 {
				return fmt.Errorf("A10: %v has %d records and ends at %d", tp, len(rs), ends[tp].Offset)
			}
			switch {
			case len(rs) == 1:
				t.lives = lives(had, func(l cutLife) bool { return l.mark == string(rs[0].Value) })
			case i == 0:
				t.lives = lives(had, func(l cutLife) bool { return !l.filled })
			}
			if len(t.lives) == 0 {
				return fmt.Errorf("A2/A10: topic %s has %d records, it may have been one of %+v", name, len(rs), had)
			}
		}
		w.topics[name] = t
	}
	return nil
}
