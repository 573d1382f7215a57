package rlog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/vfs"
)

// What BenchmarkCompact compacts: full segments of records with random keys of 16 bytes and values of 100, in batches of 16 KiB.
const (
	compactSegment  = 64 << 20
	compactSegments = 4
	compactValue    = 100
	compactMap      = 256 << 20 // one pass
)

// BenchmarkCompact compacts a log without a limit to its rate, and beside that, in the same rounds, does the least that this takes: it reads the bytes of the sources once and
// writes as many as compaction has left, with one sync. Compaction reads them twice. Sources are in the page cache, or (cold) are not, for both. What is left is
// read and compared. Reported are the medians: bytes of sources and results a second of both, and their ratio in percent.
func BenchmarkCompact(b *testing.B) {
	for _, c := range []struct {
		name    string
		records float64 // for each key
		cold    bool
	}{{"kept=10%", 10, false}, {"kept=50%", 1.594, false}, {"kept=10%,cold", 10, true}, {"kept=50%,cold", 1.594, true}} {
		b.Run(c.name, func(b *testing.B) {
			var took, least []time.Duration
			var moved, kept, all int64
			for round := range b.N {
				l := newCompactLoad(b, c.records, uint64(round))
				l.cold = c.cold
				t, n := l.compact()
				took, moved = append(took, t), n
				least = append(least, l.floor())
				l.verify()
				kept, all = l.done.Kept, l.done.Records
				l.close()
			}
			t, f := median(took), median(least)
			b.ReportMetric(0, "ns/op") // it would hold what is prepared and compared, too
			b.ReportMetric(float64(moved)/t.Seconds()/1e6, "MB/s")
			b.ReportMetric(float64(moved)/f.Seconds()/1e6, "floor-MB/s")
			b.ReportMetric(100*f.Seconds()/t.Seconds(), "%floor")
			b.ReportMetric(100*float64(kept)/float64(all), "%kept")
		})
	}
}

func median[T cmp.Ordered](all []T) T {
	s := slices.Sorted(slices.Values(all))
	return s[len(s)/2]
}

// A compactLoad is a log with much to compact. The number of a record is its offset, and its value follows from that.
type compactLoad struct {
	b       *testing.B
	e       *env
	l       *Log
	last    []int64 // offset of each key's last record
	records int64
	done    Compacted
	text    []byte
	cold    bool
}

func newCompactLoad(b *testing.B, perKey float64, seed uint64) *compactLoad {
	c := &compactLoad{b: b, text: []byte(strings.Repeat("the quick brown fox jumps over the lazy dog ", 4))}
	dir, err := os.MkdirTemp(b.TempDir(), "")
	if err != nil {
		b.Fatal(err)
	}
	c.e = newEnv(b, vfs.NewDisk(), dir)
	c.e.opts = func(o *Options) { o.SegmentBytes = compactSegment }
	c.l = c.e.open()
	keys := int(float64(compactSegments*compactSegment/126) / perKey)
	c.last = make([]int64, keys)
	for i := range c.last {
		c.last[i] = -1
	}
	r := rand.New(rand.NewPCG(seed, 1))
	var key, value []byte
	var made batch.Builder
	var buf []byte
	for len(c.l.segments.Load().sealed()) < compactSegments {
		made.Reset(buf)
		for made.Len()+130 < 16<<10 {
			k := r.IntN(keys)
			key, value = compactKey(key[:0], k), c.value(value[:0], c.records)
			made.Append(1, key, value, nil)
			c.last[k] = c.records
			c.records++
		}
		out := made.Seal(batch.NoProducer())
		if _, err := c.l.Append(out); err != nil {
			b.Fatal(err)
		}
		buf = out[:0]
	}
	c.e.close(c.l) // all is on the disk, and nothing mapped
	c.l = c.e.open()
	return c
}

// chill takes a file out of the page cache, if that is wanted.
func (c *compactLoad) chill(name string) {
	if !c.cold {
		return
	}
	f, err := c.e.fs.OpenRead(name)
	if err != nil {
		c.b.Fatal(err)
	}
	if err := errors.Join(f.DropCache(0), f.Close()); err != nil {
		c.b.Fatal(err)
	}
}

func compactKey(dst []byte, k int) []byte { return fmt.Appendf(dst, "%016x", k) }

func (c *compactLoad) value(dst []byte, number int64) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(number))
	return append(dst, c.text[number%40:][:compactValue-8]...)
}

// compact returns how long it took, and the bytes of the sources and of what is left.
func (c *compactLoad) compact() (time.Duration, int64) {
	for _, s := range c.l.segments.Load().sealed() {
		c.chill(s.name(suffixLog))
	}
	begin := time.Now()
	done, err := c.l.Compact(context.Background(), Compaction{Now: begin.UnixMilli(), MapBytes: compactMap})
	t := time.Since(begin)
	if err != nil || done.More || len(done.Damaged) > 0 || done.Segments != compactSegments {
		c.b.Fatalf("compacted %+v, %v", done, err)
	}
	c.done = done
	return t, done.Read + done.Written
}

// floor reads as many bytes as the sources had from a file that is cached, and writes what compaction has left.
func (c *compactLoad) floor() time.Duration {
	dir := path.Dir(c.l.o.Dir)
	source := filepath.Join(dir, "source")
	piece := bytes.Repeat(c.text, 64<<10/len(c.text))
	f, err := os.Create(source)
	if err != nil {
		c.b.Fatal(err)
	}
	for n := int64(0); n < c.done.Read; n += int64(len(piece)) {
		if _, err := f.Write(piece); err != nil {
			c.b.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		c.b.Fatal(err)
	}
	c.chill(source)
	begin := time.Now()
	out, err := c.e.fs.Create(path.Join(dir, "copy"), 0)
	if err != nil {
		c.b.Fatal(err)
	}
	buf := make([]byte, cleanerBuffer)
	written := int64(0)
	for at := int64(0); at < c.done.Read; at += int64(len(buf)) {
		n, err := f.ReadAt(buf, at)
		if err != nil && err != io.EOF {
			c.b.Fatal(err)
		}
		if n = int(min(int64(n), c.done.Written-written)); n > 0 {
			if _, err := out.WriteAt(buf[:n], written); err != nil {
				c.b.Fatal(err)
			}
			written += int64(n)
		}
	}
	if err := out.Sync(); err != nil {
		c.b.Fatal(err)
	}
	t := time.Since(begin)
	if err := out.Close(); err != nil {
		c.b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		c.b.Fatal(err)
	}
	return t
}

// verify reads what is left: of each key the last record, and whatever was not compacted, as it was written.
func (c *compactLoad) verify() {
	cur := c.l.NewCursor(0)
	defer cur.Close()
	seen := make([]bool, c.records)
	for {
		bt, err := cur.Next(c.l.EndOffset())
		if err != nil {
			c.b.Fatal(err)
		}
		if bt == nil {
			break
		}
		if err := c.verifyBatch(cur, bt, seen); err != nil {
			c.b.Fatal(err)
		}
	}
	for k, last := range c.last {
		if last >= 0 && !seen[last] {
			c.b.Fatalf("key %d: its last record, at offset %d, is gone", k, last)
		}
	}
}

func (c *compactLoad) verifyBatch(cur *Cursor, bt batch.Batch, seen []bool) (err error) {
	defer vfs.Catch(vfs.Arm(), cur.File(), &err)
	it := bt.Iter()
	var r batch.Record
	var want []byte
	for it.Next(&r) {
		if want = c.value(want[:0], r.Offset); !bytes.Equal(r.Value, want) {
			return fmt.Errorf("offset %d: another value", r.Offset)
		}
		k, err := strconv.ParseUint(string(r.Key), 16, 64)
		if err != nil {
			return err
		}
		if last := c.last[k]; r.Offset < c.done.To && last > r.Offset && last < c.done.To {
			return fmt.Errorf("offset %d: key %d has a later record, at %d", r.Offset, k, last)
		}
		seen[r.Offset] = true
	}
	return it.Err()
}

func (c *compactLoad) close() {
	dir := c.e.dir
	c.l.Abandon()
	c.e.fs.Close()
	if err := os.RemoveAll(dir); err != nil {
		c.b.Fatal(err)
	}
}
