package stream_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// Records without a key keep away from a partition whose disk is slow (KIP-794), and are spread evenly when none is.
func TestRecordsWithoutAKeyLeanAwayFromASlowPartition(t *testing.T) {
	for _, slow := range []bool{false, true} {
		onSlowDisk(t, 4, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
			for n := range int32(4) { // its first file
				must(newProducer(t, eng, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()}).ProduceSync(t.Context(), &stream.Record{Topic: "a", Partition: n}))(t)
			}
			d.onSync(func(name string) {
				time.Sleep(time.Millisecond)
				if slow && strings.Contains(name, "/a-2/") {
					time.Sleep(100 * time.Millisecond)
				}
			})
			p := newProducer(t, eng, stream.ProducerConfig{BatchSize: 1 << 10})
			var got [4]int
			for range 4000 {
				p.Produce(context.Background(), &stream.Record{Topic: "a", Value: make([]byte, 200)}, func(r stream.Receipt, err error) {
					if err != nil {
						t.Error(err)
					}
					got[r.Partition]++
				})
				time.Sleep(200 * time.Microsecond)
			}
			check(t, p.Flush(t.Context()))
			for n, k := range got {
				least, most := 850, 1150
				if slow {
					least, most = 600, 4000
				}
				if slow && n == 2 {
					least, most = 1, 600
				}
				if k < least || k > most {
					t.Errorf("slow %v: partition %d has %d of 4000 records: %v", slow, n, k, got)
				}
			}
		})
	}
}
