package stream_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// A2, F4: what was acknowledged as synced before a loss of power is there after a sync has failed in the next life too, whatever the two share a sector with.
func TestSyncFailsInTheLifeAfterALossOfPower(t *testing.T) {
	for _, appended := range []int{0, 1, 3} { // written, not synced, before the power goes
		for cut := range uint64(30) {
			synctest.Test(t, func(t *testing.T) {
				sim := vfs.NewSim(1)
				open := func() *stream.Engine {
					return must(stream.Open("/data", &stream.Options{FS: sim, MinFree: -1, SyncInterval: forever}))(t)
				}
				eng := open()
				defer func() {
					sim.Inject(nil)
					_ = eng.Close()
				}()
				create(t, eng, "a", 1)
				p := newProducer(t, eng, stream.ProducerConfig{})
				synced := 0
				for i := range 7 {
					must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Value: fmt.Append(nil, i)}))(t)
					synced++
				}
				for i := range appended {
					must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Value: fmt.Append(nil, synced+i), Acks: stream.AcksWritten}))(t)
				}
				image := sim.Cut(vfs.Cut{Seed: cut, Keep: -1})
				check(t, eng.Close())
				sim = image
				eng = open()
				there := len(readAll(t, eng, tp("a", 0)))
				if there < synced {
					t.Fatalf("cut %d: %d records after the loss of power", cut, there)
				}
				p = newProducer(t, eng, stream.ProducerConfig{})
				failing(sim, "topics/a-0", vfs.OpSync)
				_, err := p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Value: []byte("lost")})
				wantErr(t, err, stream.ErrPartitionFailed)
				sim.Inject(nil)
				time.Sleep(15 * time.Second)
				got := values(readAll(t, eng, tp("a", 0)))
				if endOf(t, eng, tp("a", 0)) < int64(there) || len(got) < there {
					t.Fatalf("appended %d, cut %d: of %d records that were there after the loss of power, %d synced, %d are left after a sync has failed; the end is %d", appended, cut, there, synced, len(got), endOf(t, eng, tp("a", 0)))
				}
			})
		}
	}
}
