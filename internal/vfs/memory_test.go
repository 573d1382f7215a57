package vfs

import (
	"bytes"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
)

// One writer appends and publishes its end, readers check everything below it. The race detector watches: it sees
// the chunks, and does not see mapped memory.
func TestMemoryConcurrentUse(t *testing.T) { appendAndRead(t, NewMemory(), "/f") }
func TestSimConcurrentUse(t *testing.T)    { appendAndRead(t, NewSim(1), "/f") }

func appendAndRead(t *testing.T, v FS, name string) {
	f := must(v.Create(name, 4<<20))(t)
	const size, entries = 24, 20_000
	var end atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			var buf []byte
			p := make([]byte, size)
			for last := int64(0); last < entries; {
				n := end.Load()
				for i := last; i < n; i++ {
					w, err := f.Window(i*size, size, &buf)
					if err == nil && i%64 == 0 {
						_, err = f.ReadAt(p, i*size)
						w = p
					}
					if err != nil || binary.LittleEndian.Uint64(w) != uint64(i) ||
						binary.LittleEndian.Uint64(w[16:]) != uint64(i) {
						t.Errorf("entry %d: %v %v", i, w, err)
						return
					}
				}
				last = n
			}
		})
	}
	wg.Go(func() {
		for end.Load() < entries {
			if err := f.Sync(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	p := make([]byte, size)
	for i := range int64(entries) {
		if (i+1)*size > f.Size() {
			if err := f.Reserve(2 * (i + 1) * size); err != nil {
				t.Error(err)
			}
		}
		binary.LittleEndian.PutUint64(p, uint64(i))
		binary.LittleEndian.PutUint64(p[16:], uint64(i))
		if _, err := f.WriteAt(p, i*size); err != nil {
			t.Error(err)
		}
		end.Store(i + 1)
	}
	wg.Wait()
	check(t, f.Close())
}

// Windows that readers hold keep their bytes when the file is cut and written again.
func TestMemoryWindowSurvivesTruncate(t *testing.T) {
	f := must(NewMemory().Create("f", 0))(t)
	must(f.WriteAt(bytes.Repeat([]byte("a"), 200_000), 0))(t)
	var windows [][]byte
	var buf []byte
	for _, off := range []int64{0, 5000, 70_000, 150_000} {
		windows = append(windows, must(f.Window(off, 1000, &buf))(t))
	}
	if buf != nil {
		t.Fatal("a window within a chunk was copied")
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		for _, w := range windows {
			if len(bytes.Trim(w, "a")) != 0 {
				t.Error("the window has changed")
			}
		}
	}()
	check(t, f.Truncate(5500))
	must(f.WriteAt(bytes.Repeat([]byte("b"), 200_000), 5500))(t)
	<-done
	if got := window(t, f, 5499, 2); string(got) != "ab" {
		t.Fatalf("content %q", got)
	}
}

func TestMemoryChunks(t *testing.T) {
	next, index := int64(0), 0
	for off := range int64(300_000) {
		i, start, size := chunkOf(off)
		if off == next {
			if i != index || start != off {
				t.Fatalf("offset %d: chunk %d from %d, want %d", off, i, start, index)
			}
			next, index = start+size, index+1
		} else if i != index-1 || start+size != next {
			t.Fatalf("offset %d: chunk %d from %d, %d bytes", off, i, start, size)
		}
	}
	f := must(NewMemory().Create("f", 0))(t).(*memFile)
	check(t, f.Reserve(1<<30))
	must(f.WriteAt([]byte("x"), 1<<29))(t)
	for i := range *f.data.table.Load() {
		if c := f.data.chunk(i); c != nil && len(c) > 1<<maxChunkBits {
			t.Fatalf("a chunk of %d bytes", len(c))
		}
	}
}
