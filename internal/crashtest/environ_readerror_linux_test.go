package crashtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/runnelmq/runnel/stream"
)

// F3, B1: where the device cannot be read, the fetch fails and says where; no other partition notices, and no signal ends the
// process, although readers look at mapped files.
func TestUnreadableDevice(t *testing.T) {
	const partitions = 4
	if args := childArgs(); args != nil {
		if args[0] == "fill" {
			fillDevice(t, args[1], args[2], partitions)
		} else {
			readCutDevice(t, args[1], args[2], args[3])
		}
		return
	}
	m := NewMount(t, fastDir(), FileSystems()[0])
	dir, book := filepath.Join(m.Dir, "data"), filepath.Join(t.TempDir(), "book")
	alive(t, "fill", dir, book)
	if err := errors.Join(m.Unmount(), m.Mount()); err != nil { // nothing is cached any more
		t.Fatal(err)
	}
	alive(t, "read", dir, book, m.Image)
}

func fillDevice(t *testing.T, dir, name string, partitions int32) {
	eng := openAt(t, dir, stream.Options{})
	createTopic(t, eng, "t", stream.TopicConfig{Partitions: int(partitions), SegmentBytes: 512 << 10})
	book := newLedger()
	for p := range partitions { // one behind the other, so that they lie so
		book.sender(t, eng, "fill", stream.AcksWritten).sendAll(t, part("t", p), 4000)
		book.sender(t, eng, "synced", stream.AcksSynced).sendAll(t, part("t", p), 1)
	}
	if err := eng.Close(); err != nil {
		t.Fatal(err)
	}
	book.save(t, name)
}

func readCutDevice(t *testing.T, dir, name, image string) {
	book := loadLedger(t, name)
	eng := openAt(t, dir, stream.Options{})
	var tps []stream.TopicPartition
	ends := map[stream.TopicPartition]int64{} // of sealed segments, on the device
	for tp := range book.Acked {
		tps = append(tps, tp)
		files, err := filepath.Glob(filepath.Join(dir, "topics", tp.String(), "*.log"))
		if err != nil || len(files) < 3 {
			t.Fatalf("%v has %d segments, %v", tp, len(files), err)
		}
		last := len(files) - 1
		for _, f := range files[:last] {
			ends[tp] = max(ends[tp], deviceEnd(t, f))
		}
		// The active segment is read before the cut, wherever it lies.
		var base int64
		if _, err := fmt.Sscanf(filepath.Base(files[last]), "%d.log", &base); err != nil {
			t.Fatal(err)
		}
		if _, err := readFrom(atOnce(t), eng, tp, base); err != nil {
			t.Fatal(err)
		}
	}
	slices.SortFunc(tps, func(a, b stream.TopicPartition) int { return int(ends[a] - ends[b]) })
	victim, others := tps[len(tps)-1], tps[:len(tps)-1]
	cut := ends[others[len(others)-1]]
	t.Logf("partitions end at %v of the device, which is cut at %d", ends, cut)
	if err := os.Truncate(image, cut); err != nil {
		t.Fatal(err)
	}

	for range 2 {
		got, err := readFrom(atOnce(t), eng, victim, 0)
		var where *stream.PartitionError
		if !errors.Is(err, stream.ErrStorage) || !errors.As(err, &where) || where.TopicPartition != victim || !strings.Contains(err.Error(), ".log") {
			t.Errorf("F3: reading what is not there, after %d records: %v", len(got), err)
		}
		for _, r := range got {
			if _, err := parseKillID(r.Value); err != nil {
				t.Errorf("F3: offset %d: %v", r.Offset, err)
			}
		}
	}
	for _, tp := range others {
		got, err := readFrom(atOnce(t), eng, tp, 0)
		if err == nil {
			err = book.compare(tp, got, false)
		}
		if err != nil {
			t.Errorf("F3: another partition, after %d records: %v", len(got), err)
		}
	}
	if err := eng.Close(); !isTyped(err) {
		t.Errorf("F3: close: %v", err)
	}
}

// deviceEnd is where the last extent of a file ends on its device.
func deviceEnd(t *testing.T, name string) int64 {
	t.Helper()
	const (
		fiemap     = 0xc020660b // FS_IOC_FIEMAP
		head, size = 32, 56     // of struct fiemap, and of an extent
		extents    = 64
	)
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, head+extents*size)
	binary.NativeEndian.PutUint64(b[8:], 1<<62) // length
	binary.NativeEndian.PutUint32(b[24:], extents)
	if _, _, no := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fiemap, uintptr(unsafe.Pointer(&b[0]))); no != 0 {
		t.Fatal(fmt.Errorf("extents of %s: %w", name, no))
	}
	end := int64(0)
	for i := range int(binary.NativeEndian.Uint32(b[20:])) {
		e := b[head+i*size:]
		end = max(end, int64(binary.NativeEndian.Uint64(e[8:])+binary.NativeEndian.Uint64(e[16:])))
	}
	return end
}
