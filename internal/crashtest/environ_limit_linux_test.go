package crashtest

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/runnelmq/runnel/stream"
)

// F13: a limit on the size of files (ulimit -f) is a full disk and no signal: reads, commits and the other partition go on,
// and appends too when the limit is raised.
func TestFileSizeLimit(t *testing.T) {
	args := childArgs()
	if args == nil {
		alive(t, t.TempDir())
		return
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	old := limit.Cur
	limit.Cur = 300 << 10
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	ctx := atOnce(t)
	eng := openAt(t, args[0], stream.Options{MinFree: -1})
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
	for i, tp := range tps {
		s, full := senders[i], 0
		for n := 0; full < 3; n++ {
			_, err := s.send(ctx, tp)
			switch {
			case errors.Is(err, stream.ErrDiskFull):
				full++
			case err != nil:
				t.Fatalf("F13: append %d to %v: %v", n, tp, err)
			case n > 5000:
				t.Fatalf("F13: %v does not meet the limit", tp)
			}
		}
		book.verify(t, eng, false, tps...)
		if err := c.CommitOffsets(ctx, stream.Offsets{tp: {Offset: 1, LeaderEpoch: -1}}); err != nil {
			t.Errorf("F13: commit: %v", err)
		}
	}
	limit.Cur = old
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	for i, tp := range tps {
		senders[i].sendAll(t, tp, 500)
	}
	book.verify(t, eng, false, tps...)
	if err := eng.Close(); err != nil {
		t.Error(err)
	}
	eng = openAt(t, args[0], stream.Options{MinFree: -1})
	book.verify(t, eng, false, tps...)
	if err := eng.Close(); err != nil {
		t.Error(err)
	}
}
