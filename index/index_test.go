package index

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runnelmq/runnel/internal/batch"
)

var (
	rewrite = flag.Bool("rewrite", false, "write the golden files anew")
	seed    = flag.Uint64("seed", 1, "first seed of the model tests")
	rounds  = flag.Int("rounds", 300, "number of seeds of the model tests")
)

// eachSeed runs f with a source of chance for each seed, and names the seed of a failure.
func eachSeed(t *testing.T, f func(t *testing.T, rng *rand.Rand)) {
	for s := *seed; s < *seed+uint64(*rounds) && !t.Failed(); s++ {
		func() {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d: repeat with -seed %d -rounds 1", s, s)
				}
			}()
			f(t, rand.New(rand.NewPCG(s, 0)))
		}()
	}
}

// A14: an offset index that a log fills answers as a linear scan of the log does.
func TestOffsetsAnswerAsAScan(t *testing.T) {
	eachSeed(t, func(t *testing.T, rng *rand.Rand) {
		base := []int64{0, 1, 1 << 40, math.MaxInt64 - math.MaxInt32}[rng.IntN(4)]
		x := NewOffsets(base)
		var want []OffsetEntry
		offset, pos := base+rng.Int64N(5), int32(rng.IntN(2))
		for range rng.IntN(400) {
			e := OffsetEntry{offset, pos}
			rises := len(want) == 0 && e != OffsetEntry{base, 0}
			if n := len(want); n > 0 {
				rises = e.Offset > want[n-1].Offset && e.Pos > want[n-1].Pos
			}
			if kept := x.Append(e.Offset, e.Pos); kept != rises {
				t.Fatalf("Append(%v) after %v is %v", e, want, kept)
			}
			if rises {
				want = append(want, e)
			}
			offset += rng.Int64N(1000) - 20
			pos += int32(rng.IntN(10_000) - 200)
			if offset < base {
				offset = base
			}
			pos = max(pos, 0)
		}
		checkOffsets(t, x, want)

		// A13, A14: what was saved comes back, with and without reserved space.
		data := x.AppendTo([]byte("kept"), 0)
		if len(data) != 4+OffsetEntrySize*len(want) || string(data[:4]) != "kept" {
			t.Fatalf("file form has %d bytes of %d entries", len(data), len(want))
		}
		loaded, err := LoadOffsets(base, append(data[4:], make([]byte, OffsetEntrySize*rng.IntN(3))...))
		if err != nil {
			t.Fatal(err)
		}
		checkOffsets(t, loaded, want)
		if len(want) > 0 {
			from := rng.IntN(len(want) + 1)
			if got := loaded.AppendTo(nil, from); !bytes.Equal(got, data[4+from*OffsetEntrySize:]) {
				t.Fatalf("AppendTo from %d of %d gives %d bytes", from, len(want), len(got))
			}
			loaded.TruncateTo(from)
			checkOffsets(t, loaded, want[:from])
		}
		last := OffsetEntry{base, 0}
		if n := loaded.Len(); n > 0 {
			last = loaded.At(n - 1)
		}
		if last.Offset < base+math.MaxInt32 && !loaded.Append(last.Offset+1, last.Pos+1) {
			t.Fatalf("after TruncateTo, Append behind %v is refused", last)
		}
	})
}

func checkOffsets(t *testing.T, x *Offsets, want []OffsetEntry) {
	t.Helper()
	if x.Len() != len(want) {
		t.Fatalf("Len is %d, want %d", x.Len(), len(want))
	}
	last, ok := x.Last()
	if ok != (len(want) > 0) || ok && last != want[len(want)-1] {
		t.Fatalf("Last is %v, %v", last, ok)
	}
	for i, e := range want {
		if x.At(i) != e {
			t.Fatalf("At(%d) is %v, want %v", i, x.At(i), e)
		}
	}
	offsets := []int64{math.MinInt64, -1, 0, x.Base() - 1, x.Base(), x.Base() + 1, math.MaxInt64}
	positions := []int32{math.MinInt32, -1, 0, 1, math.MaxInt32}
	for _, e := range want {
		offsets = append(offsets, e.Offset-1, e.Offset, e.Offset+1)
		positions = append(positions, e.Pos-1, e.Pos, e.Pos+1)
	}
	for _, o := range offsets {
		wantLookup(t, "Lookup", o, x.Lookup, len(want), func(i int) bool { return want[i].Offset <= o })
	}
	for _, p := range positions {
		wantLookup(t, "LookupPos", p, x.LookupPos, len(want), func(i int) bool { return want[i].Pos <= p })
	}
}

// wantLookup compares lookup(key) with a scan from the first entry on, which stops where below is no longer true.
func wantLookup[K int32 | int64](t *testing.T, name string, key K, lookup func(K) (int, bool), n int, below func(int) bool) {
	t.Helper()
	want := -1
	for i := 0; i < n && below(i); i++ {
		want = i
	}
	i, ok := lookup(key)
	if ok != (want >= 0) || ok && i != want || !ok && i != 0 {
		t.Fatalf("%s(%d) is %d, %v, want %d", name, key, i, ok, want)
	}
}

// A13: a time index keeps only what is later than all before it, and answers as a linear scan does, with timestamps
// of clients that go backwards, are equal, or lie in the far future.
func TestTimesAnswerAsAScan(t *testing.T) {
	eachSeed(t, func(t *testing.T, rng *rand.Rand) {
		base := []int64{0, 1, 1 << 40, math.MaxInt64 - math.MaxInt32}[rng.IntN(4)]
		x := NewTimes(base)
		type stamped struct{ timestamp, offset int64 }
		var batches []stamped // all, as the log has them
		var want []TimeEntry
		now, offset := int64(1000), base
		for range rng.IntN(400) {
			b := stamped{now + rng.Int64N(2000) - 1000, offset}
			switch rng.IntN(40) {
			case 0:
				b.timestamp = -1
			case 1:
				b.timestamp = math.MaxInt64 - rng.Int64N(100)
			case 2:
				b.timestamp = 0
			}
			batches = append(batches, b)
			later := b.timestamp >= 0 && (b.timestamp > 0 || offset > base)
			if n := len(want); n > 0 {
				later = b.timestamp > want[n-1].Timestamp
			}
			if kept := x.Append(b.timestamp, b.offset); kept != later {
				t.Fatalf("Append(%v) after %v is %v", b, want, kept)
			}
			if later {
				want = append(want, TimeEntry{b.timestamp, b.offset})
			}
			now += rng.Int64N(100)
			offset += 1 + rng.Int64N(50)
		}
		checkTimes(t, x, want)

		// No batch before the one that Lookup names has the timestamp or a greater one.
		for range 50 {
			ts := now - rng.Int64N(5000) + 1000
			if i, ok := x.Lookup(ts); ok {
				for _, b := range batches {
					if e := x.At(i); b.offset < e.Offset && b.timestamp >= ts {
						t.Fatalf("Lookup(%d) gives %v, but %v is before it", ts, e, b)
					}
				}
			}
		}

		data := x.AppendTo([]byte("kept"), 0)
		if len(data) != 4+TimeEntrySize*len(want) || string(data[:4]) != "kept" {
			t.Fatalf("file form has %d bytes of %d entries", len(data), len(want))
		}
		loaded, err := LoadTimes(base, append(data[4:], make([]byte, TimeEntrySize*rng.IntN(3))...))
		if err != nil {
			t.Fatal(err)
		}
		checkTimes(t, loaded, want)
		if len(want) > 0 {
			from := rng.IntN(len(want) + 1)
			if got := loaded.AppendTo(nil, from); !bytes.Equal(got, data[4+from*TimeEntrySize:]) {
				t.Fatalf("AppendTo from %d of %d gives %d bytes", from, len(want), len(got))
			}
			loaded.TruncateTo(from)
			checkTimes(t, loaded, want[:from])
		}
	})
}

func checkTimes(t *testing.T, x *Times, want []TimeEntry) {
	t.Helper()
	if x.Len() != len(want) {
		t.Fatalf("Len is %d, want %d", x.Len(), len(want))
	}
	last, ok := x.Last()
	if ok != (len(want) > 0) || ok && last != want[len(want)-1] {
		t.Fatalf("Last is %v, %v", last, ok)
	}
	times := []int64{math.MinInt64, -1, 0, 1, math.MaxInt64}
	offsets := []int64{math.MinInt64, -1, 0, x.Base() - 1, x.Base(), math.MaxInt64}
	for i, e := range want {
		if x.At(i) != e {
			t.Fatalf("At(%d) is %v, want %v", i, x.At(i), e)
		}
		times = append(times, e.Timestamp-1, e.Timestamp, e.Timestamp+1)
		offsets = append(offsets, e.Offset-1, e.Offset, e.Offset+1)
	}
	for _, ts := range times {
		wantLookup(t, "Lookup", ts, x.Lookup, len(want), func(i int) bool { return want[i].Timestamp <= ts })
	}
	for _, o := range offsets {
		wantLookup(t, "LookupOffset", o, x.LookupOffset, len(want), func(i int) bool { return want[i].Offset <= o })
	}
}

func TestAppendKeepsOnlyWhatRises(t *testing.T) {
	const base = 100
	for _, c := range []struct {
		name   string
		offset int64
		pos    int32
		kept   bool
	}{
		{"rises", 151, 4097, true},
		{"offset equal", 150, 5000, false},
		{"offset lower", 149, 5000, false},
		{"position equal", 160, 4096, false},
		{"position lower", 160, 4095, false},
		{"position negative", 160, -1, false},
		{"below the base", base - 1, 5000, false},
		{"last that fits", base + math.MaxInt32, 5000, true},
		{"too far", base + math.MaxInt32 + 1, 5000, false},
		{"difference overflows", math.MinInt64, 5000, false},
	} {
		x := NewOffsets(base)
		if !x.Append(150, 4096) {
			t.Fatal("the first entry is refused")
		}
		if kept := x.Append(c.offset, c.pos); kept != c.kept || x.Len() != map[bool]int{false: 1, true: 2}[c.kept] {
			t.Errorf("%s: kept is %v, %d entries", c.name, kept, x.Len())
		}
	}
	for _, c := range []struct {
		name              string
		timestamp, offset int64
		kept              bool
	}{
		{"rises", 1001, 151, true},
		{"timestamp equal", 1000, 151, false},
		{"timestamp lower", 999, 151, false},
		{"timestamp negative", -1, 151, false},
		{"offset equal", 1001, 150, false},
		{"offset lower", 1001, 149, false},
		{"below the base", 1001, base - 1, false},
		{"last that fits", math.MaxInt64, base + math.MaxInt32, true},
		{"too far", 1001, base + math.MaxInt32 + 1, false},
	} {
		x := NewTimes(base)
		if !x.Append(1000, 150) {
			t.Fatal("the first entry is refused")
		}
		if kept := x.Append(c.timestamp, c.offset); kept != c.kept || x.Len() != map[bool]int{false: 1, true: 2}[c.kept] {
			t.Errorf("%s: kept is %v, %d entries", c.name, kept, x.Len())
		}
	}

	// As a first entry.
	if NewOffsets(base).Append(base, 0) || NewTimes(base).Append(0, base) || NewTimes(base).Append(-1, base+5) || NewOffsets(base).Append(base+1, -1) {
		t.Error("an entry is kept that a file could not hold")
	}
	if !NewOffsets(base).Append(base+1, 0) || !NewOffsets(base).Append(base, 1) || !NewTimes(base).Append(0, base+1) || !NewTimes(base).Append(1, base) {
		t.Error("a good first entry is refused")
	}
	if x := NewOffsets(math.MaxInt64 - 1); x.Append(math.MinInt64, 9) || x.Append(0, 9) || !x.Append(math.MaxInt64, 9) {
		t.Error("the offsets at the end of int64 are wrong")
	}
}

func TestGolden(t *testing.T) {
	const base = 1000
	offsets, times := NewOffsets(base), NewTimes(base)
	for _, e := range []OffsetEntry{{1000, 0}, {1041, 4201}, {1082, 8402}, {base + math.MaxInt32, math.MaxInt32}} {
		offsets.Append(e.Offset, e.Pos)
	}
	for _, e := range []TimeEntry{{1_700_000_000_000, 1041}, {1_699_999_999_999, 1050}, {1_700_000_000_001, 1082}, {math.MaxInt64, base + math.MaxInt32}} {
		times.Append(e.Timestamp, e.Offset)
	}
	for _, c := range []struct {
		file string
		data []byte
	}{{"offsets.txt", offsets.AppendTo(nil, 0)}, {"times.txt", times.AppendTo(nil, 0)}} {
		got, file := hex.Dump(c.data), filepath.Join("testdata", "golden", c.file)
		if *rewrite {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: got\n%swant\n%s", c.file, got, want)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	const base = 1000
	for _, c := range []struct {
		name string
		hex  string // entries of an offset index, or behind "t" of a time index
		text string // of the error; none: it is taken
		n    int
	}{
		{"nothing", "", "", 0},
		{"zeros", "0000000000000000 0000000000000000", "", 0},
		{"one", "0000002900001069", "", 1},
		{"one and zeros", "0000002900001069 0000000000000000 0000000000000000", "", 1},
		{"bytes of zero at its end", "0000000100010000 0000000200020000", "", 2},
		{"position 0", "0000002900000000", "", 1},
		{"cut", "0000002900001069 00000052", "8 does not divide", 0},
		{"one byte", "00", "8 does not divide", 0},
		{"zeros in the middle", "0000002900001069 0000000000000000 0000005200001069", "entry 1", 0},
		{"zeros at the start", "0000000000000000 0000005200001069", "entry 0", 0},
		{"offset does not rise", "0000002900001069 0000002900001070", "entry 1: relative offset 41 at position 4208 does not rise", 0},
		{"position does not rise", "0000002900001069 0000003000001069", "does not rise", 0},
		{"offset falls", "0000002900001069 0000002800001070", "does not rise", 0},
		{"below the base", "ffffffff00001069", "relative offset -1", 0},
		{"negative position", "00000029ffffffff", "position -1", 0},

		{"nothing", "t", "", 0},
		{"zeros", "t000000000000000000000000", "", 0},
		{"one and zeros", "t0000018bcfe5680000000029 000000000000000000000000", "", 1},
		{"relative offset 0 at its end", "t0000018bcfe5680000000000", "", 1},
		{"cut", "t0000018bcfe5680000", "12 does not divide", 0},
		{"zeros at the start", "t000000000000000000000000 0000018bcfe5680000000029", "entry 0", 0},
		{"zeros in the middle", "t0000018bcfe5680000000029 000000000000000000000000 0000018bcfe5680100000030", "entry 1", 0},
		{"timestamp equal", "t0000018bcfe5680000000029 0000018bcfe5680000000030", "does not rise", 0},
		{"timestamp falls", "t0000018bcfe5680000000029 0000018bcfe5670000000030", "does not rise", 0},
		{"offset equal", "t0000018bcfe5680000000029 0000018bcfe5680100000029", "does not rise", 0},
		{"timestamp negative", "tffffffffffffffff00000029", "timestamp -1", 0},
		{"below the base", "t0000018bcfe56800ffffffff", "relative offset -1", 0},
	} {
		digits, isTime := strings.CutPrefix(c.hex, "t")
		data, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		var x interface{ Len() int }
		if isTime {
			x, err = LoadTimes(base, data)
		} else {
			x, err = LoadOffsets(base, data)
		}
		switch {
		case c.text == "" && (err != nil || x.Len() != c.n):
			t.Errorf("%s %q: %v", c.name, c.hex, err)
		case c.text != "" && (!errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), c.text)):
			t.Errorf("%s %q: got %v, want %q", c.name, c.hex, err, c.text)
		}
	}

	entry, _ := hex.DecodeString("0000002900001069")
	if _, err := LoadOffsets(math.MaxInt64-40, entry); !errors.Is(err, ErrBroken) {
		t.Errorf("offset past 2^63-1: %v", err)
	}
	if _, err := LoadOffsets(math.MaxInt64-41, entry); err != nil {
		t.Errorf("offset 2^63-1: %v", err)
	}
	entry, _ = hex.DecodeString("0000018bcfe5680000000029")
	if _, err := LoadTimes(math.MaxInt64-40, entry); !errors.Is(err, ErrBroken) {
		t.Errorf("offset past 2^63-1: %v", err)
	}
}

// TestLoadKeepsNothing: the caller's bytes may change, and an index that was loaded can be appended to.
func TestLoadKeepsNothing(t *testing.T) {
	x, y := NewOffsets(0), NewTimes(0)
	x.Append(5, 6)
	y.Append(7, 8)
	p, q := x.AppendTo(nil, 0), y.AppendTo(nil, 0)
	x, _ = LoadOffsets(0, p)
	y, _ = LoadTimes(0, q)
	clear(p)
	clear(q)
	if !x.Append(50, 60) || !y.Append(70, 80) {
		t.Fatal("a loaded index refuses an entry")
	}
	checkOffsets(t, x, []OffsetEntry{{5, 6}, {50, 60}})
	checkTimes(t, y, []TimeEntry{{7, 8}, {70, 80}})
}

func TestFull(t *testing.T) {
	x, y := NewOffsets(0), NewTimes(0)
	for i := range 5 {
		// 43 bytes hold 5 offset entries, and 3 time entries of which one is kept back.
		if got, want := x.Full(43), i >= 5; got != want {
			t.Errorf("offsets, %d entries: Full is %v", i, got)
		}
		if got, want := y.Full(43), i >= 2; got != want {
			t.Errorf("times, %d entries: Full is %v", i, got)
		}
		x.Append(int64(i+1), int32(i+1))
		y.Append(int64(i+1), int64(i+1))
	}
	if !x.Full(43) || x.Full(48) {
		t.Error("offsets, 5 entries: Full is wrong")
	}
}

func TestTruncateTo(t *testing.T) {
	x, y := NewOffsets(0), NewTimes(0)
	for i := int64(1); i <= 3; i++ {
		x.Append(i, int32(i))
		y.Append(i, i)
	}
	for _, c := range []struct{ n, want int }{{5, 3}, {2, 2}, {-1, 0}, {1, 0}} {
		x.TruncateTo(c.n)
		y.TruncateTo(c.n)
		if x.Len() != c.want || y.Len() != c.want {
			t.Errorf("TruncateTo(%d) leaves %d and %d, want %d", c.n, x.Len(), y.Len(), c.want)
		}
	}
	if got := x.AppendTo(nil, 7); got != nil {
		t.Errorf("AppendTo from behind the end gives %x", got)
	}
}

func TestConfirms(t *testing.T) {
	var b batch.Builder
	b.Reset(nil)
	for _, ts := range []int64{500, 700, 600} {
		b.Append(ts, nil, nil, nil)
	}
	s := batch.NoProducer()
	s.BaseOffset = 10
	sealed := b.Seal(s)
	for _, o := range []int64{9, 10, 11, 12, 13} {
		if got, want := Confirms(sealed, OffsetEntry{o, 4096}), o == 12; got != want {
			t.Errorf("offset %d: Confirms is %v", o, got)
		}
		for _, ts := range []int64{500, 600, 700, 701} {
			if got, want := ConfirmsTime(sealed, TimeEntry{ts, o}), o == 12 && ts == 700; got != want {
				t.Errorf("time %d at %d: ConfirmsTime is %v", ts, o, got)
			}
		}
	}
}

func TestReadingDoesNotAllocate(t *testing.T) {
	x, y := NewOffsets(0), NewTimes(0)
	for i := range int64(1000) {
		x.Append(i+1, int32(i+1))
		y.Append(i+1, i+1)
	}
	dst := make([]byte, 0, 1000*TimeEntrySize)
	n := 0
	if allocs := testing.AllocsPerRun(100, func() {
		i, _ := x.Lookup(500)
		j, _ := x.LookupPos(700)
		k, _ := y.Lookup(900)
		l, _ := y.LookupOffset(100)
		e, _ := x.Last()
		n += i + j + k + l + int(e.Pos) + int(y.At(5).Offset) + len(x.AppendTo(dst, 0)) + len(y.AppendTo(dst, 0))
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
