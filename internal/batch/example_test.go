package batch_test

import (
	"fmt"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
)

func Example() {
	var b batch.Builder
	b.Reset(make([]byte, 0, 1024))
	b.Append(1_700_000_000_000, []byte("sensor-1"), []byte("21.5"), []kafka.Header{{Key: "unit", Value: []byte("C")}})
	b.Append(1_700_000_000_005, []byte("sensor-2"), nil, nil)
	sealed := b.Seal(batch.NoProducer())

	sealed.SetOffset(42, 0) // the log gives the offset; the checksum stays right
	if err := batch.Check(sealed); err != nil {
		fmt.Println(err)
		return
	}
	var r batch.Record
	it := sealed.Iter()
	for it.Next(&r) {
		unit, _ := r.Header("unit")
		fmt.Printf("%d at %d: %s = %q %s\n", r.Offset, r.Timestamp, r.Key, r.Value, unit)
	}
	if err := it.Err(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 42 at 1700000000000: sensor-1 = "21.5" C
	// 43 at 1700000000005: sensor-2 = ""
}
