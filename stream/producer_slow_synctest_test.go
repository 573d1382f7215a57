package stream_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

func onHang(t *testing.T, partitions int, fn func(t *testing.T, d *hangCreate, eng *stream.Engine)) {
	synctest.Test(t, func(t *testing.T) {
		d := &hangCreate{Sim: vfs.NewSim(1)}
		eng := must(stream.Open("/data", &stream.Options{FS: d, MinFree: -1, SyncInterval: forever}))(t)
		defer func() { report(t, eng.Close()) }()
		create(t, eng, "a", partitions)
		fn(t, d, eng)
	})
}

// F1: DeliveryTimeout and contexts hold for records behind a hand-over that takes long.
func TestTimesHoldBehindASlowHandOver(t *testing.T) {
	onHang(t, 1, func(t *testing.T, d *hangCreate, eng *stream.Engine) {
		free := make(chan struct{})
		defer close(free)
		d.wait.Store(&free)
		p := newProducer(t, eng, stream.ProducerConfig{DeliveryTimeout: 10 * time.Second, BatchSize: 100})
		a := newAnswers(t)
		p.Produce(t.Context(), &stream.Record{Topic: "a"}, a.promise(0))
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p.Produce(ctx, &stream.Record{Topic: "a", Value: make([]byte, 60)}, a.promise(1))
		p.Produce(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 60)}, a.promise(2))
		p.Produce(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 60)}, a.promise(3))
		cancel()
		time.Sleep(time.Minute)
		if len(a.list) < 3 {
			t.Errorf("%d answers after a minute", len(a.list))
		}
	})
}
