package stream_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/runnelmq/runnel/stream"
)

// A member is a consumer that shares the topic "a" in group "g" with others. It keeps what it has read, and what its listener has heard.
type member struct {
	stream.Consumer
	mu   sync.Mutex
	got  []stream.Record
	all  *[]stream.Record // what several members have read, in order; nil: nobody wants to know
	told []string
	on   func(what string, tps []stream.TopicPartition) // called by the listener
}

// newMember returns a member whose polls do not wait unless c says how long. With a listener it joins when it polls first.
func newMember(t testing.TB, eng *stream.Engine, c stream.ConsumerConfig) *member {
	t.Helper()
	m := &member{}
	m.open(t, eng, c)
	return m
}

// newListener is newMember with a listener.
func newListener(t testing.TB, eng *stream.Engine, c stream.ConsumerConfig) *member {
	t.Helper()
	m := &member{}
	c.Listener = m
	m.open(t, eng, c)
	t.Cleanup(func() { m.on = nil }) // before the engine closes
	return m
}

func (m *member) open(t testing.TB, eng *stream.Engine, c stream.ConsumerConfig) {
	t.Helper()
	c.Group = "g"
	if c.Topics == nil {
		c.Topics = []string{"a"}
	}
	if c.Reset == stream.ResetLatest {
		c.Reset = stream.ResetEarliest
	} else if c.Reset == fromTheEnd {
		c.Reset = stream.ResetLatest
	}
	m.Consumer = newConsumer(t, eng, c)
}

// fromTheEnd asks a member for ResetLatest, where the zero value means ResetEarliest.
const fromTheEnd stream.Reset = 100

func (m *member) heard(what string, tps []stream.TopicPartition) {
	m.mu.Lock()
	m.told = append(m.told, fmt.Sprint(what, " ", tps))
	m.mu.Unlock()
	if m.on != nil {
		m.on(what, tps)
	}
}

func (m *member) Assigned(tps []stream.TopicPartition) { m.heard("assigned", tps) }
func (m *member) Revoked(tps []stream.TopicPartition)  { m.heard("revoked", tps) }
func (m *member) Lost(tps []stream.TopicPartition)     { m.heard("lost", tps) }

// news returns what the listener has heard since the last call.
func (m *member) news() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	told := m.told
	m.told = nil
	return told
}

// turn polls once.
func (m *member) turn(t testing.TB) []stream.Record {
	t.Helper()
	rs := must(m.Poll(t.Context(), 0))(t)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.got = append(m.got, rs...)
	if m.all != nil {
		*m.all = append(*m.all, rs...)
	}
	return rs
}

// read returns the values that the member has read since the last call.
func (m *member) read() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	vs := values(m.got)
	m.got = nil
	return vs
}

// settle has members poll in turn until the group is stable and nothing changes any more.
func settle(t testing.TB, eng *stream.Engine, ms ...*member) {
	t.Helper()
	before := ""
	for range 30 {
		for _, m := range ms {
			m.turn(t)
		}
		g := groupOf(t, eng)
		now := fmt.Sprint(g.State, g.Generation)
		for _, m := range ms {
			now += fmt.Sprint(m.Assignment(), m.Group().Generation == g.Generation)
		}
		if now == before && g.State == "Stable" {
			return
		}
		before = now
	}
	t.Fatalf("the group does not come to rest: %s", before)
}

// groupOf describes group "g".
func groupOf(t testing.TB, eng *stream.Engine) stream.GroupInfo {
	t.Helper()
	return must(eng.Admin().Groups(t.Context(), "g"))(t)[0]
}

// owners returns who has which partition, and fails the test if two have the same one, or if somebody's share is not between least and most.
func owners(t testing.TB, ms []*member, least, most int) map[stream.TopicPartition]*member {
	t.Helper()
	out := map[stream.TopicPartition]*member{}
	for i, m := range ms {
		tps := m.Assignment()
		if n := len(tps); n < least || n > most {
			t.Fatalf("member %d has %d partitions, not between %d and %d", i, n, least, most)
		}
		for _, p := range tps {
			if out[p] != nil {
				t.Fatalf("%v has two owners", p)
			}
			out[p] = m
		}
	}
	return out
}

// partitionsOf returns topic's partitions from one number up to another.
func partitionsOf(topic string, from, to int32) (tps []stream.TopicPartition) {
	for i := from; i < to; i++ {
		tps = append(tps, tp(topic, i))
	}
	return tps
}

// explained returns what Explain says of a partition to group "g", with member ids replaced by names.
func explained(t testing.TB, eng *stream.Engine, p stream.TopicPartition, names map[string]stream.Consumer) string {
	t.Helper()
	for _, x := range must(eng.Admin().Explain(t.Context(), "g"))(t) {
		if x.TopicPartition == p {
			text := x.Text
			for name, c := range names {
				if id := c.Group().MemberID; id != "" {
					text = strings.ReplaceAll(text, id, name)
				}
			}
			return text
		}
	}
	t.Fatalf("nothing is said of %v", p)
	return ""
}

// sortedValues returns values in the order of their numbers.
func sortedValues(vs ...[]string) []string {
	all := slices.Concat(vs...)
	slices.SortFunc(all, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return all
}

func isClosed(err error) bool { return errors.Is(err, stream.ErrClosed) }

// byPartition returns the values of each partition, in the order of the records.
func byPartition(rs []stream.Record) map[stream.TopicPartition][]string {
	out := map[stream.TopicPartition][]string{}
	for _, r := range rs {
		p := tp(r.Topic, r.Partition)
		out[p] = append(out[p], string(r.Value))
	}
	return out
}

func isA(err, want error) bool { return errors.Is(err, want) }
