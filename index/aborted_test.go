package index

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// history makes a partition's transactions at random, as a log and its coordinator would, cut into segments: what each
// segment's index holds, and every transaction.
type history struct {
	bases    []int64 // of the segments
	segments []*Aborted
	aborted  []AbortedTxn
	end      int64
}

func randomHistory(rng *rand.Rand) *history {
	h := &history{bases: []int64{0}, segments: []*Aborted{NewAborted(0)}}
	open := map[int64]int64{} // producer to first offset
	for range rng.IntN(300) {
		switch pid := rng.Int64N(6); {
		case rng.IntN(15) == 0 && h.end > h.bases[len(h.bases)-1]:
			h.bases = append(h.bases, h.end)
			h.segments = append(h.segments, NewAborted(h.end))
			continue
		case rng.IntN(3) > 0: // records
			if _, ok := open[pid]; !ok {
				open[pid] = h.end
			}
			h.end += 1 + rng.Int64N(5)
		default: // a marker
			first, ok := open[pid]
			if !ok {
				continue
			}
			delete(open, pid)
			stable := h.end + 1
			for _, o := range open {
				stable = min(stable, o)
			}
			if rng.IntN(3) > 0 {
				h.aborted = append(h.aborted, AbortedTxn{pid, first, h.end, stable})
				h.segments[len(h.segments)-1].Append(h.aborted[len(h.aborted)-1])
			}
			h.end++
		}
	}
	return h
}

// collect asks the segments from that of offset from on, as a reader does.
func (h *history) collect(from, upTo int64) (found []AbortedTxn) {
	at := 0
	for at+1 < len(h.bases) && h.bases[at+1] <= from {
		at++
	}
	for _, s := range h.segments[at:] {
		var done bool
		if found, done = s.Collect(found, from, upTo); done {
			break
		}
	}
	return found
}

// B2: a reader is told of every aborted transaction that has records in what it reads, also of those whose marker lies
// in a later segment, and of none that has not.
func TestCollectFindsWhatIsAborted(t *testing.T) {
	eachSeed(t, func(t *testing.T, rng *rand.Rand) {
		h := randomHistory(rng)
		for range 50 {
			from := rng.Int64N(h.end + 1)
			upTo := from + rng.Int64N(h.end-from+1)
			var want []AbortedTxn
			for _, a := range h.aborted {
				if a.LastOffset >= from && a.FirstOffset < upTo {
					want = append(want, a)
				}
			}
			if got := h.collect(from, upTo); !slices.Equal(got, want) {
				t.Fatalf("from %d up to %d: got %v, want %v, of %v in segments %v", from, upTo, got, want, h.aborted, h.bases)
			}
		}
		for i, s := range h.segments {
			checkAborted(t, s, h.bases[i])
		}
	})
}

// checkAborted saves, loads, cuts and looks up.
func checkAborted(t *testing.T, x *Aborted, base int64) {
	t.Helper()
	data := x.AppendTo([]byte("kept"), 0)
	if len(data) != 4+AbortedEntrySize*x.Len() || string(data[:4]) != "kept" {
		t.Fatalf("the file form has %d bytes of %d entries", len(data), x.Len())
	}
	data = data[4:]
	loaded, err := LoadAborted(base, bytes.Clone(data))
	if err != nil || loaded.Len() != x.Len() || loaded.Base() != base {
		t.Fatalf("%d entries of %d come back, base %d, %v", loaded.Len(), x.Len(), loaded.Base(), err)
	}
	for i := range x.Len() {
		a := x.At(i)
		if loaded.At(i) != a {
			t.Fatalf("entry %d comes back as %v, want %v", i, loaded.At(i), a)
		}
		if j := x.LookupOffset(a.LastOffset); j != i {
			t.Fatalf("LookupOffset(%d) is %d, want %d", a.LastOffset, j, i)
		}
		if j := x.LookupOffset(a.LastOffset + 1); j != i+1 {
			t.Fatalf("LookupOffset(%d) is %d, want %d", a.LastOffset+1, j, i+1)
		}
		if got := x.AppendTo(nil, i); !bytes.Equal(got, data[i*AbortedEntrySize:]) {
			t.Fatalf("AppendTo from %d gives %x", i, got)
		}
	}
	if x.LookupOffset(math.MinInt64) != 0 || x.LookupOffset(math.MaxInt64) != x.Len() {
		t.Fatal("LookupOffset is wrong at the ends")
	}
	half := x.Len() / 2
	loaded.TruncateTo(half)
	if got := loaded.AppendTo(nil, -1); !bytes.Equal(got, data[:half*AbortedEntrySize]) {
		t.Fatalf("cut to %d entries: %x", half, got)
	}
	next := AbortedTxn{1, base, base + 1<<40, base}
	if !loaded.Append(next) || loaded.At(half) != next {
		t.Fatal("a loaded index refuses an entry")
	}
}

func TestAbortedTakesOnlyWhatCanBe(t *testing.T) {
	const base = 100
	first := AbortedTxn{ProducerID: 7, FirstOffset: 90, LastOffset: 150, LastStableOffset: 151}
	for _, c := range []struct {
		name string
		txn  AbortedTxn
		kept bool
	}{
		{"rises", AbortedTxn{7, 151, 152, 153}, true},
		{"began in another segment", AbortedTxn{7, 0, 151, 0}, true},
		{"producer 0, of no records but the marker's", AbortedTxn{0, 151, 151, 152}, true},
		{"last of all", AbortedTxn{7, 3, math.MaxInt64, math.MaxInt64}, true},
		{"last offset equal", AbortedTxn{7, 100, 150, 151}, false},
		{"last offset lower", AbortedTxn{7, 100, 149, 150}, false},
		{"first offset above the last", AbortedTxn{7, 153, 152, 153}, false},
		{"first offset negative", AbortedTxn{7, -1, 152, 153}, false},
		{"last stable offset too great", AbortedTxn{7, 151, 152, 154}, false},
		{"last stable offset negative", AbortedTxn{7, 151, 152, -1}, false},
		{"last stable offset far below", AbortedTxn{7, 151, 152, math.MinInt64}, false},
		{"producer negative", AbortedTxn{-1, 151, 152, 153}, false},
	} {
		x := NewAborted(base)
		if !x.Append(first) {
			t.Fatal("the first entry is refused")
		}
		if kept := x.Append(c.txn); kept != c.kept || x.Len() != map[bool]int{false: 1, true: 2}[c.kept] {
			t.Errorf("%s: kept is %v, %d entries", c.name, kept, x.Len())
		}
		// Loading is as strict.
		unchecked := NewAborted(base)
		unchecked.entries.set([]AbortedTxn{first, c.txn})
		if _, err := LoadAborted(base, unchecked.AppendTo(nil, 0)); (err == nil) != c.kept || err != nil && !errors.Is(err, ErrBroken) {
			t.Errorf("%s: loading gives %v", c.name, err)
		}
	}
	if NewAborted(base).Append(AbortedTxn{7, 90, 99, 100}) {
		t.Error("a marker below the base is kept")
	}
	if !NewAborted(base).Append(AbortedTxn{7, 90, 100, 101}) {
		t.Error("a marker at the base is refused")
	}
}

// TestAbortedFile pins the form of the file, which is Kafka's, by hand.
func TestAbortedFile(t *testing.T) {
	const (
		one   = "0000 0000000000000007 0000000000000028 0000000000000029 000000000000002a"
		two   = "0000 0000000000000008 0000000000000001 0000000000000102 000000000000002a"
		later = "0001 0000000000000008 0000000000000001 0000000000000102 000000000000002a"
	)
	x := NewAborted(40)
	x.Append(AbortedTxn{7, 40, 41, 42})
	x.Append(AbortedTxn{8, 1, 258, 42})
	if got, want := hex.EncodeToString(x.AppendTo(nil, 0)), strings.ReplaceAll(one+two, " ", ""); got != want {
		t.Errorf("\ngot  %s\nwant %s", got, want)
	}
	for _, c := range []struct {
		name, hex, text string
		n               int
	}{
		{"nothing", "", "", 0},
		{"one", one, "", 1},
		{"two", one + two, "", 2},
		{"cut", one + "0000", "34 does not divide", 0},
		{"one byte", "00", "34 does not divide", 0},
		{"version 1", one + later, "entry 1: version 1", 0},
		{"version -1", "ffff" + one[4:], "version -1", 0},
		{"falls", two + one, "entry 1", 0},
		{"twice", one + one, "after last offset 41", 0},
		{"zeros", one + strings.Repeat("00", 34), "entry 1", 0},
		{"below the base", "0000 0000000000000007 0000000000000026 0000000000000027 0000000000000028", "entry 0", 0},
	} {
		data, err := hex.DecodeString(strings.ReplaceAll(c.hex, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		x, err := LoadAborted(40, data)
		switch {
		case c.text == "" && (err != nil || x.Len() != c.n):
			t.Errorf("%s: %v", c.name, err)
		case c.text != "" && (!errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), c.text)):
			t.Errorf("%s: got %v, want %q", c.name, err, c.text)
		}
	}
}

func TestCollectDoesNotAllocate(t *testing.T) {
	x := NewAborted(0)
	for i := range int64(1000) {
		x.Append(AbortedTxn{1, 2 * i, 2*i + 1, 2*i + 2})
	}
	dst := make([]AbortedTxn, 0, 10)
	if allocs := testing.AllocsPerRun(100, func() {
		if found, done := x.Collect(dst, 1001, 1004); len(found) != 2 || !done {
			t.Fatal(found, done)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// F16: what loads has entries that Append takes, and is saved as it was.
func FuzzAborted(f *testing.F) {
	x := NewAborted(0)
	x.Append(AbortedTxn{7, 40, 41, 42})
	x.Append(AbortedTxn{8, 1, 258, 42})
	f.Add(int64(0), x.AppendTo(nil, 0), int64(0), int64(50))
	f.Add(int64(0), x.AppendTo(nil, 0), int64(0), int64(42))
	f.Add(int64(41), x.AppendTo(nil, 0), int64(41), int64(300))
	f.Add(int64(1<<40), x.AppendTo(nil, 1), int64(-1), int64(math.MaxInt64))
	f.Add(int64(0), []byte{0}, int64(0), int64(0))
	f.Fuzz(func(t *testing.T, base int64, data []byte, from, upTo int64) {
		x, err := LoadAborted(base, data)
		if err != nil {
			if !errors.Is(err, ErrBroken) {
				t.Fatalf("%v is not ErrBroken", err)
			}
			return
		}
		if got := x.AppendTo(nil, 0); !bytes.Equal(got, data) {
			t.Fatalf("loaded %x, saved %x", data, got)
		}
		again := NewAborted(base)
		var want []AbortedTxn
		stopped := false
		for i := range x.Len() {
			a := x.At(i)
			if !again.Append(a) {
				t.Fatalf("entry %d, %v, is one that Append refuses", i, a)
			}
			// Kafka's rule, one entry after the other.
			if !stopped && a.LastOffset >= from && a.FirstOffset < upTo {
				want = append(want, a)
			}
			stopped = stopped || a.LastStableOffset >= upTo
		}
		if from >= upTo { // nothing is read
			return
		}
		if got, done := x.Collect(nil, from, upTo); !slices.Equal(got, want) || done != stopped {
			t.Fatalf("from %d up to %d: got %v, %v, want %v, %v", from, upTo, got, done, want, stopped)
		}
	})
}
