package stream_test

import (
	"errors"
	"testing"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// C1: a record of a named producer that failed can be sent again: nothing behind it has been written, for which it would be taken for
// a duplicate of something later, and be lost.
func TestRecordBehindAFailedOneOfItsName(t *testing.T) {
	big := make([]byte, 600<<10) // more than is reserved
	sends := map[string]func(t *testing.T, p stream.Producer, rs []stream.Record) []error{
		"ProduceSync": func(t *testing.T, p stream.Producer, rs []stream.Record) (errs []error) {
			for i := range rs {
				_, err := p.ProduceSync(t.Context(), &rs[i])
				errs = append(errs, err)
			}
			return errs
		},
		"Produce": func(t *testing.T, p stream.Producer, rs []stream.Record) (errs []error) {
			for i := range rs {
				p.Produce(t.Context(), &rs[i], func(_ stream.Receipt, err error) { errs = append(errs, err) })
			}
			check(t, p.Flush(t.Context()))
			return errs
		},
		"ProduceAll": func(t *testing.T, p stream.Producer, rs []stream.Record) (errs []error) {
			out, _ := p.ProduceAll(t.Context(), rs, nil)
			for _, r := range out {
				errs = append(errs, r.Err)
			}
			return errs
		},
	}
	for name, send := range sends {
		t.Run(name, func(t *testing.T) {
			sim := vfs.NewSim(1)
			eng := must(stream.Open("/data", &stream.Options{FS: sim, MinFree: 64 << 20}))(t)
			defer eng.Close()
			create(t, eng, "a", 2)
			p := newProducer(t, eng, stream.ProducerConfig{Name: "n", Partitioner: stream.ManualPartitioner()})
			for n := range int32(2) {
				must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Partition: n, Sequence: 1, Value: []byte("1")}))(t)
			}
			sim.SetFree(32 << 20)
			errs := send(t, p, []stream.Record{
				{Topic: "a", Sequence: 2, Value: big},
				{Topic: "a", Sequence: 3, Value: []byte("3")},
				{Topic: "a", Partition: 1, Sequence: 3, Value: []byte("other partition")},
			})
			for i, want := range []error{stream.ErrDiskFull, stream.ErrDiskFull, nil} {
				if !errors.Is(errs[i], want) {
					t.Fatalf("record %d: %v, want %v", i, errs[i], want)
				}
			}
			for _, err := range send(t, p, []stream.Record{{Topic: "a", Value: []byte("without")}}) {
				check(t, err)
			}
			// Sent again in order.
			sim.SetFree(-1)
			for _, err := range send(t, p, []stream.Record{{Topic: "a", Sequence: 2, Value: []byte("2")}, {Topic: "a", Sequence: 3, Value: []byte("3")}}) {
				check(t, err)
			}
			eq(t, "records", values(readAll(t, eng, tp("a", 0))), []string{"1", "without", "2", "3"})
			// Or given up, by asking where the log stands.
			sim.SetFree(32 << 20)
			errs = send(t, p, []stream.Record{{Topic: "a", Sequence: 4, Value: big}, {Topic: "a", Sequence: 5}})
			if errs[1] == nil {
				t.Fatal("5 was written behind 4 that was not")
			}
			sim.SetFree(-1)
			eq(t, "last", must(p.LastSequence(t.Context(), tp("a", 0)))(t), 3)
			for _, err := range send(t, p, []stream.Record{{Topic: "a", Sequence: 5, Value: []byte("5")}}) {
				check(t, err)
			}
			// One that can never be written is a gap.
			errs = send(t, p, []stream.Record{{Topic: "a", Sequence: 6, Value: make([]byte, 2<<20)}, {Topic: "a", Sequence: 7, Value: []byte("7")}})
			if !errors.Is(errs[0], stream.ErrRecordTooLarge) || errs[1] != nil {
				t.Fatal(errs)
			}
			eq(t, "records", values(readAll(t, eng, tp("a", 0))), []string{"1", "without", "2", "3", "5", "7"})
		})
	}
}
