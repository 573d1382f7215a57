package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// A member polls until it is closed.
type member struct {
	number   int
	consumer stream.Consumer
	ended    chan struct{}
}

const rebalanceGroup = "group"

func (r *rebalanceWork) join(ctx context.Context) error {
	r.mu.Lock()
	r.joined++
	m := &member{number: r.joined, ended: make(chan struct{})}
	r.mu.Unlock()
	var err error
	m.consumer, err = r.session.client.NewConsumer(ctx, stream.ConsumerConfig{
		Group: rebalanceGroup, Topics: []string{topic}, Reset: stream.ResetEarliest, Listener: owner{r.owners, m.number},
	})
	if err != nil {
		return err
	}
	go func() {
		defer close(m.ended)
		dst := make([]stream.Record, pollSize)
		for {
			if _, err := m.consumer.PollInto(ctx, dst); errors.Is(err, stream.ErrClosed) {
				return
			} else if err != nil {
				r.owners.fail(fmt.Errorf("member %d: %w", m.number, err))
				return
			}
		}
	}()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members = append(r.members, m)
	return nil
}

// leave closes the member that has joined last.
func (r *rebalanceWork) leave(ctx context.Context) error {
	last := len(r.members) - 1
	m := r.members[last]
	r.members = r.members[:last]
	return m.close(ctx)
}

func (m *member) close(ctx context.Context) error {
	err := m.consumer.Close(ctx)
	<-m.ended
	return err
}

// stable waits until all members are in one generation, and compares who has what there.
func (r *rebalanceWork) stable(ctx context.Context) error {
	for {
		infos, err := r.session.client.Admin().Groups(context.WithoutCancel(ctx), rebalanceGroup)
		if err != nil {
			return err
		}
		if info := infos[0]; info.State == "Stable" && !slices.ContainsFunc(r.members, func(m *member) bool { return m.consumer.Group().Generation != info.Generation }) {
			return r.compare(info)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("a group of %d members is %s in generation %d, and not all of them are: %w", len(r.members), infos[0].State, infos[0].Generation, ctx.Err())
		}
	}
}

// compare compares what the group says with what the members say and have been told. That is all partitions, evenly, each once.
func (r *rebalanceWork) compare(info stream.GroupInfo) error {
	if len(info.Members) != len(r.members) {
		return fmt.Errorf("a group of %d members says that it has %d", len(r.members), len(info.Members))
	}
	for _, m := range r.members {
		id := m.consumer.Group().MemberID
		i := slices.IndexFunc(info.Members, func(im stream.MemberInfo) bool { return im.MemberID == id })
		if i < 0 {
			return fmt.Errorf("the group does not know member %d", m.number)
		}
		told := r.owners.held(m.number)
		if has := m.consumer.Assignment(); !slices.Equal(has, told) {
			return fmt.Errorf("member %d has %v and has been told of %v", m.number, has, told)
		}
		if given := info.Members[i].Assignment; !slices.Equal(given, told) {
			return fmt.Errorf("member %d has %v and the group says %v", m.number, told, given)
		}
	}
	return nil
}
