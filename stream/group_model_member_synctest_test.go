package stream_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// live is one consumer's life.
func (g *groupModel) live(name string, slot int, r *rand.Rand, stop chan struct{}) {
	m := &modelMember{g: g, name: name, rnd: r, next: map[stream.TopicPartition]int64{}}
	coop := stream.CooperativeStickyAssignor()
	c := stream.ConsumerConfig{
		Group: "g", Reset: stream.ResetEarliest, MaxWait: time.Duration(r.IntN(3)) * time.Second, MaxPollInterval: modelLimit, CommitInterval: time.Duration(1+r.IntN(4)) * time.Second,
		ManualCommit: r.IntN(4) == 0, SessionTimeout: time.Duration(1+r.IntN(10)) * time.Second, Listener: m, Interceptors: []stream.ConsumerInterceptor{m},
		Assignors: [][]stream.Assignor{nil, {coop}, {coop, stream.RangeAssignor()}, {stream.StickyAssignor(), coop}, {stream.RoundRobinAssignor(), coop, stream.StickyAssignor()}}[r.IntN(5)],
		Borrow:    r.IntN(4) == 0,
	}
	if c.MaxWait == 0 {
		c.MaxWait = time.Millisecond // a loop would never wait otherwise
	}
	if r.IntN(3) == 0 {
		c.InstanceID = fmt.Sprint("slot", slot)
	}
	co, err := g.eng.NewConsumer(context.Background(), c)
	if err != nil {
		g.t.Errorf("seed %d: %v", g.seed, err)
		return
	}
	m.Consumer = co
	g.mu.Lock()
	g.members = append(g.members, m)
	g.mu.Unlock()
	m.subscribe()
	for range 5 + r.IntN(40) {
		select {
		case <-stop:
		case <-time.After(time.Duration(r.IntN(1000)) * time.Millisecond):
		}
		if !m.act() {
			break
		}
	}
	m.allow(m.Close(context.Background()))
	g.mu.Lock()
	g.members = slices.DeleteFunc(g.members, func(x *modelMember) bool { return x == m })
	g.mu.Unlock()
}

func (m *modelMember) subscribe() { m.allow(m.Subscribe("a")) }

// allow fails the test unless an error is nil, or one that a member has to expect.
func (m *modelMember) allow(err error) {
	for _, want := range []error{nil, stream.ErrTimeout, stream.ErrUnknownMember, stream.ErrIllegalGeneration, stream.ErrRebalance, stream.ErrNoSubscription} {
		if isA(err, want) {
			return
		}
	}
	m.g.t.Errorf("seed %d: member %s: %v", m.g.seed, m.name, err)
}

// act does something, and reports whether the life goes on.
func (m *modelMember) act() bool {
	ctx := context.Background()
	tps := m.Assignment()
	one := func() stream.TopicPartition {
		if len(tps) == 0 {
			return tp("a", 0)
		}
		return tps[m.rnd.IntN(len(tps))]
	}
	switch m.rnd.IntN(16) {
	case 0, 1, 2, 3:
		m.finish(m.hand)
		rs, err := m.Poll(ctx, 1+m.rnd.IntN(20))
		m.allow(err)
		m.take(rs)
		m.finish(rs)
	case 4, 5:
		m.loop(m.rnd.IntN(12), m.rnd.IntN(2) == 0)
	case 6, 7:
		m.batches(m.rnd.IntN(4), m.rnd.IntN(2) == 0)
	case 8:
		m.Pause(one())
	case 9:
		m.Resume(tps...)
	case 10:
		p := one()
		if at, err := m.Position(p); err == nil && at > 0 {
			to := m.rnd.Int64N(at + 1)
			m.g.mu.Lock()
			delete(m.next, p)
			m.g.mu.Unlock()
			if m.Seek(p, to) == nil {
				m.g.mu.Lock()
				m.g.tell(p, "%s seeks to %d", m.name, to)
				m.g.mu.Unlock()
			}
		}
	case 11, 12:
		m.commit(one())
	case 13:
		if m.rnd.IntN(3) == 0 {
			time.Sleep(modelLimit + time.Duration(m.rnd.IntN(3000))*time.Millisecond)
		}
	case 14:
		if m.rnd.IntN(3) == 0 {
			m.allow(m.Unsubscribe())
			m.subscribe()
		}
	case 15:
		return m.rnd.IntN(3) > 0
	}
	return true
}

// commit commits explicitly, only what somebody has dealt with.
func (m *modelMember) commit(p stream.TopicPartition) {
	ctx := context.Background()
	switch m.rnd.IntN(3) {
	case 0:
		m.setExplicit(true)
		m.allow(m.Commit(ctx))
		m.setExplicit(false)
	case 1:
		if at, err := m.Position(p); err == nil {
			m.allow(m.CommitOffsets(ctx, stream.Offsets{p: {Offset: at, Metadata: "explicit"}}))
		}
	case 2:
		if at, err := m.Position(p); err == nil {
			m.CommitAsync(stream.Offsets{p: {Offset: at, Metadata: "explicit"}}, func(_ stream.Offsets, err error) {
				// It may end when the consumer has closed, or has been out and, as a static member, come back under another id.
				if !isClosed(err) && !isA(err, stream.ErrFenced) {
					m.allow(err)
				}
			})
		}
	}
}

func (m *modelMember) setExplicit(on bool) {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	m.explicit = on
}

// loop reads n records with Records, and is slow over one of them now and then.
func (m *modelMember) loop(n int, leave bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	m.finish(m.hand) // who polls again is done with what it had
	for r, err := range m.Records(ctx) {
		if err != nil {
			if ctx.Err() == nil {
				m.allow(err)
			}
			continue
		}
		rs := []stream.Record{r}
		m.take(rs)
		m.begin(rs)
		if m.work(tp(r.Topic, r.Partition)); n <= 0 {
			if leave {
				return // unfinished: somebody reads it again
			}
			cancel()
		}
		n--
		m.finish(rs)
	}
}

// batches reads n slices with Batches.
func (m *modelMember) batches(n int, leave bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	m.finish(m.hand) // who polls again is done with what it had
	for rs, err := range m.Batches(ctx, 1+m.rnd.IntN(10), time.Duration(m.rnd.IntN(2))*time.Second) {
		if err != nil {
			if ctx.Err() == nil {
				m.allow(err)
			}
			continue
		}
		m.take(rs)
		m.begin(rs)
		if m.work(tp("a", rs[0].Partition)); n <= 0 {
			if leave {
				return
			}
			cancel()
		}
		n--
		m.finish(rs)
	}
}

// work is what the body of a loop does.
func (m *modelMember) work(p stream.TopicPartition) {
	switch m.rnd.IntN(30) {
	case 0:
		time.Sleep(modelLimit * 3 / 2)
	case 1, 2:
		time.Sleep(time.Duration(m.rnd.IntN(2000)) * time.Millisecond)
	case 3, 4:
		m.commit(p)
	}
}

// take notes that records have been handed over.
func (m *modelMember) take(rs []stream.Record) {
	g := m.g
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range rs {
		p := tp(r.Topic, r.Partition)
		pm := g.part(p)
		if next, ok := m.next[p]; ok && r.Offset != next || r.Offset > pm.handed {
			g.fail(p, "%s reads %d; %d comes next, %d of all", m.name, r.Offset, next, pm.handed)
		}
		m.next[p] = r.Offset + 1
		pm.handed = max(pm.handed, r.Offset+1)
		g.tell(p, "%s reads %d", m.name, r.Offset)
	}
}

// begin notes that a body has begun.
func (m *modelMember) begin(rs []stream.Record) {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	m.hand = rs
}

// finish notes that records have been dealt with.
func (m *modelMember) finish(rs []stream.Record) {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	m.hand = nil
	for _, r := range rs {
		m.g.part(tp(r.Topic, r.Partition)).deal(r.Offset)
	}
}

func (m *modelMember) OnConsume([]stream.Record) {}

func (m *modelMember) OnCommit(o stream.Offsets) {
	g := m.g
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range slices.SortedFunc(maps.Keys(o), func(a, b stream.TopicPartition) int { return int(a.Partition - b.Partition) }) {
		at, pm := o[p].Offset, g.part(p)
		explicit := m.explicit || o[p].Metadata != ""
		g.tell(p, "%s commits %d, explicitly %v", m.name, at, explicit)
		if at > pm.handed {
			g.fail(p, "%s commits %d, and %d have been handed over", m.name, at, pm.handed)
		}
		if explicit { // of what is in hand, too
			for _, r := range m.hand {
				if r.Partition == p.Partition && r.Offset < at {
					pm.deal(r.Offset)
				}
			}
			pm.last = at
			continue
		}
		if at < pm.last {
			g.fail(p, "%s commits %d by itself after %d", m.name, at, pm.last)
		}
		for _, r := range m.hand {
			if r.Partition == p.Partition && at > r.Offset {
				g.fail(p, "%s commits %d by itself, and is at work on %d", m.name, at, r.Offset)
			}
		}
		pm.last = at
	}
}

func (m *modelMember) Assigned(tps []stream.TopicPartition) {
	g := m.g
	g.mu.Lock()
	others := slices.DeleteFunc(slices.Clone(g.members), func(x *modelMember) bool { return x == m })
	for _, p := range tps {
		delete(m.next, p)
		g.tell(p, "%s is assigned it", m.name)
	}
	g.mu.Unlock()
	for _, o := range others {
		for _, p := range o.Assignment() {
			if slices.Contains(tps, p) && !g.out(o) {
				g.mu.Lock()
				g.fail(p, "%s is assigned it, and %s has it", m.name, o.name)
				g.mu.Unlock()
			}
		}
	}
}

// out reports whether the group goes on without a member that has been at work for too long: it is out, or, if it is static, keeps a place in a generation that it does not know. Such a member hears of it when it
// polls; it can commit nothing.
func (g *groupModel) out(m *modelMember) bool {
	me, now := m.Group(), groupOf(g.t, g.eng)
	for _, mi := range now.Members {
		if mi.MemberID == me.MemberID {
			return me.InstanceID != "" && me.Generation != now.Generation
		}
	}
	return true
}

func (m *modelMember) Revoked(tps []stream.TopicPartition) { m.gone("revoked from", tps) }
func (m *modelMember) Lost(tps []stream.TopicPartition)    { m.gone("lost by", tps) }

func (m *modelMember) gone(how string, tps []stream.TopicPartition) {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	for _, p := range tps {
		m.g.tell(p, "%s %s", how, m.name)
	}
}
