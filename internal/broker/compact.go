package broker

import (
	"cmp"
	"errors"
	"slices"
	"time"

	rlog "github.com/runnelmq/runnel/log"

	"github.com/runnelmq/runnel/internal/kafka"
)

// errUnwanted ends a pass over a topic that is not compacted any more.
var errUnwanted = errors.New("the topic is not compacted any more")

// soiled is a partition that is worth a pass.
type soiled struct {
	p     *Partition
	f     *Life
	ratio float64
}

// compact makes a pass over every partition that is worth one, the dirtiest first, and reports whether any topic is compacted.
func (c *cleaner) compact() bool {
	var work []soiled
	now := c.surely()
	any := c.each(func(cfg *topicConfig) bool { return cfg.Compact }, func(p *Partition) {
		rolled := p.clean.rolled.Swap(false)
		cfg := p.t.config.Load() // now: who changes it says so afterwards
		timed := cfg.MinLag > 0 || cfg.MaxLag < forever
		if !cfg.Compact || !rolled && !timed {
			return
		}
		f, err := p.Life()
		if err != nil || f.l.Err() != nil {
			p.clean.rolled.Store(true) // when it is open again
			return
		}
		d := f.l.Dirty(now, cfg.MinLag)
		if d.Dirty == 0 {
			return
		}
		ratio := float64(d.Dirty) / float64(d.Clean+d.Dirty)
		late := d.Oldest >= 0 && time.Duration(now-d.Oldest)*time.Millisecond > cfg.MaxLag
		if ratio > cfg.DirtyRatio || late {
			work = append(work, soiled{p, f, ratio})
		}
	})
	slices.SortStableFunc(work, func(a, b soiled) int { return cmp.Compare(b.ratio, a.ratio) })
	for _, w := range work {
		if c.ctx.Err() != nil {
			break
		}
		c.compactPartition(w)
	}
	return any
}

func (c *cleaner) compactPartition(w soiled) {
	for more := true; more; {
		cfg := w.p.t.config.Load()
		if !cfg.Compact {
			return
		}
		done, err := w.f.l.Compact(c.ctx, rlog.Compaction{
			Now:             c.surely(),
			DeleteRetention: cfg.DeleteRetention,
			MinLag:          cfg.MinLag,
			MapBytes:        c.b.o.Clean.Memory,
			Pace:            c.pace,
			Ready:           func() error { return c.ready(w.p) },
		})
		c.report(w, done)
		if err != nil {
			c.failed(w, err)
			return
		}
		more = done.More
	}
}

// surely is the wall clock in ms, without what of it is in doubt: tombstones do not go for a jump.
func (c *cleaner) surely() int64 { return c.b.clock.millis() - c.clock.Ahead.Milliseconds() }

func (c *cleaner) report(w soiled, done rlog.Compacted) {
	for _, err := range done.Damaged {
		c.b.o.Logger.Error("segment is damaged and is not compacted", "partition", w.p.tp, "error", err)
		var d *kafka.CorruptError
		if !errors.As(err, &d) || !w.f.l.Skipped(d.From, d.To) {
			w.f.ReadError(err)
		}
	}
	if done.Segments == 0 {
		return
	}
	c.b.o.Logger.Info("compacted", "partition", w.p.tp, "from", done.From, "to", done.To, "before", done.Read, "after", done.Written, "records", done.Records, "kept", done.Kept)
	if c.b.o.Events.Compacted != nil {
		c.b.o.Events.Compacted(w.p.tp, done.From, done.To, done.Read, done.Written)
	}
}

func (c *cleaner) failed(w soiled, err error) {
	if errors.Is(err, errUnwanted) || errors.Is(err, kafka.ErrClosed) || c.ctx.Err() != nil {
		return
	}
	w.p.clean.rolled.Store(true) // once more, in the next round
	c.b.o.Logger.Warn("compaction", "partition", w.p.tp, "error", err)
}

// ready is called before a segment is swapped: the records that go may be the only ones that tell where a named producer stands.
func (c *cleaner) ready(p *Partition) error {
	if !p.t.config.Load().Compact {
		return errUnwanted
	}
	return p.settleNames()
}

// pace lets others have the disk. In between, retention goes on.
func (c *cleaner) pace(n int) error {
	select {
	case <-c.kick:
		c.expire()
		c.b.wheel.Schedule(&c.timer, c.b.o.Clean.Interval)
	default:
	}
	return c.pacer.pace(c.ctx, n)
}
