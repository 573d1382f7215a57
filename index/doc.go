// Package index holds the indexes of one log segment: two sparse ones, from offset to position and from time to offset,
// and the list of the aborted transactions that end in it.
//
// It is exported for reading and carries no promise of compatibility.
//
// # Invariants
//
//   - Entries strictly rise: in an offset index by offset and by position, in a time index by timestamp and by offset.
//   - An entry's offset is the last offset of a batch. In the offset index its position is where that batch starts; in
//     the time index its timestamp is the greatest of that batch and greater than all of the segment before.
//   - The entries of a transaction index strictly rise by their last offset, which is where the abort marker is. The first
//     offset may lie in an earlier segment.
//   - One goroutine appends; any number read at the same time, without a lock, and see a prefix of what was appended.
//   - A sparse index is a hint. An entry is believed only if the valid batch that it names confirms it (Confirms,
//     ConfirmsTime); a missing entry costs a longer scan and never a wrong answer, and all can be made anew from the log.
//
// # Format
//
// The files are Kafka's, every integer big-endian, entries back to back. Relative offsets are relative to the
// segment's base offset, which is in the file's name.
//
//	.index      +-----------------+----------+        .timeindex  +-----------+-----------------+
//	  8 bytes   | relative offset | position |          12 bytes  | timestamp | relative offset |
//	            | int32           | int32    |                    | int64 ms  | int32           |
//	            +-----------------+----------+                    +-----------+-----------------+
//
//	.txnindex   +---------+-------------+--------------+-------------+--------------------+
//	  34 bytes  | version | producer id | first offset | last offset | last stable offset |
//	            | int16=0 | int64       | int64        | int64       | int64              |
//	            +---------+-------------+--------------+-------------+--------------------+
//
// An offset or time index file may end in zeros, the space that Kafka reserves ahead; the first entry of only zeros ends
// it. Such an entry (the base offset at position or time 0) says no more than that the segment begins there, and is never
// appended.
//
// A sparse index is full at a size that the log chooses, MaxBytes by default, and a full index makes the log roll its segment.
// The time index keeps one slot back, for the last entry that is written as the segment is sealed.
//
// # What is not guaranteed
//
// There is no checksum. Loading a sparse index finds entries that do not rise, and nothing else: that an entry is true is
// found when it is used. One batch proves an offset entry; of a time entry it proves that this timestamp stands at this
// offset, but not that no greater or equal one stands before.
//
// A transaction index is no hint: a reader believes it, and shows the records of a transaction that is missing in it.
// Loading finds entries that cannot be true; whoever cannot trust the file makes it anew from the log.
package index
