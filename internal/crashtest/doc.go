// Package crashtest attacks Runnel from outside and holds what is left against what was promised: simulated losses of
// power and ends of the process after every storage operation, real kills of a child process, real losses of power on file
// systems of its own, operations, disks and devices that fail, damage to every kind of file, and concurrent histories that
// have to be linearizable. It knows the engine by its documentation only.
//
// # What is checked
//
// Drivers (LogCampaign, EngineCampaign, KillLoop, PowerCutLoop) run histories that follow from a seed, keep beside the engine a model of
// what was sent and what was acknowledged, and return a *Failure that names the seed and the invariant. Tests run them in
// a short form; flags make them long. Recovery is stopped inside, operations of the disk fail, and concurrent histories go on
// across stops in tests of their own. Old records are removed and compacted in the histories, under readers and beside failing operations; golden traces
// hold the order of what the disk is asked for; a soak does everything at once. MutationCampaign and HintCampaign damage directories that an engine or a log has left.
//
//	A1  acknowledged as written: there after the end of the process      log, engine, kill, faults, linear
//	A2  acknowledged as synced: there after a loss of power              log, engine, power, faults, linear
//	A3  what is lost is a suffix of what was sent                        log, engine, kill, power, faults, linear
//	A4  no half batch, every byte as it was sent                         log, engine, kill, power, faults, linear
//	A5  offsets are dense; the epoch rises after an unclean stop         log, engine, kill, power, faults
//	A6  nothing behind the recovered end comes back                      log, engine, power, recovery (stop, recover, append, stop)
//	A7  recovery interrupted gives the same result                       recovery (every operation, three deep), log, engine
//	A8  damage below the recovery point is reported, its bytes stay      damage, environment
//	A9  the clean mark is gone before anything is appended               engine
//	A10 topics are made and deleted whole or not at all; so are rolls,
//	    swaps and removals, and no file is left behind                   log, engine, power, faults, traces, recovery, soak
//	A11 the log start never goes back; it is durable before files go     log, engine, power, faults, traces, soak
//	A12 compaction keeps the last value of each key, and what it must    log, engine, power, faults, soak
//	A13 the offset for a time is what a scan finds                       damage, environment
//	A14 indexes are hints                                                damage
//	B1  a reader meets no signal and no wrong byte                       environment, readers, soak
//	B3  append, read and end offset are linearizable, also across stops  linear
//	C1  a sequence is in the log once, also across crashes               log, engine, kill, power, faults, damage
//	C2  a gap is refused, an old epoch fenced                            log
//	C3  a damaged producer snapshot costs time only                      damage
//	E3  a committed offset survives and is covered by a durable log      engine, kill, power, faults
//	F1  Close ends whatever has become of the directory                  environment
//	F2  a full disk fails appends without an effect                      faults, environment
//	F3  a read that fails fails alone                                    faults, environment
//	F4  a failed sync is not believed; the engine recovers by itself     faults, power, environment
//	F5  what cannot be written is a clear error, or can be read only     environment, read only
//	F6  a second opener is kept out                                      environment
//	F7  a damaged file: the same data, or a part and an explicit error   damage
//	F8  the wall clock may step                                          environment
//	F11 few open files                                                   budget
//	F12 few mappings                                                     budget
//	F13 a limit on the size of files is a full disk                      environment
//	F15 directories of earlier versions open                             directories
//
// # How an image is checked
//
//  1. The disk is imaged in the middle of the history: by vfs.Sim.Cut with none, all or any subset of what was not synced,
//     or by vfs.Sim.Crash. What keeps the log's marks (package meta, or a stand-in) loses a suffix of its unsynced writes.
//  2. The log or engine is opened on the image. Its end must lie between what was acknowledged and what was sent; every
//     record up to there is compared byte for byte.
//  3. Retries, gaps and old epochs are tried.
//  4. Some images live on: lost batches are sent again, or others of the same sizes; then the disk is imaged again, also
//     while recovery is running, up to three deep.
//
// # How to run it
//
//	go test ./internal/crashtest                                                    short
//	go test ./internal/crashtest -args -cuts 150000 -enginecuts 20000 -kills 300 \
//	  -histories 1000 -crashhistories 1000 -recoverythird 1 -logfaults 30 \
//	  -enginefaults 4000 -loadfaults 1000 -powercuts 100 -mutations 2000 \
//	  -hints 50000 -cleanfaults 4                                                   CI
//	go test -tags invariants ./internal/crashtest -run Readers                      CI: what is released faults when it is touched
//	go test -race ./internal/crashtest -run Linear                                  CI
//	go test -tags sabotage ./internal/crashtest -run TestSabotage                   CI: promises broken on purpose are noticed
//	go test ./internal/crashtest -timeout 0 -args -cuts 2000000 -kills 20000 \
//	  -powercuts 5000 -mutations 200000 -environ 50                                 long
//	go test ./internal/crashtest -timeout 0 -run TestSoak -args -soak 30m           long
//	go test ./internal/crashtest -run Kafka -args -kafkadump                        Kafka's own tool reads what is left
//	go test ./internal/crashtest -run TestLog -args -seed 4711                      again, beginning with this seed
//	go test ./internal/crashtest -run TestReplay -args -replay FILE                 a failing image, as often as one likes
//	go test ./internal/crashtest -run FailingOp -args -seed 4711 -faultrun 42       one run with a failing operation
//
// Cuts of the whole engine are a tenth of -cuts unless -enginecuts says how many. A seed of the log's campaign repeats
// exactly; in the engine's the metadata store writes beside the driver, so the image repeats and the seed nearly does; in
// the kill loop and in losses of power a seed repeats what is done, not when it is stopped. Of a run with a failing operation
// the seed is the one that the test began with. What needs root, a loop device, mkfs or strace is skipped where there is none.
//
// # Not covered
//
// In the log's campaign concurrent appends are simulated only where one can be placed exactly: while a sync of the log is running.
// Operations that fail in simulation are those of Sim.Inject: opening, listing and describing files always succeeds there.
// A loss of power stops a file system, not a machine: its drive goes on.
package crashtest
