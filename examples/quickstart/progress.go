package main

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/runnelmq/runnel/stream"
)

// progress tells on w how far a run is, at most once a second.
type progress struct {
	w      io.Writer
	stored atomic.Int64 // lines in the topic; counted up by produce
	before int64        // lines counted by earlier runs
	now    int64        // lines counted
	begun  time.Time
	last   time.Time // when something was written to w
}

func newProgress(ctx context.Context, eng *stream.Engine, c stream.Consumer, topic string, w io.Writer) (*progress, error) {
	before, err := committed(ctx, c)
	if err != nil {
		return nil, err
	}
	ends, err := eng.Admin().EndOffsets(ctx, c.Assignment()...)
	if err != nil {
		return nil, err
	}
	p := &progress{w: w, before: before, now: before, begun: time.Now(), last: time.Now()}
	for _, o := range ends {
		p.stored.Add(o.Offset)
	}
	if n := p.stored.Load(); n > 0 {
		fmt.Fprintf(w, "going on: %s lines are stored, %s of them are counted\n", humanize.Comma(n), humanize.Comma(before))
	}
	return p, nil
}

// counted adds n counted lines.
func (p *progress) counted(n int) {
	p.now += int64(n)
	if time.Since(p.last) < time.Second {
		return
	}
	p.last = time.Now()
	rate := float64(p.now-p.before) / time.Since(p.begun).Seconds()
	stored := max(p.now, p.stored.Load()) // what is counted may be part of a call that has not returned
	fmt.Fprintf(p.w, "%s lines stored, %s counted, %s lines/s\n", humanize.Comma(stored), humanize.Comma(p.now), humanize.Comma(int64(rate)))
}

// end tells what the run has done; n lines are counted.
func (p *progress) end(n int64) {
	fmt.Fprintf(p.w, "%s lines counted by this run in %v\n", humanize.Comma(n-p.before), time.Since(p.begun).Round(time.Millisecond))
}
