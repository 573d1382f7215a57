package index

import "testing"

// The index of these benchmarks is that of a full segment: 1 GiB with an entry every 4 KiB.
func full() (*Offsets, *Times) {
	x, y := NewOffsets(0), NewTimes(0)
	for i := range 1 << 30 / Interval {
		x.Append(int64(i+1)*35, int32(i)*Interval)
		y.Append(int64(i+1)*10, int64(i+1)*35)
	}
	return x, y
}

func BenchmarkAppend(b *testing.B) {
	x := NewOffsets(0)
	i := 0
	for b.Loop() {
		if i == 1<<18 {
			x.TruncateTo(0)
			i = 0
		}
		i++
		x.Append(int64(i)*35, int32(i)*Interval)
	}
}

func BenchmarkLookup(b *testing.B) {
	x, y := full()
	last, _ := x.Last()
	n := 0
	b.Run("newest", func(b *testing.B) {
		for b.Loop() {
			i, _ := x.Lookup(last.Offset + 1)
			n += i
		}
	})
	b.Run("random", func(b *testing.B) {
		at := uint64(1)
		for b.Loop() {
			at = at*6364136223846793005 + 1442695040888963407
			i, _ := x.Lookup(int64(at>>33) % last.Offset)
			n += i
		}
	})
	b.Run("time random", func(b *testing.B) {
		at := uint64(1)
		for b.Loop() {
			at = at*6364136223846793005 + 1442695040888963407
			i, _ := y.Lookup(int64(at>>33) % (1 << 21))
			n += i
		}
	})
	_ = n
}
