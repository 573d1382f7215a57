package stream_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// failSyncs makes syncs of log files fail until the returned func is called.
func failSyncs(d *slowDisk) (heal func()) {
	d.Inject(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, ".log") {
			return errors.New("disk")
		}
		return nil
	})
	return func() { d.Inject(nil) }
}

// C1: records that a failure of the partition has lost are no duplicates when they are sent again while a batch waits.
func TestDuplicateOfALostSequence(t *testing.T) {
	onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
		p := newProducer(t, eng, stream.ProducerConfig{Name: "n", Retries: -1, MaxInFlight: 1})
		must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a"}))(t)
		a := newAnswers(t)
		release := d.hang()
		defer release()
		for i := range 3 {
			p.Produce(t.Context(), &stream.Record{Topic: "a", Sequence: int64(i + 1), Value: []byte("v")}, a.promise(i+1))
		}
		synctest.Wait()
		p.Produce(t.Context(), &stream.Record{Topic: "a", Sequence: 4, Value: []byte("v")}, a.promise(4))
		synctest.Wait()
		fail := failSyncs(d)
		release()
		synctest.Wait()
		p.Produce(t.Context(), &stream.Record{Topic: "a", Sequence: 1, Value: []byte("v")}, a.promise(11))
		time.Sleep(time.Second)
		fail()
		time.Sleep(time.Minute)
		for len(a.list) > 0 {
			got := a.next()
			t.Log(got.n, got.rec.Offset, got.rec.Duplicate, got.err)
			if got.n == 11 && got.err == nil {
				eq(t, "log", len(readAll(t, eng, tp("a", 0))), 2)
			}
		}
		t.Log(values(readAll(t, eng, tp("a", 0))))
	})
}
