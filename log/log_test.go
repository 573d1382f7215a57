package rlog

import (
	"context"
	"errors"
	"testing"

	"github.com/runnelmq/runnel/internal/kafka"
)

func onAll(t *testing.T, fn func(t *testing.T, e *env)) {
	t.Run("disk", func(t *testing.T) { fn(t, diskEnv(t)) })
	t.Run("memory", func(t *testing.T) { fn(t, memEnv(t)) })
}

// A1, A5: what was appended is there at its offset, after a close in order and after a crash of the process.
func TestAppendReadReopen(t *testing.T) {
	onAll(t, func(t *testing.T, e *env) {
		var want []record
		l := e.open()
		for i := range 3000 {
			r := val(i, i%300)
			if a := mustAppend(t, l, plain(r)); a.Base != int64(i) {
				t.Fatalf("record %d at offset %d", i, a.Base)
			}
			want = append(want, r)
		}
		wantRecords(t, l, want)
		e.close(l)
		l = e.open()
		wantRecords(t, l, want)
		if l.DurableEnd() != 3000 {
			t.Fatalf("durable end %d", l.DurableEnd())
		}
		for i := 3000; i < 4000; i++ {
			r := val(i, 100)
			mustAppend(t, l, plain(r))
			want = append(want, r)
		}
		wantRecords(t, l, want)
		l.Abandon()
		e.epoch++
		l = e.open()
		wantRecords(t, l, want)
		mustAppend(t, l, plain(val(4000, 10)))
		want = append(want, val(4000, 10))
		wantRecords(t, l, want)
		if len(e.cuts) != 0 {
			t.Fatalf("nothing was torn, but: %v", e.cuts)
		}
		e.close(l)
	})
}

func TestOutOfRange(t *testing.T) {
	e := memEnv(t)
	l := e.open()
	defer l.Abandon()
	if b, err := l.NewCursor(0).Next(10); b != nil || err != nil {
		t.Fatalf("an empty log at its end: %v %v", b, err)
	}
	mustAppend(t, l, plain(val(0, 1)))
	if _, err := l.NewCursor(2).Next(10); !errors.Is(err, kafka.ErrOffsetOutOfRange) {
		t.Fatal(err)
	}
	if _, err := l.NewCursor(-1).Next(10); !errors.Is(err, kafka.ErrOffsetOutOfRange) {
		t.Fatal(err)
	}
}

func TestFlushMovesTheRecoveryPoint(t *testing.T) {
	onAll(t, func(t *testing.T, e *env) {
		l := e.open()
		for i := range 300 {
			mustAppend(t, l, plain(val(i, 100)))
		}
		if l.DurableEnd() != 0 || e.cp.recoveryPoint != 0 {
			t.Fatal("durable without a sync")
		}
		if err := l.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
		if l.DurableEnd() != 300 || e.cp.recoveryPoint != 300 {
			t.Fatalf("durable end %d, recovery point %d", l.DurableEnd(), e.cp.recoveryPoint)
		}
		e.close(l)
	})
}
