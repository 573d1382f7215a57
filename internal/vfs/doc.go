// Package vfs is where Runnel meets the ground: files that can be reserved, mapped, synced and locked. There are three
// grounds with one behaviour: Disk (this machine's file system), Memory (nothing survives the process) and Sim (a
// disk whose power can be cut after any operation and whose operations fail on demand). Pebble stands on the same
// ground: what one puts there the other finds. ReadOnly is a view of any of them that changes nothing.
//
// Nothing above this package imports mmap-go, x/sys, unsafe or the file functions of os.
//
// # Invariants
//
//   - Space comes before stores. A byte is stored through a mapping only where Reserve has allocated its block, so a
//     full disk is an error of Reserve or of WriteAt and never a signal. What cannot be reserved is written by pwrite.
//   - A failed Reserve leaves the file as it was: fallocate keeps partial allocations, so the old size is restored.
//   - Only the writer's own mapping is writable. Every slice that Window returns comes from a read-only mapping, from a
//     chunk on the heap, or from the caller's buffer.
//   - Touching mapped bytes under Arm and Catch ends in a *FaultError at worst. No other panic is swallowed.
//   - Sync is fdatasync (F_FULLFSYNC on darwin), never msync, and is never retried. An interrupted call is no failure.
//   - Mapping is an optimisation: when address space, the map budget (at most a quarter of vm.max_map_count, because
//     the Go runtime dies at the limit) or the file system does not allow it, the same calls use pread and pwrite.
//   - A lock file is never removed, and a lock counts only if its file is still the one the name leads to. Asking
//     whether it is held writes nothing and makes nobody's Lock fail.
//
// # After a crash
//
// Of a process (kill -9): everything that WriteAt, Reserve, Truncate, Create, Rename and Remove did is there; locks
// are gone. Of the machine:
//
//  1. bytes and size of a file as of its last successful Sync are there,
//  2. what was written after it survives by sectors of 512 bytes, in any subset, old or new size,
//  3. of each directory the operations up to its last SyncDir have happened, and of those after it a prefix; a rename
//     is one operation, also between two directories.
//
// Sim gives no more than this and draws the rest from a seed.
//
// # Not guaranteed
//
//   - After a failed Sync nothing is known about the file: a second Sync may report success without having written
//     anything, and reads may show bytes that the disk does not have. DropCache shows the truth where it can: pages that
//     somebody has mapped stay in memory, and look clean.
//   - Where the file system cannot reserve (no fallocate), Reserve only sets the size; ENOSPC then comes from WriteAt.
//   - On Windows an open file cannot be replaced by Rename, and SyncDir does nothing.
//   - Using a file, or a window of it, after Close is a bug of the caller. Built with -tags invariants, a late touch of
//     mapped memory faults with a stack instead of reading whatever was mapped there next, as long as the range is
//     among the last 256 that were released.
package vfs
