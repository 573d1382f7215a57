package main

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// What pebble writes in COMMIT's place is as long as what the engine writes for a committed offset.
func TestCommitsAreOfOneSize(t *testing.T) {
	dir := t.TempDir()
	e := &env{dir: dir, factor: 1, open: openEngine}
	s, err := e.start(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	c := &commitWork{e: e, w: &workload{lanes: 1, count: 1}, gen: newGenerator(100), groups: 1}
	if err := fill(t.Context(), s.client, c.gen, 0, 1); err != nil {
		t.Fatal(err)
	}
	consumer, err := committer(t.Context(), s, c.groupOf(0))
	if err != nil {
		t.Fatal(err)
	}
	if at, err := commitCall(t.Context(), consumer, partition(0))(nil, nil); at != 1 || err != nil {
		t.Fatalf("committed %d, %v", at, err)
	}
	if err := s.client.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := pebble.Open(filepath.Join(s.dir, "meta"), &pebble.Options{Logger: quiet{}, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for ok := it.First(); ok; ok = it.Next() {
		key := it.Key()
		if !bytes.HasSuffix(key, []byte(c.groupOf(0))) || len(key) < offsetKeySize { // or it is the group itself
			continue
		}
		found++
		if want := c.offsetKey(0); len(key) != len(want) || len(it.Value()) != offsetValueSize {
			t.Errorf("key %x of %d bytes and value of %d, want %d and %d", key, len(key), len(it.Value()), len(want), offsetValueSize)
		}
	}
	if found != 1 {
		t.Errorf("%d keys of the group's offsets", found)
	}
	if err := it.Close(); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// The blocks that REBALANCE's limit has written are compared.
func TestFaultyBlockIsNoticed(t *testing.T) {
	g := newGenerator(syncedBlock)
	var file []byte
	for i := range 3 {
		file = append(file, g.value(0, i)...)
	}
	if n, err := sameBlocks(file, g, 3); n != 3 || err != nil {
		t.Errorf("%d blocks, %v", n, err)
	}
	flipped := slices.Clone(file)
	flipped[2*syncedBlock] ^= 1
	for name, file := range map[string][]byte{
		"nothing":       nil,
		"one is cut":    file[:len(file)-1],
		"one is lost":   file[syncedBlock:],
		"a flipped bit": flipped,
		"exchanged":     slices.Concat(file[syncedBlock:2*syncedBlock], file[:syncedBlock], file[2*syncedBlock:]),
	} {
		if n, err := sameBlocks(file, g, 3); err == nil {
			t.Errorf("%s: %d blocks, not noticed", name, n)
		}
	}
}
