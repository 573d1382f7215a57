// Package rlog (imported as rlog, in directory log) keeps one partition as an ordered row of segment files: append,
// read, flush, roll, recover, retain, compact, verify. It is exported for reading and carries no promise of compatibility.
//
// # Invariants
//
//   - recovery point ≤ durable end ≤ log end offset. The recovery point is what the checkpoints know, the durable end is what
//     a completed fdatasync has covered, the log end offset is what readers may see.
//   - A batch is published whole or not at all: its bytes and its index entry are in place before one atomic store of the
//     log end offset, and readers look at nothing behind that.
//   - Offsets rise, without gaps as they are given; an offset below the durable end is never given to another record.
//   - Each batch begins at the offset behind the one before it, within a segment and from one to the next, also after
//     compaction, which leaves holes within batches only. Base offsets are under no checksum; this is how a wrong one is found.
//   - The log start offset never goes back, is recorded durably before anything is removed, and never leads the durable end.
//   - Compaction removes no record but those whose key has a later one, tombstones whose time is over, and those without a
//     key. What stays has its offset, order and timestamp.
//   - What a failed append left behind the end is never published, and cut away by recovery.
//   - One failed sync or store finishes the log: it takes no more appends, its waiting acknowledgements fail, its durable
//     end stays, and nothing behind that is read any more: memory may show what the disk does not have. It has to be opened
//     again, which goes through recovery; after a failed sync, in the same process, that believes nothing behind the
//     durable end (Options.Believe). If no sync has covered yet what the log was opened with, it is Unproven: that may have
//     been durable before, and the disk tells when no reader has the last segment any more (Released).
//   - The recovery point never goes back, whatever comes late.
//   - Indexes are hints. An entry is believed if the valid batch that it names confirms it; else the index is rebuilt. One
//     that was rebuilt from a log with holes does not hide them from a lookup by time.
//   - Producer snapshots are hints. One is believed if its checksum is right and it says that it is this partition's, at
//     the offset in its name.
//
// # On disk
//
//	<topic>-<partition>/
//	  partition.metadata                version: 0 / topic_id: <22 characters>
//	  00000000000000000000.log          batches back to back; zeros (reserved space) behind the end while active
//	  00000000000000000000.index        offset index, package index
//	  00000000000000000000.timeindex    time index, package index
//	  00000000000000000000.snapshot     producer state before this offset, see snapshot.go
//	  00000000000000000000.log.cleaned  being written by compaction
//	  00000000000000000000.log.swap     complete: stands for every segment whose offsets it has
//
// The number is the offset of the first record that the file may hold (its base offset), twenty digits.
//
// # Append
//
//  1. The producer's sequence is checked; a duplicate is answered with its first offsets.
//  2. The first append since Open marks the partition dirty in the checkpoints, durably, and makes the directory and the first
//     segment if they are missing: every name is synced before anything in it is acknowledged.
//  3. A segment that is full is sealed: trimmed, indexes written, all synced; then the recovery point is moved to its
//     end, durably; then the next segment is made and its name synced. So only the last segment can hold anything past the recovery point.
//  4. Space is reserved in growing steps; a full disk is an error here and has no effect.
//  5. The batch gets its offset and leader epoch, is copied into the segment, indexed, published.
//
// # Retention and trimming
//
//  1. The active segment is rolled if it has come of age, or if all of it may go.
//  2. The log start moves, durably: behind the segments that are too many or too old, or to where TrimTo is told.
//  3. The segments before it are taken out of the row, then unlinked. Whoever reads one keeps it.
//
// # Compaction
//
//  1. The last offset of each key behind the cleaner point is remembered, in bounded memory; what has no room is for the next pass.
//  2. What stays of a segment, or of several neighbours, is written to .cleaned and synced. Where nothing goes, nothing is written.
//  3. It is renamed to .swap, and the directory synced: from here on Open finishes what follows.
//  4. The sources' other files are removed, and the directory synced; .swap is renamed to .log, and the directory synced.
//  5. The row is replaced. Whoever reads a source keeps it.
//
// # Recovery
//
// Each Open removes a .cleaned file, finishes a .swap, and removes what lies before the log start. Of a partition that was not closed in order:
//
//  1. Segments below the recovery point are left alone. From it on batches are read in order, from the disk and not from what a failed sync
//     may have left in the page cache; the log ends at the first one that is not whole: its length, checksum and offset must be right.
//  2. Bytes behind that end that are not zero are copied to the quarantine, synced; segments behind it are moved there.
//  3. If there was such a tail, the last segment is cut to the end and synced, so that nothing behind it can come back.
//     Without one nothing is synced: what was found behind the recovery point waits for that like what is appended, also in
//     Close, and the durable end is where it surely was.
//  4. Producer state is the newest snapshot at or below the end, and the batches behind that.
//  5. A log whose whole batches end below its recovery point has lost what it promised to keep: Open fails with
//     *kafka.CorruptError, and nothing is cut or moved. If all that is lost has been given up (Options.Skips), it goes on behind that.
//
// A crash in the middle of recovery leaves a log on which the same recovery gives the same result.
//
// # Locks
//
// Log.cleaning (a pass of compaction) is taken before Log.shape (segments are taken out, or swapped), that before
// Log.mu (appends, producer state), that before segment.mu (opening and loading of a sealed segment), that before Files.mu; flush.mu (rounds of the
// group commit) is taken alone. To close a file of another log its Log.mu is tried, never waited for. Sealing a segment holds Log.mu while it waits for its turn to
// sync; leaders take no lock while they have theirs. Readers take none of them, except the first
// that touches a sealed segment, one that finds an index wrong, and those of a log that is read only, which look what somebody else has done.
//
// # Not promised
//
// No goroutine and no timer belongs to this package: nothing is flushed unless somebody calls Flush, WaitDurable or Close, and
// nothing removed or compacted unless somebody calls Retain, TrimTo or Compact.
package rlog
