package crashtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/runnelmq/runnel/stream"
)

// A device of a file system is a file that has room for so many bytes, and later for these.
const smallDevice, grownDevice = 12 << 20, 192 << 20

// F4, A2: a file system whose device has no room for what was promised: syncs fail, and a sync that is tried again may say nil
// although bytes are lost. Nothing is acknowledged then that is not on the device, nothing is shown as durable, errors are
// typed, and the process lives. When the device has grown, the engine comes back by itself or, at the latest, when the file
// system has been mounted and the directory opened again, with everything that was acknowledged as synced, byte for byte.
func TestFailingDevice(t *testing.T) {
	for _, fs := range []FileSystem{
		{Name: "journal", Type: "ext4", Bytes: 128 << 20, Make: []string{"-b", "4096", "-J", "size=4"}},
		{Name: "no journal", Type: "ext4", Bytes: 128 << 20, Make: []string{"-b", "4096", "-O", "^has_journal"}, Repair: true},
	} {
		t.Run(fs.Name, func(t *testing.T) {
			if args := childArgs(); args != nil {
				if args[0] == "after" {
					afterFailure(t, args[1], args[2])
					return
				}
				seed, err := strconv.ParseUint(args[4], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				exhaustDevice(t, args[1], args[2], args[3], random(seed, 23))
				return
			}
			first := startSeed(t)
			for round := range *environ {
				failDevice(t, fs, first+uint64(round))
			}
		})
	}
}

func failDevice(t *testing.T, fs FileSystem, seed uint64) {
	ground, err := OpenMount("", Tmpfs(smallDevice))
	if err == nil {
		defer closeMount(t, ground)
		var m *Mount
		if m, err = OpenMount(ground.Dir, fs); err == nil {
			defer closeMount(t, m)
			honest(t, m.Device)
			dir, book := filepath.Join(m.Dir, "data"), filepath.Join(t.TempDir(), "book")
			alive(t, "fail", dir, book, ground.Dir, strconv.FormatUint(seed, 10))
			if err := errors.Join(m.Unmount(), m.Mount()); err != nil {
				t.Fatal(err)
			}
			alive(t, "after", dir, book)
		}
	}
	if errors.Is(err, ErrNoMount) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// honest makes a loop device ask for one page at a time. Of a longer write it reports success when its file has taken the
// beginning and is full then, and the sync behind it says nil although the rest is lost.
func honest(t *testing.T, device string) {
	name := filepath.Join("/sys/block", filepath.Base(device), "queue", "max_sectors_kb")
	old, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(name, []byte("4"), 0)
	}
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.WriteFile(name, old, 0) })
}

func closeMount(t *testing.T, m *Mount) {
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// exhaustDevice writes until the device is full, goes on for a while, lets it grow and sees what comes back.
func exhaustDevice(t *testing.T, dir, name, ground string, r *rand.Rand) {
	ctx := t.Context()
	eng := openAt(t, dir, stream.Options{SyncInterval: time.Duration(between(r, 1, 50)) * time.Millisecond})
	createTopic(t, eng, "t", stream.TopicConfig{Partitions: 3, SegmentBytes: int64(between(r, 1, 16)) << 20})
	book := newLedger()
	tps := []stream.TopicPartition{part("t", 0), part("t", 1), part("t", 2)}
	durable, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Reset: stream.ResetEarliest, Visibility: stream.Durable, MaxWait: -1})
	if err == nil {
		err = durable.Assign(tps...)
	}
	if err != nil {
		t.Fatal(err)
	}
	var senders []*sender
	for i, acks := range []stream.Acks{stream.AcksSynced, stream.AcksSynced, stream.AcksWritten} {
		senders = append(senders, book.sender(t, eng, "sender"+strconv.Itoa(i), acks))
	}
	allowed := []error{stream.ErrPartitionFailed, stream.ErrMetaFailed, stream.ErrCorrupt, stream.ErrDiskFull}
	burst := func() (failed int) {
		errs := make([]error, len(senders))
		var wg sync.WaitGroup
		for i, s := range senders {
			r := random(r.Uint64(), 24)
			wg.Go(func() {
				for range 100 {
					_, err := s.send(ctx, tps[r.IntN(len(tps))])
					if err != nil && !oneOf(err, allowed...) {
						t.Errorf("F4: an append: %v", err)
					}
					errs[i] = errors.Join(errs[i], err)
				}
			})
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				failed++
			}
		}
		for {
			rs, err := durable.Poll(ctx, 1000)
			if where := (*stream.PartitionError)(nil); errors.As(err, &where) {
				durable.Resume(where.TopicPartition)
				break
			}
			if err != nil || len(rs) == 0 {
				if !isTyped(err) {
					t.Errorf("F4: a poll: %v", err)
				}
				break
			}
			book.claim(t, rs)
		}
		return failed
	}
	bursts, after := 0, 0
	for after < 5 {
		if bursts++; bursts > 2000 {
			t.Fatal("F4: the device does not fail")
		}
		if burst() > 0 {
			after++
		}
	}
	t.Logf("failed after %d bursts", bursts-after)

	if err := unix.Mount("", ground, "", unix.MS_REMOUNT, fmt.Sprintf("size=%d", grownDevice)); err != nil {
		t.Fatal(err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	if err := syncs(dir); err != nil || st.Flags&unix.ST_RDONLY != 0 {
		t.Logf("nothing can come back before the file system is mounted again (%v)", err)
	} else {
		again := time.NewTicker(50 * time.Millisecond)
		back := false
		for begin := time.Now(); !back && time.Since(begin) < time.Minute; <-again.C {
			back = burst() == 0
		}
		again.Stop()
		if !back {
			t.Error("F4: the disk works, and not everything has come back by itself")
		}
		book.verify(t, eng, true, tps...)
	}
	if err := eng.Close(); !isTyped(err) {
		t.Errorf("F4: close: %v", err)
	}
	book.save(t, name)
}

// syncs reports whether a new file in dir can be written and synced.
func syncs(dir string) error {
	f, err := os.Create(filepath.Join(dir, "probe"))
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 64<<10))
	err = errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
	d, derr := os.Open(dir)
	if derr != nil {
		return derr
	}
	return errors.Join(err, d.Sync(), d.Close())
}
