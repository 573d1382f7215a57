package crashtest

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// A view is what an engine shows of a directory that fillForViews has filled.
type view struct {
	offsets map[stream.TopicPartition][]int64 // of the records, of which each is right
	starts  stream.Offsets
	commit  int64 // of the group in the first partition of viewKept
}

const (
	viewKept      = "kept"      // everything is there
	viewMoved     = "moved"     // its log start has moved
	viewCompacted = "compacted" // the last record of each key is there
	viewEmpty     = "empty"     // never had a record
	viewGroup     = "g"

	viewRecords = 60
	viewKeys    = 5
	viewStart   = 37 // of viewMoved
	viewCommit  = 40
)

// viewTPs are the partitions with records.
func viewTPs() []stream.TopicPartition {
	return []stream.TopicPartition{part(viewKept, 0), part(viewKept, 1), part(viewMoved, 0), part(viewCompacted, 0)}
}

// viewValue is the value of the record at an offset.
func viewValue(tp stream.TopicPartition, offset int64) []byte {
	return fmt.Appendf(nil, "%v/%d/%s", tp, offset, strings.Repeat("x", 100))
}

// viewKey is the key of the record at an offset: some come once, the others again and again.
func viewKey(offset int64) string {
	if offset%10 < 2 {
		return fmt.Sprintf("once %d", offset)
	}
	return fmt.Sprint(offset % viewKeys)
}

func viewRecord(tp stream.TopicPartition, offset int64) *stream.Record {
	return &stream.Record{
		Topic: tp.Topic, Partition: tp.Partition, Key: []byte(viewKey(offset)), Value: viewValue(tp, offset),
		Timestamp: time.UnixMilli(1_800_000_000_000 + offset),
	}
}

// fillForViews makes topics and everything in them; what it has made is durable. Nothing is compacted yet.
func fillForViews(t *testing.T, eng *stream.Engine) {
	t.Helper()
	ctx := atOnce(t)
	for name, partitions := range map[string]int{viewKept: 2, viewMoved: 1, viewCompacted: 1, viewEmpty: 3, "gone": 1} {
		createTopic(t, eng, name, stream.TopicConfig{Partitions: partitions, SegmentBytes: 2 << 10})
	}
	for _, tp := range append(viewTPs(), part("gone", 0)) {
		sendView(t, eng, tp, 0, viewRecords)
	}
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Group: viewGroup, ManualCommit: true})
	if err == nil {
		err = c.Assign(part(viewKept, 0))
	}
	if err == nil {
		err = c.CommitOffsets(ctx, stream.Offsets{part(viewKept, 0): {Offset: viewCommit, LeaderEpoch: -1}})
	}
	if err == nil {
		err = c.Close(ctx)
	}
	if err == nil {
		err = eng.Admin().DeleteRecords(ctx, map[stream.TopicPartition]int64{part(viewMoved, 0): viewStart})
	}
	if err == nil {
		err = eng.Admin().DeleteTopic(ctx, "gone")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// sendView appends the records from one offset up to another, a few at a time; the last one is synced, and so all of them are.
func sendView(t *testing.T, eng *stream.Engine, tp stream.TopicPartition, from, to int64) {
	t.Helper()
	ctx := atOnce(t)
	p, err := eng.NewProducer(ctx, stream.ProducerConfig{Acks: stream.AcksWritten, Partitioner: stream.ManualPartitioner()})
	if err != nil {
		t.Fatal(err)
	}
	for offset := from; offset < to; offset++ {
		r := viewRecord(tp, offset)
		if offset == to-1 {
			r.Acks = stream.AcksSynced
		}
		if rc, err := p.ProduceSync(ctx, r); err != nil || rc.Offset != offset {
			t.Fatalf("record %d of %v got %+v, %v", offset, tp, rc, err)
		}
	}
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// compactForViews compacts viewCompacted, once.
func compactForViews(t *testing.T, eng *stream.Engine, compacted chan struct{}) {
	t.Helper()
	ctx := atOnce(t)
	if err := eng.Admin().AlterTopic(ctx, viewCompacted, map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-compacted:
	case <-ctx.Done():
		t.Fatal("nothing is compacted")
	}
	if err := eng.Admin().AlterTopic(ctx, viewCompacted, nil, "cleanup.policy"); err != nil {
		t.Fatal(err)
	}
}

// A told file system tells of every renaming and removal before it happens.
type told struct {
	vfs.FS
	before func(op, name string)
}

func (f told) Rename(oldname, newname string) error {
	f.before("rename", oldname)
	return f.FS.Rename(oldname, newname)
}

func (f told) Remove(name string) error {
	f.before("remove", name)
	return f.FS.Remove(name)
}

// viewDirs makes directories below home as engines leave them, by how they have ended: "closed"; "killed"; and killed while compaction swaps files: "written" with a .cleaned file,
// "swapping" with a .swap file beside its sources, "swapped" with the sources gone, "short" like "swapping" with a .swap file that somebody has cut at the end of its first batch.
// more puts more into all of them.
func viewDirs(t *testing.T, home string, more ...func(*testing.T, *stream.Engine)) map[string]string {
	t.Helper()
	live := filepath.Join(home, "closed")
	dirs := map[string]string{"closed": live}
	var mu sync.Mutex
	leave := func(how, from string) {
		mu.Lock()
		defer mu.Unlock()
		if dirs[how] != "" {
			return
		}
		dirs[how] = filepath.Join(home, how)
		if err := os.CopyFS(dirs[how], os.DirFS(from)); err != nil {
			t.Error(err)
		}
	}
	compacting := func(op, name string) {
		swaps, err := filepath.Glob(filepath.Join(filepath.Dir(name), "*.swap"))
		switch ext := filepath.Ext(name); {
		case err != nil:
			t.Error(err)
		case op == "rename" && ext == ".cleaned":
			leave("written", live)
		case op == "remove" && len(swaps) > 0:
			leave("swapping", live)
		case op == "rename" && ext == ".swap":
			leave("swapped", live)
		}
	}
	ground := vfs.NewDisk()
	defer ground.Close()
	compacted := make(chan struct{}, 1000)
	eng := openAt(t, live, stream.Options{
		FS: told{ground, compacting}, MinFree: -1, CleanInterval: time.Millisecond, CleanRate: -1,
		Events: stream.Events{Compacted: func(stream.TopicPartition, int64, int64, int64, int64) { compacted <- struct{}{} }},
	})
	fillForViews(t, eng)
	for _, fill := range more {
		fill(t, eng)
	}
	leave("killed", live)
	compactForViews(t, eng, compacted)
	if err := eng.Close(); err != nil {
		t.Fatal(err)
	}
	leave("short", dirs["swapping"])
	for how, ext := range map[string]string{"written": ".cleaned", "swapping": ".swap", "swapped": ".swap", "short": ".swap"} {
		left, err := filepath.Glob(filepath.Join(dirs[how], "topics", viewCompacted+"-0", "*"+ext))
		if err != nil || len(left) == 0 {
			t.Fatalf("%s: no %s file is left over: %v", how, ext, err)
		}
		if how == "short" {
			text, err := os.ReadFile(left[0])
			if err == nil {
				err = os.Truncate(left[0], 12+int64(binary.BigEndian.Uint32(text[8:])))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return dirs
}

// viewOf reads everything, with owned and with borrowed records, and checks all that holds of every such directory.
func viewOf(t *testing.T, eng *stream.Engine) (v view, err error) {
	t.Helper()
	ctx := atOnce(t)
	tps := append(viewTPs(), part(viewEmpty, 0), part(viewEmpty, 2))
	if v.starts, err = eng.Admin().StartOffsets(ctx, tps...); err != nil {
		return v, err
	}
	ends, err := eng.Admin().EndOffsets(ctx, tps...)
	if err != nil {
		return v, err
	}
	for _, borrow := range []bool{false, true} {
		c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Borrow: borrow, Reset: stream.ResetEarliest, MaxWait: -1})
		if err == nil {
			err = c.Assign(tps...)
		}
		if err != nil {
			return v, err
		}
		v.offsets = map[stream.TopicPartition][]int64{}
		for {
			rs, err := c.Poll(ctx, 7)
			if err != nil {
				return v, errors.Join(err, c.Close(ctx))
			}
			if len(rs) == 0 {
				break
			}
			for i := range rs {
				r := &rs[i]
				tp := part(r.Topic, r.Partition)
				if want := viewRecord(tp, r.Offset); hashRecord(r.Key, r.Value) != hashRecord(want.Key, want.Value) || !r.Timestamp.Equal(want.Timestamp) {
					return v, fmt.Errorf("A4: %v: the record at offset %d is %q at %v", tp, r.Offset, r.Value, r.Timestamp)
				}
				v.offsets[tp] = append(v.offsets[tp], r.Offset)
			}
		}
		if err := c.Close(ctx); err != nil {
			return v, err
		}
		if err := v.check(ends); err != nil {
			return v, fmt.Errorf("borrow %t: %w", borrow, err)
		}
	}
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Group: viewGroup, ManualCommit: true, MaxWait: -1})
	if err != nil {
		return v, err
	}
	got, err := c.Committed(ctx, part(viewKept, 0))
	v.commit = got[part(viewKept, 0)].Offset
	if err == nil && v.commit != viewCommit {
		err = fmt.Errorf("E3: the committed offset is %d", v.commit)
	}
	return v, errors.Join(err, c.Close(ctx))
}

// check holds the offsets that were read against what must be there.
func (v view) check(ends stream.Offsets) error {
	for _, tp := range viewTPs() {
		got, start, end := v.offsets[tp], v.starts[tp].Offset, ends[tp].Offset
		if end < viewRecords || len(got) == 0 || got[len(got)-1] != end-1 {
			return fmt.Errorf("A2: %v ends at %d: %d", tp, end, got)
		}
		have := map[int64]bool{}
		for i, offset := range got {
			have[offset] = true
			if i > 0 && offset <= got[i-1] {
				return fmt.Errorf("A5: %v: %d", tp, got)
			}
		}
		from := int64(0)
		if tp.Topic == viewMoved {
			if from = viewStart; start != from {
				return fmt.Errorf("A11: %v begins at %d", tp, start)
			}
		}
		last := map[string]int64{}
		for offset := range end {
			last[viewKey(offset)] = offset
		}
		for offset := from; offset < end; offset++ {
			if !have[offset] && (tp.Topic != viewCompacted || last[viewKey(offset)] == offset) {
				return fmt.Errorf("A2/A12: %v lacks offset %d: %d", tp, offset, got)
			}
		}
		if tp.Topic != viewCompacted && len(got) != int(end-from) {
			return fmt.Errorf("A11: %v begins at %d: %d", tp, from, got)
		}
	}
	return nil
}

// everything describes each file and directory below dir: name, mode, size, time of last change and content.
func everything(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(&b, name, info.Mode(), info.Size(), info.ModTime().UnixNano())
		if d.IsDir() {
			return nil
		}
		text, err := os.ReadFile(name)
		fmt.Fprintf(&b, "%x\n", sha256.Sum256(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
