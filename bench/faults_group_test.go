package main

import (
	"context"
	"slices"
	"testing"

	"github.com/runnelmq/runnel/stream"
)

// commits are faults of commits: the second one of a partition goes wrong.
func commits() []fault {
	second := func(name string, wrong func(c stream.Consumer, o stream.Offsets, tp stream.TopicPartition) error) fault {
		return fault{name: name, commit: func(c stream.Consumer, o stream.Offsets) error {
			for tp, at := range o {
				if at.Offset == 2 {
					return wrong(c, o, tp)
				}
			}
			return c.CommitOffsets(context.Background(), o)
		}}
	}
	return []fault{
		second("a commit that is not made", func(stream.Consumer, stream.Offsets, stream.TopicPartition) error { return nil }),
		second("a commit of another offset", func(c stream.Consumer, _ stream.Offsets, tp stream.TopicPartition) error {
			return c.CommitOffsets(context.Background(), stream.Offsets{tp: {Offset: 1}})
		}),
		second("an error", func(stream.Consumer, stream.Offsets, stream.TopicPartition) error { return stream.ErrRebalance }),
		{name: "other offsets are there in the end", groups: lessOne},
	}
}

// positions are faults of what a group has committed by itself.
func positions() []fault {
	return []fault{{name: "the group has committed less", groups: lessOne}}
}

// lessOne takes one from every committed offset.
func lessOne(infos []stream.GroupInfo) {
	for _, info := range infos {
		for tp, at := range info.Offsets {
			at.Offset--
			info.Offsets[tp] = at
		}
	}
}

// listener hands over what funcs leave of it; nil: all.
type listener struct {
	stream.RebalanceListener
	assigned, revoked func(l stream.RebalanceListener, tps []stream.TopicPartition)
}

func (l *listener) Assigned(tps []stream.TopicPartition) {
	if l.assigned == nil {
		l.RebalanceListener.Assigned(tps)
		return
	}
	l.assigned(l.RebalanceListener, tps)
}

func (l *listener) Revoked(tps []stream.TopicPartition) {
	if l.revoked == nil {
		l.RebalanceListener.Revoked(tps)
		return
	}
	l.revoked(l.RebalanceListener, tps)
}

// ownerships are faults of who has which partition.
func ownerships() []fault {
	hear := func(name string, l listener) fault {
		return fault{name: name, listen: func(inner stream.RebalanceListener) stream.RebalanceListener {
			mine := l
			mine.RebalanceListener = inner
			return &mine
		}}
	}
	return []fault{
		hear("two owners", listener{revoked: func(stream.RebalanceListener, []stream.TopicPartition) {}}),
		hear("a partition that nobody has had is taken away", listener{revoked: func(l stream.RebalanceListener, tps []stream.TopicPartition) {
			l.Revoked(tps)
			l.Revoked(tps[:1])
		}}),
		hear("lost partitions", listener{revoked: func(l stream.RebalanceListener, tps []stream.TopicPartition) { l.Lost(tps) }}),
		hear("another topic", listener{assigned: func(l stream.RebalanceListener, tps []stream.TopicPartition) {
			l.Assigned(append(tps, stream.TopicPartition{Topic: "other"}))
		}}),
		{name: "a member has a partition more", has: func(tps []stream.TopicPartition) []stream.TopicPartition {
			return append(tps, stream.TopicPartition{Topic: topic, Partition: sharedPartitions})
		}},
		{name: "a member has a partition less", has: func(tps []stream.TopicPartition) []stream.TopicPartition { return tps[1:] }},
		{name: "the group gives a partition to nobody", groups: func(infos []stream.GroupInfo) {
			for _, info := range infos {
				for i, m := range info.Members {
					info.Members[i].Assignment = m.Assignment[:max(0, len(m.Assignment)-1)]
				}
			}
		}},
		{name: "the group has a member more", groups: func(infos []stream.GroupInfo) {
			for i := range infos {
				infos[i].Members = append(infos[i].Members, stream.MemberInfo{MemberID: "another"})
			}
		}},
		{name: "the group has other members", groups: func(infos []stream.GroupInfo) {
			for _, info := range infos {
				for i := range info.Members {
					info.Members[i].MemberID += "x"
				}
			}
		}},
	}
}

// A group that has its partitions is not taken for settled while one has no owner, or one member has more than its share.
func TestOwners(t *testing.T) {
	tps := func(from, to int32) (tps []stream.TopicPartition) {
		for p := from; p < to; p++ {
			tps = append(tps, stream.TopicPartition{Topic: topic, Partition: p})
		}
		return tps
	}
	o := newOwners(7)
	a, b := owner{o, 1}, owner{o, 2}
	settled := o.expect(2)
	heard := func() (is bool, err error) {
		select {
		case m := <-settled:
			return true, m.err
		default:
			return false, nil
		}
	}
	for i, s := range []struct {
		do      func()
		settled bool
	}{
		{func() { a.Assigned(tps(0, 7)) }, false}, // the other one has nothing
		{func() { a.Revoked(tps(2, 7)) }, false},  // nobody has them
		{func() { b.Assigned(tps(2, 7)) }, false}, // 2 and 5
		{func() { b.Revoked(tps(2, 4)) }, false},
		{func() { a.Assigned(tps(2, 3)) }, false}, // 3 and 3, and one that nobody has
		{func() { a.Assigned(tps(3, 4)) }, true},  // 4 and 3
	} {
		s.do()
		if is, err := heard(); is != s.settled || err != nil {
			t.Errorf("step %d: settled %v, %v", i, is, err)
		}
	}
	if got := o.held(1); !slices.Equal(got, tps(0, 4)) {
		t.Errorf("the first has %v", got)
	}
	settled = o.expect(2)
	b.Assigned(tps(0, 1))
	if _, err := heard(); err == nil {
		t.Error("two owners are not noticed")
	}
	settled = o.expect(1)
	if _, err := heard(); err == nil {
		t.Error("they are forgotten")
	}
	o = newOwners(7)
	settled = o.expect(1)
	owner{o, 1}.Lost(tps(0, 1))
	if _, err := heard(); err == nil {
		t.Error("lost partitions are not noticed")
	}
}
