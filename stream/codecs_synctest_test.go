package stream_test

import (
	"strings"
	"testing"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// What a codec keeps for the next batch works in another bubble of the process too.
func TestCodecsInTwoBubbles(t *testing.T) {
	value := strings.Repeat("again and again ", 100)
	for range 3 {
		for _, codec := range codecs {
			streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
				create(t, eng, "a", 1)
				p := newProducer(t, eng, stream.ProducerConfig{Compression: codec})
				for range 3 {
					must(p.ProduceAll(t.Context(), []stream.Record{{Topic: "a", Value: []byte(value)}}, nil))(t)
				}
				eq(t, "values", values(readAll(t, eng, tp("a", 0))), []string{value, value, value})
			})
		}
	}
}
