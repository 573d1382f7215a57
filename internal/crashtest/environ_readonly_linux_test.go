package crashtest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/runnelmq/runnel/stream"
)

// F5: a directory that cannot be written to, be it there or still to be made, is a clear error of Open, and a good directory
// again when it can be.
func TestReadOnlyDirectory(t *testing.T) {
	m := NewMount(t, fastDir(), FileSystems()[0])
	dir := filepath.Join(m.Dir, "data")
	book := newLedger()
	eng := openAt(t, dir, stream.Options{})
	createTopic(t, eng, "t", stream.TopicConfig{})
	book.sender(t, eng, "first", stream.AcksSynced).sendAll(t, part("t", 0), 10)
	if err := eng.Close(); err != nil {
		t.Fatal(err)
	}
	fails := func(why error, dirs ...string) {
		t.Helper()
		for _, dir := range dirs {
			eng, err := stream.Open(dir, nil)
			if err == nil {
				eng.Close()
			}
			if !errors.Is(err, why) {
				t.Errorf("F5: open %s: %v, want %v", dir, err, why)
			}
		}
	}
	opens := func(name string) {
		t.Helper()
		eng := openAt(t, dir, stream.Options{})
		book.verify(t, eng, false, part("t", 0))
		book.sender(t, eng, name, stream.AcksSynced).sendAll(t, part("t", 0), 1)
		if err := eng.Close(); err != nil {
			t.Error(err)
		}
	}

	if err := m.Remount(unix.MS_RDONLY); err != nil {
		t.Fatal(err)
	}
	fails(unix.EROFS, dir, filepath.Join(m.Dir, "other"))
	if err := m.Remount(0); err != nil {
		t.Fatal(err)
	}
	opens("second")

	if _, err := run("chattr", "-R", "+i", dir); err != nil {
		t.Skip(err)
	}
	fails(os.ErrPermission, dir)
	if _, err := run("chattr", "-R", "-i", dir); err != nil {
		t.Fatal(err)
	}
	opens("third")
}

// F5, F4: a file system that turns read-only under a running engine: appends and commits fail, with typed errors; reads go on;
// the process lives, Close returns, and what was acknowledged is there when the file system is mounted again.
func TestFileSystemTurnsReadOnly(t *testing.T) {
	if args := childArgs(); args != nil {
		if args[0] == "after" {
			afterFailure(t, args[1], args[2])
			return
		}
		turnReadOnly(t, args[1], args[2], args[3])
		return
	}
	fs := FileSystems()[0]
	fs.Options = "errors=remount-ro"
	m := NewMount(t, fastDir(), fs)
	trigger := "/sys/fs/ext4/" + filepath.Base(m.Device) + "/trigger_fs_error"
	if _, err := os.Stat(trigger); err != nil {
		t.Skip(err)
	}
	dir, book := filepath.Join(m.Dir, "data"), filepath.Join(t.TempDir(), "book")
	alive(t, "fail", dir, book, trigger)
	if err := errors.Join(m.Unmount(), m.Mount()); err != nil {
		t.Fatal(err)
	}
	alive(t, "after", dir, book)
}

func turnReadOnly(t *testing.T, dir, name, trigger string) {
	ctx := t.Context()
	eng := openAt(t, dir, stream.Options{})
	createTopic(t, eng, "t", stream.TopicConfig{Partitions: 2})
	book := newLedger()
	tps := []stream.TopicPartition{part("t", 0), part("t", 1)}
	c, err := eng.NewConsumer(ctx, stream.ConsumerConfig{Group: "g", ManualCommit: true})
	if err == nil {
		err = c.Assign(tps...)
	}
	if err != nil {
		t.Fatal(err)
	}
	senders := []*sender{book.sender(t, eng, "synced", stream.AcksSynced), book.sender(t, eng, "written", stream.AcksWritten)}
	for _, s := range senders {
		for _, tp := range tps {
			s.sendAll(t, tp, 200)
		}
	}
	senders[0].sendAll(t, tps[1], 1)
	senders[0].sendAll(t, tps[0], 1)

	if err := os.WriteFile(trigger, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	failed := []error{stream.ErrPartitionFailed, stream.ErrMetaFailed}
	for i, s := range senders {
		// Nobody hears of what is only written before the background sync does.
		eventually(t, "the failure of "+s.name, func() error {
			if _, err := s.send(ctx, tps[i]); !oneOf(err, failed...) {
				return errors.Join(errors.New("not a failure"), err)
			}
			return nil
		})
	}
	if err := c.CommitOffsets(ctx, stream.Offsets{tps[0]: {Offset: 1, LeaderEpoch: -1}}); !oneOf(err, failed...) {
		t.Errorf("F5: a commit: %v", err)
	}
	if err := eng.Admin().CreateTopic(ctx, "u", stream.TopicConfig{}); !oneOf(err, failed...) {
		t.Errorf("F5: a new topic: %v", err)
	}
	book.verify(t, eng, true, tps...)
	if err := eng.Close(); err == nil || !isTyped(err) {
		t.Errorf("F5: close: %v", err)
	}
	book.save(t, name)
}

// afterFailure opens what a failed file system has left, when that works again: everything that was durable is there, and
// everything goes on.
func afterFailure(t *testing.T, dir, name string) {
	book := loadLedger(t, name)
	eng := openAt(t, dir, stream.Options{})
	var tps []stream.TopicPartition
	for tp := range book.Acked {
		tps = append(tps, tp)
	}
	book.verify(t, eng, true, tps...)
	after := newLedger()
	for _, tp := range tps {
		after.sender(t, eng, "after", stream.AcksSynced).sendAll(t, tp, 10)
	}
	if err := eng.Close(); err != nil {
		t.Error(err)
	}
}
