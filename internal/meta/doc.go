// Package meta is Runnel's typed key space on pebble: everything that is not a record. Nothing else in the module
// knows pebble's keys, and nothing above floor 1 imports pebble.
//
// Invariants
//
//   - A method that is told to sync returns only after pebble's write-ahead log is on the disk; the others are visible
//     at once and durable with the next synced write or flush, in order: what was written first is never lost alone.
//   - Every key but those of the engine, of topics, of groups and of producer names begins with a topic's id and a partition
//     number, so that dropping a topic is one range deletion, and a topic made again under the same name sees nothing
//     of the old one.
//   - A partition's recovery point may lag behind what its log has made durable; it never leads. Nor does its log start.
//   - A storage error ends the database, not the store and not the process: every call matches kafka.ErrMetaFailed until
//     Heal has opened the database again. A commit that has met it matches kafka.ErrOutcomeUnknown too. What was synced
//     before is there again. See guard.go for how pebble is kept from what it cannot bear.
//   - A full disk is not a failure while there is a ballast to give back; Heal takes the space back.
//   - Damage matches kafka.ErrCorrupt, whether pebble marks it as such or not.
//
// Keys, all integers big-endian:
//
//	+------+------------------------------------------+--------------------------------------------------+
//	| 0x00 | "clean"                                  | present: the engine was closed in order          |
//	| 0x00 | "incarnation"                            | int32, the leader epoch of new batches           |
//	| 0x00 | "producer-id"                            | int64, first producer id never handed out        |
//	| 0x00 | "clock"                                  | int64 ms, the wall clock, last believed          |
//	+------+------------------------------------------+--------------------------------------------------+
//	| 0x01 | topic name in lower case                 | JSON: name, id, partitions, config, state        |
//	+------+----------+---------------+-----+---------+--------------------------------------------------+
//	| 0x02 | topic id | partition i32 | 'r' |         | int64, recovery point                            |
//	| 0x02 | topic id | partition i32 | 's' |         | int64, log start offset                          |
//	| 0x02 | topic id | partition i32 | 'c' |         | int64, cleaner point: compacted up to there      |
//	| 0x02 | topic id | partition i32 | 'k' | from    | int64: damage in [from, this) is given up (i64)  |
//	| 0x02 | topic id | partition i32 | 'e' | epoch   | int64, first offset of that leader epoch (i32)   |
//	| 0x02 | topic id | partition i32 | 'o' | group   | committed offset: offset i64, leader epoch i32,  |
//	|      |          |               |     |         | commit time i64 in ms, metadata                  |
//	| 0x02 | topic id | partition i32 | 'n' | name    | named producer: sequence i64, next offset i64    |
//	+------+----------+---------------+-----+---------+--------------------------------------------------+
//	| 0x03 | producer name                            | producer id i64, epoch i16                       |
//	+------+----------+-------------------------------+--------------------------------------------------+
//	| 0x04 | topic id | partition i32                 | present: appended to since the last clean close  |
//	+------+----------+-------------------------------+--------------------------------------------------+
//	| 0x05 | group                                    | JSON: generation, protocol, leader, members      |
//	+------+------------------------------------------+--------------------------------------------------+
//
// Crash behaviour is pebble's: after a crash the store holds every synced write and a prefix of the others. Close leaves
// nothing to pebble's write-ahead log alone.
//
// Not guaranteed: pebble takes damage in the last 32 KiB block of its write-ahead log for a torn end. After a stop that was
// not in order, a bit that flips there loses what was synced from there on, without a word.
package meta
