package stream

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/broker"
	"github.com/runnelmq/runnel/internal/kafka"
)

// Compression is the codec of batches (compression.type). Compressing bounds a producer to the speed of the codec: snappy and lz4 are the fastest, zstd compresses better at about half of their speed, gzip is
// slow.
type Compression int8

const (
	// CompressionNone leaves records as they are. It is the default.
	CompressionNone   = Compression(batch.None)
	CompressionGzip   = Compression(batch.Gzip)
	CompressionSnappy = Compression(batch.Snappy)
	CompressionLZ4    = Compression(batch.LZ4)
	CompressionZstd   = Compression(batch.Zstd)
)

// ProducerConfig configures a producer. The zero value is good.
type ProducerConfig struct {
	// Name keeps one producer across restarts: see Record.Sequence and Producer.LastSequence. A second live instance fences the first.
	Name string
	// TransactionalID is that of a transactional producer (transactional.id). In this version: ErrUnsupported.
	TransactionalID string
	// Acks is the level of records that ask for none; AcksDefault: AcksSynced (acks).
	Acks Acks
	// Partitioner chooses partitions; nil: KeyPartitioner (partitioner.class).
	Partitioner Partitioner
	// Linger is how long a batch of Produce waits for more records; 0: until a goroutine is free for it, which is microseconds, and up to two milliseconds while batches become full all the time (linger.ms). A record
	// that a caller waits for goes at once, and takes with it what lingers.
	Linger time.Duration
	// MaxBlock is how long a call waits for buffer memory; 0: 60 s; negative: not at all (max.block.ms).
	MaxBlock time.Duration
	// DeliveryTimeout is how long a record of Produce or ProduceAll may take in all, from Produce to its answer; 0: 120 s more than Linger (delivery.timeout.ms). If it is set it bounds the sync of a ProduceSync too, which
	// is only bounded by ctx otherwise. More than Linger.
	DeliveryTimeout time.Duration
	// Retries is how often a batch that storage refused without effect is tried again, after 0.1 s and then up to 1 s (retries, retry.backoff.ms); records behind it wait. 0: not at all, since
	// whoever is in the same process can be told at once; negative: until DeliveryTimeout. It is not for a ProduceSync that finds nothing accumulated, whose
	// caller sees the error, nor for the first record of a named producer that finds its partition
	// offline.
	Retries int
	// TransactionTimeout is how long a transaction may stay open (transaction.timeout.ms). In this version: ErrUnsupported.
	TransactionTimeout time.Duration
	// BatchSize is the size in bytes at which a batch is full, before compression; 0: 16 KiB; 1: every record is a batch (batch.size).
	BatchSize int
	// MaxInFlight is how many batches of a partition may have been handed to the log without being durable, if they ask for that; 0: 5 (max.in.flight.requests.per.connection). Above 1, batches of 8 KiB and more that
	// become full one after the other count as one, since one sync covers them. A ProduceSync that finds nothing accumulated does not count: its caller waits.
	MaxInFlight int
	// MaxMessageBytes is the greatest size in bytes of a record in a batch of its own, before compression; 0: 1 MiB + 12 (max.request.size). The topic's max.message.bytes applies too.
	MaxMessageBytes int
	// BufferMemory bounds the bytes that are buffered, counted by batches, which have BatchSize of it until they are handed over; 0: 32 MiB; not less than BatchSize (buffer.memory).
	BufferMemory int64
	// Compression is the codec of batches, CompressionLevel its level; 0: the codec's own (compression.gzip.level, compression.lz4.level, compression.zstd.level). A batch that does not become
	// smaller is left as it is.
	Compression      Compression
	CompressionLevel int
	// Interceptors see records on their way, one after the other (interceptor.classes).
	Interceptors []ProducerInterceptor
}

// withDefaults returns the configuration with what was left to the package.
func (c ProducerConfig) withDefaults() ProducerConfig {
	if c.Acks == AcksDefault {
		c.Acks = AcksSynced
	}
	if c.Partitioner == nil {
		c.Partitioner = KeyPartitioner()
	}
	if c.BatchSize == 0 {
		c.BatchSize = defaultBatchSize
	}
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = broker.DefaultMaxMessageBytes
	}
	c.BatchSize = min(c.BatchSize, c.MaxMessageBytes) // no batch is larger
	if c.MaxBlock == 0 {
		c.MaxBlock = defaultMaxBlock
	}
	if c.DeliveryTimeout == 0 {
		c.DeliveryTimeout = defaultDeliveryTimeout + c.Linger
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = defaultMaxInFlight
	}
	if c.BufferMemory == 0 {
		c.BufferMemory = max(defaultBufferMemory, int64(c.BatchSize))
	}
	return c
}

// Validate reports all faults at once; they match ErrInvalidConfig or ErrUnsupported.
func (c *ProducerConfig) Validate() error {
	errs := []error{
		notNegative("Linger", c.Linger), notNegative("DeliveryTimeout", c.DeliveryTimeout),
		notNegative("BatchSize", c.BatchSize), notNegative("MaxInFlight", c.MaxInFlight), notNegative("MaxMessageBytes", c.MaxMessageBytes),
		notNegative("BufferMemory", c.BufferMemory),
	}
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{kafka.ErrInvalidConfig}, args...)...))
		}
	}
	if c.TransactionalID != "" || c.TransactionTimeout != 0 {
		errs = append(errs, unsupported("transactions"))
	}
	full := c.withDefaults()
	wrong(c.Acks < AcksDefault || c.Acks > AcksSynced, "Acks is %v", c.Acks)
	wrong(c.Compression < CompressionNone || c.Compression > CompressionZstd, "Compression is %d", c.Compression)
	wrong(c.BatchSize > math.MaxInt32 || c.MaxMessageBytes > math.MaxInt32, "BatchSize or MaxMessageBytes is above 2 GiB - 1")
	wrong(full.BufferMemory < int64(full.BatchSize), "BufferMemory, %d, is less than BatchSize, %d", full.BufferMemory, full.BatchSize)
	wrong(full.DeliveryTimeout <= full.Linger, "DeliveryTimeout, %v, is not more than Linger, %v", full.DeliveryTimeout, full.Linger)
	for _, i := range c.Interceptors {
		wrong(i == nil, "an interceptor is nil")
	}
	return errors.Join(errs...)
}
