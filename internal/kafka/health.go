package kafka

import "fmt"

// PartitionState says what a partition can do.
type PartitionState int32

const (
	// PartitionOK takes appends and is read.
	PartitionOK PartitionState = iota
	// PartitionDiskFull refused its last append with ErrDiskFull. It is read, and the first append for which there is space ends the state.
	PartitionDiskFull
	// PartitionDamaged has lost or damaged records: reading those is ErrCorrupt. The others are read, and appends go on unless the log's end is lost.
	PartitionDamaged
	// PartitionFailed was taken offline by a storage error: appends are ErrPartitionFailed, and what is not durable is not read. It is opened again, through recovery, when the disk
	// works.
	PartitionFailed
)

func (s PartitionState) String() string {
	switch s {
	case PartitionOK:
		return "ok"
	case PartitionDiskFull:
		return "disk full"
	case PartitionDamaged:
		return "damaged"
	case PartitionFailed:
		return "failed"
	}
	return fmt.Sprintf("PartitionState(%d)", int32(s))
}
