package stream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/runnelmq/runnel/stream"
	"github.com/runnelmq/runnel/stream/streamtest"
)

// Batches yields what is there, up to max, and what comes within wait after the first record: exactly then, or as soon as it is full.
func TestBatchesGather(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 2)
		fill(t, eng, tp("a", 0), 0, 5)
		m := newMember(t, eng, stream.ConsumerConfig{MaxWait: time.Minute})
		done := make(chan struct{})
		begin := time.Now()
		go func() {
			defer close(done)
			time.Sleep(3 * time.Second)
			fill(t, eng, tp("a", 1), 5, 7) // within the wait of the first
			time.Sleep(10 * time.Second)
			fill(t, eng, tp("a", 0), 7, 8) // begins the second
			time.Sleep(4999 * time.Millisecond)
			fill(t, eng, tp("a", 0), 8, 9)
			time.Sleep(time.Minute)
			fill(t, eng, tp("a", 0), 9, 30) // full at once, twice
		}()
		var got []string
		for rs, err := range m.Batches(t.Context(), 10, 5*time.Second) {
			check(t, err)
			got = append(got, fmt.Sprint(time.Since(begin), " ", strings.Join(values(rs), ",")))
			if len(got) == 4 {
				break
			}
		}
		<-done
		eq(t, "batches", strings.Join(got, "\n"), strings.Join([]string{
			"5s 0,1,2,3,4,5,6", "18s 7,8", "1m17.999s " + strings.Join(numbers(9, 19), ","), "1m17.999s " + strings.Join(numbers(19, 29), ","),
		}, "\n"))
		eq(t, "and then", poll(t, m, 9), numbers(29, 30))
		// Without a wait: what is there.
		fill(t, eng, tp("a", 1), 0, 600)
		var sizes []int
		for rs, err := range m.Batches(t.Context(), 0, 0) {
			check(t, err)
			sizes = append(sizes, len(rs))
			if len(sizes) == 2 {
				break
			}
		}
		eq(t, "sizes", sizes, []int{500, 100})
	})
}

// A slice counts as unfinished while its body runs: Commit covers it, automatic commits do not. Left by break, it is not covered by Close, and read again by the next member; the next loop goes on behind it.
func TestCommitsAroundABatch(t *testing.T) {
	for name, tc := range map[string]struct {
		inside bool // commit in the body of the second batch
		after  bool // and when the loop has been left
		want   int64
	}{
		"break": {false, false, 3}, "commit in the body": {true, false, 6}, "commit after the loop": {false, true, 6},
	} {
		t.Run(name, func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
				create(t, eng, "a", 1)
				fill(t, eng, tp("a", 0), 0, 10)
				m := newMember(t, eng, stream.ConsumerConfig{CommitInterval: time.Second})
				n := 0
				for rs, err := range m.Batches(t.Context(), 3, 0) {
					check(t, err)
					if n++; n == 1 {
						time.Sleep(2 * time.Second)
						continue
					}
					eq(t, "second", values(rs), numbers(3, 6))
					eq(t, "committed before", committed(t, m, tp("a", 0)), 3)
					eq(t, "position", must(m.Position(tp("a", 0)))(t), 6)
					if tc.inside {
						check(t, m.Commit(t.Context()))
					}
					break
				}
				if tc.after {
					check(t, m.Commit(t.Context()))
				}
				check(t, m.Close(t.Context()))
				next := newMember(t, eng, stream.ConsumerConfig{})
				eq(t, "committed", committed(t, next, tp("a", 0)), tc.want)
				eq(t, "the next member", poll(t, next, 99), numbers(int(tc.want), 10))
			})
		})
	}
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 1)
		fill(t, eng, tp("a", 0), 0, 10)
		m := newMember(t, eng, stream.ConsumerConfig{})
		for _, want := range [][]string{numbers(0, 3), numbers(3, 6)} {
			for rs, err := range m.Batches(t.Context(), 3, 0) {
				check(t, err)
				eq(t, "batch", values(rs), want)
				break
			}
		}
	})
}

// Whatever goes wrong in one partition is yielded, also while records of another are being gathered, and the loop goes on.
func TestBatchesYieldErrorsThatComeWhileTheyGather(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 2)
		fill(t, eng, tp("a", 0), 0, 3)
		fill(t, eng, tp("a", 1), 0, 3)
		c := newConsumer(t, eng, stream.ConsumerConfig{Reset: stream.ResetNone, MaxWait: time.Second})
		check(t, c.Assign(tp("a", 0), tp("a", 1)))
		check(t, c.Seek(tp("a", 0), 0))
		check(t, c.Seek(tp("a", 1), 100))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var got []string
		for rs, err := range c.Batches(ctx, 10, time.Second) {
			got = append(got, values(rs)...)
			var p *stream.PartitionError
			if errors.As(err, &p) {
				got = append(got, p.TopicPartition.String())
				fill(t, eng, tp("a", 0), 3, 4)
			}
		}
		eq(t, "values and errors", got, []string{"0", "1", "2", "a-1", "3"})
	})
}

// What has been gathered when the context ends, or the consumer is closed, is not lost: it is yielded before the error, or read by the next member.
func TestBatchesThatEndWhileTheyGather(t *testing.T) {
	for _, how := range []string{"context", "Close"} {
		t.Run(how, func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
				create(t, eng, "a", 1)
				fill(t, eng, tp("a", 0), 0, 3)
				m := newMember(t, eng, stream.ConsumerConfig{MaxWait: time.Minute})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				closed := make(chan error, 1)
				time.AfterFunc(time.Second, func() {
					if how == "context" {
						cancel()
						closed <- nil
					} else {
						closed <- m.Close(context.Background())
					}
				})
				begin := time.Now()
				var got []string
				var errs []error
				for rs, err := range m.Batches(ctx, 10, 5*time.Second) {
					got = append(got, values(rs)...)
					if err != nil {
						errs = append(errs, err)
					}
				}
				eq(t, "ended after", time.Since(begin), time.Second)
				check(t, <-closed)
				eq(t, "errors", errs, []error{map[string]error{"context": context.Canceled, "Close": stream.ErrClosed}[how]})
				check(t, m.Close(t.Context()))
				next := newMember(t, eng, stream.ConsumerConfig{})
				eq(t, "read by both", append(got, poll(t, next, 9)...), numbers(0, 3))
			})
		})
	}
}

// A batch that is being gathered when its partition is given up is not yielded by who has lost it: it is read by who has it now. The others are.
func TestBatchOfAPartitionThatIsGivenUp(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 2)
		fill(t, eng, tp("a", 0), 0, 3)
		fill(t, eng, tp("a", 1), 0, 3)
		a := newMember(t, eng, stream.ConsumerConfig{MaxWait: time.Minute})
		late := make(chan *member, 1)
		time.AfterFunc(time.Second, func() { late <- newMember(t, eng, stream.ConsumerConfig{}) })
		for rs, err := range a.Batches(t.Context(), 99, 5*time.Second) {
			check(t, err)
			eq(t, "yielded", values(rs), numbers(0, 3))
			p := a.Assignment()
			eq(t, "assignment", p, []stream.TopicPartition{tp(rs[0].Topic, rs[0].Partition)})
			break
		}
		b := <-late
		settle(t, eng, b, a)
		eq(t, "read by the other", b.read(), numbers(0, 3))
	})
}

// B4: with MinBytes a poll waits until so many bytes of the log are there, in all partitions together, and is woken at once by the record that fills them; else it returns what there is when MaxWait has passed, exactly.
func TestMinBytesWaitForSoMuch(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 3)
		p := newProducer(t, eng, stream.ProducerConfig{Partitioner: stream.ManualPartitioner(), Acks: stream.AcksWritten})
		write := func(partition int32, bytes int) {
			_, err := p.ProduceSync(t.Context(), &stream.Record{Topic: "a", Partition: partition, Value: make([]byte, bytes)})
			report(t, err)
		}
		m := newMember(t, eng, stream.ConsumerConfig{MinBytes: 3000, MaxWait: 10 * time.Second})
		lasts(t, "nothing", 10*time.Second, func() { eq(t, "records", len(m.turn(t)), 0) })
		write(0, 1000)
		lasts(t, "too little", 10*time.Second, func() { eq(t, "records", len(m.turn(t)), 1) })
		write(0, 4000)
		lasts(t, "enough", 0, func() { eq(t, "records", len(m.turn(t)), 1) })
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 3 {
				time.Sleep(2 * time.Second)
				write(int32(i), 1000)
			}
		}()
		lasts(t, "together", 6*time.Second, func() { eq(t, "records", len(m.turn(t)), 3) })
		<-done
		// What is paused does not count, and Resume wakes.
		m.Pause(tp("a", 1))
		write(1, 4000)
		go func() {
			time.Sleep(3 * time.Second)
			m.Resume(tp("a", 1))
		}()
		lasts(t, "resumed", 3*time.Second, func() { eq(t, "records", len(m.turn(t)), 1) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		lasts(t, "a deadline", time.Second, func() {
			_, err := m.Poll(ctx, 1)
			wantErr(t, err, context.DeadlineExceeded)
		})
		check(t, m.Close(t.Context()))
		none := newMember(t, eng, stream.ConsumerConfig{MinBytes: 3000})
		write(0, 10)
		lasts(t, "no wait", 0, func() { eq(t, "records", len(none.turn(t)), 1) })
	})
}

// Lag says how many records a reader has before it, exactly, over the holes that compaction leaves, and how old the first of them is; pausing changes nothing.
func TestLagIsExactOverHoles(t *testing.T) {
	inTime(t, func(t *testing.T, g *timed) {
		g.topic("a", stream.TopicConfig{Partitions: 2, Cleanup: stream.CleanupCompact, Config: map[string]string{"min.cleanable.dirty.ratio": "0"}})
		g.writeWith(stream.ProducerConfig{}, tp("a", 0), 200, time.Second, func(i int, r *stream.Record) { r.Key = fmt.Append(nil, i%7*(i%3)) })
		g.wait(time.Hour) // compacted
		begun := time.Now()
		if len(g.seen.compactions()) == 0 {
			t.Fatal("nothing was compacted")
		}
		all := readAll(t, g.eng, tp("a", 0))
		if len(all) > 100 {
			t.Fatalf("%d records", len(all))
		}
		m := newMember(t, g.eng, stream.ConsumerConfig{})
		lag := func(p int32) stream.Lag { return must(m.Lag(t.Context(), tp("a", p)))(t)[tp("a", p)] }
		for i, r := range all {
			eq(t, "lag", lag(0), stream.Lag{Records: int64(len(all) - i), Time: begun.Sub(r.Timestamp).Truncate(time.Millisecond)})
			check(t, m.Seek(tp("a", 0), r.Offset))
			eq(t, "lag at the record", lag(0).Records, int64(len(all)-i))
			if i > 0 && all[i-1].Offset < r.Offset-1 {
				check(t, m.Seek(tp("a", 0), r.Offset-1)) // in a hole
				eq(t, "lag in a hole", lag(0).Records, int64(len(all)-i))
			}
			m.Pause(tp("a", 0))
			eq(t, "lag while it is paused", lag(0).Records, int64(len(all)-i))
			m.Resume(tp("a", 0))
			eq(t, "next", must(m.Poll(t.Context(), 1))(t)[0].Offset, r.Offset)
		}
		eq(t, "at the end", lag(0), stream.Lag{})
		eq(t, "empty", lag(1), stream.Lag{})
		eq(t, "without names", len(must(m.Lag(t.Context()))(t)), 2)
		_, err := m.Lag(t.Context(), tp("a", 2))
		wantErr(t, err, stream.ErrNotAssigned)
		time.Sleep(time.Minute)
		g.write2(tp("a", 1))
		time.Sleep(90 * time.Second)
		eq(t, "later", lag(1), stream.Lag{Records: 1, Time: 90 * time.Second})
		check(t, m.Close(t.Context()))
		_, err = m.Lag(t.Context())
		wantErr(t, err, stream.ErrClosed)
	})
}

// write2 appends one record with a key.
func (g *timed) write2(to stream.TopicPartition) {
	g.t.Helper()
	g.writeWith(stream.ProducerConfig{}, to, 1, 0, func(_ int, r *stream.Record) { r.Key = []byte("k") })
}

// meddler is an interceptor that does what it is told.
type meddler struct {
	consume func(rs []stream.Record)
	commit  func(o stream.Offsets)
}

func (m meddler) OnConsume(rs []stream.Record) {
	if m.consume != nil {
		m.consume(rs)
	}
}

func (m meddler) OnCommit(o stream.Offsets) {
	if m.commit != nil {
		m.commit(o)
	}
}

// Interceptors change what the caller gets, one after the other, and not where reading and automatic commits go on. A panic in one is contained.
func TestInterceptorsChangeRecordsAndNothingElse(t *testing.T) {
	for name, read := range map[string]func(t *testing.T, m *member) []stream.Record{
		"Poll": func(t *testing.T, m *member) []stream.Record { return must(m.Poll(t.Context(), 0))(t) },
		"Records": func(t *testing.T, m *member) (rs []stream.Record) {
			for r, err := range m.Records(t.Context()) {
				check(t, err)
				if rs = append(rs, r); len(rs) == 3 {
					check(t, m.Commit(t.Context()))
					break
				}
			}
			return rs
		},
		"Batches": func(t *testing.T, m *member) (rs []stream.Record) {
			for b, err := range m.Batches(t.Context(), 3, 0) {
				check(t, err)
				check(t, m.Commit(t.Context()))
				return b
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
				create(t, eng, "a", 1)
				fill(t, eng, tp("a", 0), 0, 3)
				seen := 0
				m := newMember(t, eng, stream.ConsumerConfig{Interceptors: []stream.ConsumerInterceptor{
					meddler{consume: func(rs []stream.Record) {
						seen += len(rs)
						for i := range rs {
							rs[i].Value, rs[i].Offset, rs[i].Partition, rs[i].LeaderEpoch = []byte("x"), 0, 7, 9
						}
					}},
					meddler{consume: func(rs []stream.Record) {
						for i := range rs {
							rs[i].Value = append([]byte("y"), rs[i].Value...)
						}
						panic("on purpose")
					}, commit: func(stream.Offsets) { panic("on purpose") }},
				}})
				rs := read(t, m)
				eq(t, "values", values(rs), []string{"yx", "yx", "yx"})
				eq(t, "seen", seen, 3)
				eq(t, "position", must(m.Position(tp("a", 0)))(t), 3)
				check(t, m.Close(t.Context()))
				eq(t, "committed", groupOf(t, eng).Offsets[tp("a", 0)], stream.OffsetMetadata{Offset: 3})
			})
		})
	}
}

// OnCommit hears of every commit that was made, of no other, with what was committed.
func TestInterceptorsHearOfCommits(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, eng *stream.Engine) {
		create(t, eng, "a", 1)
		fill(t, eng, tp("a", 0), 0, 9)
		var heard []string
		m := newMember(t, eng, stream.ConsumerConfig{CommitInterval: time.Second, Interceptors: []stream.ConsumerInterceptor{
			meddler{commit: func(o stream.Offsets) {
				heard = append(heard, fmt.Sprint(o[tp("a", 0)].Offset, o[tp("a", 0)].Metadata))
			}},
		}})
		rs := must(m.Poll(t.Context(), 2))(t)
		check(t, m.Commit(t.Context()))
		check(t, m.CommitRecords(t.Context(), rs[0]))
		check(t, m.CommitOffsets(t.Context(), stream.Offsets{tp("a", 0): {Offset: 7, Metadata: "m"}}))
		wantErr(t, m.CommitOffsets(t.Context(), stream.Offsets{tp("a", 0): {Offset: 70}}), stream.ErrOffsetOutOfRange)
		done := make(chan struct{})
		m.CommitAsync(stream.Offsets{tp("a", 0): {Offset: 1}}, func(stream.Offsets, error) { close(done) })
		<-done
		time.Sleep(2 * time.Second)
		poll(t, m, 4) // commits 2
		time.Sleep(2 * time.Second)
		poll(t, m, 1)
		check(t, m.Close(t.Context()))
		eq(t, "heard", heard, []string{"2", "1", "7m", "1", "2", "6", "7"})
	})
}
