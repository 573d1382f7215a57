//go:build invariants

package rlog

import "fmt"

// assertOffsets panics if what the package doc states of offsets is not so. Only in builds with the tag invariants.
func (l *Log) assertOffsets(recoveryPoint int64) {
	durable := l.durable.Load() // before the end, which only rises
	if end := l.end.Load(); recoveryPoint > durable || durable > end {
		panic(fmt.Sprintf("%s: recovery point %d, durable end %d, log end %d", l.o.TopicPartition, recoveryPoint, durable, end))
	}
}
