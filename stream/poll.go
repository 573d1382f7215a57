package stream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/runnelmq/runnel/internal/kafka"
)

func (c *consumer) Poll(ctx context.Context, max int) ([]Record, error) {
	if max < 1 {
		max = defaultMaxRecords
	}
	max = min(max, maxRecords)
	if err := c.turnToPoll(ctx); err != nil {
		return nil, err
	}
	defer c.polled()
	if len(c.scratch) < max {
		c.scratch = make([]Record, max)
	}
	n, err := c.pollInto(ctx, c.scratch[:max])
	if c.c.Borrow {
		return c.scratch[:n:n], err
	}
	rs := slices.Clone(c.scratch[:n])
	clear(c.scratch[:n]) // the records are the caller's alone
	return rs, err
}

func (c *consumer) PollInto(ctx context.Context, dst []Record) (int, error) {
	if err := c.turnToPoll(ctx); err != nil {
		return 0, err
	}
	defer c.polled()
	return c.pollInto(ctx, dst)
}

// turnToPoll waits until no other call polls. A channel and no lock: it is held across a wait.
func (c *consumer) turnToPoll(ctx context.Context) error {
	select {
	case <-c.closing:
		return kafka.ErrClosed
	default:
	}
	if c.telling.Load() {
		return fmt.Errorf("%w: the listener does not poll", kafka.ErrRebalance)
	}
	select {
	case c.polling <- struct{}{}:
		return nil
	default:
	}
	select {
	case c.polling <- struct{}{}:
		return nil
	case <-c.closing:
		return kafka.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *consumer) polled() {
	if c.c.Group != "" {
		c.mu.Lock()
		c.heard()
		c.mu.Unlock()
	}
	<-c.polling
}

// pollInto is poll that hands over what it returns.
func (c *consumer) pollInto(ctx context.Context, dst []Record) (int, error) {
	n, err := c.poll(ctx, dst, c.c.MaxWait)
	if n > 0 {
		c.consumed(dst[:n])
		c.mu.Lock()
		for _, t := range c.mu.tracks {
			t.handOver()
		}
		for _, r := range c.runs {
			if r.n > 0 {
				c.mu.watched.hand = r.t
			}
		}
		c.mu.Unlock()
	}
	return n, err
}

// loopWait is how long a loop waits at a time.
func (c *consumer) loopWait() time.Duration {
	if c.c.MaxWait < 0 { // it would never rest
		return defaultMaxWait
	}
	return c.c.MaxWait
}

// poll fills dst, waiting up to wait, as PollInto promises. c.polling is held.
func (c *consumer) poll(ctx context.Context, dst []Record, wait time.Duration) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if err := c.lockToPoll(); err != nil {
		return 0, err
	}
	for _, t := range c.mu.tracks {
		t.body = -1               // who polls again is done with it
		if t.next != t.position { // a loop around this poll has fetched ahead: what it has not yielded is read now
			t.moveTo(t.position, t.epoch)
			t.seeks++
		}
		t.takeBack()
		t.spare()
	}
	c.takeBack()
	c.mu.Unlock()
	if err := c.commitDue(ctx); err != nil {
		return 0, err
	}
	if len(dst) == 0 {
		return 0, nil
	}
	if n, err := c.next(ctx, dst, wait < 0); n > 0 || err != nil && !passing(err) || wait < 0 {
		return n, err
	}
	return c.await(ctx, dst, wait)
}

// next does what the group asks for, and takes what is there: if that is less than MinBytes, only when it is late.
func (c *consumer) next(ctx context.Context, dst []Record, late bool) (int, error) {
	if err := c.attend(ctx); err != nil {
		return 0, err
	}
	if c.c.MinBytes > 1 && !late && !c.enough() {
		return 0, nil
	}
	return c.collect(dst)
}

// enough reports whether there are MinBytes to read, or something else that a poll returns at once.
func (c *consumer) enough() bool {
	if c.lockToPoll() != nil {
		return true
	}
	defer c.mu.Unlock()
	if len(c.mu.tracks) == 0 {
		return true
	}
	sum := int64(0)
	for _, t := range c.mu.tracks {
		if t.idle() {
			continue
		}
		n, err := c.bytesFrom(t)
		if err != nil || n >= int64(c.c.MinBytes) {
			return true
		}
		sum += n
	}
	return sum >= int64(c.c.MinBytes)
}

// bytesFrom is how many bytes a track has before it.
func (c *consumer) bytesFrom(t *track) (int64, error) {
	if err := c.place(t); err != nil {
		return 0, err
	}
	life, err := t.p.Life()
	if err != nil {
		return 0, err
	}
	if end, err := c.end(t.p); err != nil || t.next >= end {
		return 0, err
	}
	return life.BytesFrom(t.next)
}

// passing reports whether err is one of the store of all partitions, which comes back by itself: a poll waits for that as for records.
func passing(err error) bool { return errors.Is(err, kafka.ErrMetaFailed) }

// collect takes what is there now from the partitions in turn.
func (c *consumer) collect(dst []Record) (int, error) {
	if err := c.lockToPoll(); err != nil {
		return 0, err
	}
	defer c.mu.Unlock()
	if c.c.Group == "" {
		if err := c.follow(false); err != nil {
			return 0, err
		}
	}
	tracks := c.mu.tracks
	if len(tracks) == 0 && c.mu.sub.empty() {
		return 0, kafka.ErrNoSubscription
	}
	n, room := 0, c.c.MaxBytes
	var later error // of partitions that could not be looked at, if there is nothing in the others
	c.runs = c.runs[:0]
	for i := range tracks {
		k := (c.mu.turn + i) % len(tracks)
		if tracks[k].idle() {
			continue
		}
		m, err := c.fillOrReset(tracks[k], dst[n:], &room, n == 0)
		n += m
		c.runs = append(c.runs, run{tracks[k], tracks[k].seeks, m})
		if passing(err) && m == 0 {
			later = err
			continue
		}
		if err != nil && n == 0 {
			return 0, err
		}
		if err != nil || n == len(dst) || room <= 0 || n > 0 && c.c.Borrow && tracks[k].life.Tight() {
			// The next poll begins with the next partition, so that a busy one starves nobody; with the one that failed, if
			// records come first now.
			c.mu.turn = k + 1
			if err != nil {
				c.mu.turn = k
			}
			break
		}
	}
	if n == 0 {
		return 0, later
	}
	return n, nil
}

// fillOrReset is fill; a position outside the log is moved by the reset policy. If records come before an error, the error waits for the
// next poll; else the partition is passed over from now on.
func (c *consumer) fillOrReset(t *track, dst []Record, room *int, first bool) (n int, err error) {
	n, err = c.fill(t, dst, room, first)
	for at := int64(-1); n == 0 && errors.Is(err, kafka.ErrOffsetOutOfRange) && t.next != at; { // retention may overtake the new position too
		at = t.next
		if err = c.reset(t, err); err == nil {
			n, err = c.fill(t, dst, room, first)
		}
	}
	if errors.Is(err, kafka.ErrClosed) && t.p.Topic().Deleted() {
		err = t.p.Gone()
	}
	if err == nil || n > 0 || errors.Is(err, kafka.ErrClosed) {
		return n, err
	}
	t.leave()
	if passing(err) {
		return 0, err
	}
	if !first {
		return 0, err // other partitions' records come first: the next poll meets the error again
	}
	t.failure = err
	return 0, &PartitionError{t.tp, t.position, err}
}

// await waits for records for so long. Between registering with the partitions and waiting it looks once more: see broker.watchers.
func (c *consumer) await(ctx context.Context, dst []Record, wait time.Duration) (int, error) {
	deadline := time.Now().Add(wait)
	look := wait
	if c.e.o.ReadOnly { // nobody says when another engine appends
		look = min(look, lookEvery)
	}
	c.e.b.Wheel().Schedule(&c.timer, look)
	defer c.e.b.Wheel().Cancel(&c.timer)
	c.e.b.Watch(c.waiter)
	defer c.e.b.Unwatch(c.waiter)
	for {
		watched := c.watch()
		n, err := c.next(ctx, dst, false)
		if n == 0 && (err == nil || passing(err)) {
			select {
			case <-c.waiter.C:
				err = nil
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		for i, t := range watched {
			t.p.Unwatch(c.waiter)
			watched[i] = nil
		}
		if n > 0 || err != nil {
			return n, err
		}
		late := !time.Now().Before(deadline)
		if n, err := c.next(ctx, dst, late); n > 0 || err != nil && !passing(err) || late {
			return n, err
		}
		if look < wait {
			c.e.b.Wheel().Schedule(&c.timer, min(look, time.Until(deadline)))
		}
	}
}

// lookEvery is the time between two looks for what another engine has appended.
const lookEvery = 50 * time.Millisecond

// watch registers with the assigned partitions.
func (c *consumer) watch() []*track {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watching = c.watching[:0]
	for _, t := range c.mu.tracks {
		if !t.idle() { // Resume and Seek wake the waiter themselves
			t.p.Watch(c.waiter)
			c.watching = append(c.watching, t)
		}
	}
	return c.watching
}

// recordsAtOnce is how many records Records fetches at a time.
const recordsAtOnce = 256

func (c *consumer) Records(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var buf [recordsAtOnce]Record
		for {
			runs, shown, err := c.fetch(ctx, buf[:])
			if err != nil {
				if !yield(Record{}, err) || loopEnds(ctx, err) {
					return
				}
				continue
			}
			if !c.yieldAll(buf[:], shown, runs, yield) {
				return
			}
		}
	}
}

// loopEnds reports whether an error is the last one of a loop.
func loopEnds(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, kafka.ErrClosed) || errors.Is(err, kafka.ErrNoSubscription) || kafka.IsFatal(err)
}

// run is a number of records that were fetched one after the other from a track, whose position had been set so often.
type run struct {
	t     *track
	seeks int
	n     int
}

// fetch is PollInto that hands nothing over. shown are the records as they are to be yielded.
func (c *consumer) fetch(ctx context.Context, dst []Record) (runs []run, shown []Record, err error) {
	if err := c.turnToPoll(ctx); err != nil {
		return nil, nil, err
	}
	defer c.polled()
	n, err := c.poll(ctx, dst, c.loopWait())
	return slices.Clone(c.runs), c.shown(dst[:n]), err
}

// holds reports whether what was fetched in a run is still what its partition gives next; c.mu is held.
func (c *consumer) holds(r run) bool { return c.mu.byTP[r.t.tp] == r.t && r.t.seeks == r.seeks }

// yieldAll yields fetched records and reports whether the loop goes on. Before each one its position moves behind it, so that a commit in the
// loop body covers it and nothing later. What is not yielded in the end is read again.
func (c *consumer) yieldAll(rs, shown []Record, runs []run, yield func(Record, error) bool) bool {
	defer c.rewind(runs)
	for _, r := range runs {
		of, show := rs[:r.n], shown[:r.n]
		rs, shown = rs[r.n:], shown[r.n:]
		for i := range of {
			c.mu.Lock()
			// The body may have moved the position, paused the partition or given it up: then nothing more of it is yielded.
			// Nor when the group waits for the consumer to join again.
			if !c.holds(r) || r.t.idle() || c.mu.member.phase == phaseIn && c.summoned.Load() {
				c.mu.Unlock()
				break
			}
			r.t.position, r.t.epoch = of[i].Offset+1, of[i].LeaderEpoch
			r.t.body = of[i].Offset
			c.mu.watched.hand = r.t
			c.mu.Unlock()
			if !yield(show[i], nil) {
				return false
			}
			c.mu.Lock()
			r.t.body = -1
			c.mu.watched.progress++
			c.mu.Unlock()
		}
	}
	return true
}

// rewind goes back to what has not been yielded.
func (c *consumer) rewind(runs []run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range runs {
		if c.holds(r) && r.t.next != r.t.position {
			if c.c.Borrow { // what has been yielded is the caller's until the next poll
				r.t.lend()
			}
			r.t.moveTo(r.t.position, r.t.epoch)
		}
	}
}
