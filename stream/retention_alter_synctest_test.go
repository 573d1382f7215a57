package stream_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// configOf returns what differs from the defaults.
func (g *timed) configOf(topic string) map[string]string {
	g.t.Helper()
	return must(g.eng.Admin().Topics(g.t.Context(), topic))(g.t)[0].Config
}

// AlterTopic reports all faults at once, and then nothing has changed, neither now nor after the next open.
func TestAlterTopicReportsAllFaults(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		ctx, admin := t.Context(), g.eng.Admin()
		g.topic("a", stream.TopicConfig{Retention: time.Hour, Config: map[string]string{"min.compaction.lag.ms": "500"}})
		was := map[string]string{"retention.ms": "3600000", "segment.bytes": "1024", "min.compaction.lag.ms": "500"}
		eq(t, "config", g.configOf("a"), was)
		bad := map[string]string{
			"retention.ms": "-2", "retention.bytes": "many", "cleanup.policy": "burn", "delete.retention.ms": "-1", "min.compaction.lag.ms": "1h",
			"max.compaction.lag.ms": "0", "min.cleanable.dirty.ratio": "1.1", "segment.bytes": "1", "segment.ms": "0", "retention.weeks": "1", "max.message.bytes": "",
		}
		err := admin.AlterTopic(ctx, "a", bad)
		wantErr(t, err, stream.ErrInvalidConfig)
		for name := range bad {
			containsAll(t, err, name)
		}
		err = admin.AlterTopic(ctx, "a", map[string]string{"retention.bytes": "77", "nonsense": "1", "cleanup.policy": "compact,compact,wrong"})
		wantErr(t, err, stream.ErrInvalidConfig)
		containsAll(t, err, "nonsense", "cleanup.policy")
		for _, v := range []string{"", "NaN", "Inf", "-0.1", "2"} {
			wantErr(t, admin.AlterTopic(ctx, "a", map[string]string{"min.cleanable.dirty.ratio": v}), stream.ErrInvalidConfig)
		}
		wantErr(t, admin.AlterTopic(ctx, "a", map[string]string{"cleanup.policy": ""}), stream.ErrInvalidConfig)
		wantErr(t, admin.AlterTopic(ctx, "a", map[string]string{"max.compaction.lag.ms": "400"}), stream.ErrInvalidConfig) // below the other
		wantErr(t, admin.AlterTopic(ctx, "nobody", map[string]string{"retention.ms": "1"}), stream.ErrUnknownTopic)
		err = admin.AlterTopic(ctx, "a", map[string]string{"retention.ms": "5", "nonsense": "1"}, "retention.ms")
		wantErr(t, err, stream.ErrInvalidConfig)
		containsAll(t, err, "retention.ms", "nonsense")
		eq(t, "config", g.configOf("a"), was)
		g.crash(true, 1)
		eq(t, "config", g.configOf("a"), was)

		// What the caller does to his map afterwards changes nothing.
		set := map[string]string{"retention.bytes": "77"}
		g.alter("a", set)
		set["retention.bytes"] = "78"
		g.configOf("a")["retention.bytes"] = "79"
		eq(t, "retention.bytes", g.configOf("a")["retention.bytes"], "77")
	})
}

// TopicConfig reports all faults at once too, those of fields and of names, and a field that is set twice.
func TestTopicConfigReportsAllFaults(t *testing.T) {
	c := stream.TopicConfig{RetentionBytes: -1, Retention: -time.Hour, DeleteRetention: -1, Cleanup: 9, Config: map[string]string{"retention.msx": "1", "max.compaction.lag.ms": "x"}}
	err := c.Validate()
	wantErr(t, err, stream.ErrInvalidConfig)
	containsAll(t, err, "RetentionBytes", "Retention", "DeleteRetention", "Cleanup", "retention.msx", "max.compaction.lag.ms")
	c = stream.TopicConfig{Retention: time.Hour, RetentionBytes: 5, DeleteRetention: time.Hour, Cleanup: stream.CleanupCompact,
		Config: map[string]string{"retention.ms": "1", "retention.bytes": "1", "delete.retention.ms": "1", "cleanup.policy": "delete"}}
	err = c.Validate()
	wantErr(t, err, stream.ErrInvalidConfig)
	containsAll(t, err, "retention.ms", "retention.bytes", "delete.retention.ms", "cleanup.policy")
	for _, c := range []stream.TopicConfig{
		{Retention: time.Nanosecond, RetentionBytes: 1, DeleteRetention: 1, Cleanup: stream.CleanupCompactDelete},
		{Retention: 1<<63 - 1},
		{Config: map[string]string{"retention.ms": "9223372036854775807", "retention.bytes": "9223372036854775807", "cleanup.policy": "compact, delete", "min.cleanable.dirty.ratio": "1e-9"}},
	} {
		check(t, c.Validate())
	}
}

// Settings hold from the moment that AlterTopic returns, also for what lies there already, and survive a reopen and a crash; unset ones are the defaults again.
func TestAlterTopicAtRunTime(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		a := tp("a", 0)
		g.topic("a", stream.TopicConfig{})
		g.write(a, 100, time.Minute)
		g.alter("a", map[string]string{"retention.bytes": "4000"})
		synctest.Wait()
		start := startOf(t, g.eng, a)
		if start < 40 || start > 80 {
			t.Fatalf("the log starts at %d", start)
		}
		g.alter("a", map[string]string{"retention.bytes": "-1", "retention.ms": "1800000"})
		synctest.Wait()
		now := startOf(t, g.eng, a)
		if now < start || now < 60 || now > 72 {
			t.Fatalf("the log starts at %d, before at %d", now, start)
		}
		g.crash(true, 5)
		eq(t, "config", g.configOf("a"), map[string]string{"segment.bytes": "1024", "retention.bytes": "-1", "retention.ms": "1800000"})
		g.wait(15 * time.Minute)
		start, now = now, startOf(t, g.eng, a)
		if now < start+10 {
			t.Fatalf("the log starts at %d, before at %d", now, start)
		}
		g.alter("a", nil, "retention.ms", "retention.bytes", "max.message.bytes")
		eq(t, "config", g.configOf("a"), map[string]string{"segment.bytes": "1024"})
		g.wait(1000 * time.Hour)
		eq(t, "log start", startOf(t, g.eng, a), now)
		g.reopen()
		eq(t, "config", g.configOf("a"), map[string]string{"segment.bytes": "1024"})
		g.wait(1000 * time.Hour)
		eq(t, "log start", startOf(t, g.eng, a), now)
		// Without an unset name the segments are as large as before; with greater ones there come fewer.
		g.alter("a", map[string]string{"segment.bytes": "1000000"})
		g.write(a, 1, 0) // what lies there is old enough for a segment of its own
		before := g.segmentsOf(a)
		g.write(a, 199, 0)
		eq(t, "segments", g.segmentsOf(a), before)
		g.alter("a", nil, "segment.bytes")
		g.write(a, 200, 0)
		eq(t, "segments", g.segmentsOf(a), before)
		eq(t, "end", g.bounds(a)[1], 500)
	})
}

// A metadata store that fails: AlterTopic says so and nothing has changed; when it works again the settings are what it holds, and the same after the next open.
func TestAlterTopicWhileTheStoreFails(t *testing.T) {
	for _, kind := range []vfs.OpKind{vfs.OpWrite, vfs.OpSync} {
		t.Run(kind.String(), func(t *testing.T) {
			inTime(t, func(t *testing.T, g *timed) {
				a := tp("a", 0)
				g.topic("a", stream.TopicConfig{})
				g.write(a, 100, time.Minute)
				was := maps.Clone(g.configOf("a"))
				g.sim().Inject(func(op vfs.Op) error {
					if op.Kind == kind && strings.Contains(op.Name, "/meta/") {
						return errors.New("injected")
					}
					return nil
				})
				err := g.eng.Admin().AlterTopic(t.Context(), "a", map[string]string{"retention.ms": "60000"})
				wantErr(t, err, stream.ErrMetaFailed)
				eq(t, "config", g.configOf("a"), was)
				g.wait(time.Minute)
				eq(t, "log start", startOf(t, g.eng, a), 0)
				g.sim().Inject(nil)
				g.wait(time.Hour)
				is := maps.Clone(g.configOf("a"))
				if _, set := is["retention.ms"]; set && !errors.Is(err, stream.ErrOutcomeUnknown) {
					t.Errorf("the error was %v, and the settings are %v", err, is)
				}
				start := startOf(t, g.eng, a)
				if _, set := is["retention.ms"]; set != (start > 0) {
					t.Errorf("the settings are %v, the log starts at %d", is, start)
				}
				g.seen.failed = nil
				g.reopen()
				eq(t, "config", g.configOf("a"), is)
				g.alter("a", map[string]string{"retention.ms": "60000"})
				synctest.Wait()
				g.wait(2 * time.Minute)
				eq(t, "bounds", g.bounds(a), [2]int64{100, 100})
			})
		})
	}
}

// A11: a log start that cannot be made durable is none: nothing is removed while the store fails, and all of it when it works again.
func TestRetentionWhileTheStoreFails(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		a := tp("a", 0)
		g.topic("a", stream.TopicConfig{Retention: time.Hour})
		g.write(a, 50, time.Minute)
		files := g.segmentsOf(a)
		g.sim().Inject(func(op vfs.Op) error {
			if op.Kind != vfs.OpRead && op.Kind != vfs.OpWindow && strings.Contains(op.Name, "/meta/") {
				return errors.New("injected")
			}
			return nil
		})
		g.wait(5 * time.Hour)
		eq(t, "log start", startOf(t, g.eng, a), 0)
		eq(t, "records", len(readAll(t, g.eng, a)), 50)
		if n := g.segmentsOf(a); n < files {
			t.Fatalf("%d of %d segments are left", n, files)
		}
		g.sim().Inject(nil)
		g.wait(time.Hour)
		eq(t, "bounds", g.bounds(a), [2]int64{50, 50})
		g.seen.failed = nil
	})
}
