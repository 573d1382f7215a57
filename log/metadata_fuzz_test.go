package rlog

import (
	"encoding/base64"
	"testing"
)

// F16: any text as partition.metadata is a whole topic id or none, and what the log writes itself reads back.
func FuzzPartitionMetadata(f *testing.F) {
	whole := metadataText("c7DQfDq17DMu4pIeFVZuHQ")
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add(whole + "more")
	f.Add(string(make([]byte, len(whole))))
	f.Add(whole[:metadataID] + "\r\n" + whole[metadataID+2:])
	f.Add("version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
	f.Fuzz(func(t *testing.T, text string) {
		id, ok := parseMetadata(text)
		if !ok {
			return
		}
		raw, err := base64.RawURLEncoding.DecodeString(id)
		if err != nil || len(raw) != 16 {
			t.Fatalf("%q has id %q of %d bytes, error %v", text, id, len(raw), err)
		}
		if got, ok := parseMetadata(metadataText(id)); !ok || got != id {
			t.Fatalf("id %q reads back as %q, %t", id, got, ok)
		}
	})
}
