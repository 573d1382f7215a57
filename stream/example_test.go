package stream_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/runnelmq/runnel/stream"
)

func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "runnel")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	// What is written before Close, or before a crash, is there after the next Open.
	for range 2 {
		eng, err := stream.Open(dir, &stream.Options{AutoCreate: &stream.TopicConfig{Partitions: 1}})
		if err != nil {
			log.Fatal(err)
		}
		p, err := eng.NewProducer(ctx, stream.ProducerConfig{})
		if err != nil {
			log.Fatal(err)
		}
		receipt, err := p.ProduceSync(ctx, &stream.Record{Topic: "starts", Value: []byte("started")})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("start", receipt.Offset)
		if err := eng.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// start 0
	// start 1
}

// memory returns an engine for the other examples, with the topic "orders".
func memory() *stream.Engine {
	eng, err := stream.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := eng.Admin().CreateTopic(context.Background(), "orders", stream.TopicConfig{Partitions: 1}); err != nil {
		log.Fatal(err)
	}
	return eng
}

func ExampleOpenMemory() {
	eng, err := stream.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	if err := eng.Admin().CreateTopic(context.Background(), "orders", stream.TopicConfig{Partitions: 4}); err != nil {
		log.Fatal(err)
	}
	topics, err := eng.Admin().Topics(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(topics[0].Name, topics[0].Partitions)
	// Output: orders 4
}

func ExampleProducer() {
	ctx := context.Background()
	eng := memory()
	defer eng.Close()
	p, err := eng.NewProducer(ctx, stream.ProducerConfig{Acks: stream.AcksWritten})
	if err != nil {
		log.Fatal(err)
	}
	// Without waiting; the promise hears what became of the record.
	p.Produce(ctx, &stream.Record{Topic: "orders", Key: []byte("ann"), Value: []byte("tea")}, func(r stream.Receipt, err error) {
		fmt.Println("promise:", r.Offset, err)
	})
	if err := p.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	// One, waiting; this one is to survive a power cut.
	r, err := p.ProduceSync(ctx, &stream.Record{Topic: "orders", Key: []byte("bob"), Value: []byte("rice"), Acks: stream.AcksSynced})
	fmt.Println("sync:", r.Offset, r.Acks, err)
	// Many, waiting once; the slice of results can be used again.
	results, err := p.ProduceAll(ctx, []stream.Record{
		{Topic: "orders", Key: []byte("ann"), Value: []byte("milk")},
		{Topic: "orders", Key: []byte("bob")}, // no value: a tombstone
	}, nil)
	fmt.Println("all:", len(results), results[1].Receipt.Offset, err)
	// Output:
	// promise: 0 <nil>
	// sync: 1 synced <nil>
	// all: 2 3 <nil>
}

// produce sends values to the topic "orders".
func produce(eng *stream.Engine, values ...string) {
	ctx := context.Background()
	p, err := eng.NewProducer(ctx, stream.ProducerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	for _, v := range values {
		if _, err := p.ProduceSync(ctx, &stream.Record{Topic: "orders", Value: []byte(v)}); err != nil {
			log.Fatal(err)
		}
	}
}

func ExampleConsumer_records() {
	ctx := context.Background()
	eng := memory()
	defer eng.Close()
	produce(eng, "tea", "rice", "milk")
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{
		Group: "billing", Topics: []string{"orders"}, Reset: stream.ResetEarliest, ManualCommit: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	for r, err := range c.Records(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Offset, string(r.Value))
		// Covers this record and none behind it.
		if err := c.Commit(ctx); err != nil {
			log.Fatal(err)
		}
		if string(r.Value) == "rice" {
			break
		}
	}
	at, err := c.Committed(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("next:", at[stream.TopicPartition{Topic: "orders"}].Offset)
	// Output:
	// 0 tea
	// 1 rice
	// next: 2
}

func ExampleConsumer_poll() {
	ctx := context.Background()
	eng := memory()
	defer eng.Close()
	produce(eng, "tea", "rice", "milk")
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Topics: []string{"orders"}, Reset: stream.ResetEarliest, MaxWait: time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	for {
		rs, err := c.Poll(ctx, 2)
		if err != nil {
			log.Fatal(err)
		}
		if len(rs) == 0 {
			break // MaxWait has passed
		}
		for i, r := range rs {
			fmt.Println(i, string(r.Value))
		}
	}
	// Output:
	// 0 tea
	// 1 rice
	// 0 milk
}

func ExampleConsumer_seekToTime() {
	ctx := context.Background()
	eng := memory()
	defer eng.Close()
	p, err := eng.NewProducer(ctx, stream.ProducerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 5 {
		if _, err := p.ProduceSync(ctx, &stream.Record{Topic: "orders", Timestamp: day.AddDate(0, 0, i)}); err != nil {
			log.Fatal(err)
		}
	}
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Topics: []string{"orders"}})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.SeekToTime(ctx, day.AddDate(0, 0, 3)); err != nil {
		log.Fatal(err)
	}
	rs, err := c.Poll(ctx, 10)
	fmt.Println(len(rs), rs[0].Timestamp.UTC().Format(time.DateOnly), err)
	// Output: 2 2026-01-04 <nil>
}

// A named producer copies a source exactly once, also if the program dies and starts again: what is there already is not appended, and
// LastSequence says where to go on.
func ExampleProducer_resume() {
	ctx := context.Background()
	eng := memory()
	defer eng.Close()
	source := []string{"tea", "rice", "milk", "salt"} // line n has sequence n+1
	run := func(lines int) {
		p, err := eng.NewProducer(ctx, stream.ProducerConfig{Name: "copy of the source"})
		if err != nil {
			log.Fatal(err)
		}
		last, err := p.LastSequence(ctx, stream.TopicPartition{Topic: "orders"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("going on behind line", last)
		for i := int(last); i < lines; i++ {
			if _, err := p.ProduceSync(ctx, &stream.Record{Topic: "orders", Value: []byte(source[i]), Sequence: int64(i + 1)}); err != nil {
				log.Fatal(err)
			}
		}
		// Sending a line again does no harm.
		r, err := p.ProduceSync(ctx, &stream.Record{Topic: "orders", Value: []byte(source[0]), Sequence: 1})
		fmt.Println("duplicate:", r.Duplicate, err)
	}
	run(2) // and dies here
	run(len(source))
	end, err := eng.Admin().EndOffsets(ctx, stream.TopicPartition{Topic: "orders"})
	fmt.Println("records:", end[stream.TopicPartition{Topic: "orders"}].Offset, err)
	// Output:
	// going on behind line 0
	// duplicate: true <nil>
	// going on behind line 2
	// duplicate: true <nil>
	// records: 4 <nil>
}

// Many records, without waiting for each. A batch goes when it is full, or after Linger; full ones compress best.
func ExampleProducer_produce() {
	ctx := context.Background()
	eng := memory()
	defer eng.Close()
	p, err := eng.NewProducer(ctx, stream.ProducerConfig{
		Acks: stream.AcksWritten, Linger: time.Second, BatchSize: 64 << 10, Compression: stream.CompressionZstd,
	})
	if err != nil {
		log.Fatal(err)
	}
	sent, failed := 0, 0 // promises run one at a time, so they need no lock
	for i := range 10_000 {
		p.Produce(ctx, &stream.Record{Topic: "orders", Value: fmt.Appendf(nil, "order %d: two apples, please", i)}, func(_ stream.Receipt, err error) {
			if err != nil {
				failed++
				return
			}
			sent++
		})
	}
	if err := p.Flush(ctx); err != nil { // all promises have run
		log.Fatal(err)
	}
	m := p.Metrics()
	fmt.Println(sent, "sent,", failed, "failed")
	fmt.Println("in less than 50 batches:", m.Batches < 50)
	fmt.Println("compressed to less than half:", m.WrittenBytes < m.Bytes/2)
	// Output:
	// 10000 sent, 0 failed
	// in less than 50 batches: true
	// compressed to less than half: true
}

func ExampleNewTypedProducer() {
	ctx := context.Background()
	eng := memory()
	defer eng.Close()
	p, err := eng.NewProducer(ctx, stream.ProducerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Topics: []string{"orders"}, Reset: stream.ResetEarliest})
	if err != nil {
		log.Fatal(err)
	}
	stock := stream.NewTypedProducer(p, stream.StringCodec(), stream.IntegerCodec[int64]())
	if _, err := stock.ProduceSync(ctx, &stream.TypedRecord[string, int64]{Topic: "orders", Key: "tea", Value: 12}); err != nil {
		log.Fatal(err)
	}
	if _, err := stock.Tombstone(ctx, "orders", "rice"); err != nil {
		log.Fatal(err)
	}
	rs, err := stream.NewTypedConsumer(c, stream.StringCodec(), stream.IntegerCodec[int64]()).Poll(ctx, 10)
	for _, r := range rs {
		fmt.Println(r.Key, r.Value, r.Tombstone)
	}
	fmt.Println(err)
	// Output:
	// tea 12 false
	// rice 0 true
	// <nil>
}

// Values of a type of your own, as JSON; keys are numbers.
func ExampleJSONCodec() {
	ctx := context.Background()
	eng := memory()
	defer eng.Close()
	type order struct {
		What  string
		Count int `json:",omitempty"`
	}
	p, err := eng.NewProducer(ctx, stream.ProducerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	orders := stream.NewTypedProducer(p, stream.IntegerCodec[int32](), stream.JSONCodec[order]())
	for i, o := range []order{{"apples", 2}, {"tea", 0}} {
		if _, err := orders.ProduceSync(ctx, &stream.TypedRecord[int32, order]{Topic: "orders", Key: int32(i), Value: o}); err != nil {
			log.Fatal(err)
		}
	}
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Topics: []string{"orders"}, Reset: stream.ResetEarliest})
	if err != nil {
		log.Fatal(err)
	}
	rs, err := c.Poll(ctx, 10) // what lies there
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range rs {
		fmt.Printf("%x %s\n", r.Key, r.Value)
	}
	if err := c.SeekToStart(); err != nil {
		log.Fatal(err)
	}
	back, err := stream.NewTypedConsumer(c, stream.IntegerCodec[int32](), stream.JSONCodec[order]()).Poll(ctx, 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range back {
		fmt.Println(r.Key, r.Value.What, r.Value.Count)
	}
	// Output:
	// 00000000 {"What":"apples","Count":2}
	// 00000001 {"What":"tea"}
	// 0 apples 2
	// 1 tea 0
}

// What an engine has done, as a snapshot: counts that never fall.
func ExampleEngine_Metrics() {
	ctx := context.Background()
	eng := memory()
	defer eng.Close()
	p, err := eng.NewProducer(ctx, stream.ProducerConfig{Name: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	before := p.Metrics()
	rs := make([]stream.Record, 30)
	for i := range rs {
		rs[i] = stream.Record{Topic: "orders", Value: []byte("tea")}
	}
	if _, err := p.ProduceAll(ctx, rs, nil); err != nil {
		log.Fatal(err)
	}
	if _, err := p.ProduceSync(ctx, &stream.Record{Topic: "nowhere"}); err == nil {
		log.Fatal("there is no such topic")
	}
	m := eng.Metrics()
	fmt.Println("engine:", m.AppendedRecords, "records in", m.AppendedBatches, "batch")
	fmt.Println("shop:", m.Producers["shop"].Records, "records,", m.Producers["shop"].Failed, "failed")
	fmt.Println("records in a batch:", p.Metrics().Since(before).RecordsPerBatch)
	// Output:
	// engine: 30 records in 1 batch
	// shop: 30 records, 1 failed
	// records in a batch: 30
}

// The same for Prometheus. A server writes it to its http.ResponseWriter.
func ExampleMetrics_WritePrometheus() {
	ctx := context.Background()
	eng := memory()
	defer eng.Close()
	p, err := eng.NewProducer(ctx, stream.ProducerConfig{Name: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := p.ProduceSync(ctx, &stream.Record{Topic: "orders", Value: []byte("tea")}); err != nil {
		log.Fatal(err)
	}
	var text strings.Builder
	if err := eng.Metrics().WritePrometheus(&text); err != nil {
		log.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if strings.Contains(line, "runnel_producer_records_total") {
			fmt.Print(line)
		}
	}
	// Output:
	// # HELP runnel_producer_records_total Records handed to the log.
	// # TYPE runnel_producer_records_total counter
	// runnel_producer_records_total{producer="shop"} 1
}
