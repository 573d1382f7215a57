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
// # Producing
//
// ProduceSync is for one record that the caller waits for: it is appended on the caller's goroutine, and its sync is shared with whoever waits at the same time.
// Produce is for many: it copies the record into a batch of its partition and returns, and a promise hears what became of it. ProduceAll takes a slice and waits once.
// All three may be used by any number of goroutines of one producer, which is how a producer is meant to be used.
//
// A batch goes when it is full (BatchSize), when its first record has waited for Linger, and when somebody waits for a record in it; with Linger 0 as soon as a goroutine
// is free for it. Larger batches cost less for each record and compress better (Compression). What is buffered is bounded by BufferMemory: Produce waits for it, up to
// MaxBlock. Flush waits until everything sent has its answer; Close flushes.
//
// An error of a call or promise says that the record is not in the log, unless it matches ErrOutcomeUnknown. Nothing is tried again unless Retries asks for it. A producer with
// a Name, and records with a Sequence, make sending again harmless over restarts too.
//
// NewTypedProducer and NewTypedConsumer take keys and values of any type, by a Codec: BytesCodec, StringCodec, IntegerCodec, JSONCodec, BinaryCodec, or your own.
// Producer.Metrics and Engine.Metrics count what is done; WritePrometheus writes that for a scraper.
//
// # Ownership
//
// A Record given to a producer is the caller's again when the call returns, also that of Produce. Records from a consumer belong to the caller
// for ever; they share memory with their neighbours (at most 64 KiB, or one record), so clone what you keep for long. With
// ConsumerConfig.Borrow they alias the log instead and are valid until the next poll, or Close of the consumer
// or the engine.
//
// # Groups
//
// Consumers with the same Group share the partitions of what they subscribe to, each of which has one of them as its owner. Who polls takes part in rebalances; who does not, for
// MaxPollInterval, is out of its group. CooperativeStickyAssignor, the default, lets members go on with what they keep. A RebalanceListener hears of what comes and goes; an InstanceID makes
// a member static. Commits are durable when they return; a record that was read and not committed is given to the next owner again. Admin.Groups describes a group, and Admin.Explain says
// why its records are or are not being delivered.
//
// # Old records
//
// Nothing is deleted unasked. TopicConfig says what goes: by age, by size, or, where only the last value of each key is of interest, by compaction; Admin.DeleteRecords
// removes what has been worked off. Offsets never change. Damage is reported and never passed over in silence, unless Engine.SkipCorrupt gives it up; Engine.Verify
// looks for it. Options.ReadOnly looks at a directory without touching it.
//
// # Concurrency
//
// Engine, Producer and Admin are safe for concurrent use. Promises run one at a time for each producer, in offset order within a partition; they may Produce, and must not call
// what waits: Flush, Close, ProduceSync, ProduceAll. A Consumer's methods may be called from any goroutine, but only one may be
// polling; order is kept per partition.
//
// # This version
//
// The interfaces are complete; verbs that a later version delivers return an error that matches ErrUnsupported, and their comments say so.
package stream
