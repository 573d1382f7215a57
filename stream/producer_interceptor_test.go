package stream_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// A spy is an interceptor that notes what it sees, and may change and panic.
type spy struct {
	name   string
	notes  *notes
	change func(r *stream.Record)
	panics bool
}

type notes struct {
	sync.Mutex
	list []string
}

func (n *notes) add(s string) {
	n.Lock()
	defer n.Unlock()
	n.list = append(n.list, s)
}

func (n *notes) take() []string {
	n.Lock()
	defer n.Unlock()
	l := n.list
	n.list = nil
	return l
}

func (s *spy) OnSend(r *stream.Record) {
	s.notes.add(fmt.Sprintf("%s sends %s", s.name, r.Value))
	if s.change != nil {
		s.change(r)
	}
	if s.panics {
		panic(s.name + " in OnSend")
	}
}

func (s *spy) OnAcknowledgement(rec stream.Receipt, err error) {
	what := fmt.Sprint(rec.Offset)
	if err != nil {
		what = "error"
	}
	s.notes.add(fmt.Sprintf("%s hears %s", s.name, what))
	if s.panics {
		panic(s.name + " in OnAcknowledgement")
	}
}

// Interceptors see each record on its way and what became of it, one after the other, by every verb, before the caller hears; what one changes the next sees, and the caller's record stays as it was.
func TestInterceptorsSeeEveryRecordInTheirOrder(t *testing.T) {
	onGrounds(t, func(t *testing.T, g *ground) {
		eng := g.open()
		create(t, eng, "a", 2)
		ns := &notes{}
		p := newProducer(t, eng, stream.ProducerConfig{Partitioner: stream.ManualPartitioner(), Interceptors: []stream.ProducerInterceptor{
			&spy{name: "1", notes: ns, change: func(r *stream.Record) {
				r.Value, r.Partition = append([]byte("changed "), r.Value...), 1
				r.Headers = append(r.Headers[:len(r.Headers):len(r.Headers)], stream.Header{Key: "by", Value: []byte("1")})
			}},
			&spy{name: "2", notes: ns},
		}})
		offset := 0
		for verb, produce := range verbs {
			r := stream.Record{Topic: "a", Value: []byte(verb), Headers: make([]stream.Header, 1, 5)}
			rec := must(produce(p, t.Context(), &r))(t)
			eq(t, "receipt", []any{rec.Partition, rec.Offset}, []any{1, offset})
			eq(t, verb, ns.take(), []string{"1 sends " + verb, "2 sends changed " + verb, fmt.Sprint("1 hears ", offset), fmt.Sprint("2 hears ", offset)})
			eq(t, "the caller's record", r, stream.Record{Topic: "a", Value: []byte(verb), Headers: make([]stream.Header, 1)})
			if h := r.Headers[:2][1]; h.Key != "" {
				t.Fatal("the caller's headers have been changed")
			}
			offset++
		}
		for _, r := range readAll(t, eng, tp("a", 1)) {
			if !strings.HasPrefix(string(r.Value), "changed ") || len(r.Headers) != 2 || r.Headers[1].Key != "by" {
				t.Fatalf("%+v", r)
			}
		}
		// What an interceptor changes is what is checked.
		_, err := p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Partition: -1})
		check(t, err)
	})
}

// Interceptors hear of every outcome once: errors of all kinds, AcksNone, duplicates, records of a closed producer.
func TestInterceptorsHearOfEveryOutcome(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for verb, produce := range verbs {
		t.Run(verb, func(t *testing.T) {
			eng := streamtest.New(t)
			create(t, eng, "a", 1)
			ns := &notes{}
			p := newProducer(t, eng, stream.ProducerConfig{Name: "n", Interceptors: []stream.ProducerInterceptor{&spy{name: "i", notes: ns}}})
			for _, tc := range []struct {
				what string
				ctx  context.Context
				r    stream.Record
				want string
			}{
				{"success", t.Context(), stream.Record{Topic: "a", Sequence: 1}, "0"},
				{"duplicate", t.Context(), stream.Record{Topic: "a", Sequence: 1}, "-1"},
				{"AcksNone", t.Context(), stream.Record{Topic: "a", Acks: stream.AcksNone}, "-1"},
				{"ended ctx", ended, stream.Record{Topic: "a"}, "error"},
				{"unknown topic", t.Context(), stream.Record{Topic: "b"}, "error"},
				{"too large", t.Context(), stream.Record{Topic: "a", Value: bytes.Repeat([]byte("x"), 2<<20)}, "error"},
				{"acks that are none", t.Context(), stream.Record{Topic: "a", Acks: 9}, "error"},
				{"closed", t.Context(), stream.Record{Topic: "a"}, "error"},
			} {
				if tc.what == "closed" {
					check(t, p.Close(t.Context()))
				}
				_, err := produce(p, tc.ctx, &tc.r)
				eq(t, tc.what+": failed", err != nil, tc.want == "error")
				heard := ns.take()
				eq(t, tc.what+": notes", len(heard), 2)
				eq(t, tc.what, heard[1], "i hears "+tc.want)
			}
		})
	}
}

// An interceptor that panics is reported, and holds up neither records nor the other interceptors.
func TestInterceptorThatPanics(t *testing.T) {
	for verb, produce := range verbs {
		var log syncBuffer
		eng := streamtest.New(t, streamtest.WithOptions(stream.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
		create(t, eng, "a", 1)
		ns := &notes{}
		p := newProducer(t, eng, stream.ProducerConfig{Interceptors: []stream.ProducerInterceptor{
			&spy{name: "bad", notes: ns, panics: true, change: func(r *stream.Record) { r.Value = []byte("changed") }}, &spy{name: "good", notes: ns},
		}})
		must(produce(p, t.Context(), &stream.Record{Topic: "a", Value: []byte("v")}))(t)
		eq(t, verb, ns.take(), []string{"bad sends v", "good sends changed", "bad hears 0", "good hears 0"})
		for _, s := range []string{"bad in OnSend", "bad in OnAcknowledgement"} {
			if !strings.Contains(log.String(), s) {
				t.Errorf("%s: the log does not say %q: %s", verb, s, log.String())
			}
		}
	}
}

// syncBuffer is what a logger writes to.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
