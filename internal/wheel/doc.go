// Package wheel is a hierarchical timing wheel driven by a delay queue of buckets: it arms and cancels a timer in
// constant time, however many timers are pending.
//
// # How it works
//
// Time is counted in ticks of one millisecond since New. A level is a ring of 20 buckets; the buckets of the lowest
// level are one tick wide, those of each level above are as wide as the whole ring below:
//
//	level   a bucket is   a ring spans
//	  0          1 ms           20 ms
//	  1         20 ms          400 ms
//	  2        400 ms            8 s
//	  3          8 s           160 s
//	  4        160 s            53 min
//	  …           …             …
//	  9       16.2 years       325 years
//
// A timer goes into the lowest level whose ring reaches its tick, into the bucket that covers that tick. Levels are
// made when a timer first needs them. A bucket that receives its first timer enters a queue ordered by the time at which
// the bucket begins, once for all its timers. One goroutine, the clock, sleeps until the first bucket in the queue begins.
// Then the timers of that bucket move down: each is placed again, and is now near enough for a lower level. At the
// lowest level a bucket is one tick and all of its timers are due; they are handed over to the workers in one step.
//
// A timer of 450 ms, armed at tick 15 (it is due at tick 465), travels like this:
//
//	tick   what happens                                     where the timer is
//	  15   armed; level 0 reaches tick 34, level 1 tick     level 2, bucket [400, 800)
//	       399, level 2 tick 7999
//	 400   the bucket begins: 465 is 65 ticks ahead, level   level 1, bucket [460, 480)
//	       0 reaches tick 419, level 1 tick 799
//	 460   the bucket begins: 465 is 5 ticks ahead, level 0  level 0, bucket [465, 466)
//	       reaches tick 479
//	 465   the bucket begins: the timer is due               ready, then on a worker
//
// It moved twice. A timer moves at most once per level, and one that is cancelled early, the common fate of a timeout,
// never moves. Moving a bucket down holds the lock for a bounded number of timers at a time.
//
// # Invariants
//
//   - A timer that is armed once either fires once or is cancelled by one Cancel that returns true, never both.
//   - It fires at the first tick at which its duration has passed: not earlier, and, the machine permitting, less than
//     one tick later.
//   - No bucket in the queue begins at or before the wheel's current tick, the one that is moving down excepted. Hence
//     the 20 buckets of a ring never mean two times at once.
//   - While timers are ready and no worker is free to take the next one, a worker is being started. So a callback that
//     is slow or blocks for ever delays no other, and quick callbacks share a few workers.
//   - No lock is held while a callback runs. A panic in a callback ends that callback and nothing else.
//   - The clock's own timer is armed only while the queue has a bucket. A cancelled timer leaves its bucket in the
//     queue, since the next timer is likely to need it again; empty buckets are dropped together when the clock next
//     wakes. So a wheel whose last timer was cancelled wakes at most once more, and then not at all.
//
// Time comes from package time alone, by the monotonic clock: stepping the wall clock moves no timer, and in a
// testing/synctest bubble (New called inside it) everything happens at exact virtual times.
//
// # What is not promised
//
// Timers due at the same tick are started in no particular order and run concurrently. The number of workers is not
// limited: there are as many as callbacks that block, and about one per processor more. Nothing survives the
// process.
package wheel
