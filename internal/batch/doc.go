// Package batch is Kafka's RecordBatch v2: it encodes, compresses, checks, reads and filters the bytes that a
// partition's log is made of. Nothing else in Runnel knows this layout.
//
// # Invariants
//
//   - What a Builder seals passes Check and Validate once its Stamp is one that Validate takes, and an Iter over it
//     yields what was appended, in order.
//   - Reading never panics, never reads outside the batch and never allocates per record, whatever the bytes are.
//     Malformed bytes end in an error that matches one of the sentinels.
//   - The records that an Iter yields have strictly rising offsets between BaseOffset and LastOffset.
//   - Base offset and leader epoch lie outside the checksum: SetOffset changes them in place and the batch stays valid.
//   - Decompressing never gives or allocates much more than the caller's limit, whatever the bytes are or say.
//   - What Filter makes of a batch has the records that were kept, at their offsets and with their timestamps, and takes
//     the same offsets as before; Filler takes the place of batches that are gone. Both pass Check.
//   - No function keeps a slice that it was given, except Builder.Reset (until the next Reset) and Batch.Iter (the
//     records alias the batch). What Plain returns aliases its buffer, what Filter.Apply returns the filter.
//
// # Format
//
// Every integer of the header is big-endian. The checksum is CRC-32C (Castagnoli) of everything from the attributes to
// the end of the batch.
//
//	byte  0       8            12           16     17     21          23               27
//	     +-------+------------+------------+------+------+-----------+----------------+--
//	     | base  | length of  | leader     | magic| CRC  | attributes| last offset    |
//	     | offset| what       | epoch      | = 2  |      |           | delta          |
//	     | int64 | follows    | int32      | int8 |uint32| int16     | int32          |
//	     |       | int32      |            |      |      |           |                |
//	     +-------+------------+------------+------+------+-----------+----------------+--
//	byte 27         35         43         51         53         57      61
//	   --+----------+----------+----------+----------+----------+-------+---------
//	     | base     | max      | producer | producer | base     | record| records
//	     | timestamp| timestamp| id       | epoch    | sequence | count | ...
//	     | int64 ms | int64 ms | int64    | int16    | int32    | int32 |
//	   --+----------+----------+----------+----------+----------+-------+---------
//
//	attributes    15 ... 7        6          5         4          3         2 .. 0
//	             +-----------+---------+---------+-----------+----------+---------+
//	             | 0         | delete  | control | trans-    | log      | codec   |
//	             |           | horizon |         | actional  | append   |         |
//	             |           |         |         |           | time     |         |
//	             +-----------+---------+---------+-----------+----------+---------+
//
// A record is a row of zigzag varints and bytes; the length counts what follows it, a length of -1 is null:
//
//	+--------+------+-----------+--------+---------+-----+-----------+-------+---------+--------------------------+
//	| length | 0    | timestamp | offset | key     | key | value     | value | headers | {key length, key,        |
//	| varint | int8 | delta     | delta  | length  |     | length    |       | varint  |  value length, value}... |
//	|        |      | varlong   | varint | varint  |     | varint    |       |         |                          |
//	+--------+------+-----------+--------+---------+-----+-----------+-------+---------+--------------------------+
//
// A record's offset is the base offset plus its delta, its timestamp the base timestamp plus its delta, or the max
// timestamp for every record if the batch has log append time. With the delete horizon set, the base timestamp is the
// horizon and the deltas are relative to it, so that the same sum holds.
//
// # Compression
//
// The codec is that of the records; the header is never compressed. gzip (RFC 1952) and zstd (RFC 8878) are written
// without options, lz4 as one LZ4 frame of independent blocks, snappy in the frame that is drawn in snappy.go. Other
// block sizes, checksums, several frames and snappy without a frame are read too.
//
// # What is not guaranteed
//
// A valid checksum finds accidents, not forgery. Check parses no record; Iter does, as it goes. The record's own
// attributes byte, a base sequence without a producer id, and the length of a varint (an overlong one is read) are
// ignored, as Kafka ignores them. The checksum is that of the bytes as they are stored: what Plain gives does not pass
// Check. Damage that a codec does not notice (none of them needs a checksum) is found by Iter, or not at all.
//
// Compressed bytes are those of Kafka's Java client in form, not one by one: encoders differ, and so do their levels.
package batch
