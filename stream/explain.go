package stream

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/runnelmq/runnel/group"

	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
)

func (a admin) Explain(ctx context.Context, name string) ([]Explanation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d, offsets, err := a.e.b.DescribeGroup(name)
	if err != nil {
		return nil, err
	}
	x := explainer{e: a.e, d: d, now: time.Now(), committed: map[TopicPartition]int64{}, views: a.e.views(name)}
	ps := map[TopicPartition]*broker.Partition{}
	for _, o := range offsets {
		tp := o.Partition.TopicPartition()
		x.committed[tp] = o.Offset.Offset
		ps[tp] = o.Partition
	}
	owner := map[TopicPartition]group.MemberDescription{}
	for _, m := range d.Members {
		for _, tp := range assignment(d, m) {
			owner[tp] = m
		}
		s, _ := group.ParseSubscription(m.Metadata)
		for _, topic := range s.Topics {
			if t, err := a.e.b.Topic(topic); err == nil {
				for _, p := range t.Partitions() {
					ps[p.TopicPartition()] = p
				}
			}
		}
	}
	var out []Explanation
	for _, tp := range slices.SortedFunc(maps.Keys(ps), compareTP) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m, owned := owner[tp]
		out = append(out, Explanation{tp, m.ID, x.partition(ps[tp], m, owned)})
	}
	return out, nil
}

// view is what a consumer of this process knows of itself.
type view struct {
	lastPoll time.Time // zero: a poll is running, or it is not watched
	limit    time.Duration
	tracks   map[TopicPartition]trackView
}

type trackView struct {
	position    int64
	paused      bool
	pausedSince time.Time
	failure     error
	durable     bool
}

// views returns the consumers of a group by member id.
func (e *Engine) views(name string) map[string]view {
	e.mu.Lock()
	clients := slices.Collect(maps.Keys(e.mu.clients))
	e.mu.Unlock()
	out := map[string]view{}
	for _, c := range clients {
		if c, ok := c.(*consumer); ok && c.c.Group == name {
			if id, v := c.view(); id != "" {
				out[id] = v
			}
		}
	}
	return out
}

func (c *consumer) view() (memberID string, v view) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v = view{limit: c.c.MaxPollInterval, tracks: map[TopicPartition]trackView{}}
	if len(c.polling) == 0 {
		v.lastPoll = c.mu.watched.last
	}
	for _, t := range c.mu.tracks {
		v.tracks[t.tp] = trackView{t.position, t.paused, t.pausedAt, t.failure, c.c.Visibility == Durable}
	}
	return c.mu.member.id, v
}

// explainer says what is the matter with the partitions of one group.
type explainer struct {
	e         *Engine
	d         group.Description
	now       time.Time
	committed map[TopicPartition]int64
	views     map[string]view
}

// partition explains one partition: the first cause that is there, beginning with what stops everything.
func (x *explainer) partition(p *broker.Partition, m group.MemberDescription, owned bool) string {
	if s, err := p.Health(); s == kafka.PartitionFailed {
		return fmt.Sprintf("the partition is offline after a storage error: %v", err)
	}
	if len(x.d.Members) == 0 {
		return "the group has no member; " + x.backlog(p, x.from(p))
	}
	if waits := x.rebalance(); waits != "" {
		return waits
	}
	if !owned {
		return "no member has it; " + x.backlog(p, x.from(p))
	}
	v, here := x.views[m.ID]
	if !here {
		if m.Native {
			return fmt.Sprintf("static member %s has closed and has not come back; %s", m.ID, x.backlog(p, x.from(p)))
		}
		return fmt.Sprintf("member %s at %s has it; %s", m.ID, m.Host, x.backlog(p, x.from(p)))
	}
	t, has := v.tracks[p.TopicPartition()]
	if !has {
		return fmt.Sprintf("member %s has been given it and has not polled since%s", m.ID, x.since(v))
	}
	at := t.position
	if at < 0 {
		at = x.from(p)
	}
	switch {
	case t.failure != nil:
		return fmt.Sprintf("member %s stopped at offset %d until Seek or Resume: %v", m.ID, at, t.failure)
	case t.paused:
		return fmt.Sprintf("paused by the application for %v at offset %d; %s", x.now.Sub(t.pausedSince).Round(time.Millisecond), at, x.backlog(p, at))
	}
	if _, end, durable, err := p.Bounds(); err == nil && t.durable && at >= durable && at < end {
		return fmt.Sprintf("member %s has read everything that is durable, up to offset %d; %d records are not synced yet", m.ID, durable, end-at)
	}
	behind := x.backlog(p, at)
	if behind == caughtUp {
		return fmt.Sprintf("member %s is %s at offset %d", m.ID, behind, at)
	}
	if s := x.since(v); s != "" {
		return fmt.Sprintf("member %s is at offset %d and has not asked for more%s; %s", m.ID, at, s, behind)
	}
	return fmt.Sprintf("member %s is reading at offset %d; %s", m.ID, at, behind)
}

// rebalance says whom a rebalance waits for.
func (x *explainer) rebalance() string {
	switch x.d.State {
	case group.PreparingRebalance:
		var waits []string
		for _, m := range x.d.Members {
			if !m.Waiting {
				waits = append(waits, m.ID+x.since(x.views[m.ID]))
			}
		}
		if len(waits) == 0 {
			return "a rebalance waits for more members to join"
		}
		return "a rebalance waits for " + strings.Join(waits, " and ") + " to give up what it has"
	case group.CompletingRebalance:
		return fmt.Sprintf("a rebalance waits for the assignment by leader %s%s", x.d.Leader, x.since(x.views[x.d.Leader]))
	}
	return ""
}

// since says when a member polled last, if it is not polling now.
func (x *explainer) since(v view) string {
	if v.lastPoll.IsZero() {
		return ""
	}
	return fmt.Sprintf(" (last poll %v ago, limit %v)", x.now.Sub(v.lastPoll).Round(time.Millisecond), v.limit)
}

// from is where a member would begin: the committed offset, or the log start.
func (x *explainer) from(p *broker.Partition) int64 {
	if o, ok := x.committed[p.TopicPartition()]; ok {
		return o
	}
	return 0
}

const caughtUp = "caught up"

// backlog says what lies behind an offset.
func (x *explainer) backlog(p *broker.Partition, at int64) string {
	_, end, _, err := p.Bounds()
	if err != nil {
		return err.Error()
	}
	lag, err := x.e.lag(p, at, end)
	switch {
	case err != nil:
		return err.Error()
	case lag.Records == 0:
		return caughtUp
	}
	return fmt.Sprintf("%d records wait, the first for %v", lag.Records, lag.Time.Round(time.Millisecond))
}
