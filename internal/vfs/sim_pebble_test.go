package vfs

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// silent keeps pebble's chatter out of the tests. Fatalf must not return here: the disk does not fail.
type silent struct{ t testing.TB }

func (silent) Infof(string, ...any)             {}
func (silent) Errorf(string, ...any)            {}
func (s silent) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

func openPebble(t testing.TB, v FS) *pebble.DB { return openPebbleIn(t, v, "/meta") }

func openPebbleIn(t testing.TB, v FS, dir string) *pebble.DB {
	t.Helper()
	return must(pebble.Open(dir, &pebble.Options{FS: v.Pebble(), Logger: silent{t}, MemTableSize: 16 << 10,
		FormatMajorVersion: pebble.FormatNewest}))(t)
}

// Pebble on the adaptor loses no synced key, whatever survives of the rest, through two cuts in a row.
func TestSimPebbleLosesNoSyncedKey(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() || raceEnabled {
		seeds = 20
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 4))
		s := NewSim(seed)
		s.SetWriteBack(float64(seed%4) / 8)
		synced := map[string]string{}
		for life := range 3 {
			db := openPebble(t, s)
			for k, v := range synced {
				got, c, err := db.Get([]byte(k))
				if err != nil || string(got) != v {
					t.Fatalf("seed %d, life %d: %s is %q (%v), want %q", seed, life, k, got, err, v)
				}
				check(t, c.Close())
			}
			cutAt, cut := r.IntN(60), (*Sim)(nil)
			for i := range 60 {
				if i == cutAt {
					cut = s.Cut(Cut{Seed: r.Uint64(), Keep: -1})
					break
				}
				k, v := fmt.Sprintf("k%02d", r.IntN(30)), fmt.Sprint(life, i)
				switch r.IntN(20) {
				case 0:
					check(t, db.Flush())
				default:
					v += string(make([]byte, r.IntN(1500)))
					check(t, db.Set([]byte(k), []byte(v), pebble.Sync))
					synced[k] = v
				}
			}
			check(t, db.Close())
			s = cut
		}
	}
}

// Every operation of a history is a place to lose power.
func TestSimPebbleAfterEveryOperation(t *testing.T) {
	s := NewSim(5)
	var images []*Sim
	var acked []int // how many keys were synced when the image was taken
	n := 0
	s.OnOp(func(op Op) {
		images = append(images, s.Cut(Cut{Seed: uint64(op.N), Keep: -1}))
		acked = append(acked, n)
	})
	db := openPebble(t, s)
	for i := range 8 {
		check(t, db.Set(fmt.Appendf(nil, "k%d", i), []byte("v"), pebble.Sync))
		n++
		if i == 4 {
			check(t, db.Flush())
		}
	}
	check(t, db.Close())
	s.OnOp(nil)
	for i, im := range images {
		if _, err := im.Stat("/meta"); err != nil && acked[i] == 0 {
			continue
		}
		db := openPebble(t, im)
		for k := range acked[i] {
			_, c, err := db.Get(fmt.Appendf(nil, "k%d", k))
			if err != nil {
				t.Fatalf("image %d: key %d: %v", i, k, err)
			}
			check(t, c.Close())
		}
		check(t, db.Close())
	}
}
