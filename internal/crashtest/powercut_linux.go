package crashtest

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A CutKind says what a loss of power leaves of the journal. The values are those of the ioctl.
type CutKind uint32

const (
	// CutWithJournal writes the journal out first: names and sizes survive whose data does not.
	CutWithJournal CutKind = 1
	// CutAtOnce leaves what has reached the device.
	CutAtOnce CutKind = 2
)

// ioctlShutdown is EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN, which are one number.
const ioctlShutdown = 0x8004587d

// Cut stops the file system where it stands, as a loss of power does: nothing that is not on the device gets there any
// more, and whoever tries gets an error. Reboot makes it usable again.
func (m *Mount) Cut(kind CutKind) error {
	d, err := os.Open(m.Dir)
	if err != nil {
		return err
	}
	err = unix.IoctlSetPointerInt(int(d.Fd()), ioctlShutdown, int(kind))
	if err != nil {
		err = fmt.Errorf("cut %s: %w", m.fs.Name, err)
		if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) {
			err = fmt.Errorf("%w: %w", ErrNoMount, err)
		}
	}
	return errors.Join(err, d.Close())
}

// writeBack writes random pages to the device of those files that are being written, as the kernel may do at any time and in
// any order: the newest log of each directory and what belongs to it, and what compaction writes. It returns how many ranges it has written. Files may
// come and go meanwhile.
func (m *Mount) writeBack(r *rand.Rand) (ranges int, err error) {
	newest := map[string]string{} // by directory: WalkDir goes in the order of names
	var names []string
	err = filepath.WalkDir(m.Dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".log") {
			newest[filepath.Dir(name)] = name
		}
		if err == nil && (strings.HasSuffix(name, ".swap") || strings.HasSuffix(name, ".cleaned")) {
			names = append(names, name)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	for _, log := range newest {
		files, err := filepath.Glob(strings.TrimSuffix(log, "log") + "*")
		if err != nil {
			return ranges, err
		}
		names = append(names, files...)
	}
	for _, name := range names {
		n, err := writeBackFile(r, name)
		ranges += n
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return ranges, err
		}
	}
	return ranges, nil
}

// writeBackFile writes some runs of pages of a file to the device, without what a sync does beside that.
func writeBackFile(r *rand.Rand, name string) (ranges int, err error) {
	const now = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	page := int64(os.Getpagesize())
	pages := (info.Size() + page - 1) / page
	if pages == 0 {
		return 0, nil
	}
	for range between(r, 0, 4) {
		at, n := r.Int64N(pages), int64(between(r, 1, 3))
		if err := unix.SyncFileRange(int(f.Fd()), at*page, n*page, now); err != nil {
			return ranges, fmt.Errorf("%s: %w", name, err)
		}
		ranges++
	}
	return ranges, nil
}
