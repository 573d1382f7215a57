package vfs

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"
)

// FS is a file system. All methods are safe for concurrent use. Names are slash-separated paths; errors of missing and
// existing files match fs.ErrNotExist and fs.ErrExist, errors of a full disk match ErrNoSpace.
type FS interface {
	// Create makes a new empty file for reading and writing; it fails with fs.ErrExist if name is there. limit is
	// the size in bytes that the file is not expected to outgrow: the file system may map that much address space.
	// limit 0 asks for positioned reads and writes only. The name is durable only after SyncDir of its directory.
	Create(name string, limit int64) (File, error)
	// Open opens an existing file for reading and writing; limit as for Create, at least the file's size.
	Open(name string, limit int64) (File, error)
	// OpenRead opens an existing file for reading: WriteAt, Reserve, Truncate and Sync fail.
	OpenRead(name string) (File, error)

	// Mkdir makes one directory; its parent exists. It fails with fs.ErrExist if name is there.
	Mkdir(name string) error
	// Remove unlinks a file or an empty directory. Open files stay readable until they are closed.
	Remove(name string) error
	// Rename moves a file or a directory, replacing a file of the new name; one step after a crash.
	Rename(oldname, newname string) error
	// SetModTime sets the Info.ModTime of a file; the zero time leaves it as it is.
	SetModTime(name string, t time.Time) error
	// Stat describes a file or a directory.
	Stat(name string) (Info, error)
	// List describes what is in a directory, sorted by name.
	List(dir string) ([]Info, error)
	// SyncDir makes the names in dir durable: creations, renames and removals before it.
	SyncDir(dir string) error

	// Lock takes the lock file name for this process and for this opener, making the file if it is missing. If
	// another opener holds it, also one of the same process, Lock fails at once with *LockedError. The file is
	// never removed.
	Lock(name string) (io.Closer, error)
	// Locked says whether somebody holds the lock file name now, and who; pid is 0 if unknown. Nobody holds a file that
	// is missing. It writes nothing and keeps nothing from anybody: a Lock at the same time is not refused because of it.
	Locked(name string) (held bool, pid int, err error)
	// MaxOpen is how many files this process may have open at a time, or 0 if nobody counts.
	MaxOpen() int
	// Free returns the bytes that may still be written to the file system that holds dir, and its size.
	Free(dir string) (free, total int64, err error)

	// Pebble returns the same ground as pebble sees it.
	Pebble() pebblevfs.FS
	// Close frees what the file system keeps for itself (helper goroutines). Files must be closed before.
	Close() error
}

// File is one file. ReadAt, Window, Fault and Size may be called at any time from any goroutine until Close; WriteAt,
// Reserve and Truncate by one goroutine at a time. Sync may run beside all of them.
type File interface {
	// ReadAt reads len(p) bytes at off, with io.EOF if the file ends before.
	io.ReaderAt
	// WriteAt writes p at off. Where the file is mapped this is a store into the writer's mapping, which is
	// in the page cache (safe from a crash of the process) when WriteAt returns. Only space that Reserve or an
	// earlier write has given the file may be written if an error is to leave nothing behind.
	io.WriterAt

	// Name is the name the file was opened by; a later Rename does not change it.
	Name() string

	// Window returns the n bytes at off, which must lie within the file (else io.ErrUnexpectedEOF). Where it can, the
	// result aliases the file (the read-only mapping, or a chunk of memory) and is valid until Close; else it is read
	// into *buf, which is replaced by a larger one as needed, and is valid until *buf is used again. It must not be
	// written to. Bytes of a mapping can fault when they are touched: see Catch.
	Window(off int64, n int, buf *[]byte) ([]byte, error)
	// Fault says whether addr lies in one of the file's mappings, and at which offset of the file.
	Fault(addr uintptr) (off int64, ok bool)

	// Size is the file's size, reserved space included.
	Size() int64
	// Reserve grows the file to at least size bytes, new bytes reading as zero, with their blocks allocated: a full
	// disk fails here and not in a later store. A Reserve that fails leaves the file as it was.
	Reserve(size int64) error
	// Truncate sets the size. Bytes cut off are gone: growing again shows zeros.
	Truncate(size int64) error
	// Sync makes the file's bytes and size durable (fdatasync, F_FULLFSYNC). After it has failed once the
	// file is finished: neither a second Sync nor the page cache says what the disk holds.
	Sync() error
	// DropCache forgets clean cached pages from off on, so that the next reads there come from the disk.
	DropCache(off int64) error
	// Close releases the file and its mappings. It does not sync.
	Close() error
}

// Info describes a file or a directory.
type Info struct {
	Name string // last element of the path
	Size int64
	Dir  bool
	// ModTime is when bytes or size last changed, zero for a directory. Stores into a mapped file may leave it where
	// the last Truncate, or the last Reserve that grew the file, has put it.
	ModTime time.Time
}

// maxName is the length in bytes of the longest file name that every file system takes.
const maxName = 255

// FitName returns name+rest, with name cut short if the whole is longer than a file name may be.
func FitName(name, rest string) string { return name[:min(len(name), maxName-len(rest))] + rest }

// ErrNoSpace matches every error that means the disk, the quota or the file size limit is exhausted.
var ErrNoSpace = errors.New("no space left")

// LockedError says who holds a lock.
type LockedError struct {
	Name string
	PID  int // 0 if unknown
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is locked by another opener", e.Name)
	}
	return fmt.Sprintf("%s is locked by process %d", e.Name, e.PID)
}

// FaultError is an I/O error on mapped bytes: the disk could not supply a page, or somebody shortened the file.
type FaultError struct {
	File string
	Off  int64
}

func (e *FaultError) Error() string {
	return fmt.Sprintf("%s: mapped byte %d cannot be accessed", e.File, e.Off)
}

// Is makes every fault match ErrFault.
func (e *FaultError) Is(target error) bool { return target == ErrFault }

// ErrFault matches every *FaultError.
var ErrFault = errors.New("mapped memory fault")

// Arm makes faults on mapped bytes panic on this goroutine instead of ending the process, and returns what Catch must
// restore. It costs a few nanoseconds: once per batch, not once per record.
//
//	func (c *Cursor) decode() (err error) {
//		defer vfs.Catch(vfs.Arm(), c.file, &err)
//		... touch bytes that c.file.Window returned ...
func Arm() (old bool) { return debug.SetPanicOnFault(true) }

// Catch is deferred beside Arm. A fault inside f's mappings becomes a *FaultError in *err; every other panic goes on. f is nil where no file is touched.
func Catch(old bool, f File, err *error) {
	debug.SetPanicOnFault(old)
	r := recover()
	if r == nil {
		return
	}
	if a, ok := r.(interface{ Addr() uintptr }); ok && f != nil {
		if off, ok := f.Fault(a.Addr()); ok {
			*err = &FaultError{File: f.Name(), Off: off}
			return
		}
	}
	panic(r)
}
