package rlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/runnelmq/runnel/internal/batch"
	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// edit changes a file of a log that is closed.
func (e *env) edit(name string, fn func(b []byte) []byte) {
	e.t.Helper()
	full := path.Join(e.dir, "topics", "t-0", name)
	b, err := readFile(e.fs, full)
	if err != nil {
		e.t.Fatal(err)
	}
	if err := writeFile(e.fs, full, fn(b), false); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) read(name string) []byte {
	e.t.Helper()
	b, err := readFile(e.fs, path.Join(e.dir, "topics", "t-0", name))
	if err != nil {
		e.t.Fatal(err)
	}
	return b
}

func (e *env) list(suffix string) (names []string) {
	infos, err := e.fs.List(path.Join(e.dir, "topics", "t-0"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.t.Fatal(err)
	}
	for _, i := range infos {
		if strings.HasSuffix(i.Name, suffix) {
			names = append(names, i.Name)
		}
	}
	return names
}

const first = "00000000000000000000"

// A3, A4: whatever a crash leaves behind the last whole batch, the log ends there and goes on from there.
func TestTornTails(t *testing.T) {
	tails := map[string]func(whole, last []byte) []byte{
		"nothing":           func(whole, last []byte) []byte { return append(whole, last...) },
		"64 zero bytes":     func(whole, last []byte) []byte { return append(append(whole, last...), make([]byte, 64)...) },
		"three bytes short": func(whole, last []byte) []byte { return append(whole, last[:len(last)-3]...) },
		"half":              func(whole, last []byte) []byte { return append(whole, last[:len(last)/2]...) },
		"a header":          func(whole, last []byte) []byte { return append(whole, last[:batch.HeaderSize]...) },
		"hole in the batch": func(whole, last []byte) []byte {
			last = bytes.Clone(last)
			clear(last[80:90])
			return append(append(whole, last...), make([]byte, 4096)...)
		},
		"hole before the batch": func(whole, last []byte) []byte {
			return append(append(whole, make([]byte, 512)...), last...)
		},
		"garbage": func(whole, last []byte) []byte {
			return append(append(whole, last...), bytes.Repeat([]byte{0xff}, 1000)...)
		},
		"the batch twice": func(whole, last []byte) []byte { return append(append(whole, last...), last...) },
	}
	for name, tail := range tails {
		t.Run(name, func(t *testing.T) {
			onAll(t, func(t *testing.T, e *env) {
				l := e.open()
				var want []record
				for i := range 20 {
					mustAppend(t, l, plain(val(i, 50)))
					want = append(want, val(i, 50))
				}
				l.Abandon()
				whole := e.read(first + ".log")
				size := len(bytes.TrimRight(whole, "\x00"))
				// The records end with a zero byte, the count of their headers.
				one := len(plain(val(19, 50)))
				whole = whole[:size+1]
				last := bytes.Clone(whole[len(whole)-one:])
				e.edit(first+".log", func([]byte) []byte { return tail(bytes.Clone(whole[:len(whole)-one]), last) })

				for round := range 2 { // the second one must find nothing to do
					e.epoch++
					l = e.open()
					got, err := readAll(l, 0)
					if err != nil {
						t.Fatal(err)
					}
					if n := len(got); n != 19 && n != 20 {
						t.Fatalf("%d records of 20", n)
					}
					want = want[:len(got)]
					wantRecords(t, l, want)
					if round == 1 && len(e.cuts) > 1 {
						t.Fatalf("cut again: %v", e.cuts)
					}
					l.Abandon()
				}
				// A6: a batch of the size of the lost one makes no stale bytes come back.
				e.epoch++
				l = e.open()
				for i := len(want); i < 24; i++ {
					mustAppend(t, l, plain(val(100+i, 50)))
					want = append(want, val(100+i, 50))
					l.Abandon()
					e.epoch++
					l = e.open()
					wantRecords(t, l, want)
				}
				e.close(l)
			})
		})
	}
}

// A5: a batch that is written after an unclean open says so.
func TestEpochRises(t *testing.T) {
	e := memEnv(t)
	l := e.open()
	mustAppend(t, l, plain(val(0, 10)))
	l.Abandon()
	e.epoch = 7
	l = e.open()
	defer l.Abandon()
	if a := mustAppend(t, l, plain(val(1, 10))); a.LeaderEpoch != 7 {
		t.Fatalf("epoch %d", a.LeaderEpoch)
	}
	c := l.NewCursor(0)
	defer c.Close()
	for i, want := range []int32{0, 7} {
		b, err := c.Next(2)
		if err != nil || b.LeaderEpoch() != want {
			t.Fatalf("batch %d: %v, epoch %d, want %d", i, err, b.LeaderEpoch(), want)
		}
	}
	if e.cp.epochs[0] != 0 || e.cp.epochs[7] != 1 {
		t.Fatalf("checkpointed epochs %v", e.cp.epochs)
	}
}

// A8: damage below the recovery point, in any field of any batch, is reported to who reads it, with its place, and to
// nobody else; its bytes stay; what lies around it is read.
func TestDamageBelowTheRecoveryPoint(t *testing.T) {
	_, rng := seed(t)
	const n = 300
	build := func(t *testing.T) (*env, []record, []byte) {
		e := memEnv(t)
		e.opts = func(o *Options) { o.SegmentBytes = 16 << 10 }
		var want []record
		l := e.open()
		for i := range n {
			r := val(i, 100)
			mustAppend(t, l, plain(r))
			want = append(want, r)
		}
		e.close(l)
		return e, want, nil
	}
	type change struct {
		name string
		fn   func(b []byte, pos, size int)
	}
	changes := []change{
		{"flip a byte of the records", func(b []byte, pos, size int) {
			b[pos+batch.HeaderSize+rng.IntN(size-batch.HeaderSize)] ^= 1 << rng.IntN(8)
		}},
		{"zero the batch", func(b []byte, pos, size int) { clear(b[pos : pos+size]) }},
		{"zero the header", func(b []byte, pos, size int) { clear(b[pos : pos+batch.HeaderSize]) }},
		{"zero a sector", func(b []byte, pos, _ int) { clear(b[pos:min(pos+512, len(b))]) }},
	}
	for at := range batch.HeaderSize {
		if at >= 12 && at < 16 {
			continue // the leader epoch has no checksum
		}
		changes = append(changes, change{fmt.Sprintf("flip byte %d of the header", at), func(b []byte, pos, _ int) { b[pos+at] ^= 1 << rng.IntN(8) }})
	}
	for _, ch := range changes {
		t.Run(ch.name, func(t *testing.T) {
			e, want, _ := build(t)
			logs := e.list(".log")
			name := logs[rng.IntN(len(logs))]
			var damaged []byte
			e.edit(name, func(b []byte) []byte {
				var at []int
				for pos := 0; pos < len(b); {
					at = append(at, pos)
					size, err := batch.Peek(b[pos:])
					if err != nil {
						t.Fatal(err)
					}
					pos += size
				}
				k := rng.IntN(len(at))
				size, _ := batch.Peek(b[at[k]:])
				ch.fn(b, at[k], size)
				damaged = bytes.Clone(b)
				return b
			})
			l, err := Open(e.options())
			var bad *kafka.CorruptError
			if errors.As(err, &bad) {
				// The damage hides the log's end.
				if name != logs[len(logs)-1] {
					t.Fatalf("damage in the middle keeps the log from opening: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer l.Abandon()
			if l.EndOffset() != n {
				t.Fatalf("the log ends at %d", l.EndOffset())
			}
			lost := 0
			for off := int64(0); off < n; {
				got, err := readAll(l, off)
				for i, r := range got {
					if !r.equal(want[off+int64(i)]) {
						t.Fatalf("offset %d: another record", off+int64(i))
					}
				}
				off += int64(len(got))
				if err == nil {
					break
				}
				if !errors.As(err, &bad) || !errors.Is(err, kafka.ErrCorrupt) {
					t.Fatalf("offset %d: %v", off, err)
				}
				if bad.From != off || bad.To <= bad.From || bad.To > n || path.Base(bad.File) != name {
					t.Fatalf("offset %d: reported as %+v", off, bad)
				}
				lost += int(bad.To - bad.From)
				off = bad.To
			}
			if lost == 0 || lost > 8 {
				t.Fatalf("%d records reported as damaged", lost)
			}
			if !bytes.Equal(e.read(name), damaged) {
				t.Fatal("the damaged file was changed")
			}
		})
	}
}

// A8: a log that is shorter than its recovery point is reported at open, and nothing is changed.
func TestLogShorterThanRecoveryPoint(t *testing.T) {
	onAll(t, func(t *testing.T, e *env) {
		l := e.open()
		for i := range 20 {
			mustAppend(t, l, plain(val(i, 50)))
		}
		e.close(l)
		e.edit(first+".log", func(b []byte) []byte { return b[:len(b)-10] })
		before := e.read(first + ".log")
		for range 2 {
			_, err := Open(e.options())
			var bad *kafka.CorruptError
			if !errors.As(err, &bad) || bad.From != 19 || bad.To != 20 {
				t.Fatalf("%v", err)
			}
		}
		if !bytes.Equal(before, e.read(first+".log")) {
			t.Fatal("the file was changed")
		}
		if err := e.fs.Remove(path.Join(e.dir, "topics", "t-0", first+".log")); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(e.options()); !errors.Is(err, kafka.ErrCorrupt) {
			t.Fatalf("without the file: %v", err)
		}
	})
}

// A sealed segment that has lost its end, or all of itself, is a hole that readers are told of.
func TestSealedSegmentShortened(t *testing.T) {
	e := memEnv(t)
	e.opts = func(o *Options) { o.SegmentBytes = 4 << 10 }
	l := e.open()
	for i := range 100 {
		mustAppend(t, l, plain(val(i, 100)))
	}
	e.close(l)
	logs := e.list(".log")
	if len(logs) < 4 {
		t.Fatalf("%d segments", len(logs))
	}
	e.edit(logs[1], func(b []byte) []byte { return b[:len(b)-200] })
	l = e.open()
	defer l.Abandon()
	next, _, _ := parseName(logs[2])
	_, err := readAll(l, 0)
	var bad *kafka.CorruptError
	if !errors.As(err, &bad) || bad.To != next {
		t.Fatalf("%v, want a hole up to %d", err, next)
	}
	if got, err := readAll(l, next); err != nil || len(got) != 100-int(next) {
		t.Fatalf("behind the hole: %d records, %v", len(got), err)
	}
}

// A directory of another life of the topic is not touched.
func TestStrayDirectory(t *testing.T) {
	e := memEnv(t)
	l := e.open()
	mustAppend(t, l, plain(val(0, 10)))
	e.close(l)
	e.opts = func(o *Options) { o.TopicID = "BBBBBBBBBBBBBBBBBBBBBB"; o.RecoveryPoint = 0 }
	if _, err := Open(e.options()); !errors.Is(err, ErrStray) {
		t.Fatal(err)
	}
}

// A disk that fails while the torn tail is put away leaves it where it is, and recovery can be repeated.
func TestRecoveryMeetsAFullDisk(t *testing.T) {
	sim := vfs.NewSim(1)
	if err := sim.Mkdir("/d"); err != nil {
		t.Fatal(err)
	}
	e := newEnv(t, sim, "/d")
	l := e.open()
	for i := range 20 {
		mustAppend(t, l, plain(val(i, 50)))
	}
	l.Abandon()
	e.edit(first+".log", func(b []byte) []byte {
		b = bytes.TrimRight(b, "\x00")
		return append(b[:len(b)-3], bytes.Repeat([]byte{1}, 500)...)
	})
	before := e.read(first + ".log")
	sim.SetFree(0)
	e.epoch++
	if _, err := Open(e.options()); !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatalf("on a full disk: %v", err)
	}
	if !bytes.Equal(before, e.read(first+".log")) {
		t.Fatal("the torn tail was cut without a copy")
	}
	sim.SetFree(1 << 20)
	l = e.open()
	defer l.Abandon()
	if l.EndOffset() != 19 {
		t.Fatalf("the log ends at %d", l.EndOffset())
	}
}

// A partition of the longest name recovers too: what it puts away has a name that every file system takes.
func TestQuarantineOfALongName(t *testing.T) {
	e := diskEnv(t)
	e.opts = func(o *Options) {
		o.TopicPartition.Topic = strings.Repeat("x", kafka.MaxTopicName)
	}
	l := e.open()
	mustAppend(t, l, plain(val(0, 50)))
	mustAppend(t, l, plain(val(1, 50)))
	l.Abandon()
	e.edit(first+".log", func(b []byte) []byte {
		b = bytes.TrimRight(b, "\x00")
		return append(b[:len(b)-3], bytes.Repeat([]byte{1}, 500)...)
	})
	e.epoch++
	l = e.open()
	defer l.Abandon()
	wantRecords(t, l, []record{val(0, 50)})
	infos, err := e.fs.List(path.Join(e.dir, "quarantine"))
	if err != nil || len(infos) != 1 {
		t.Fatalf("%v, %v", infos, err)
	}
}

// Metadata that is older than the segments, as in a directory put together from copies: everything is read anew.
func TestRecoveryOverSeveralSegments(t *testing.T) {
	_, rng := seed(t)
	for range 10 {
		e := memEnv(t)
		all := history(t, e, rng, 300)
		if len(e.list(".log")) < 3 {
			t.Fatal("too few segments")
		}
		if rng.IntN(2) == 0 {
			for _, name := range append(e.list(".index"), e.list(".timeindex")...) {
				if err := e.fs.Remove(path.Join(e.dir, "topics", "t-0", name)); err != nil {
					t.Fatal(err)
				}
			}
		}
		e.cp.dirty, e.cp.recoveryPoint = true, 0
		e.epoch++
		l := e.open()
		wantRecords(t, l, all)
		checkTimes(t, l, all, rng, 100)
		l.Abandon()
	}
}

// A first segment that is gone is a loss that its readers are told of (A8); what is behind it is read.
func TestFirstSegmentMissing(t *testing.T) {
	e := memEnv(t)
	e.opts = func(o *Options) { o.SegmentBytes = 4 << 10 }
	l := e.open()
	for i := range 100 {
		mustAppend(t, l, plain(val(i, 100)))
	}
	e.close(l)
	logs := e.list(".log")
	if err := e.fs.Remove(path.Join(e.dir, "topics", "t-0", logs[0])); err != nil {
		t.Fatal(err)
	}
	l = e.open()
	defer l.Abandon()
	next, _, _ := parseName(logs[1])
	var bad *kafka.CorruptError
	if _, err := readAll(l, 0); !errors.As(err, &bad) || bad.From != 0 || bad.To != next {
		t.Fatalf("%v, want a hole up to %d", err, next)
	}
	if _, _, err := l.OffsetForTime(0, 100); !errors.As(err, &bad) {
		t.Fatalf("by time: %v", err)
	}
	if got, err := readAll(l, next); err != nil || len(got) != 100-int(next) {
		t.Fatalf("behind the hole: %d records, %v", len(got), err)
	}
	if l.StartOffset() != 0 {
		t.Fatalf("the log starts at %d", l.StartOffset())
	}
}
