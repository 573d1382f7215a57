package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// owners is what the members of a group have been told of who has which partition of the topic. At no time may two have one.
type owners struct {
	mu      sync.Mutex
	of      []int       // the number of each partition's owner, 0: none
	has     map[int]int // how many partitions a member has, without those that have none
	members int         // that have to share them
	settled chan moment // gets one when they do; nil: nobody waits
	err     error       // the first thing that was wrong
}

// A moment is when a group has settled, or why it never will.
type moment struct {
	at  time.Time
	err error
}

func newOwners(partitions int) *owners {
	return &owners{of: make([]int, partitions), has: map[int]int{}}
}

// expect returns where it will be told when so many members share all partitions evenly. The group must not be like that already.
func (o *owners) expect(members int) <-chan moment {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.members, o.settled = members, make(chan moment, 1)
	settled := o.settled
	if o.err != nil {
		o.tell()
	}
	return settled
}

// fail makes whoever waits, and will wait, hear of an error.
func (o *owners) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wrong(err)
	o.tell()
}

func (o *owners) wrong(err error) {
	if o.err == nil {
		o.err = err
	}
}

// tell tells who waits; o.mu is held.
func (o *owners) tell() {
	if o.settled != nil && (o.err != nil || o.shared()) {
		o.settled <- moment{time.Now(), o.err}
		o.settled = nil
	}
}

// shared says whether every partition has an owner, and no member more than another but for the remainder; o.mu is held.
func (o *owners) shared() bool {
	if len(o.has) != min(o.members, len(o.of)) {
		return false
	}
	all, least := 0, len(o.of)/o.members
	for _, n := range o.has {
		if n < least || n > least+1 {
			return false
		}
		all += n
	}
	return all == len(o.of)
}

// held lists the partitions of a member.
func (o *owners) held(member int) (tps []stream.TopicPartition) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p, owner := range o.of {
		if owner == member {
			tps = append(tps, stream.TopicPartition{Topic: topic, Partition: int32(p)})
		}
	}
	return tps
}

// change moves partitions from one owner to another; 0 is nobody.
func (o *owners) change(tps []stream.TopicPartition, from, to int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, tp := range tps {
		if tp.Topic != topic || int(tp.Partition) >= len(o.of) {
			o.wrong(fmt.Errorf("%v is no partition of the group", tp))
			continue
		}
		if is := o.of[tp.Partition]; is != from {
			o.wrong(fmt.Errorf("%v goes from member %d to member %d while member %d has it (0: nobody)", tp, from, to, is))
		}
		o.of[tp.Partition] = to
		if o.has[from]--; o.has[from] <= 0 {
			delete(o.has, from)
		}
		if to != 0 {
			o.has[to]++
		}
	}
	o.tell()
}

// A member's listener.
type owner struct {
	all    *owners
	number int // from 1 on
}

var _ stream.RebalanceListener = owner{}

func (o owner) Assigned(tps []stream.TopicPartition) { o.all.change(tps, 0, o.number) }

func (o owner) Revoked(tps []stream.TopicPartition) { o.all.change(tps, o.number, 0) }

// Lost is never right here: all members poll.
func (o owner) Lost(tps []stream.TopicPartition) {
	o.all.fail(fmt.Errorf("member %d has lost %v", o.number, tps))
}
