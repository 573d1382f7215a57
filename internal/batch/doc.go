// Package batch is Kafka's RecordBatch v2: it encodes, checks and reads the bytes that a partition's log is made of.
// Nothing else in Runnel knows this layout.
//
// # Invariants
//
//   - What a Builder seals passes Check and Validate once its Stamp is one that Validate takes, and an Iter over it
//     yields what was appended, in order.
//   - Reading never panics, never reads outside the batch and never allocates per record, whatever the bytes are.
//     Malformed bytes end in an error that matches one of the sentinels.
//   - The records that an Iter yields have strictly rising offsets between BaseOffset and LastOffset.
//   - Base offset and leader epoch lie outside the checksum: SetOffset changes them in place and the batch stays valid.
//   - No function keeps a slice that it was given, except Builder.Reset (until the next Reset) and Batch.Iter (the
//     records alias the batch).
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
// # What is not guaranteed
//
// A valid checksum finds accidents, not forgery. Check parses no record; Iter does, as it goes. The record's own
// attributes byte, a base sequence without a producer id, and the length of a varint (an overlong one is read) are
// ignored, as Kafka ignores them. Compressed batches can be stored, checked and passed on, but not read:
// Validate and Iter refuse them with ErrCodec.
package batch
