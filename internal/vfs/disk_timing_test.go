package vfs

import (
	"fmt"
	"path/filepath"
	"testing"
)

const segmentSize = 64 << 20

// BenchmarkDiskWriteAt appends to segments of 64 MiB. "fresh" ones are reserved in doubling steps, as the log does; what
// a new page costs the kernel is in it, and differs by a factor of ten between machines and moments. The pages of
// "cached" ones are in memory already, so that WriteAt and its faults are all there is: "ahead" has the helper,
// "inline" has not.
func BenchmarkDiskWriteAt(b *testing.B) {
	for _, size := range []int{128, 16 << 10, 1 << 20} {
		for _, how := range []string{"fresh/mapped", "fresh/pwrite", "cached/ahead", "cached/inline"} {
			b.Run(fmt.Sprintf("%d/%s", size, how), func(b *testing.B) {
				d := newDisk()
				defer d.Close()
				d.ahead.off.Store(d.ahead.off.Load() || how == "cached/inline")
				switch how {
				case "fresh/mapped":
					benchmarkFresh(b, d, b.TempDir(), size, segmentSize)
				case "fresh/pwrite":
					benchmarkFresh(b, d, b.TempDir(), size, 0)
				default:
					benchmarkCached(b, d, size)
				}
			})
		}
	}
}

func BenchmarkMemoryWriteAt(b *testing.B) {
	for _, size := range []int{128, 16 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) { benchmarkFresh(b, NewMemory(), "/", size, 0) })
	}
}

func benchmarkFresh(b *testing.B, fs FS, dir string, size int, limit int64) {
	p := make([]byte, size)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	var f File
	var off, reserved int64
	for n := 0; b.Loop(); n++ {
		if f == nil || off+int64(size) > segmentSize {
			b.StopTimer()
			if f != nil {
				check(b, f.Close())
				check(b, fs.Remove(f.Name()))
			}
			f = must(fs.Create(filepath.Join(dir, fmt.Sprint(n)), limit))(b)
			off, reserved = 0, 0
			b.StartTimer()
		}
		if off+int64(size) > reserved {
			reserved = min(max(64<<10, 2*reserved, off+int64(size)), segmentSize)
			check(b, f.Reserve(reserved))
		}
		if _, err := f.WriteAt(p, off); err != nil {
			b.Fatal(err)
		}
		off += int64(size)
	}
	check(b, f.Close())
}

func benchmarkCached(b *testing.B, d *disk, size int) {
	name := filepath.Join(b.TempDir(), "f")
	f := must(d.Create(name, 0))(b).(*diskFile)
	check(b, f.Reserve(segmentSize))
	for off := range int64(segmentSize >> 16) { // small writes: the kernel makes large folios of large ones
		must(f.WriteAt(make([]byte, 1<<16), off<<16))(b)
	}
	p := make([]byte, size)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for off := int64(segmentSize); b.Loop(); off += int64(size) {
		if off+int64(size) > segmentSize { // map it anew
			b.StopTimer()
			check(b, f.Close())
			f = must(d.Open(name, segmentSize))(b).(*diskFile)
			f.mapLate(0)
			off = 0
			b.StartTimer()
		}
		if _, err := f.WriteAt(p, off); err != nil {
			b.Fatal(err)
		}
	}
	check(b, f.Close())
}
