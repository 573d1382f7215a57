package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/runnelmq/runnel/stream"
)

// A call of ProduceAll sends at most this many lines, and this many bytes of them unless it is a single line. Whatever goes wrong, a partition
// never has a line without those before it, since a record of a named producer that fails holds back those behind it: LastSequence tells
// the truth.
const (
	callLines = 2000
	callBytes = 200_000
)

// maxKey is the length of the longest key: the rest of a longer one is left out.
const maxKey = 100

// produce sends the lines of in that are not done. It returns nil when all are stored.
func produce(ctx context.Context, p stream.Producer, topic string, in *input, done [partitions]mark, pr *progress) error {
	defer in.close()
	partitioner := stream.KeyPartitioner() // the producer's default too
	var (
		rs   []stream.Record
		out  []stream.Result
		size int
	)
	send := func() (err error) {
		if out, err = p.ProduceAll(ctx, rs, out); err != nil {
			return fmt.Errorf("storing lines up to %d: %w", in.number, err)
		}
		pr.stored.Add(int64(len(rs)))
		rs, size = rs[:0], 0
		return nil
	}
	for {
		text, err := in.next()
		if err == io.EOF {
			return send()
		}
		if err != nil {
			return err
		}
		if in.again {
			r := stream.Record{Key: key(text)}
			if in.number <= done[partitioner.Partition(&r, partitions)].number {
				continue
			}
		}
		if len(rs) > 0 && size+len(text) > callBytes {
			if err := send(); err != nil {
				return err
			}
		}
		rs = append(rs, record(topic, text, in))
		size += len(text)
		// Somebody may be typing: what is there is sent before waiting for more.
		if len(rs) == callLines || !in.ready() {
			if err := send(); err != nil {
				return err
			}
		}
	}
}

// record makes a record of the line that in has just read.
func record(topic string, text []byte, in *input) stream.Record {
	value := bytes.Clone(text) // never nil: a record without a value would be a tombstone
	r := stream.Record{Topic: topic, Key: key(value), Value: value}
	if in.again {
		r.Sequence = in.number
		r.Headers = []stream.Header{{Key: sumHeader, Value: binary.BigEndian.AppendUint64(nil, in.sum)}}
	}
	return r
}

// key returns a line up to its first space, so lines that begin alike are in one partition, in order. It may be empty but is never nil:
// a record without a key goes to any partition, and not to the same one next time.
func key(text []byte) []byte {
	if i := bytes.IndexByte(text, ' '); i >= 0 {
		text = text[:i]
	}
	return text[:min(len(text), maxKey)]
}
