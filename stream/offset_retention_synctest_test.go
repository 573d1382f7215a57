package stream_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// Committed offsets are kept for ever, unless OffsetRetention says how long: then those go that nobody has needed for so long, and no others.
func TestOffsetsExpire(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		name      string
		retention time.Duration
		want      map[string][]string // topics in which the groups have offsets after two days
	}{
		{"unasked", 0, map[string][]string{"simple": {"a"}, "left": {"a"}, "reads b": {"a", "b"}, "comes back": {"a"}}},
		{"after a day", day, map[string][]string{"reads b": {"b"}, "comes back": {"a"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				eng := streamtest.New(t, streamtest.WithOptions(stream.Options{OffsetRetention: tc.retention}))
				create(t, eng, "a", 1)
				create(t, eng, "b", 1)
				commit := func(group string, topics ...string) {
					c := newConsumer(t, eng, stream.ConsumerConfig{Group: group})
					for _, topic := range topics {
						check(t, c.CommitOffsets(t.Context(), stream.Offsets{tp(topic, 0): {}}))
					}
					check(t, c.Close(t.Context()))
				}
				member := func(group, topic string) stream.Consumer {
					c := newConsumer(t, eng, stream.ConsumerConfig{Group: group, Topics: []string{topic}, MaxPollInterval: 1000 * day})
					must(c.Poll(t.Context(), 1))(t)
					return c
				}
				commit("simple", "a")
				commit("reads b", "a", "b")
				member("reads b", "b")
				left := member("left", "a")
				check(t, left.Commit(t.Context()))
				check(t, left.Close(t.Context()))
				back := member("comes back", "a")
				check(t, back.Commit(t.Context()))
				check(t, back.Close(t.Context()))

				time.Sleep(day - time.Hour)
				member("comes back", "a")
				for _, g := range []string{"simple", "left", "reads b", "comes back"} {
					if len(groupTopics(t, eng, g)) == 0 {
						t.Errorf("%s has no offsets before a day has passed", g)
					}
				}
				time.Sleep(day)
				got := map[string][]string{}
				for _, g := range must(eng.Admin().Groups(t.Context()))(t) {
					got[g.Group] = groupTopics(t, eng, g.Group)
				}
				eq(t, "offsets", got, tc.want)
			})
		})
	}
}

// groupTopics lists the topics in which a group has an offset in partition 0.
func groupTopics(t *testing.T, eng *stream.Engine, group string) (topics []string) {
	for _, g := range must(eng.Admin().Groups(t.Context(), group))(t) {
		for _, topic := range []string{"a", "b"} {
			if _, ok := g.Offsets[tp(topic, 0)]; ok {
				topics = append(topics, topic)
			}
		}
	}
	return topics
}
