package vfs

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
)

// render lists a disk for comparison.
func render(t testing.TB, s FS) string {
	t.Helper()
	var b strings.Builder
	var walk func(dir string)
	walk = func(dir string) {
		for _, i := range must(s.List(dir))(t) {
			name := path.Join(dir, i.Name)
			if i.Dir {
				fmt.Fprintf(&b, "%s/\n", name)
				walk(name)
				continue
			}
			fmt.Fprintf(&b, "%s %q\n", name, get(t, s, name))
		}
	}
	walk("/")
	return b.String()
}

func TestSimKeepsWhatIsSynced(t *testing.T) {
	for seed := range uint64(300) {
		s := NewSim(seed)
		s.SetWriteBack(float64(seed%3) / 3)
		r := rand.New(rand.NewPCG(seed, 1))
		check(t, s.Mkdir("d"))
		check(t, s.SyncDir(""))
		f := must(s.Create("d/f", 0))(t)
		check(t, s.SyncDir("d"))
		check(t, f.Reserve(20_000))
		live := make([]byte, 20_000)
		versions := [][]byte{nil} // what the file held at the last sync, and what it has held since
		for i := range 30 {
			if r.IntN(4) == 0 {
				check(t, f.Sync())
				versions = nil
			} else {
				off, n := r.IntN(19_000), 1+r.IntN(1000)
				p := bytes.Repeat([]byte{byte(i + 1)}, n)
				must(f.WriteAt(p, int64(off)))(t)
				copy(live[off:], p)
			}
			versions = append(versions, bytes.Clone(live))
			c := s.Cut(Cut{Seed: r.Uint64(), Keep: -1})
			checkCut(t, seed, []byte(get(t, c, "d/f")), versions)
		}
	}
}

// checkCut checks that the size is that of a version, and that every sector is that of a version: write-back may have
// taken one in the middle.
func checkCut(t *testing.T, seed uint64, got []byte, versions [][]byte) {
	t.Helper()
	if !slices.ContainsFunc(versions, func(v []byte) bool { return len(v) == len(got) }) {
		t.Fatalf("seed %d: a size of %d that the file never had", seed, len(got))
	}
	for at := 0; at < len(got); at += simSectorSize {
		end := min(at+simSectorSize, len(got))
		if !slices.ContainsFunc(versions, func(v []byte) bool {
			old := make([]byte, end-at)
			copy(old, v[min(at, len(v)):])
			return bytes.Equal(got[at:end], old)
		}) {
			t.Fatalf("seed %d: sector at %d is none that was there since the last sync", seed, at)
		}
	}
}

func TestSimCutDrawsSectorsSizesAndPrefixes(t *testing.T) {
	s := NewSim(1)
	f := must(s.Create("f", 0))(t)
	check(t, s.SyncDir("/"))
	old := bytes.Repeat([]byte("o"), 8*simSectorSize)
	must(f.WriteAt(old, 0))(t)
	check(t, f.Sync())
	fresh := bytes.Repeat([]byte("n"), 2*len(old))
	must(f.WriteAt(fresh, 0))(t)
	for _, n := range []string{"a", "b", "c"} {
		put(t, s, n, "")
	}

	none, all := s.Cut(Cut{Keep: 0}), s.Cut(Cut{Keep: 1})
	if got := render(t, none); got != fmt.Sprintf("/f %q\n", old) {
		t.Fatalf("nothing kept: %.100s", got)
	}
	if got := render(t, all); got != render(t, s) {
		t.Fatalf("all kept: %.100s", got)
	}
	sizes, entries, sectors := map[int]int{}, map[string]int{}, map[string]int{}
	for seed := range uint64(400) {
		c := s.Cut(Cut{Seed: seed, Keep: 0.5})
		got := get(t, c, "f")
		sizes[len(got)]++
		var mask []byte
		for i := range 8 {
			mask = append(mask, got[i*simSectorSize])
		}
		sectors[string(mask)]++
		var names string
		for _, i := range must(c.List("/"))(t) {
			names += i.Name
		}
		entries[names]++
	}
	if len(sizes) != 2 || sizes[len(old)] < 100 || sizes[len(fresh)] < 100 {
		t.Errorf("sizes %v", sizes)
	}
	if len(sectors) < 150 { // of 256
		t.Errorf("%d different sets of sectors", len(sectors))
	}
	if got := slices.Sorted(maps.Keys(entries)); !slices.Equal(got, []string{"abcf", "abf", "af", "f"}) {
		t.Errorf("directories %v, want all prefixes and no other", entries)
	}
}

func TestSimTruncateIsPendingToo(t *testing.T) {
	s := NewSim(1)
	f := must(s.Create("f", 0))(t)
	check(t, s.SyncDir("/"))
	content := bytes.Repeat([]byte("x"), 3*simPageSize)
	must(f.WriteAt(content, 0))(t)
	check(t, f.Sync())
	check(t, f.Truncate(100))
	if got := get(t, s.Cut(Cut{Keep: 0}), "f"); got != string(content) {
		t.Fatal("the cut-off bytes are gone before the sync")
	}
	check(t, f.Reserve(3*simPageSize))
	check(t, f.Sync())
	want := "x" + strings.Repeat("x", 99) + strings.Repeat("\x00", 3*simPageSize-100)
	if got := get(t, s.Cut(Cut{Seed: 3, Keep: 0.5}), "f"); got != want {
		t.Fatal("cut-off bytes survive truncation, growth and sync")
	}
}

// What is behind the size that survived does not come back when the file grows again.
func TestSimCutEndsAtTheSize(t *testing.T) {
	s := NewSim(1)
	f := must(s.Create("f", 0))(t)
	check(t, s.SyncDir("/"))
	must(f.WriteAt([]byte("short"), 0))(t)
	check(t, f.Sync())
	must(f.WriteAt(bytes.Repeat([]byte("x"), 10_000), 5))(t)
	tested := false
	for seed := range uint64(50) {
		g := must(s.Cut(Cut{Seed: seed, Keep: 0.9}).Open("f", 0))(t)
		if g.Size() == 5 {
			tested = true
			check(t, g.Reserve(10_005))
			if w := window(t, g, 5, 10_000); len(bytes.Trim(w, "\x00")) != 0 {
				t.Fatalf("seed %d: bytes behind the end are back", seed)
			}
		}
		check(t, g.Close())
	}
	if !tested {
		t.Fatal("no seed kept the old size")
	}
}

func TestSimWritesBackByItself(t *testing.T) {
	s := NewSim(1)
	s.SetWriteBack(1)
	f := must(s.Create("f", 0))(t)
	for i := range 100 {
		must(f.WriteAt(make([]byte, 1+i), 1000*int64(i)))(t)
	}
	c := s.Cut(Cut{Keep: 0})
	if st, err := c.Stat("f"); err != nil || st.Size == 0 || len(s.mu.busy[0].dirty) == 100 {
		t.Fatalf("%v (%v), %d pages dirty", st, err, len(s.mu.busy[0].dirty))
	}
}

func TestSimDirectoriesKeepAPrefix(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := NewSim(seed)
		s.SetWriteBack(float64(seed%2) / 4)
		check(t, s.Mkdir("a"))
		check(t, s.Mkdir("b"))
		check(t, s.SyncDir("/"))
		// history[d][i] is what d held after its i-th operation; synced[d] is where its last SyncDir was.
		history, synced := map[string][]string{"a": {""}, "b": {""}}, map[string]int{}
		record := func(dirs ...string) {
			for _, d := range dirs {
				history[d] = append(history[d], names(t, s, d))
			}
		}
		for i := range 12 {
			d := []string{"a", "b"}[r.IntN(2)]
			other := map[string]string{"a": "b", "b": "a"}[d]
			files := must(s.List(d))(t)
			switch k := r.IntN(5); {
			case k == 0:
				check(t, s.SyncDir(d))
				synced[d] = len(history[d]) - 1
			case k == 1 && len(files) > 0:
				check(t, s.Remove(path.Join(d, files[r.IntN(len(files))].Name)))
				record(d)
			case k == 2 && len(files) > 0:
				n := files[r.IntN(len(files))].Name
				check(t, s.Rename(path.Join(d, n), path.Join(other, n)))
				record(d, other)
			default:
				put(t, s, path.Join(d, string(rune('A'+i))), "")
				record(d)
			}
			c := s.Cut(Cut{Seed: r.Uint64(), Keep: -1})
			got := map[string]string{"a": names(t, c, "a"), "b": names(t, c, "b")}
			for d, h := range history {
				if !slices.Contains(h[synced[d]:], got[d]) {
					t.Fatalf("seed %d: %s holds %q, history %q synced at %d", seed, d, got[d], h, synced[d])
				}
			}
			// A renamed file is in one of the two, never in both.
			for _, n := range got["a"] {
				if strings.ContainsRune(got["b"], n) {
					t.Fatalf("seed %d: %c is in both directories", seed, n)
				}
			}
		}
	}
}

func names(t testing.TB, s *Sim, dir string) (all string) {
	t.Helper()
	for _, i := range must(s.List(dir))(t) {
		all += i.Name
	}
	return all
}

func TestSimRenameBetweenDirectoriesIsOneStep(t *testing.T) {
	s := NewSim(1)
	check(t, s.Mkdir("a"))
	check(t, s.Mkdir("b"))
	check(t, s.SyncDir("/"))
	put(t, s, "a/f", "")
	check(t, s.SyncDir("a"))
	put(t, s, "b/before", "")
	check(t, s.Rename("a/f", "b/f"))
	put(t, s, "b/after", "")
	check(t, s.SyncDir("a")) // drags b along as far as the rename
	c := s.Cut(Cut{Keep: 0})
	if a, b := names(t, c, "a"), names(t, c, "b"); a != "" || b != "beforef" {
		t.Fatalf("a %q, b %q", a, b)
	}
}

func TestSimForgetsRemovedDirectories(t *testing.T) {
	s := NewSim(1)
	for range 3 {
		check(t, s.Mkdir("d"))
		check(t, s.Mkdir("d/e"))
		put(t, s, "d/e/f", "x")
		check(t, s.Remove("d/e/f"))
		check(t, s.Remove("d/e"))
		check(t, s.Remove("d"))
		check(t, s.SyncDir("/"))
	}
	if n := len(s.mu.queue) + len(s.mu.busy); n != 0 || s.mu.used != 0 {
		t.Fatalf("%d left over, %d bytes used", n, s.mu.used)
	}
}

// run performs operations drawn from a seed, and returns everything that can be observed.
func run(t testing.TB, seed uint64) (seen string) {
	s := NewSim(seed)
	s.SetTrace(true)
	s.SetWriteBack(0.3)
	var cuts strings.Builder
	r := rand.New(rand.NewPCG(seed, 3))
	s.OnOp(func(op Op) {
		cuts.WriteString(render(t, s.Cut(Cut{Seed: uint64(op.N), Keep: -1})))
	})
	check(t, s.Mkdir("d"))
	for i := range 25 {
		name := fmt.Sprintf("d/%d", r.IntN(4))
		switch r.IntN(4) {
		case 0:
			_ = s.Remove(name)
		case 1:
			_ = s.Rename(name, fmt.Sprintf("d/%d", r.IntN(4)))
		case 2:
			check(t, s.SyncDir("d"))
		default:
			if f, err := s.Create(name, 0); err == nil {
				must(f.WriteAt(bytes.Repeat([]byte{byte(i)}, 1+r.IntN(3000)), 0))(t)
				if r.IntN(2) == 0 {
					check(t, f.Sync())
				}
				check(t, f.Close())
			}
		}
	}
	return strings.Join(s.Trace(), "\n") + cuts.String() + render(t, s)
}

func TestSimRepeatsFromItsSeed(t *testing.T) {
	for seed := range uint64(20) {
		first := run(t, seed)
		if again := run(t, seed); again != first {
			t.Fatalf("seed %d gave two different runs", seed)
		}
	}
	if run(t, 1) == run(t, 2) {
		t.Fatal("the seed does not matter")
	}
}

func TestSimCrashKeepsEverythingAndItsPendings(t *testing.T) {
	s := NewSim(1)
	l := must(s.Lock("LOCK"))(t)
	check(t, s.SyncDir("/"))
	put(t, s, "f", "unsynced")
	open := must(s.Create("open", 0))(t)
	must(open.WriteAt([]byte("0"), 0))(t)
	c := s.Crash()
	must(open.WriteAt([]byte("1"), 0))(t)
	if got := render(t, c); got != "/LOCK \"\"\n/f \"unsynced\"\n/open \"0\"\n" {
		t.Fatalf("after the crash:\n%s", got)
	}
	if got := render(t, c.Cut(Cut{Keep: 0})); got != "/LOCK \"\"\n" {
		t.Fatalf("after a crash and then a cut:\n%s", got)
	}
	check(t, must(c.Lock("LOCK"))(t).Close())
	check(t, l.Close())
	f := must(c.Open("f", 0))(t)
	must(f.WriteAt([]byte("U"), 0))(t)
	check(t, f.Sync())
	check(t, c.SyncDir("/"))
	if got := get(t, c.Cut(Cut{Keep: 0}), "f"); got != "Unsynced" {
		t.Fatalf("synced after the crash, and cut: %q", got)
	}
	if got := get(t, s, "f"); got != "unsynced" {
		t.Fatalf("the original has changed to %q", got)
	}
}

func TestSimImagesAreIndependent(t *testing.T) {
	s := NewSim(1)
	f := must(s.Create("f", 0))(t)
	must(f.WriteAt(bytes.Repeat([]byte("s"), 2*simPageSize), 0))(t)
	images := map[string]*Sim{"kept": s.Cut(Cut{Keep: 1}), "crashed": s.Crash()}
	check(t, f.Sync())
	check(t, s.SyncDir("/"))
	images["synced"] = s.Cut(Cut{Keep: 0})
	for name, c := range images {
		g := must(c.Open("f", 0))(t)
		must(g.WriteAt([]byte(name), 4090))(t)
		check(t, g.Truncate(8000))
		check(t, c.Mkdir("only "+name))
	}
	must(f.WriteAt([]byte("mine"), 0))(t)
	before := s.Cut(Cut{Keep: 0})
	check(t, f.Sync())
	if got := get(t, before, "f"); got != strings.Repeat("s", 2*simPageSize) {
		t.Error("a sync of the original reached into its image")
	}
	for name, c := range images {
		want := strings.Repeat("s", 4090) + name + strings.Repeat("s", 8000-4090-len(name))
		if got := get(t, c, "f"); got != want {
			t.Errorf("%s: content differs", name)
		}
		if got := names(t, c, "/"); got != "f"+"only "+name {
			t.Errorf("%s: directory %q", name, got)
		}
	}
	if got := get(t, s, "f"); got != "mine"+strings.Repeat("s", 2*simPageSize-4) {
		t.Error("the original has changed")
	}
}

func TestSimTraceAndHook(t *testing.T) {
	s := NewSim(1)
	s.SetTrace(true)
	var hooked []string
	s.OnOp(func(op Op) {
		s.Cut(Cut{Seed: uint64(op.N)})
		s.Crash()
		hooked = append(hooked, op.String())
	})
	check(t, s.Mkdir("d"))
	f := must(s.Create("/d/x", 0))(t)
	check(t, f.Reserve(1<<20))
	must(f.WriteAt(make([]byte, 512), 0))(t)
	check(t, f.Sync())
	check(t, s.SyncDir("d"))
	check(t, s.Rename("d/x", "d/y"))
	check(t, f.Truncate(512))
	get(t, s, "d/y")
	check(t, s.Remove("d/y"))
	wantIs(t, s.Remove("d/y"), fs.ErrNotExist)
	want := []string{"mkdir d", "create d/x", "reserve d/x 1048576", "write d/x 0+512", "sync d/x", "syncdir d",
		"rename d/x d/y", "truncate d/y 512", "remove d/y", "remove d/y: remove d/y: file does not exist"}
	if got := s.Trace(); !slices.Equal(got, want) {
		t.Fatalf("trace %q", got)
	}
	want[9] = "remove d/y"
	if !slices.Equal(hooked, want) || s.Ops() != len(want) {
		t.Fatalf("hook saw %q in %d operations", hooked, s.Ops())
	}
}

func TestSimDumpAndLoad(t *testing.T) {
	s := NewSim(9)
	s.SetFree(1 << 20)
	s.SetWriteBack(0.2)
	check(t, s.Mkdir("d"))
	f := must(s.Create("d/f", 0))(t)
	must(f.WriteAt(bytes.Repeat([]byte("a"), 10_000), 0))(t)
	check(t, f.Sync())
	check(t, s.SyncDir("/"))
	must(f.WriteAt(bytes.Repeat([]byte("b"), 3000), 3000))(t)
	put(t, s, "d/g", "g")
	check(t, s.Rename("d/g", "h"))
	check(t, s.Remove("d/f"))

	var b, again bytes.Buffer
	check(t, s.Dump(&b))
	l := must(LoadSim(bytes.NewReader(b.Bytes())))(t)
	if render(t, l) != render(t, s.Crash()) {
		t.Fatal("the loaded image differs")
	}
	for seed := range uint64(100) {
		c := Cut{Seed: seed, Keep: -1}
		if got, want := render(t, l.Cut(c)), render(t, s.Cut(c)); got != want {
			t.Fatalf("seed %d: cutting the loaded image gives\n%s, want\n%s", seed, got, want)
		}
	}
	check(t, l.Dump(&again))
	if again.Len() != b.Len() {
		t.Fatalf("dumped again it has %d bytes, and had %d", again.Len(), b.Len())
	}
	if _, err := LoadSim(strings.NewReader("garbage")); err == nil {
		t.Fatal("garbage was loaded")
	}
}
