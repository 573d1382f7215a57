package broker

import (
	"time"

	rlog "github.com/runnelmq/runnel/log"

	"github.com/runnelmq/runnel/internal/kafka"
)

// Events tells the owner what happened. Nil funcs are skipped; they must not call back.
type Events struct {
	TailCut        func(tp kafka.TopicPartition, end, bytes int64, quarantine string)
	IndexRebuilt   func(tp kafka.TopicPartition, base int64, reason error)
	PartitionState func(tp kafka.TopicPartition, s kafka.PartitionState, err error)
	MetaFailed     func(err error)
	MetaRecovered  func()
	StrayDirectory func(from, to string)
	OffsetClamped  func(group string, tp kafka.TopicPartition, from, to int64)
	Corrupt        func(err *kafka.CorruptError)
	Quarantined    func(tp kafka.TopicPartition, file, to string, reason error)
	Expired        func(tp kafka.TopicPartition, segments int, bytes, logStart int64)
	Compacted      func(tp kafka.TopicPartition, from, to, before, after int64)
	ClockJumped    func(by time.Duration)
}

// logEvents is what all logs report; see Partition.logEvents for what one of them does besides.
func (o *Options) logEvents() rlog.Events {
	ev, lg := o.Events, o.Logger
	return rlog.Events{
		TailCut: func(tp kafka.TopicPartition, end int64, file string, pos, n int64, quarantine string) {
			lg.Warn("torn tail cut", "partition", tp, "end", end, "file", file, "pos", pos, "bytes", n, "quarantine", quarantine)
			if ev.TailCut != nil {
				ev.TailCut(tp, end, n, quarantine)
			}
		},
		IndexRebuilt: func(tp kafka.TopicPartition, base int64, reason error) {
			lg.Warn("index rebuilt", "partition", tp, "segment", base, "reason", reason)
			if ev.IndexRebuilt != nil {
				ev.IndexRebuilt(tp, base, reason)
			}
		},
		Quarantined: func(tp kafka.TopicPartition, file, to string, reason error) {
			lg.Error("file moved to quarantine", "partition", tp, "file", file, "to", to, "reason", reason)
			if ev.Quarantined != nil {
				ev.Quarantined(tp, file, to, reason)
			}
		},
	}
}
