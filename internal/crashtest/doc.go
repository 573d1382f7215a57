// Package crashtest attacks Runnel from outside and holds what is left against what was promised: simulated losses of
// power and ends of the process after every storage operation, real kills of a child process, and concurrent histories
// that have to be linearizable. It knows the engine by its documentation only.
//
// # What is checked
//
// Drivers (LogCampaign, EngineCampaign, KillLoop) run histories that follow from a seed, keep beside the engine a model of
// what was sent and what was acknowledged, and return a *Failure that names the seed and the invariant. Tests run them in
// a short form; flags make them long. Recovery is stopped inside, operations of the disk fail, and concurrent histories go on
// across stops in tests of their own.
//
//	A1  acknowledged as written: there after the end of the process      log, engine, kill, faults, linear
//	A2  acknowledged as synced: there after a loss of power              log, engine, faults, linear
//	A3  what is lost is a suffix of what was sent                        log, engine, kill, faults, linear
//	A4  no half batch, every byte as it was sent                         log, engine, kill, faults, linear
//	A5  offsets are dense; the epoch rises after an unclean stop         log, engine, kill, faults
//	A6  nothing behind the recovered end comes back                      log, engine, recovery (stop, recover, append, stop)
//	A7  recovery interrupted gives the same result                       recovery (every operation, three deep), log, engine
//	A9  the clean mark is gone before anything is appended               engine
//	B3  append, read and end offset are linearizable, also across stops  linear
//	C1  a sequence is in the log once, also across crashes               log, engine, kill, faults
//	C2  a gap is refused, an old epoch fenced                            log
//	E3  a committed offset survives and is covered by a durable log      engine, kill, faults
//	F2  a full disk fails appends without an effect                      faults
//	F3  a read that fails fails alone                                    faults
//	F4  a failed sync is not believed; the engine recovers by itself     faults
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
//	  -enginefaults 4000 -loadfaults 1000                                           CI
//	go test -race ./internal/crashtest -run Linear                                  CI
//	go test ./internal/crashtest -timeout 0 -args -cuts 2000000 -kills 20000        long
//	go test ./internal/crashtest -run TestLog -args -seed 4711                      again, beginning with this seed
//	go test ./internal/crashtest -run TestReplay -args -replay FILE                 a failing image, as often as one likes
//	go test ./internal/crashtest -run FailingOp -args -seed 4711 -faultrun 42       one run with a failing operation
//
// Cuts of the whole engine are a tenth of -cuts unless -enginecuts says how many. A seed of the log's campaign repeats
// exactly; in the engine's the metadata store writes beside the driver, so the image repeats and the seed nearly does; in
// the kill loop a seed repeats what is done, not when it is killed.
//
// # Not covered
//
// In the log's campaign concurrent appends are simulated only where one can be placed exactly: while a sync of the log is running.
// Operations that fail are those of Sim.Inject: opening, listing and describing files always succeeds.
package crashtest
