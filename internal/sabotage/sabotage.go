// Package sabotage breaks Runnel's promises on purpose, one at a time, to show that the tests notice. It does so only in binaries built
// with the tag sabotage, and there only what the environment variable RUNNEL_SABOTAGE names; in all others On is the constant false, and what it guards is
// not compiled.
//
// docs/RELIABILITY.md says which test, with which seed, catches which switch; internal/crashtest runs them.
package sabotage

// Switch names a promise that is broken.
type Switch string

const (
	// NoSync acknowledges as synced what no sync has covered.
	NoSync Switch = "no-sync-before-ack"
	// SyncBeforeWrite takes for durable what was written while the sync was running.
	SyncBeforeWrite Switch = "sync-before-write"
	// NoDirSync acknowledges records in a segment whose name is not durable.
	NoDirSync Switch = "no-dir-sync-after-roll"
	// KeepTail leaves the torn tail in place in recovery.
	KeepTail Switch = "tail-not-cleared"
	// IgnoreCRC believes every batch in recovery whose lengths fit.
	IgnoreCRC Switch = "recovery-ignores-crc"
	// TrustProducers takes the newest producer snapshot for the state at the log's end, whatever happened behind it.
	TrustProducers Switch = "producer-state-trusted"
	// RetrySync tries a sync that has failed once more, and believes the second answer.
	RetrySync Switch = "failed-sync-retried"
	// Unmap closes a segment that is taken away under its readers.
	Unmap Switch = "unmap-under-readers"
	// SwapNoSync swaps a compacted segment in that is not durable.
	SwapNoSync Switch = "swap-without-sync"
	// DirSyncFirst syncs the directory before a compacted segment gets its name, and not behind it.
	DirSyncFirst Switch = "dir-sync-before-rename"
	// AnyGeneration takes commits and heartbeats from members of every generation.
	AnyGeneration Switch = "generation-not-checked"
	// CommitAhead commits offsets that the log does not hold durably.
	CommitAhead Switch = "commit-ahead-of-durable"
)

// All are the switches.
var All = []Switch{NoSync, SyncBeforeWrite, NoDirSync, KeepTail, IgnoreCRC, TrustProducers, RetrySync, Unmap, SwapNoSync, DirSyncFirst, AnyGeneration, CommitAhead}
