package stream_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
)

// C1: where a named producer stands survives the end of all its records, by whatever they went, and then a reopen, a crash and a loss of power.
func TestLastSequenceSurvivesItsRecords(t *testing.T) {
	forms := map[string]struct {
		topic stream.TopicConfig
		end   func(g *timed, a stream.TopicPartition)
	}{
		"retention": {stream.TopicConfig{Retention: time.Hour}, func(g *timed, a stream.TopicPartition) { g.wait(2 * time.Hour) }},
		"bytes": {stream.TopicConfig{RetentionBytes: 2000}, func(g *timed, a stream.TopicPartition) {
			g.write(a, 60, 0)
			g.wait(time.Minute)
		}},
		"deletion": {stream.TopicConfig{}, func(g *timed, a stream.TopicPartition) {
			check(g.t, g.eng.Admin().DeleteRecords(g.t.Context(), map[stream.TopicPartition]int64{a: -1}))
		}},
		"compaction": {stream.TopicConfig{Cleanup: stream.CleanupCompact, Config: map[string]string{"min.cleanable.dirty.ratio": "0"}}, func(g *timed, a stream.TopicPartition) {
			// Other producers write the same keys: what was remembered of the name's batches goes too.
			for range 3 {
				g.writeWith(stream.ProducerConfig{}, a, 60, 0, func(i int, r *stream.Record) { r.Key = fmt.Append(nil, i%5) })
				g.wait(10 * time.Minute)
			}
		}},
	}
	stops := map[string]func(g *timed, seed uint64){
		"reopen": func(g *timed, _ uint64) { g.reopen() },
		"kill":   func(g *timed, _ uint64) { g.crash(false, 0) },
		"cut":    func(g *timed, seed uint64) { g.crash(true, seed) },
		"none":   func(g *timed, _ uint64) {},
	}
	for name, form := range forms {
		for stop, again := range stops {
			t.Run(name+" and "+stop, func(t *testing.T) {
				inTime(t, func(t *testing.T, g *timed) {
					a := tp("a", 0)
					g.topic("a", form.topic)
					for round := range int64(4) {
						if round > 0 {
							p := newProducer(t, g.eng, stream.ProducerConfig{Name: "n"})
							eq(t, "last sequence", must(p.LastSequence(t.Context(), a))(t), 30*round)
							rc := must(p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Key: []byte("0"), Sequence: 30 * round}))(t)
							eq(t, "duplicate", rc.Duplicate, true)
							check(t, p.Close(t.Context()))
						}
						g.writeWith(stream.ProducerConfig{Name: "n"}, a, 30, time.Second, func(i int, r *stream.Record) {
							r.Key, r.Sequence = fmt.Append(nil, i%5), 30*round+int64(i)+1
						})
						if round == 2 {
							again(g, uint64(round)+20) // with its records there
						}
						form.end(g, a)
						if form.topic.Cleanup == stream.CleanupDelete && startOf(t, g.eng, a) < endOf(t, g.eng, a)-60 {
							t.Fatalf("records are left: %v", g.bounds(a))
						}
						again(g, uint64(round))
						if round == 1 {
							again(g, 9)
						}
					}
				})
			})
		}
	}
}

// C1: a producer without a name that lives through the end of its records appends once, and in order; a named one that is fenced stays fenced.
func TestProducersLiveThroughRetention(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		ctx, a := t.Context(), tp("a", 0)
		g.topic("a", stream.TopicConfig{Retention: time.Hour})
		plain := newProducer(t, g.eng, stream.ProducerConfig{})
		old := newProducer(t, g.eng, stream.ProducerConfig{Name: "n"})
		must(old.ProduceSync(ctx, &stream.Record{Topic: "a", Sequence: 1}))(t)
		named := newProducer(t, g.eng, stream.ProducerConfig{Name: "n"})
		at := int64(1)
		for round := range int64(5) {
			for i := range int64(20) {
				rc := must(plain.ProduceSync(ctx, &stream.Record{Topic: "a", Value: []byte("plain")}))(t)
				eq(t, "offset", rc.Offset, at)
				rc = must(named.ProduceSync(ctx, &stream.Record{Topic: "a", Value: []byte("named"), Sequence: 2 + 20*round + i}))(t)
				eq(t, "offset", rc.Offset, at+1)
				at += 2
			}
			g.wait(2 * time.Hour)
			eq(t, "bounds", g.bounds(a), [2]int64{at, at})
			if _, err := old.ProduceSync(ctx, &stream.Record{Topic: "a", Sequence: 500}); !errors.Is(err, stream.ErrFenced) {
				t.Fatalf("the older instance got %v", err)
			}
		}
	})
}
