package stream_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/runnelmq/runnel/stream"
)

func TestTopicsAreCreatedDescribedAndKept(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		ctx := t.Context()
		eq(t, "no topics", must(eng.Admin().Topics(ctx))(t), []stream.TopicInfo{})
		check(t, eng.Admin().CreateTopic(ctx, "b", stream.TopicConfig{}))
		check(t, eng.Admin().CreateTopic(ctx, "a", stream.TopicConfig{
			Partitions: 3, SegmentBytes: 4096, Config: map[string]string{"max.message.bytes": "1000"},
		}))
		before := must(eng.Admin().Topics(ctx))(t)
		eq(t, "topics", len(before), 2)
		eq(t, "by name", before[0].Name+before[1].Name, "ab")
		eq(t, "partitions", []int{before[0].Partitions, before[1].Partitions}, []int{3, 1})
		eq(t, "config", before[0].Config, map[string]string{"max.message.bytes": "1000", "segment.bytes": "4096"})
		if before[0].ID == before[1].ID || before[0].ID == [16]byte{} {
			t.Fatalf("ids %x and %x", before[0].ID, before[1].ID)
		}
		// What Topics returns is a copy.
		before[0].Config["segment.bytes"] = "1"
		eq(t, "config after the caller changed its copy", must(eng.Admin().Topics(ctx, "a"))(t)[0].Config["segment.bytes"], "4096")
		before[0].Config["segment.bytes"] = "4096"

		eq(t, "named topics, in the order of the names", must(eng.Admin().Topics(ctx, "b", "a"))(t), []stream.TopicInfo{before[1], before[0]})
		_, err := eng.Admin().Topics(ctx, "a", "c")
		wantErr(t, err, stream.ErrUnknownTopic)
		eng = g.reopen()
		eq(t, "topics after reopening", must(eng.Admin().Topics(ctx))(t), before)
	})
}

// wantErr fails the test unless err matches all of want.
func wantErr(t testing.TB, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Fatalf("error %v, want one that matches %q", err, w)
		}
	}
}

func TestTopicNamesAreThoseOfKafkaAndOfEveryFileSystem(t *testing.T) {
	long := strings.Repeat("x", 249)
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		for _, name := range []string{"a", "A.b_c-9", "...", "-", "con-1", "console", "com", "lpt10", "acon", "nul_", long} {
			check(t, eng.Admin().CreateTopic(t.Context(), name, stream.TopicConfig{}))
			fill(t, eng, tp(name, 0), 0, 1)
		}
		for _, name := range []string{"", ".", "..", "a b", "a/b", `a\b`, "ä", "a\x00", "a\n", "a:b", long + "x",
			"con", "CON", "Aux", "prn", "nul", "com0", "com1", "LPT9", "con.txt", "NUL.", "com1.a.b"} {
			err := eng.Admin().CreateTopic(t.Context(), name, stream.TopicConfig{})
			if !errors.Is(err, stream.ErrInvalidTopic) {
				t.Errorf("create %q: %v", name, err)
			}
			c := newConsumer(t, eng, stream.ConsumerConfig{})
			if err := c.Subscribe(name); !errors.Is(err, stream.ErrInvalidTopic) {
				t.Errorf("subscribe %q: %v", name, err)
			}
		}
		for _, name := range []string{"A", "a.B_C-9", strings.ToUpper(long)} {
			if err := eng.Admin().CreateTopic(t.Context(), name, stream.TopicConfig{}); !errors.Is(err, stream.ErrTopicExists) {
				t.Errorf("create %.20q: %v", name, err)
			}
		}
		eng = g.reopen()
		eq(t, "topics", len(must(eng.Admin().Topics(t.Context()))(t)), 11)
		eq(t, "record", values(readAll(t, eng, tp(long, 0))), numbers(0, 1))
	})
}

func TestTopicConfigReportsAllFaultsAtOnce(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create := func(c stream.TopicConfig) error { return eng.Admin().CreateTopic(t.Context(), "a", c) }
		wantErr(t, create(stream.TopicConfig{
			Partitions: -1, Cleanup: stream.CleanupCompact, SegmentBytes: 1,
			Config: map[string]string{"segment.bytes": "5000", "no.such": "1", "max.message.bytes": "x"},
		}), stream.ErrInvalidPartitions, stream.ErrInvalidConfig)
		err := create(stream.TopicConfig{Config: map[string]string{"no.such": "1", "max.message.bytes": "x"}})
		for _, name := range []string{"no.such", "max.message.bytes"} {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%q does not name %s", err, name)
			}
		}
		wantErr(t, create(stream.TopicConfig{Retention: -1}), stream.ErrInvalidConfig)
		wantErr(t, create(stream.TopicConfig{RetentionBytes: -1}), stream.ErrInvalidConfig)
		wantErr(t, create(stream.TopicConfig{DeleteRetention: 1, Config: map[string]string{"delete.retention.ms": "0"}}), stream.ErrInvalidConfig)
		wantErr(t, create(stream.TopicConfig{SegmentBytes: 1023}), stream.ErrInvalidConfig)
		wantErr(t, create(stream.TopicConfig{SegmentBytes: 1 << 31}), stream.ErrInvalidConfig)
		wantErr(t, create(stream.TopicConfig{Config: map[string]string{"cleanup.policy": "compact,x"}}), stream.ErrInvalidConfig)
		wantErr(t, create(stream.TopicConfig{Config: map[string]string{"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}}), stream.ErrInvalidConfig)
		eq(t, "topics", len(must(eng.Admin().Topics(t.Context()))(t)), 0)
	})
}

func TestAddPartitionsKeepsRecordsAndIsSeenByAll(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		ctx := t.Context()
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
		c := newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"a"}, Reset: stream.ResetEarliest})
		must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: []byte("0")}))(t)
		_, err := p.ProduceSync(ctx, &stream.Record{Topic: "a", Partition: 1})
		wantErr(t, err, stream.ErrUnknownTopic)
		eq(t, "first poll", poll(t, c, 10), numbers(0, 1))

		for _, total := range []int{-1, 0, 1} {
			wantErr(t, eng.Admin().AddPartitions(ctx, "a", total), stream.ErrInvalidPartitions)
		}
		wantErr(t, eng.Admin().AddPartitions(ctx, "b", 3), stream.ErrUnknownTopic)
		check(t, eng.Admin().AddPartitions(ctx, "a", 3))
		wantErr(t, eng.Admin().AddPartitions(ctx, "a", 2), stream.ErrInvalidPartitions)

		must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Partition: 2, Value: []byte("1")}))(t)
		eq(t, "second poll", poll(t, c, 10), numbers(1, 2))
		eng = g.reopen()
		eq(t, "partitions", must(eng.Admin().Topics(ctx, "a"))(t)[0].Partitions, 3)
		eq(t, "records", values(readAll(t, eng, tp("a", 0), tp("a", 1), tp("a", 2))), numbers(0, 2))
	})
}

// A topic that is made again under the name of a deleted one shows nothing of it.
func TestDeletedTopicLeavesNothing(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		ctx := t.Context()
		create(t, eng, "a", 2)
		old := must(eng.Admin().Topics(ctx))(t)[0]
		p := newProducer(t, eng, stream.ProducerConfig{Name: "n", Partitioner: stream.ManualPartitioner()})
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Reset: stream.ResetEarliest})
		check(t, c.Assign(tp("a", 0)))
		for i := range 5 {
			must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Sequence: int64(i + 1)}))(t)
		}
		eq(t, "polled", len(poll(t, c, 3)), 3)
		check(t, c.Commit(ctx))

		check(t, eng.Admin().DeleteTopic(ctx, "a"))
		wantErr(t, eng.Admin().DeleteTopic(ctx, "a"), stream.ErrUnknownTopic)
		_, err := p.ProduceSync(ctx, &stream.Record{Topic: "a"})
		wantErr(t, err, stream.ErrUnknownTopic)
		_, err = eng.Admin().EndOffsets(ctx, tp("a", 0))
		wantErr(t, err, stream.ErrUnknownTopic)
		if infos, err := g.fs.List(g.dir + "/topics"); err != nil || len(infos) != 0 {
			t.Fatalf("left on the disk: %v, %v", infos, err)
		}

		create(t, eng, "a", 1)
		again := func(eng *stream.Engine) {
			t.Helper()
			info := must(eng.Admin().Topics(ctx))(t)[0]
			if info.ID == old.ID || info.Partitions != 1 {
				t.Fatalf("%v after %v", info, old)
			}
			eq(t, "end", endOf(t, eng, tp("a", 0)), 0)
			p := newProducer(t, eng, stream.ProducerConfig{Name: "n"})
			eq(t, "last sequence", must(p.LastSequence(ctx, tp("a", 0)))(t), 0)
			c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g"})
			eq(t, "committed", committed(t, c, tp("a", 0)), -1)
		}
		again(eng)
		again(g.reopen())
		// Producers made before the deletion go on with the new topic; the name's first record has offset 0.
		p = newProducer(t, g.eng, stream.ProducerConfig{Name: "n"})
		eq(t, "offset", must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Sequence: 1}))(t).Offset, 0)
	})
}

// "Readers and writers get ErrUnknownTopic", also one that stands in the middle of the log or at its end.
func TestReaderOfADeletedTopicHearsOfIt(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		for _, read := range []int{0, 3, 5} {
			t.Run(strconv.Itoa(read), func(t *testing.T) {
				eng := g.reopen()
				create(t, eng, "a", 1)
				for i := range 5 {
					fill(t, eng, tp("a", 0), i, i+1)
				}
				c := newConsumer(t, eng, stream.ConsumerConfig{Reset: stream.ResetEarliest})
				check(t, c.Assign(tp("a", 0)))
				if read > 0 {
					eq(t, "polled", poll(t, c, read), numbers(0, read))
				}
				check(t, eng.Admin().DeleteTopic(t.Context(), "a"))
				rs, err := c.Poll(t.Context(), 10)
				if len(rs) != 0 || !errors.Is(err, stream.ErrUnknownTopic) {
					t.Fatalf("%v, %v", values(rs), err)
				}
			})
		}
	})
}

func TestProducerAndSubscriptionFollowATopicThatIsMadeAgain(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		ctx := t.Context()
		create(t, eng, "a", 1)
		p := newProducer(t, eng, stream.ProducerConfig{})
		c := newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest})
		must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: []byte("old")}))(t)
		eq(t, "old", poll(t, c, 3), []string{"old"})
		check(t, c.Commit(ctx))
		check(t, eng.Admin().DeleteTopic(ctx, "a"))
		eq(t, "between", poll(t, c, 3), []string{})
		eq(t, "assigned between", c.Assignment(), []stream.TopicPartition(nil))
		create(t, eng, "a", 1)
		eq(t, "offset", must(p.ProduceSync(ctx, &stream.Record{Topic: "a", Value: []byte("new")}))(t).Offset, 0)
		eq(t, "new", poll(t, c, 3), []string{"new"})
	})
}

// A name of the greatest length leaves no room in a file name for what is put behind it.
func TestTopicWithTheLongestNameCanBeDeleted(t *testing.T) {
	for _, what := range []string{"empty", "with a record"} {
		t.Run(what, func(t *testing.T) {
			onGrounds(t, func(t *testing.T, g *ground) {
				eng := g.open()
				name := strings.Repeat("x", 249)
				create(t, eng, name, 1)
				if what != "empty" {
					fill(t, eng, tp(name, 0), 0, 1)
				}
				if err := eng.Admin().DeleteTopic(t.Context(), name); err != nil {
					t.Errorf("delete: %v", err)
				}
				check(t, eng.Close())
				g.eng = nil
				eng = g.open()
				eq(t, "topics", len(must(eng.Admin().Topics(t.Context()))(t)), 0)
			})
		})
	}
}

func TestTopicsAreMadeByUseOnlyWithAutoCreate(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		ctx := t.Context()
		eng := g.open()
		p := newProducer(t, eng, stream.ProducerConfig{})
		_, err := p.ProduceSync(ctx, &stream.Record{Topic: "a"})
		wantErr(t, err, stream.ErrUnknownTopic)
		c := newConsumer(t, eng, stream.ConsumerConfig{})
		wantErr(t, c.Assign(tp("a", 0)), stream.ErrUnknownTopic)
		eq(t, "topics", len(must(eng.Admin().Topics(ctx))(t)), 0)

		eng = g.reopen(func(o *stream.Options) { o.AutoCreate = &stream.TopicConfig{Partitions: 2} })
		p = newProducer(t, eng, stream.ProducerConfig{})
		must(p.ProduceSync(ctx, &stream.Record{Topic: "produced"}))(t)
		_, err = p.ProduceSync(ctx, &stream.Record{Topic: "con"})
		wantErr(t, err, stream.ErrInvalidTopic)
		c = newConsumer(t, eng, stream.ConsumerConfig{Topics: []string{"subscribed"}})
		eq(t, "assigned", len(c.Assignment()), 2)
		check(t, c.Assign(tp("assigned", 1)))
		names := ""
		for _, i := range must(eng.Admin().Topics(ctx))(t) {
			names += i.Name + " "
			eq(t, "partitions", i.Partitions, 2)
		}
		eq(t, "names", names, "assigned produced subscribed ")
	})
}

// A subscription that fails does not leave the group with a member that nobody has.
func TestFailedSubscriptionLeavesTheGroup(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open(func(o *stream.Options) { o.AutoCreate = &stream.TopicConfig{} })
		create(t, eng, "orders", 1)
		// The name differs in case from one that is there: it can neither be found nor made.
		if _, err := eng.NewConsumer(t.Context(), stream.ConsumerConfig{Group: "g", Topics: []string{"ORDERS"}}); err == nil {
			t.Fatal("subscribed to ORDERS")
		}
		newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"orders"}})
	})
}
