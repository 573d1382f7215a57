package stream_test

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// damage inverts the last byte of the batch with an offset, while no engine is open, and returns the segment's path.
func (g *timed) damage(p stream.TopicPartition, offset int64) string {
	g.t.Helper()
	dir := path.Join("/data/topics", p.String())
	for _, i := range must(g.fs.List(dir))(g.t) {
		if !strings.HasSuffix(i.Name, ".log") {
			continue
		}
		name := path.Join(dir, i.Name)
		f := must(g.fs.Open(name, 0))(g.t)
		b := make([]byte, i.Size)
		must(f.ReadAt(b, 0))(g.t)
		for pos := 0; pos < len(b); {
			n, err := batch.Peek(b[pos:])
			if err != nil {
				break
			}
			if at := batch.Batch(b[pos : pos+n]); at.BaseOffset() <= offset && offset <= at.LastOffset() {
				must(f.WriteAt([]byte{b[pos+n-1] ^ 0xff}, int64(pos+n-1)))(g.t)
				check(g.t, f.Sync())
				check(g.t, f.Close())
				g.keepTime(name, i)
				return name
			}
			pos += n
		}
		check(g.t, f.Close())
	}
	g.t.Fatalf("offset %d is in no file", offset)
	return ""
}

// keepTime gives a file the modification time that it had: damage of a disk does not change it.
func (g *timed) keepTime(name string, i vfs.Info) {
	g.t.Helper()
	check(g.t, g.fs.SetModTime(name, i.ModTime))
}

// F7, A12: a damaged segment of a compacted topic is passed over and told once; the others are compacted as ever, in this life of the engine and in later ones, and its bytes stay.
func TestCompactionPassesOverDamage(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		a, b := tp("a", 0), tp("b", 0)
		config := stream.TopicConfig{Cleanup: stream.CleanupCompact, Config: map[string]string{"min.cleanable.dirty.ratio": "0", "min.compaction.lag.ms": "3600000"}}
		g.topic("a", config)
		g.topic("b", config)
		g.keyed(a, 200, 5)
		g.keyed(b, 200, 5)
		g.close()
		file := g.damage(a, 67)
		size := must(g.fs.Stat(file))(t).Size
		g.open()
		g.wait(30 * time.Minute)
		eq(t, "events before anybody has looked", len(g.seen.damages()), 0)
		g.wait(45 * time.Minute)
		eq(t, "events", len(g.seen.damages()), 1)
		d := g.seen.damages()[0]
		if d.TopicPartition != a || d.From > 67 || d.To <= 67 || d.File != file {
			t.Errorf("the event says %v", d)
		}
		eq(t, "size of the damaged file", must(g.fs.Stat(file))(t).Size, size)
		if n := len(readAll(t, g.eng, b)); n > 20 {
			t.Errorf("%d records of the other topic are left", n)
		}
		count := func() int {
			c := newConsumer(t, g.eng, stream.ConsumerConfig{Reset: stream.ResetEarliest})
			check(t, c.Assign(a))
			n, last := 0, map[string]int64{}
			for range 100 {
				rs, err := c.Poll(t.Context(), 0)
				if err == nil && len(rs) == 0 {
					break
				}
				if err != nil {
					wantErr(t, err, stream.ErrCorrupt)
					check(t, c.Seek(a, 68))
				}
				for _, r := range rs {
					n++
					last[string(r.Key)] = r.Offset
				}
			}
			check(t, c.Close(t.Context()))
			end := endOf(t, g.eng, a)
			for i := range int64(5) {
				if o := last[fmt.Sprint((end-5+i)%5)]; o != end-5+i {
					t.Errorf("the last record of a key is at %d, not %d", o, end-5+i)
				}
			}
			return n
		}
		if n := count(); n > 35 {
			t.Errorf("%d records are left", n)
		}
		for range 3 {
			g.keyed(a, 100, 5)
			g.wait(2 * time.Hour)
			if n := count(); n > 35 {
				t.Errorf("%d records are left", n)
			}
		}
		eq(t, "events", len(g.seen.damages()), 1)
		g.reopen()
		g.keyed(a, 100, 5)
		g.wait(2 * time.Hour)
		if n := count(); n > 35 {
			t.Errorf("%d records are left", n)
		}
		// Given up, it is still nobody's to rewrite, and nobody is told again.
		check(t, g.eng.SkipCorrupt(t.Context(), a, 67, 68))
		n := len(g.seen.damages())
		g.keyed(a, 100, 5)
		g.wait(2 * time.Hour)
		eq(t, "events", len(g.seen.damages()), n)
		eq(t, "errors", len(readAll(t, g.eng, a)) < 35, true)
	})
}

// F7: damage does not keep retention from its work: a damaged segment goes when those around it do, by time and by size, and by DeleteRecords.
func TestRetentionPassesOverDamage(t *testing.T) {
	for name, c := range map[string]stream.TopicConfig{"time": {Retention: 4 * time.Hour}, "bytes": {RetentionBytes: 3000}, "deletion": {}, "both": {Retention: 4 * time.Hour, Cleanup: stream.CleanupCompactDelete}} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, g *timed) {
				a := tp("a", 0)
				g.topic("a", stream.TopicConfig{})
				g.writeWith(stream.ProducerConfig{}, a, 100, time.Minute, func(i int, r *stream.Record) { r.Key = fmt.Append(nil, i) })
				g.close()
				g.damage(a, 33)
				g.damage(a, 71)
				g.open()
				g.alter("a", map[string]string{"retention.ms": fmt.Sprint(max(c.Retention.Milliseconds(), 1) - 2*int64(boolTo(c.Retention == 0))), "retention.bytes": fmt.Sprint(c.RetentionBytes - int64(boolTo(c.RetentionBytes == 0)))})
				if c.Cleanup == stream.CleanupCompactDelete {
					g.alter("a", map[string]string{"cleanup.policy": "compact,delete"})
				}
				g.wait(30 * time.Hour)
				if name == "deletion" {
					check(t, trim(g.eng, a, 50))
					eq(t, "log start", startOf(t, g.eng, a), 50)
					check(t, trim(g.eng, a, -1))
				}
				if start := startOf(t, g.eng, a); start < 72 { // behind the damage
					t.Errorf("the log starts at %d", start)
				}
				eq(t, "end", endOf(t, g.eng, a), 100)
				readAll(t, g.eng, a)
			})
		})
	}
}

func boolTo(b bool) int {
	if b {
		return 1
	}
	return 0
}
