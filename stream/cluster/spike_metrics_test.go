package cluster_test

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/runnelmq/runnel/stream"
)

// meter counts what a client has written.
type meter struct {
	records, batches, bytes, written, failed atomic.Int64
}

func (m *meter) OnProduceBatchWritten(_ kgo.BrokerMetadata, _ string, _ int32, b kgo.ProduceBatchMetrics) {
	m.records.Add(int64(b.NumRecords))
	m.batches.Add(1)
	m.bytes.Add(int64(b.UncompressedBytes))
	m.written.Add(int64(b.CompressedBytes))
}

func (m *meter) OnProduceRecordUnbuffered(_ *kgo.Record, err error) {
	if err != nil {
		m.failed.Add(1)
	}
}

func (p *producer) Metrics() stream.ProducerMetrics {
	m := &p.meter
	return stream.ProducerMetrics{
		At: time.Now(), Records: m.records.Load(), Batches: m.batches.Load(), Bytes: m.bytes.Load(), WrittenBytes: m.written.Load(), Failed: m.failed.Load(),
		BufferBytes: p.cl.BufferedProduceBytes(),
	}
}
