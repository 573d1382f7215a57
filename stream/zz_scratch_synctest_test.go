package stream_test

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestZZSpin(t *testing.T) {
	sim := vfs.NewSim(1)
	eng := must(stream.Open("/data", &stream.Options{FS: sim, MinFree: -1}))(t)
	create(t, eng, "a", 4)
	ctx, stop := context.WithTimeout(t.Context(), 16*time.Second)
	defer stop()
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, MaxWait: time.Minute})
			if err != nil {
				t.Log(err)
				return
			}
			_, err = c.Poll(ctx, 1)
			t.Log(i, err, c.Group())
		})
	}
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, MaxWait: -1})
	for range 10 {
		_, err = c.Poll(ctx, 1)
		time.Sleep(30 * time.Millisecond)
	}
	t.Log(err, c.Group())
	failing(sim, "/meta/", vfs.OpSync, vfs.OpCreate)
	t.Log(eng.Admin().CreateTopic(ctx, "b", stream.TopicConfig{}))
	t.Log(c.Close(ctx))
	before := cpu()
	time.Sleep(2000 * time.Millisecond)
	t.Log("cpu in 2 s:", cpu()-before)
	sim.Inject(nil)
	for range 120 {
		gs, err := eng.Admin().Groups(t.Context(), "g")
		if err == nil {
			t.Log(gs, err)
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	stop()
	wg.Wait()
	eng.Close()
}
