package vfs

import (
	"fmt"
	"path"
	"testing"
)

// F11: beyond SetMaxOpen opening and creating fail and leave nothing behind, and a close makes room.
func TestMaxOpenIsCounted(t *testing.T) {
	for name, v := range map[string]FS{"memory": NewMemory(), "sim": NewSim(1)} {
		t.Run(name, func(t *testing.T) {
			if n := v.MaxOpen(); n != 0 {
				t.Fatalf("a limit of %d nobody has set", n)
			}
			put(t, v, "f", "content")
			v.(interface{ SetMaxOpen(int) }).SetMaxOpen(3)
			if n := v.MaxOpen(); n != 3 {
				t.Fatalf("limit %d, set were 3", n)
			}
			r := must(v.OpenRead("f"))(t)
			w := must(v.Open("f", 0))(t)
			c := must(v.Create("c", 0))(t)
			full := func() {
				t.Helper()
				_, err := v.OpenRead("f")
				wantFull(t, err)
				_, err = v.Open("f", 0)
				wantFull(t, err)
				_, err = v.Create("d", 0)
				wantFull(t, err)
				if n := len(must(v.List("/"))(t)); n != 2 {
					t.Fatalf("%d files", n)
				}
			}
			full()
			for _, f := range []File{r, w, c} {
				check(t, f.Close())
				if f.Close() == nil {
					t.Fatal("closed twice")
				}
				must(v.OpenRead("f"))(t)
				full()
			}
			v.(interface{ SetMaxOpen(int) }).SetMaxOpen(0)
			for i := range 10 {
				must(v.Create(path.Join("/", fmt.Sprint(i)), 0))(t)
			}
		})
	}
}

func wantFull(t *testing.T, err error) {
	t.Helper()
	if !IsTooManyOpen(err) {
		t.Fatalf("error %v, want one that says there are too many open files", err)
	}
}
