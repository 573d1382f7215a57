package vfs

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// F8: Memory and Sim take the time of a change from package time, to the nanosecond, and images of a Sim keep it.
func TestModTimeIsThatOfPackageTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSim(1)
		for _, v := range []FS{NewMemory(), s} {
			f := must(v.Create("f", 0))(t)
			for i, change := range []func() error{
				func() error { return nil }, // the creation itself
				func() error { _, err := f.WriteAt([]byte("x"), 0); return err },
				func() error { return f.Reserve(1000) },
				func() error { return f.Truncate(10) },
			} {
				if i > 0 {
					time.Sleep(time.Hour + time.Nanosecond)
				}
				check(t, change())
				now := time.Now()
				time.Sleep(time.Second)
				if got := must(v.Stat("f"))(t).ModTime; !got.Equal(now) {
					t.Fatalf("change %d: time %v, want %v", i, got, now)
				}
			}
		}
		check(t, s.SyncDir("/"))
		want := must(s.Stat("f"))(t).ModTime
		var dump bytes.Buffer
		check(t, s.Dump(&dump))
		time.Sleep(time.Hour)
		for name, im := range map[string]*Sim{"cut": s.Cut(Cut{Keep: 0}), "crash": s.Crash(), "dump": must(LoadSim(&dump))(t)} {
			if got := must(im.Stat("f"))(t).ModTime; !got.Equal(want) {
				t.Fatalf("%s: time %v, want %v", name, got, want)
			}
		}
	})
}
