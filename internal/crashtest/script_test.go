package crashtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// A9: an engine that was closed in order says so until it is opened, and no longer when it appends. The trace shows a
// synced write of the metadata store before the first operation on a partition.
func TestCleanMarkGoesBeforeTheFirstAppend(t *testing.T) {
	ctx := t.Context()
	disk := vfs.NewSim(1)
	o := &stream.Options{FS: disk, MinFree: -1}
	eng, err := stream.Open(engineDir, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := eng.Admin().CreateTopic(ctx, "t", stream.TopicConfig{}); err != nil {
		t.Fatal(err)
	}
	produceTo(t, eng, "one")
	if err := eng.Close(); err != nil {
		t.Fatal(err)
	}

	disk.SetTrace(true)
	if eng, err = stream.Open(engineDir, o); err != nil {
		t.Fatal(err)
	}
	opened := disk.Trace()
	produceTo(t, eng, "two")
	trace := append(opened, disk.Trace()...)
	disk.SetTrace(false)
	if err := eng.Close(); err != nil {
		t.Fatal(err)
	}

	// In front of everything that is done to partitions, and before Open has returned.
	touches := func(op string) bool { return strings.Contains(op, engineDir+"/topics/") }
	if !slices.ContainsFunc(trace, touches) {
		t.Fatalf("no operation on a partition:\n%s", strings.Join(trace, "\n"))
	}
	if i := slices.IndexFunc(opened, touches); i >= 0 {
		opened = opened[:i]
	}
	written := false // by the store, into its log
	for _, op := range opened {
		kind, name, _ := strings.Cut(op, " ")
		if !strings.HasPrefix(name, engineDir+"/meta/") || !strings.Contains(name, ".log") {
			continue
		}
		if kind == "sync" && written {
			return
		}
		written = written || kind == "write"
	}
	t.Fatalf("no synced write of the metadata in front of the first append:\n%s", strings.Join(trace, "\n"))
}

func produceTo(t *testing.T, eng *stream.Engine, value string) {
	t.Helper()
	p, err := eng.NewProducer(t.Context(), stream.ProducerConfig{Acks: stream.AcksWritten})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.ProduceSync(t.Context(), &stream.Record{Topic: "t", Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
}

// E3, A2: what was only written and has survived a kill may be committed afterwards, and then survives a loss of power too,
// also where the batch fills its segment to the last byte and recovery has nothing to cut.
func TestCommitAfterKillIsDurable(t *testing.T) {
	ctx := t.Context()
	for _, size := range []int{10, 900, 3000} {
		disk := vfs.NewSim(1)
		o := &stream.Options{FS: disk, MinFree: -1}
		eng, err := stream.Open(engineDir, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := eng.Admin().CreateTopic(ctx, "t", stream.TopicConfig{SegmentBytes: 1 << 10}); err != nil {
			t.Fatal(err)
		}
		produceTo(t, eng, strings.Repeat("x", size))
		killed := disk.Crash()
		if err := eng.Close(); err != nil {
			t.Fatal(err)
		}

		if eng, err = stream.Open(engineDir, &stream.Options{FS: killed, MinFree: -1}); err != nil {
			t.Fatal(err)
		}
		tp := stream.TopicPartition{Topic: "t"}
		c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Group: engineGroup, ManualCommit: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Assign(tp), c.CommitOffsets(ctx, stream.Offsets{tp: {Offset: 1, LeaderEpoch: -1}})); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		cut := killed.Cut(vfs.Cut{Keep: 0})
		if err := errors.Join(c.Close(ctx), eng.Close()); err != nil {
			t.Fatal(err)
		}

		var events events
		if eng, err = stream.Open(engineDir, &stream.Options{FS: cut, MinFree: -1, Events: stream.Events{
			OffsetClamped: func(_ string, _ stream.TopicPartition, from, to int64) {
				events.add(fmt.Errorf("clamped from %d to %d", from, to))
			},
		}}); err != nil {
			t.Fatal(err)
		}
		_, err = readAll(ctx, eng, []stream.TopicPartition{tp}, 1)
		if c, cerr := eng.NewConsumer(ctx, stream.ConsumerConfig{Group: engineGroup, ManualCommit: true}); cerr != nil {
			err = errors.Join(err, cerr)
		} else {
			is, cerr := c.Committed(ctx, tp)
			if is[tp].Offset != 1 {
				t.Errorf("%d bytes: committed is %+v", size, is)
			}
			err = errors.Join(err, cerr, c.Close(ctx))
		}
		if err := errors.Join(err, eng.Close(), events.err()); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// A1 to A3, A5, A9, A10, C1, E3: a short life with everything in it, stopped in two ways after every operation.
func TestEngineScriptSurvivesEveryCut(t *testing.T) {
	start := startSeed(t)
	cuts := 0
	for _, keep := range []float64{0, 2} {
		var stats EngineStats
		h := &engineHistory{campaign: EngineCampaign{Cuts: 1 << 30, Images: *images}, stats: &stats, r: random(start, 8), keep: &keep, depth: 1}
		if err := contain(func() error { return script(t.Context(), h) }); err != nil {
			f := where(h.mu.step, start, err)
			if h.failed != nil {
				f.Image, _ = h.failed.save(*images)
			}
			t.Fatal(f)
		}
		cuts += stats.Cuts
	}
	t.Logf("%d cuts", cuts)
}

func script(ctx context.Context, h *engineHistory) (err error) {
	h.start()
	defer func() { err = h.end(err) }()
	h.setStep("open")
	if err := h.open(1); err != nil {
		return err
	}
	steps := []func() error{
		func() error { h.setStep("create"); w := h.image(); return h.create(ctx, &w) },
		func() error { h.setStep("grow"); w := h.image(); return h.grow(ctx, &w) },
		func() error { h.setStep("produce"); return h.produce(ctx, h.partitions()[0]) },
		func() error { h.setStep("produce all"); return h.produceAll(ctx, h.partitions()) },
		func() error { h.setStep("named"); return h.produceNamed(ctx, h.partitions()[0]) },
		func() error { h.setStep("consume"); return h.consume(ctx, h.partitions()) },
		func() error { h.setStep("close and open"); return h.reopen(1) },
		func() error { h.setStep("named after close"); return h.produceNamed(ctx, h.partitions()[1]) },
		func() error { h.setStep("kill and open"); return h.stop(2, 1) },
		func() error { h.setStep("produce after kill"); return h.produce(ctx, h.partitions()[0]) },
		func() error { h.setStep("consume after kill"); return h.consume(ctx, h.partitions()) },
		func() error { h.setStep("power cut and open"); return h.stop(-1, 1) },
		func() error { h.setStep("async after power cut"); return h.produceAsync(ctx, h.partitions()) },
		func() error { h.setStep("delete"); w := h.image(); return h.delete(ctx, &w) },
		func() error { h.setStep("create again"); w := h.image(); return h.create(ctx, &w) },
		func() error { h.setStep("produce again"); return h.produceAll(ctx, h.partitions()) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
		if err := h.settle(); err != nil {
			return err
		}
	}
	return nil
}
