package stream_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// Two members of a group share a topic. When one leaves, the other gets what it had, and goes on behind what it has committed. In a program each member polls on a goroutine of its own; here they take
// turns.
func ExampleConsumer_group() {
	ctx := context.Background()
	eng, err := stream.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	if err := eng.Admin().CreateTopic(ctx, "orders", stream.TopicConfig{Partitions: 2}); err != nil {
		log.Fatal(err)
	}
	p, err := eng.NewProducer(ctx, stream.ProducerConfig{Partitioner: stream.ManualPartitioner()})
	if err != nil {
		log.Fatal(err)
	}
	send := func(values ...string) { // the first to partition 0, the second to partition 1
		for i, v := range values {
			if _, err := p.ProduceSync(ctx, &stream.Record{Topic: "orders", Partition: int32(i), Value: []byte(v)}); err != nil {
				log.Fatal(err)
			}
		}
	}
	join := func() stream.Consumer {
		c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Group: "billing", Topics: []string{"orders"}, Reset: stream.ResetEarliest, MaxWait: time.Millisecond})
		if err != nil {
			log.Fatal(err)
		}
		return c
	}
	poll := func(name string, c stream.Consumer) {
		rs, err := c.Poll(ctx, 10)
		if err != nil {
			log.Fatal(err)
		}
		for _, r := range rs {
			fmt.Printf("%s: %s of partition %d\n", name, r.Value, r.Partition)
		}
	}

	ann := join()
	fmt.Println("ann alone has", len(ann.Assignment()), "partitions")
	bob := join()
	for len(bob.Assignment()) == 0 { // ann's polls give up what bob is to get
		poll("ann", ann)
		poll("bob", bob)
	}
	fmt.Println("ann has", len(ann.Assignment()), "and bob has", len(bob.Assignment()))

	send("tea", "rice")
	poll("ann", ann)
	poll("bob", bob)

	if err := bob.Close(ctx); err != nil { // commits what bob has read, and leaves
		log.Fatal(err)
	}
	for len(ann.Assignment()) < 2 {
		poll("ann", ann)
	}
	send("milk", "salt")
	poll("ann", ann)
	// Output:
	// ann alone has 2 partitions
	// ann has 1 and bob has 1
	// ann: tea of partition 0
	// bob: rice of partition 1
	// ann: milk of partition 0
	// ann: salt of partition 1
}
