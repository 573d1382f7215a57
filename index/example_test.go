package index_test

import (
	"fmt"

	"github.com/runnelmq/runnel/index"
)

func Example() {
	x := index.NewOffsets(1000) // a segment that begins with offset 1000
	x.Append(1040, 4200)        // the batch at byte 4200 ends with offset 1040
	x.Append(1081, 8400)

	i, ok := x.Lookup(1050) // where to start looking for offset 1050
	fmt.Println(ok, x.At(i).Pos)

	_, ok = x.Lookup(1039) // before the first entry: start at the begin
	fmt.Println(ok)

	loaded, err := index.LoadOffsets(1000, x.AppendTo(nil, 0))
	fmt.Println(loaded.Len(), err)
	// Output:
	// true 4200
	// false
	// 2 <nil>
}
