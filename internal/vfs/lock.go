package vfs

import (
	"os"
	"strconv"
	"strings"
)

// writePID leaves word of who holds the lock. On a full disk or a failing one the lock holds without it.
func writePID(f *os.File) {
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
}

// readPID returns 0 if the holder has not got round to saying who it is.
func readPID(f *os.File) int {
	var b [32]byte
	n, _ := f.ReadAt(b[:], 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return 0
	}
	return pid
}
