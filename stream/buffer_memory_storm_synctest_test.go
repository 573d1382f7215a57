package stream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

// F14: 64 goroutines share a small buffer by all verbs, with records of all sizes: each gets its turn, nothing fails.
func TestManyGoroutinesShareASmallBuffer(t *testing.T) {
	r := newRand(t)
	for _, c := range []stream.ProducerConfig{
		{BatchSize: 1}, {BatchSize: 512}, {BatchSize: smallBuffer}, {BatchSize: 300, Linger: time.Hour, DeliveryTimeout: 9 * time.Hour}, {BatchSize: 1000, MaxInFlight: 1, Compression: stream.CompressionLZ4},
		{BatchSize: 2000, Linger: time.Millisecond, Compression: stream.CompressionZstd, Acks: stream.AcksWritten},
	} {
		onSlowDisk(t, 5, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
			d.onSync(func(string) { time.Sleep(time.Millisecond) })
			c.BufferMemory, c.MaxBlock, c.Partitioner = smallBuffer, time.Hour, stream.RoundRobinPartitioner()
			p := newProducer(t, eng, c)
			const each = 30
			var wg sync.WaitGroup
			var promised atomic.Int32
			for range 64 {
				seed := r.Uint64()
				wg.Go(func() {
					r := rand.New(rand.NewPCG(seed, 0))
					for range each {
						rec := stream.Record{Topic: "a", Value: make([]byte, r.IntN(100))}
						if r.IntN(10) == 0 {
							rec.Value = make([]byte, r.IntN(wholeValue))
						}
						switch r.IntN(4) {
						case 0:
							_, err := p.ProduceSync(t.Context(), &rec)
							report(t, err)
							promised.Add(1)
						case 1:
							_, err := p.ProduceAll(t.Context(), []stream.Record{rec}, nil)
							report(t, err)
							promised.Add(1)
						default:
							p.Produce(t.Context(), &rec, func(_ stream.Receipt, err error) {
								report(t, err)
								promised.Add(1)
							})
						}
					}
				})
			}
			wg.Wait()
			check(t, p.Flush(t.Context()))
			eq(t, "answers", promised.Load(), 64*each)
			total := int64(0)
			for n := range int32(5) {
				total += endOf(t, eng, tp("a", n))
			}
			eq(t, "records", total, 64*each)
			d.onSync(nil)
			everythingFits(t, p)
		})
	}
}

// F14: whatever fails, all memory comes back: cancelled and refused records, a full disk, failing syncs, timeouts, a topic that is deleted, calls that give up waiting.
func TestBufferMemoryComesBackWhateverFails(t *testing.T) {
	r := newRand(t)
	for round := range 20 {
		seed := r.Uint64()
		onSlowDisk(t, 3, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
			r := rand.New(rand.NewPCG(seed, 0))
			create(t, eng, "gone", 2)
			p := newProducer(t, eng, stream.ProducerConfig{
				BufferMemory: smallBuffer, BatchSize: 1 + r.IntN(2000), MaxInFlight: 1 + r.IntN(5), MaxBlock: time.Duration(r.IntN(3)-1) * 20 * time.Millisecond,
				Linger: time.Duration(r.IntN(3)) * 5 * time.Millisecond, DeliveryTimeout: time.Duration(20+r.IntN(1000)) * time.Millisecond, Retries: r.IntN(3) - 1,
				Compression: stream.Compression(r.IntN(5)), Partitioner: stream.RoundRobinPartitioner(), MaxMessageBytes: smallBuffer,
			})
			slow := round%2 == 0 // a partition that is opened again holds a lock while it syncs: no bubble goes on then
			var mode atomic.Int32
			d.Inject(func(op vfs.Op) error {
				switch m := mode.Load(); {
				case m == 1 && !slow && op.Kind == vfs.OpSync && len(op.Name) > 4 && op.Name[len(op.Name)-4:] == ".log":
					return syscall.EIO
				case m == 2 && op.Kind == vfs.OpReserve:
					return vfs.ErrNoSpace
				}
				return nil
			})
			d.onSync(func(string) {
				if slow && mode.Load() == 3 {
					time.Sleep(700 * time.Millisecond)
				}
			})
			var wg sync.WaitGroup
			var sent, answered atomic.Int32
			for range 16 {
				seed := r.Uint64()
				wg.Go(func() {
					r := rand.New(rand.NewPCG(seed, 0))
					for range 40 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(200))*time.Millisecond)
						rec := stream.Record{Topic: []string{"a", "a", "a", "gone", "none"}[r.IntN(5)], Value: make([]byte, r.IntN(600)), Acks: stream.Acks(r.IntN(4))}
						if r.IntN(10) == 0 {
							rec.Value = make([]byte, r.IntN(smallBuffer+100))
						}
						sent.Add(1)
						switch r.IntN(4) {
						case 0:
							_, _ = p.ProduceSync(ctx, &rec)
							answered.Add(1)
						case 1:
							_, _ = p.ProduceAll(ctx, []stream.Record{rec, rec}, nil)
							answered.Add(1)
						default:
							p.Produce(ctx, &rec, func(stream.Receipt, error) { answered.Add(1) })
							if r.IntN(2) == 0 {
								time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
							}
						}
						if r.IntN(3) > 0 {
							cancel()
						} else {
							time.AfterFunc(time.Second, cancel)
						}
					}
				})
			}
			wg.Go(func() {
				for range 8 {
					time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
					mode.Store(int32(r.IntN(4)))
				}
				if err := eng.Admin().DeleteTopic(t.Context(), "gone"); err != nil && !errors.Is(err, stream.ErrMetaFailed) {
					t.Error(err)
				}
				mode.Store(0)
			})
			wg.Wait()
			time.Sleep(15 * time.Second) // partitions that failed are opened again
			check(t, p.Flush(t.Context()))
			eq(t, fmt.Sprintf("round %d, seed %d: answers", round, seed), answered.Load(), sent.Load())
			d.onSync(nil)
			everythingFits(t, p)
		})
	}
}

// F9, F14: a record that the buffer can never hold is refused at once, whatever MaxBlock says, and takes nothing from the others.
func TestRecordLargerThanTheBuffer(t *testing.T) {
	for name, produce := range verbs {
		t.Run(name, func(t *testing.T) {
			onSlowDisk(t, 1, func(t *testing.T, d *slowDisk, eng *stream.Engine) {
				p := newProducer(t, eng, stream.ProducerConfig{BufferMemory: smallBuffer, BatchSize: 512, MaxBlock: time.Hour})
				begin := time.Now()
				_, err := produce(p, t.Context(), &stream.Record{Topic: "a", Value: make([]byte, smallBuffer+1)})
				if name != "ProduceSync" || err != nil { // a call that finds nothing accumulated may need no buffer
					if !errors.Is(err, stream.ErrBufferFull) && !errors.Is(err, stream.ErrRecordTooLarge) {
						t.Fatal(err)
					}
					eq(t, "end", endOf(t, eng, tp("a", 0)), 0)
				}
				eq(t, "waited", time.Since(begin), 0)
				everythingFits(t, p)
			})
		})
	}
}
