package stream_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// Members whose group cannot be written down try again, not all the time; when the store works again the group comes to rest by itself, and each partition has one owner.
func TestMembersWaitForAStoreThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := vfs.NewSim(1)
		eng := must(stream.Open("/data", &stream.Options{FS: sim, MinFree: -1}))(t)
		defer eng.Close()
		create(t, eng, "a", 4)
		var ms []stream.Consumer
		for range 3 {
			ms = append(ms, newConsumer(t, eng, stream.ConsumerConfig{Group: "g", Topics: []string{"a"}, Reset: stream.ResetEarliest, MaxWait: time.Hour}))
		}
		for _, m := range ms[:2] {
			go func() {
				for range m.Records(t.Context()) {
				}
			}()
		}
		leaves := ms[2]
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			for range leaves.Records(t.Context()) {
			}
		}()
		synctest.Wait()
		eq(t, "partitions", len(ms[0].Assignment())+len(ms[1].Assignment())+len(leaves.Assignment()), 4)
		before := groupOf(t, eng).Generation
		failing(sim, "/meta/", vfs.OpSync, vfs.OpCreate)
		check(t, leaves.Close(t.Context()))
		<-stop
		time.Sleep(time.Minute)
		sim.Inject(nil)
		time.Sleep(time.Minute)
		g := groupOf(t, eng)
		eq(t, "state", g.State, "Stable")
		if n := g.Generation - before; n < 2 || n > 200 {
			t.Errorf("%d generations in two minutes", n)
		}
		eq(t, "partitions of the first", len(ms[0].Assignment()), 2)
		eq(t, "partitions of the second", len(ms[1].Assignment()), 2)
		check(t, ms[0].Close(t.Context()))
		check(t, ms[1].Close(t.Context()))
	})
}
