// Package stream is Runnel's public face: a streaming engine inside one Go process. Topics, partitions, producers,
// consumer groups and idempotence are Kafka's; storage is a directory, as SQLite's is a file.
//
//	eng, err := stream.Open("data", nil)
//	err = eng.Admin().CreateTopic(ctx, "orders", stream.TopicConfig{Partitions: 4})
//	p, err := eng.NewProducer(ctx, stream.ProducerConfig{})
//	receipt, err := p.ProduceSync(ctx, &stream.Record{Topic: "orders", Key: key, Value: value})
//	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Group: "billing", Topics: []string{"orders"}, Reset: stream.ResetEarliest})
//	for r, err := range c.Records(ctx) { ... }
//
// # What a record survives
//
// AcksSynced, the default, reports a record when an fdatasync has covered it: it survives a power cut. AcksWritten reports it
// when it is in the page cache: it survives a crash or kill -9 of the process, and a background sync makes it safe from a power
// cut within a second or 64 MiB. AcksNone promises nothing.
//
// # Ownership
//
// A Record given to a producer is the caller's again when the call returns. Records from a consumer belong to the caller
// for ever; they share memory with their neighbours (at most 64 KiB, or one record), so clone what you keep for long. With
// ConsumerConfig.Borrow they alias the log instead and are valid until the next poll, or Close of the consumer
// or the engine.
//
// # Old records
//
// Nothing is deleted unasked. TopicConfig says what goes: by age, by size, or, where only the last value of each key is of interest, by compaction; Admin.DeleteRecords
// removes what has been worked off. Offsets never change. Damage is reported and never passed over in silence, unless Engine.SkipCorrupt gives it up; Engine.Verify
// looks for it. Options.ReadOnly looks at a directory without touching it.
//
// # Concurrency
//
// Engine, Producer and Admin are safe for concurrent use. A Consumer's methods may be called from any goroutine, but only one may be
// polling; order is kept per partition.
//
// # This version
//
// The interfaces are complete; verbs that a later version delivers return an error that matches ErrUnsupported, and their comments say so.
package stream
