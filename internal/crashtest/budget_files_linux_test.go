package crashtest

import (
	"testing"

	"golang.org/x/sys/unix"
)

// F11: a process that may have 256 open files works with 500 partitions, each with several segments, by closing what nobody uses: nobody is told that there are too many open
// files, be it the producers, consumers of owned and of borrowed records, retention, compaction or the metadata store, which keeps files of its own.
func TestFewFiles(t *testing.T) {
	args := childArgs()
	if args == nil {
		aliveUnder(t, []string{"sh", "-c", `ulimit -n 256 && exec "$@"`, "sh"}, fastTempDir(t))
		return
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Max != 256 || limit.Cur != 256 {
		t.Fatalf("the limit is %+v, %v", limit, err)
	}
	files, _ := newBudgetLoad(t, args[0]).run()
	if most := 256/4 + 64; files > most {
		t.Errorf("F11: %d files were open, no more than %d should have been", files, most)
	}
}
