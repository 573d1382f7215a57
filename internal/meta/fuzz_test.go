package meta

import (
	"errors"
	"testing"

	"github.com/runnelmq/runnel/internal/kafka"
	"github.com/runnelmq/runnel/internal/vfs"
)

// F16: any bytes under any key of the store, and any key of its key spaces, are a value, nothing, or kafka.ErrCorrupt. A value
// that was read can be written and reads back as it was.
func FuzzMetaValues(f *testing.F) {
	f.Add([]byte{}, []byte{})
	f.Add([]byte{0, 0, 0, 1}, []byte("g"))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 9}, []byte{0, 0, 0, 1})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 9, 0, 1}, []byte("name"))
	f.Add(make([]byte, 16), make([]byte, 20))
	for _, n := range []int{3, 7, 9, 11, 15, 17, 19} { // around the lengths of values
		f.Add(make([]byte, n), []byte("g"))
	}
	f.Add([]byte("0000000000000000000012345"), make([]byte, 21))
	f.Add([]byte(`{"name":"Orders","id":"01000000000000000000000000000000","partitions":2,"config":{"a":"b"},"state":"live"}`), []byte("orders"))
	f.Add([]byte(`{"name":"t","id":"zz","partitions":-1,"state":"gone"}`), []byte("\xff\xff"))
	sim := vfs.NewSim(1)
	s := open(f, sim)
	f.Cleanup(func() { _ = s.Close() })
	f.Fuzz(func(t *testing.T, v, suffix []byte) {
		p := id(1, 7)
		keys := [][]byte{
			keyClean, keyIncarnation, keyProducerID, topicKey(string(suffix)), nameKey(string(suffix)), p.dirtyKey(),
			p.key(kindRecovery, ""), p.key(kindStart, ""), p.key(kindEpoch, string(suffix)), p.key(kindOffset, string(suffix)), p.key(kindName, string(suffix)),
		}
		for space := range byte(6) { // the last is nobody's
			keys = append(keys, append([]byte{space}, suffix...))
		}
		for _, k := range keys {
			check(t, s.set(k, v, false))
		}
		defer func() {
			b := s.NewBatch()
			for _, k := range keys {
				check(t, b.b.Delete(k, nil))
			}
			check(t, b.Commit(false))
		}()
		readValues(t, s, p, string(suffix))
	})
}

// readValues reads everything in every way.
func readValues(t *testing.T, s *Store, p PartitionID, suffix string) {
	typed := func(what string, err error) bool {
		t.Helper()
		if err != nil && !errors.Is(err, kafka.ErrCorrupt) {
			t.Fatalf("%s: %v", what, err)
		}
		return err == nil
	}
	commit := func(b *Batch) {
		t.Helper()
		check(t, b.Commit(false))
	}
	topics, err := s.Topics()
	if typed("topics", err) {
		for _, topic := range topics {
			check(t, s.PutTopic(topic))
		}
		again, err := s.Topics()
		if !typed("topics again", err) || len(again) < len(topics) {
			t.Fatalf("%d topics, then %d, %v", len(topics), len(again), err)
		}
		for _, topic := range topics {
			b := s.NewBatch()
			check(t, b.b.Delete(topicKey(topic.Name), nil))
			commit(b)
		}
	}
	if o, ok, err := s.Offset(p, suffix); typed("offset", err) && ok {
		b := s.NewBatch()
		b.SetOffset(p, suffix, o)
		commit(b)
		if again, _, err := s.Offset(p, suffix); err != nil || again != o {
			t.Fatalf("offset %+v, then %+v, %v", o, again, err)
		}
	}
	if q, err := s.Sequence(p, suffix); typed("sequence", err) {
		b := s.NewBatch()
		b.SetSequence(p, suffix, q)
		commit(b)
		if again, err := s.Sequence(p, suffix); err != nil || again != q {
			t.Fatalf("sequence %+v, then %+v, %v", q, again, err)
		}
	}
	if n, ok, err := s.Name(suffix); typed("name", err) && ok {
		check(t, s.SetName(suffix, n))
		if again, _, err := s.Name(suffix); err != nil || again != n {
			t.Fatalf("name %+v, then %+v, %v", n, again, err)
		}
	}
	st, err := s.Partition(p)
	if typed("partition", err) && !st.Dirty {
		t.Fatalf("%+v, and its dirty mark is there", st)
	}
	_, err = s.Epochs(p)
	typed("epochs", err)
	_, err = s.DirtyPartitions()
	typed("dirty partitions", err)
	_, err = s.ProducerIDs().Next()
	typed("producer ids", err)
	if clean, _, err := s.Begin(); typed("begin", err) && !clean {
		t.Fatal("the clean mark is there, and was not seen")
	}
}
