package stream_test

import (
	"bufio"
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

func TestMetricsCountWhatWasDone(t *testing.T) {
	eng := streamtest.New(t)
	create(t, eng, "a", 2)
	before := eng.Metrics()
	zip := newProducer(t, eng, stream.ProducerConfig{Name: `zi"p`, Compression: stream.CompressionLZ4})
	plain := newProducer(t, eng, stream.ProducerConfig{Partitioner: stream.RoundRobinPartitioner()})
	for range 10 {
		must(plain.ProduceSync(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 50)}))(t)
	}
	for range 1000 {
		plain.Produce(context.Background(), &stream.Record{Topic: "a", Value: make([]byte, 50)}, nil)
		zip.Produce(context.Background(), &stream.Record{Topic: "a", Key: []byte("k"), Value: make([]byte, 500)}, nil)
	}
	_, err := plain.ProduceSync(t.Context(), &stream.Record{Topic: "a", Value: make([]byte, 2<<20)})
	wantErr(t, err, stream.ErrRecordTooLarge)
	_, err = plain.ProduceSync(t.Context(), &stream.Record{Topic: "missing"})
	wantErr(t, err, stream.ErrUnknownTopic)
	check(t, plain.Flush(t.Context()))
	check(t, zip.Flush(t.Context()))

	m := plain.Metrics()
	eq(t, "records", m.Records, 1010)
	eq(t, "failed", m.Failed, 2)
	eq(t, "bytes in the log", m.WrittenBytes, m.Bytes)
	eq(t, "buffer in use", m.BufferBytes, 0)
	if m.Batches < 11 || m.Batches > 1010 || m.QueuedBatches != m.Batches-10 || m.AckedBatches == 0 || m.AckTime <= 0 {
		t.Errorf("%+v", m)
	}
	z := zip.Metrics()
	eq(t, "records", z.Records, 1000)
	if z.WrittenBytes*10 > z.Bytes {
		t.Errorf("%d bytes of zeros have become %d", z.Bytes, z.WrittenBytes)
	}
	if r := z.Since(stream.ProducerMetrics{}); r.Compression > 0.1 || r.RecordsPerBatch < 1 || r.RecordsPerSecond != 0 {
		t.Errorf("%+v", r)
	}
	then := z
	then.At, then.Records, then.Failed = then.At.Add(-2*time.Second), 0, 0
	eq(t, "rate", z.Since(then).RecordsPerSecond, 500)

	all := eng.Metrics()
	eq(t, "producers", len(all.Producers), 2)
	eq(t, "appended records", all.AppendedRecords-before.AppendedRecords, 2010)
	eq(t, "appended batches", all.AppendedBatches, m.Batches+z.Batches)
	eq(t, "appended bytes", all.AppendedBytes, m.WrittenBytes+z.WrittenBytes)
	if all.Syncs == 0 || all.Topics != 1 || all.Partitions != 2 {
		t.Errorf("%+v", all)
	}

	// What has been done stays, when who has done it is gone.
	check(t, plain.Close(t.Context()))
	check(t, eng.Admin().DeleteTopic(t.Context(), "a"))
	after := eng.Metrics()
	eq(t, "records of closed producers", after.Producers[""].Records, 1010)
	eq(t, "appended records", after.AppendedRecords, all.AppendedRecords)
	eq(t, "appended bytes", after.AppendedBytes, all.AppendedBytes)

	values := exposition(t, after)
	eq(t, "records", values[`runnel_producer_records_total{producer=""}`], 1010)
	eq(t, "records", values[`runnel_producer_records_total{producer="zi\"p"}`], 1000)
	eq(t, "appended", values["runnel_log_append_records_total"], 2010)
}

// exposition reads Prometheus's text format, as far as it is used: every metric has its help and type before it.
func exposition(t *testing.T, m stream.Metrics) map[string]float64 {
	t.Helper()
	var text strings.Builder
	check(t, m.WritePrometheus(&text))
	values := map[string]float64{}
	var help, typed string
	for lines := bufio.NewScanner(strings.NewReader(text.String())); lines.Scan(); {
		f := strings.SplitN(lines.Text(), " ", 4)
		switch {
		case f[0] == "#" && f[1] == "HELP":
			help = f[2]
		case f[0] == "#" && f[1] == "TYPE":
			typed = f[2]
		default:
			at := strings.LastIndexByte(lines.Text(), ' ')
			series := lines.Text()[:at]
			name, _, _ := strings.Cut(series, "{")
			if name != help || name != typed {
				t.Errorf("%s comes behind the help of %s and the type of %s", name, help, typed)
			}
			if _, twice := values[series]; twice {
				t.Errorf("%s is there twice", series)
			}
			values[series] = must(strconv.ParseFloat(lines.Text()[at+1:], 64))(t)
		}
	}
	return values
}
