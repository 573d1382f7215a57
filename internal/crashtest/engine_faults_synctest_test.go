package crashtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnelmq/runnel/internal/vfs"
	"github.com/runnelmq/runnel/stream"
)

var (
	engineFaults = flag.Int("enginefaults", 1000, "runs of an engine in which an operation of the disk fails; CI: 4000")
	faultRun     = flag.Int("faultrun", 0, "the only run of an engine with failing operations to do; 0: all")
	loadFaults   = flag.Int("loadfaults", 150, "the same with five clients at once; CI: 1000")
)

// F2 to F4, A1 to A5, A10, C1, E3: every operation of an engine's history fails, in its metadata store alone and anywhere, once
// and for ever. Nothing that was acknowledged is lost, errors are those that a program can decide on, and when the disk works again so does the
// engine, in the same process and by itself.
func TestEngineSurvivesFailingOperations(t *testing.T) {
	runEngineFaults(t, *engineFaults, false)
}

// The same with four producers and a consumer that commits, all at once.
func TestEngineSurvivesFailingOperationsUnderLoad(t *testing.T) {
	runEngineFaults(t, *loadFaults, true)
}

func runEngineFaults(t *testing.T, runs int, load bool) {
	start := startSeed(t)
	begin := time.Now()
	n, histories, failed := 0, 0, 0
	for seed := start; n < runs; seed++ {
		dry := &engineFaultRun{seed: seed, load: load}
		if err := dry.bubble(t); err != nil {
			t.Fatalf("seed %d, nothing fails: %v", seed, err)
		}
		ops := dry.fault.count()
		histories++
		// A prime stride: a short test sees all of the history too, and so many seeds see every operation.
		for i := 0; i < ops && n < runs; i++ {
			at := 1 + (i*7919+int(seed%1000)*31)%ops
			for j := range 3 {
				x := &engineFaultRun{seed: seed, load: load}
				r := random(seed, uint64(1000+4*at+j))
				x.fault.At, x.fault.Mode = at, []faultMode{faultOnce, faultEver, faultKind, faultTorn}[r.IntN(4)]
				x.fault.Err = []syscall.Errno{syscall.EIO, syscall.ENOSPC}[r.IntN(2)]
				if chance(r, 0.4) {
					x.fault.Path, x.fault.At = "/meta/", 1+at%max(1, dry.metaOps)
				}
				if n++; *faultRun > 0 && n != *faultRun {
					continue
				}
				err := x.bubble(t)
				if x.fault.hit() {
					failed++
				}
				if err != nil {
					t.Fatalf("seed %d, run %d, path %q, %v: %s: %v", seed, n, x.fault.Path, &x.fault, x.step, err)
				}
			}
		}
	}
	t.Logf("%d histories, %d runs, %d with a failure, in %.1f s", histories, n, failed, time.Since(begin).Seconds())
}

// An engineFaultRun is a short history of an engine whose disk fails at some time and works again later.
type engineFaultRun struct {
	seed    uint64
	load    bool
	fault   fault
	metaOps int

	r     *rand.Rand
	disk  *vfs.Sim
	eng   *stream.Engine
	led   *faultLedger
	step  string
	names map[string]stream.Producer
	plain stream.Producer
	grown bool // the second topic may have another partition
	third int  // topic c: 0 it is not there, 1 it may be, 2 it is

	mu struct {
		sync.Mutex
		metaDown bool
		clean    bool // nothing may fail any more
		missed   map[ledgerName]missedRecord
	}
}

// A missedRecord was sent by name and not acknowledged.
type missedRecord struct {
	rec      *ledgerRecord
	sequence int64
}

const (
	faultGroup    = "g"
	faultTopicA   = "a"
	faultTopicB   = "b"
	faultTopicC   = "c"
	faultPatience = 2 * time.Minute // of virtual time
	faultTries    = 5               // of what fails before there is anything else to do
)

var faultParts = []stream.TopicPartition{{Topic: faultTopicA}, {Topic: faultTopicA, Partition: 1}, {Topic: faultTopicB}}

// bubble runs the history in virtual time: probes, retries and background syncs happen when everybody waits.
func (x *engineFaultRun) bubble(t *testing.T) (err error) {
	synctest.Test(t, func(t *testing.T) { err = contain(func() error { return x.play(t.Context()) }) })
	return err
}

func (x *engineFaultRun) play(ctx context.Context) (err error) {
	x.r = random(x.seed, 12)
	x.led = newFaultLedger()
	x.mu.missed = map[ledgerName]missedRecord{}
	x.disk = vfs.NewSim(x.seed)
	x.fault.install(x.disk)
	x.step = "open"
	if x.fault.At == 0 {
		x.disk.Inject(func(op vfs.Op) error {
			if inMeta(op.Name) {
				x.mu.Lock()
				x.metaOps++
				x.mu.Unlock()
			}
			return x.fault.rule(op)
		})
	}
	defer func() {
		if x.eng != nil {
			err = errors.Join(err, x.closed())
		}
	}()
	if err := x.open(ctx); err != nil {
		return err
	}
	if err := x.topics(ctx); err != nil {
		return err
	}
	if x.load {
		err = x.clients(ctx)
	} else {
		for range 14 {
			if err = errors.Join(x.act(ctx), x.led.err()); err != nil {
				break
			}
		}
	}
	if err != nil {
		return err
	}
	return errors.Join(x.healed(ctx), x.led.err())
}

func inMeta(name string) bool { return (&fault{Path: "/meta/"}).matches(name) }

func (x *engineFaultRun) options() *stream.Options {
	return &stream.Options{
		FS: x.disk, MinFree: -1, SyncInterval: 10 * time.Millisecond,
		Events: stream.Events{
			PartitionState: func(tp stream.TopicPartition, s stream.PartitionState, err error) {
				if s == stream.PartitionFailed {
					x.led.failed(tp)
				}
				if s == stream.PartitionDamaged || s != stream.PartitionOK && x.isClean() {
					x.led.wrong(fmt.Errorf("F4: partition %v is %v: %w", tp, s, err))
				}
			},
			MetaFailed: func(err error) {
				if x.isClean() {
					x.led.wrong(fmt.Errorf("F4: the disk works, and the metadata store: %w", err))
				}
				x.meta(true)
			},
			MetaRecovered:  func() { x.meta(false) },
			StrayDirectory: func(from, to string) { x.led.wrong(fmt.Errorf("A10: directory %s is a stray, now %s", from, to)) },
			OffsetClamped: func(group string, tp stream.TopicPartition, from, to int64) {
				if group == faultGroup {
					x.led.wrong(fmt.Errorf("E3: offset in %v clamped from %d to %d", tp, from, to))
				}
			},
		},
	}
}

func (x *engineFaultRun) meta(down bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.metaDown = down
}

func (x *engineFaultRun) isClean() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.clean
}

// told checks the error of a call.
func (x *engineFaultRun) told(what string, err error) error {
	if err == nil {
		return nil
	}
	if x.fault.hit() && !x.isClean() {
		for _, k := range []error{stream.ErrMetaFailed, stream.ErrPartitionFailed, stream.ErrDiskFull, stream.ErrStorage} {
			if errors.Is(err, k) {
				return nil
			}
		}
	}
	return fmt.Errorf("F2/F4: %s: unexpected error: %w", what, err)
}

// opening is told for Open, whose errors may be those of the file system.
func (x *engineFaultRun) opening(err error) error {
	if x.fault.hit() && !x.isClean() && x.fault.caused(err) && !errors.Is(err, stream.ErrCorrupt) {
		return nil
	}
	return x.told("open", err)
}

// open opens the engine. If the disk keeps it from that, the disk works from then on.
func (x *engineFaultRun) open(ctx context.Context) error {
	x.names, x.plain = map[string]stream.Producer{}, nil
	x.meta(false)
	var err error
	for range faultTries {
		if x.eng, err = stream.Open(engineDir, x.options()); err == nil {
			return nil
		}
		x.eng = nil
		if err := x.opening(err); err != nil {
			return err
		}
		if x.fault.Mode != faultOnce && x.fault.Mode != faultTorn {
			x.fault.heal()
		}
	}
	return fmt.Errorf("F2/F4: the disk works again: %w", err)
}

// closed closes the engine.
func (x *engineFaultRun) closed() error {
	err := x.eng.Close()
	x.eng = nil
	return x.told("close", err)
}

// topics makes the topics that the history uses. While the disk fails it is not said whether they are there.
func (x *engineFaultRun) topics(ctx context.Context) error {
	x.step = "create"
	for i, name := range []string{faultTopicA, faultTopicB} {
		if err := x.create(ctx, name, 2-i); err != nil {
			return err
		}
	}
	return nil
}

func (x *engineFaultRun) create(ctx context.Context, name string, n int) (err error) {
	for range faultTries {
		err = x.eng.Admin().CreateTopic(ctx, name, stream.TopicConfig{Partitions: n, SegmentBytes: 2 << 10})
		if err == nil || errors.Is(err, stream.ErrTopicExists) && x.fault.hit() {
			return nil
		}
		if err := x.told("create topic", err); err != nil {
			return err
		}
		if x.fault.Mode != faultOnce && x.fault.Mode != faultTorn {
			x.fault.heal()
		}
		if err := x.well(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("F4: the disk works again: %w", err)
}

// act does the next thing.
func (x *engineFaultRun) act(ctx context.Context) error {
	tp := faultParts[x.r.IntN(len(faultParts))]
	switch n := x.r.IntN(100); {
	case n < 30:
		x.step = "produce"
		return x.produce(ctx, 0, x.r, tp)
	case n < 45:
		x.step = "produce all"
		return x.produceAll(ctx)
	case n < 65:
		x.step = "produce by name"
		return x.produceNamed(ctx, 0, x.r, tp, engineNames[x.r.IntN(len(engineNames))])
	case n < 85:
		x.step = "consume"
		return x.consume(ctx, x.r)
	case n < 91:
		x.step = "background"
		time.Sleep(20 * time.Millisecond)
		return nil
	case n < 94:
		x.step = "add partitions"
		if x.grown {
			return nil
		}
		x.grown = true
		return x.told(x.step, x.eng.Admin().AddPartitions(ctx, faultTopicB, 2))
	case n < 97:
		x.step = "create another topic"
		if x.third > 0 {
			return nil
		}
		x.third = 1
		err := x.eng.Admin().CreateTopic(ctx, faultTopicC, stream.TopicConfig{Partitions: 1})
		if err == nil {
			x.third = 2
		}
		return x.told(x.step, err)
	default:
		x.step = "close and open"
		return errors.Join(x.closed(), x.open(ctx))
	}
}

// clients are four producers and a consumer at once.
func (x *engineFaultRun) clients(ctx context.Context) error {
	x.step = "clients"
	if _, err := x.producer(ctx); err != nil {
		if err := x.told("producer", err); err != nil {
			return err
		}
		x.fault.heal()
		if err := x.well(ctx); err != nil {
			return err
		}
		if _, err := x.producer(ctx); err != nil {
			return err
		}
	}
	for _, name := range engineNames {
		if _, err := x.named(ctx, name); err != nil {
			if err := x.told("producer by name", err); err != nil {
				return err
			}
		}
	}
	errs := make([]error, 5)
	var wg sync.WaitGroup
	for i := range errs {
		r := random(x.seed, uint64(300+i))
		wg.Go(func() {
			for range 12 {
				tp := faultParts[r.IntN(len(faultParts))]
				var err error
				switch {
				case i == 4:
					err = x.consume(ctx, r)
				case i < len(engineNames) && x.names[engineNames[i]] != nil:
					err = x.produceNamed(ctx, i, r, tp, engineNames[i])
				default:
					err = x.produce(ctx, i, r, tp)
				}
				if err != nil {
					errs[i] = err
					return
				}
				if chance(r, 0.2) {
					time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// well waits until the engine says that it has recovered.
func (x *engineFaultRun) well(ctx context.Context) error {
	var hs []stream.PartitionHealth
	for range faultPatience / (50 * time.Millisecond) {
		time.Sleep(50 * time.Millisecond)
		x.mu.Lock()
		well := !x.mu.metaDown
		x.mu.Unlock()
		var err error
		if hs, err = x.eng.Admin().Health(ctx); err != nil {
			return fmt.Errorf("F4: health: %w", err)
		}
		for _, h := range hs {
			well = well && h.State == stream.PartitionOK
		}
		if well {
			return nil
		}
	}
	return fmt.Errorf("F4: the disk has worked for %v, but (metadata store down: %t) %+v", faultPatience, x.mu.metaDown, hs)
}

// healed has the disk work again: so does the engine, and everything is there, now, after a loss of power, and after Close and Open.
func (x *engineFaultRun) healed(ctx context.Context) error {
	x.fault.heal()
	x.step = "healed"
	if err := x.well(ctx); err != nil {
		return err
	}
	x.mu.Lock()
	x.mu.clean = true
	x.mu.Unlock()
	if err := x.use(ctx); err != nil {
		return err
	}
	if err := x.check(ctx, false); err != nil {
		return err
	}
	x.step = "healed, power cut"
	cut := x.disk.Cut(vfs.Cut{Seed: x.seed, Keep: float64(x.seed%3) / 2})
	disk := x.disk
	if err := x.closed(); err != nil {
		return err
	}
	x.disk = cut
	if err := errors.Join(x.open(ctx), x.check(ctx, true), x.closed()); err != nil {
		return err
	}
	x.step = "healed, close and open"
	x.disk = disk
	if err := x.open(ctx); err != nil {
		return err
	}
	return errors.Join(x.check(ctx, false), x.use(ctx), x.check(ctx, false))
}
