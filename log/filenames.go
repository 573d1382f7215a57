package rlog

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Every name that this package puts on the disk.
const (
	suffixLog       = ".log"
	suffixIndex     = ".index"
	suffixTimeIndex = ".timeindex"
	suffixSnapshot  = ".snapshot"
	suffixCleaned   = ".log.cleaned" // being written by compaction
	suffixSwap      = ".log.swap"    // whole, and about to take the place of the segments whose offsets it has
	fileMetadata    = "partition.metadata"
)

const digits = 20

func fileName(dir string, offset int64, suffix string) string {
	return path.Join(dir, fmt.Sprintf("%0*d%s", digits, offset, suffix))
}

// parseName splits the name of a file that belongs to an offset.
func parseName(name string) (offset int64, suffix string, ok bool) {
	num, _, found := strings.Cut(name, ".")
	if !found || len(num) != digits {
		return 0, "", false
	}
	offset, err := strconv.ParseInt(num, 10, 64)
	if err != nil || offset < 0 {
		return 0, "", false
	}
	return offset, name[digits:], true
}
