package index

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestReadersSeeAPrefix has one writer and several readers at work. Entry i is a function of i, so that a reader can
// tell an entry that was published from a slot that was not. Run it with -race: the column's order of stores and loads
// is what keeps it quiet.
func TestReadersSeeAPrefix(t *testing.T) {
	const entries = 100_000
	offsets, times := NewOffsets(7), NewTimes(7)
	offset := func(i int) OffsetEntry { return OffsetEntry{7 + int64(i+1)*3, int32(i+1) * 5} }
	stamp := func(i int) TimeEntry { return TimeEntry{int64(i+1) * 11, 7 + int64(i+1)*3} }

	var done atomic.Bool
	var readers sync.WaitGroup
	for r := range 3 {
		readers.Go(func() {
			seen := 0
			for stop := false; !stop; {
				stop = done.Load() // the last round begins after the last append
				n := offsets.Len()
				if n < seen {
					t.Errorf("%d entries after %d", n, seen)
					return
				}
				seen = n
				if n == 0 {
					continue
				}
				for _, i := range []int{0, n / 2, n - 1, (n * (r + 1)) / 4} {
					if e := offsets.At(i); e != offset(i) {
						t.Errorf("entry %d of %d is %v", i, n, e)
						return
					}
					if j, ok := offsets.Lookup(offset(i).Offset + 2); !ok || j != i {
						t.Errorf("Lookup of entry %d gives %d, %v", i, j, ok)
						return
					}
				}
				if e, ok := offsets.Last(); !ok || e.Offset < offset(n-1).Offset {
					t.Errorf("Last is %v after %d entries", e, n)
					return
				}
				from := max(0, n-20)
				loaded, err := LoadOffsets(7, append(offsets.AppendTo(nil, 0)[:8], offsets.AppendTo(nil, max(from, 1))...))
				if err != nil || loaded.Len() < n-max(from, 1) {
					t.Errorf("the file form is torn: %v", err)
					return
				}
				if m := times.Len(); m > 0 {
					if e := times.At(m - 1); e != stamp(m-1) {
						t.Errorf("time entry %d is %v", m-1, e)
						return
					}
					if j, ok := times.Lookup(stamp(m / 2).Timestamp); !ok || j != m/2 {
						t.Errorf("Lookup of time entry %d gives %d, %v", m/2, j, ok)
						return
					}
				}
			}
			if seen != entries {
				t.Errorf("a reader saw %d entries at the end, want %d", seen, entries)
			}
		})
	}
	for i := range entries {
		if e := offset(i); !offsets.Append(e.Offset, e.Pos) {
			t.Errorf("entry %d is refused", i)
			break
		}
		if e := stamp(i); !times.Append(e.Timestamp, e.Offset) {
			t.Errorf("time entry %d is refused", i)
			break
		}
	}
	done.Store(true)
	readers.Wait()
}

// TestReadersMeetGrowth makes many small columns, so that readers often load count and slots while the array grows.
func TestReadersMeetGrowth(t *testing.T) {
	var current atomic.Pointer[column[int]]
	current.Store(new(column[int]))
	var done atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for !done.Load() {
				c := current.Load()
				for range 100 {
					v := c.view()
					if n := len(v); n > 0 && (v[n-1] != n-1 || v[n/2] != n/2) {
						t.Errorf("%d entries end in %d", n, v[n-1])
						return
					}
				}
			}
		})
	}
	for range 3000 {
		c := new(column[int])
		current.Store(c)
		for i := range 300 {
			c.append(i)
		}
	}
	done.Store(true)
	readers.Wait()
}

func TestLastTrue(t *testing.T) {
	for n := range 70 {
		for want := -1; want < n; want++ {
			calls := 0
			got := lastTrue(n, func(i int) bool {
				if i < 0 || i >= n {
					t.Fatalf("n %d: asks for %d", n, i)
				}
				calls++
				return i <= want
			})
			if got != want {
				t.Fatalf("n %d: got %d, want %d", n, got, want)
			}
			if want == n-1 && calls > 1 {
				t.Errorf("n %d: %d steps for the newest entry", n, calls)
			}
		}
	}
}
