package stream

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Metrics is what an engine has done since it was opened, as of At. Counts never fall: rates are differences of two snapshots.
type Metrics struct {
	At                 time.Time
	Topics, Partitions int
	// Appended to the log, by producers and compressed as it is there.
	AppendedBatches, AppendedRecords, AppendedBytes int64
	// Syncs of segment files, and the time that they took, waiting for their turn included.
	Syncs    int64
	SyncTime time.Duration
	// OffsetsClamped lay behind a log's end and have been taken as the end; see Events.OffsetClamped.
	OffsetsClamped int64
	// Producers, by ProducerConfig.Name; all those without a name, closed ones too, are one.
	Producers map[string]ProducerMetrics
}

// ProducerMetrics is what a producer has done since it was made, as of At. Counts never fall: see Since.
type ProducerMetrics struct {
	At time.Time
	// Records and Bytes that have been handed to the log, and in how many Batches; Bytes are those of the batches before compression, and WrittenBytes those after it.
	Records, Batches, Bytes, WrittenBytes int64
	// Failed records, for whatever reason, and batches that were tried again.
	Failed, Retries int64
	// QueueTime is the sum over QueuedBatches of the time from a batch's first record to its hand-over, and AckTime the sum over AckedBatches of the time from there until it was durable. A ProduceSync that went by
	// itself does not count.
	QueueTime, AckTime          time.Duration
	QueuedBatches, AckedBatches int64
	// BufferBytes of ProducerConfig.BufferMemory are in use. Calls have waited for it Waits times, and WaitTime in all.
	BufferBytes, BufferMemory int64
	Waits                     int64
	WaitTime                  time.Duration
}

// ProducerRates are rates and averages over the time between two snapshots; those of nothing are 0.
type ProducerRates struct {
	RecordsPerSecond, BytesPerSecond, BatchesPerSecond, FailedPerSecond float64
	RecordsPerBatch, BytesPerBatch                                      float64
	Compression                                                         float64 // bytes written of one byte sent
	QueueTime, AckTime                                                  time.Duration
}

// Since returns the rates since an earlier snapshot of the same producer; since the zero value, averages over all that it has done, and no rates.
func (m ProducerMetrics) Since(before ProducerMetrics) ProducerRates {
	var seconds float64
	if !before.At.IsZero() {
		seconds = m.At.Sub(before.At).Seconds()
	}
	records, batches, bytes := float64(m.Records-before.Records), float64(m.Batches-before.Batches), float64(m.Bytes-before.Bytes)
	return ProducerRates{
		RecordsPerSecond: per(records, seconds),
		BytesPerSecond:   per(bytes, seconds),
		BatchesPerSecond: per(batches, seconds),
		FailedPerSecond:  per(float64(m.Failed-before.Failed), seconds),
		RecordsPerBatch:  per(records, batches),
		BytesPerBatch:    per(bytes, batches),
		Compression:      per(float64(m.WrittenBytes-before.WrittenBytes), bytes),
		QueueTime:        time.Duration(per(float64(m.QueueTime-before.QueueTime), float64(m.QueuedBatches-before.QueuedBatches))),
		AckTime:          time.Duration(per(float64(m.AckTime-before.AckTime), float64(m.AckedBatches-before.AckedBatches))),
	}
}

func per(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// add adds what another producer has done.
func (m *ProducerMetrics) add(o ProducerMetrics) {
	m.Records += o.Records
	m.Batches += o.Batches
	m.Bytes += o.Bytes
	m.WrittenBytes += o.WrittenBytes
	m.Failed += o.Failed
	m.Retries += o.Retries
	m.QueueTime += o.QueueTime
	m.AckTime += o.AckTime
	m.QueuedBatches += o.QueuedBatches
	m.AckedBatches += o.AckedBatches
	m.BufferBytes += o.BufferBytes
	m.BufferMemory += o.BufferMemory
	m.Waits += o.Waits
	m.WaitTime += o.WaitTime
}

// Metrics returns a snapshot. It takes each producer's locks for a moment, partition by partition.
func (e *Engine) Metrics() Metrics {
	c := e.b.Counts()
	m := Metrics{
		At: time.Now(), Topics: c.Topics, Partitions: c.Partitions,
		AppendedBatches: c.Batches, AppendedRecords: c.Records, AppendedBytes: c.Bytes,
		Syncs: c.Syncs, SyncTime: c.SyncTime, OffsetsClamped: c.Clamped,
	}
	e.mu.Lock()
	m.Producers = maps.Clone(e.mu.past)
	clients := slices.Collect(maps.Keys(e.mu.clients))
	e.mu.Unlock()
	for _, c := range clients {
		if p, ok := c.(*producer); ok {
			sum := m.Producers[p.c.Name]
			sum.add(p.Metrics())
			m.Producers[p.c.Name] = sum
		}
	}
	for name, sum := range m.Producers {
		sum.At = m.At
		m.Producers[name] = sum
	}
	return m
}

func (p *producer) Metrics() ProducerMetrics {
	p.routing.Lock()
	m := p.past
	for _, rt := range p.buried {
		rt.count(&m)
	}
	p.routes.Range(func(_, v any) bool {
		v.(*route).count(&m)
		return true
	})
	p.routing.Unlock()
	m.At = time.Now()
	m.Failed += p.refused.Load()
	m.BufferMemory = p.memory.total
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	m.BufferBytes = p.memory.total - p.memory.mu.free
	m.Waits, m.WaitTime = p.memory.mu.blocked, p.memory.mu.blockedTime
	return m
}

// count adds what has gone to a topic.
func (rt *route) count(m *ProducerMetrics) {
	for _, ln := range *rt.lanes.Load() {
		ln.mu.Lock()
		m.add(ln.mu.counts.ProducerMetrics())
		ln.mu.Unlock()
	}
}

// laneCounts is what has gone to a partition. Its lane's lock guards it.
type laneCounts struct {
	records, batches, bytes, written, failed, retries int64
	queue, ack                                        time.Duration
	queued, acked                                     int64
}

func (c *laneCounts) ProducerMetrics() ProducerMetrics {
	return ProducerMetrics{
		Records: c.records, Batches: c.batches, Bytes: c.bytes, WrittenBytes: c.written, Failed: c.failed, Retries: c.retries,
		QueueTime: c.queue, AckTime: c.ack, QueuedBatches: c.queued, AckedBatches: c.acked,
	}
}

// appended counts a batch in the log.
func (c *laneCounts) appended(records, plain int, written int64) {
	c.batches++
	c.records += int64(records)
	c.bytes += int64(plain)
	c.written += written
}

// settled counts a batch that the log has taken.
func (c *laneCounts) settled(b *producerBatch) {
	c.queued++
	c.queue += b.handed.Sub(b.opened)
	if n := b.b.Count(); n > 0 {
		c.appended(n, b.b.Len(), b.written)
	}
}

// answered counts a batch that has its answer.
func (c *laneCounts) answered(b *producerBatch) {
	switch {
	case b.err != nil:
		c.failed += int64(len(b.plain))
		for i := range b.entries {
			if !b.entries[i].gone {
				c.failed++
			}
		}
	case b.upto > 0:
		c.acked++
		c.ack += time.Since(b.handed)
	}
}

// WritePrometheus writes the snapshot in Prometheus's text format, version 0.0.4. Names begin with runnel_, times are in seconds; producers have the label producer, their name.
func (m Metrics) WritePrometheus(w io.Writer) error {
	out := bufio.NewWriter(w)
	one := func(name, kind, help string, v float64) {
		head(out, name, kind, help)
		fmt.Fprintf(out, "%s %s\n", name, number(v))
	}
	one("runnel_topics", "gauge", "Topics.", float64(m.Topics))
	one("runnel_partitions", "gauge", "Partitions of all topics.", float64(m.Partitions))
	one("runnel_log_append_batches_total", "counter", "Batches appended to the log.", float64(m.AppendedBatches))
	one("runnel_log_append_records_total", "counter", "Records appended to the log.", float64(m.AppendedRecords))
	one("runnel_log_append_bytes_total", "counter", "Bytes appended to the log.", float64(m.AppendedBytes))
	one("runnel_log_syncs_total", "counter", "Syncs of segment files.", float64(m.Syncs))
	one("runnel_offsets_clamped_total", "counter", "Offsets behind a log's end that have been taken as the end.", float64(m.OffsetsClamped))
	one("runnel_log_sync_seconds_total", "counter", "Time of syncs of segment files, waiting included.", m.SyncTime.Seconds())
	names := slices.Sorted(maps.Keys(m.Producers))
	for _, row := range producerRows {
		head(out, row.name, row.kind, row.help)
		for _, name := range names {
			p := m.Producers[name]
			fmt.Fprintf(out, "%s{producer=\"%s\"} %s\n", row.name, label.Replace(name), number(row.value(&p)))
		}
	}
	return out.Flush()
}

func head(w io.Writer, name, kind, help string) {
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

var label = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// producerRows are the metrics that each producer has.
var producerRows = []struct {
	name, kind, help string
	value            func(m *ProducerMetrics) float64
}{
	{"runnel_producer_records_total", "counter", "Records handed to the log.", func(m *ProducerMetrics) float64 { return float64(m.Records) }},
	{"runnel_producer_batches_total", "counter", "Batches handed to the log.", func(m *ProducerMetrics) float64 { return float64(m.Batches) }},
	{"runnel_producer_bytes_total", "counter", "Bytes of batches before compression.", func(m *ProducerMetrics) float64 { return float64(m.Bytes) }},
	{"runnel_producer_written_bytes_total", "counter", "Bytes of batches after compression.", func(m *ProducerMetrics) float64 { return float64(m.WrittenBytes) }},
	{"runnel_producer_failed_records_total", "counter", "Records that failed.", func(m *ProducerMetrics) float64 { return float64(m.Failed) }},
	{"runnel_producer_retries_total", "counter", "Batches tried again.", func(m *ProducerMetrics) float64 { return float64(m.Retries) }},
	{"runnel_producer_queue_seconds_total", "counter", "Time from the first record of batches to their hand-over.", func(m *ProducerMetrics) float64 { return m.QueueTime.Seconds() }},
	{"runnel_producer_queued_batches_total", "counter", "Batches that runnel_producer_queue_seconds_total is of.", func(m *ProducerMetrics) float64 { return float64(m.QueuedBatches) }},
	{"runnel_producer_ack_seconds_total", "counter", "Time from the hand-over of batches until they were durable.", func(m *ProducerMetrics) float64 { return m.AckTime.Seconds() }},
	{"runnel_producer_acked_batches_total", "counter", "Batches that runnel_producer_ack_seconds_total is of.", func(m *ProducerMetrics) float64 { return float64(m.AckedBatches) }},
	{"runnel_producer_buffer_bytes", "gauge", "Buffer memory in use.", func(m *ProducerMetrics) float64 { return float64(m.BufferBytes) }},
	{"runnel_producer_buffer_limit_bytes", "gauge", "Buffer memory in all.", func(m *ProducerMetrics) float64 { return float64(m.BufferMemory) }},
	{"runnel_producer_buffer_waits_total", "counter", "Calls that waited for buffer memory.", func(m *ProducerMetrics) float64 { return float64(m.Waits) }},
	{"runnel_producer_buffer_wait_seconds_total", "counter", "Time for which calls waited for buffer memory.", func(m *ProducerMetrics) float64 { return m.WaitTime.Seconds() }},
}
