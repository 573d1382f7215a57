package crashtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	"github.com/runnelmq/runnel/stream"
)

const (
	killTopic      = "t"
	killPartitions = 3
	killGroup      = "g"
)

// killAsync is how many records the child gives to an asynchronous producer between two flushes.
const killAsync = 20

// A killID says who sent a record: worker w of round n its number i to partition p. The value begins with it and follows
// from it, so that whoever reads a record knows what it has to be. A named worker has one life in all rounds: its round is
// 0 and its number the sequence in the partition.
type killID struct {
	worker    string
	round     int
	number    int64
	partition int32
}

func (id killID) String() string {
	return fmt.Sprintf("%s/%d/%d/%d", id.worker, id.round, id.number, id.partition)
}

// value is the id, a zero byte and as much noise as the id decides.
func (id killID) value() []byte {
	h := fnv.New64a()
	io.WriteString(h, id.String())
	r := random(h.Sum64(), 4)
	n := r.IntN(200)
	if chance(r, 0.05) {
		n = r.IntN(20_000)
	}
	return append(append([]byte(id.String()), 0), fill(r, n)...)
}

// parseKillID reads the id of a value and checks that the rest follows from it.
func parseKillID(value []byte) (id killID, err error) {
	text, _, ok := bytes.Cut(value, []byte{0})
	f := strings.Split(string(text), "/")
	if !ok || len(f) != 4 {
		return id, fmt.Errorf("A4: no id in a value of %d bytes, %.40q", len(value), value)
	}
	round, err1 := strconv.Atoi(f[1])
	number, err2 := strconv.ParseInt(f[2], 10, 64)
	part, err3 := strconv.ParseInt(f[3], 10, 32)
	if err := errors.Join(err1, err2, err3); err != nil {
		return id, fmt.Errorf("A4: id %q: %w", text, err)
	}
	id = killID{f[0], round, number, int32(part)}
	if !bytes.Equal(id.value(), value) {
		return id, fmt.Errorf("A4: the value of %v is not what was sent", id)
	}
	return id, nil
}

// hashRecord is what the child tells of a record and the parent compares.
func hashRecord(key, value []byte) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d:", len(key))
	h.Write(key)
	h.Write(value)
	return h.Sum64()
}

// A killChild is the process that is killed: it opens a directory, produces and consumes with everything at once, and
// writes a line about each acknowledgement after it has got it:
//
//	ready                               the engine is open
//	record PARTITION OFFSET HASH        a record is at this offset
//	read PARTITION FROM TO              a member of the group has been given the records from one offset up to another
//	commit PARTITION OFFSET             a group's offset has been committed
//	done                                nothing follows
//	error TEXT                          something was not as promised
type killChild struct {
	round int
	count int // records of each worker
	eng   *stream.Engine
	out   struct {
		sync.Mutex
		w io.Writer
	}
}

// RunKillChild is the child's whole life but for the end.
func RunKillChild(dir string, seed uint64, round int, out io.Writer) error {
	r := random(seed, uint64(round))
	c := &killChild{round: round, count: between(r, 20, 400)}
	c.out.w = out
	err := c.run(dir, r)
	if err != nil {
		c.line("error %v", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return err
}

func (c *killChild) line(format string, args ...any) {
	c.out.Lock()
	defer c.out.Unlock()
	fmt.Fprintf(c.out.w, format+"\n", args...)
}

func (c *killChild) run(dir string, r *rand.Rand) error {
	ctx := context.Background()
	eng, err := openKill(dir)
	if err != nil {
		return fmt.Errorf("A1: open: %w", err)
	}
	c.eng = eng
	err = eng.Admin().CreateTopic(ctx, killTopic, stream.TopicConfig{Partitions: killPartitions, SegmentBytes: 64 << 10})
	if err != nil && !errors.Is(err, stream.ErrTopicExists) {
		return fmt.Errorf("A10: create topic: %w", err)
	}
	c.line("ready")
	workers := []func(context.Context, *rand.Rand) error{
		func(ctx context.Context, r *rand.Rand) error { return c.single(ctx, r, "written", stream.AcksWritten) },
		func(ctx context.Context, r *rand.Rand) error { return c.single(ctx, r, "synced", stream.AcksSynced) },
		c.all,
		c.async,
		func(ctx context.Context, r *rand.Rand) error { return c.named(ctx, r, "source-a", stream.AcksWritten) },
		func(ctx context.Context, r *rand.Rand) error { return c.named(ctx, r, "source-b", stream.AcksSynced) },
	}
	for range killMembers {
		workers = append(workers, c.consume)
	}
	errs := make([]error, len(workers))
	var wg sync.WaitGroup
	for i, work := range workers {
		r := random(r.Uint64(), uint64(i))
		wg.Go(func() { errs[i] = work(ctx, r) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if chance(r, 0.3) {
		c.line("done") // it is killed while it closes, or afterwards
		return eng.Close()
	}
	c.line("done")
	return nil
}

func openKill(dir string) (*stream.Engine, error) {
	return stream.Open(dir, &stream.Options{MinFree: -1, SyncBytes: 64 << 10})
}

func (c *killChild) record(worker string, number int64, partition int32, acks stream.Acks) *stream.Record {
	id := killID{worker, c.round, number, partition}
	return &stream.Record{Topic: killTopic, Partition: partition, Key: []byte(worker), Value: id.value(), Acks: acks}
}

func (c *killChild) acked(r *stream.Record, rc stream.Receipt) error {
	if rc.Partition != r.Partition || rc.Duplicate || rc.Offset < 0 {
		return fmt.Errorf("A5/C1: a record for partition %d got the receipt %+v", r.Partition, rc)
	}
	c.line("record %d %d %x", rc.Partition, rc.Offset, hashRecord(r.Key, r.Value))
	return nil
}

func (c *killChild) producer(ctx context.Context, name string) (stream.Producer, error) {
	return c.eng.NewProducer(ctx, stream.ProducerConfig{Name: name, Partitioner: stream.ManualPartitioner()})
}

// single sends one record after the other.
func (c *killChild) single(ctx context.Context, r *rand.Rand, worker string, acks stream.Acks) error {
	p, err := c.producer(ctx, "")
	if err != nil {
		return err
	}
	for i := range c.count {
		rec := c.record(worker, int64(i), int32(r.IntN(killPartitions)), acks)
		rc, err := p.ProduceSync(ctx, rec)
		if err != nil {
			return fmt.Errorf("A1: %s: %w", worker, err)
		}
		if err := c.acked(rec, rc); err != nil {
			return err
		}
	}
	return nil
}

// all sends slices.
func (c *killChild) all(ctx context.Context, r *rand.Rand) error {
	p, err := c.producer(ctx, "")
	if err != nil {
		return err
	}
	var out []stream.Result
	for i := 0; i < c.count; {
		var rs []stream.Record
		for range between(r, 1, 20) {
			acks := stream.AcksWritten
			if chance(r, 0.02) {
				acks = stream.AcksSynced
			}
			rs = append(rs, *c.record("all", int64(i), int32(r.IntN(killPartitions)), acks))
			i++
		}
		if out, err = p.ProduceAll(ctx, rs, out); err != nil {
			return fmt.Errorf("A1: produce all: %w", err)
		}
		for j := range rs {
			if err := c.acked(&rs[j], out[j].Receipt); err != nil {
				return err
			}
		}
	}
	return nil
}

// async sends without waiting; the promises tell.
func (c *killChild) async(ctx context.Context, r *rand.Rand) error {
	p, err := c.producer(ctx, "")
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var bad error
	for i := range c.count {
		acks := stream.AcksWritten
		if chance(r, 0.1) {
			acks = stream.AcksSynced
		}
		rec := c.record("async", int64(i), int32(r.IntN(killPartitions)), acks)
		p.Produce(ctx, rec, func(rc stream.Receipt, err error) {
			if err == nil {
				err = c.acked(rec, rc)
			}
			mu.Lock()
			defer mu.Unlock()
			bad = errors.Join(bad, err)
		})
		if i%killAsync == killAsync-1 || i == c.count-1 {
			err := p.Flush(ctx)
			mu.Lock()
			err = errors.Join(err, bad)
			mu.Unlock()
			if err != nil {
				return fmt.Errorf("A1: async: %w", err)
			}
		}
	}
	return nil
}

// named goes on where the last round has stopped. (C1)
func (c *killChild) named(ctx context.Context, r *rand.Rand, name string, acks stream.Acks) error {
	p, err := c.producer(ctx, name)
	if err != nil {
		return err
	}
	var next [killPartitions]int64
	for i := range next {
		last, err := p.LastSequence(ctx, stream.TopicPartition{Topic: killTopic, Partition: int32(i)})
		if err != nil {
			return fmt.Errorf("C1: last sequence: %w", err)
		}
		next[i] = last + 1
	}
	for range c.count {
		i := int32(r.IntN(killPartitions))
		id := killID{name, 0, next[i], i}
		rec := &stream.Record{Topic: killTopic, Partition: i, Key: []byte(name), Value: id.value(), Acks: acks, Sequence: next[i]}
		rc, err := p.ProduceSync(ctx, rec)
		if err != nil {
			return fmt.Errorf("C1: %s: %w", name, err)
		}
		if err := c.acked(rec, rc); err != nil {
			return err
		}
		next[i]++
	}
	return nil
}

// A killLine is a parsed line of a child.
type killLine struct {
	kind      string
	partition int32
	offset    int64
	to        int64
	hash      uint64
	text      string
}

// readKillLines sends each whole line to f until the child's end of the pipe is closed.
func readKillLines(r io.Reader, f func(killLine) error) error {
	b := bufio.NewReader(r)
	for {
		s, err := b.ReadString('\n')
		if err == io.EOF {
			return nil // what there is of a line was not written whole
		}
		if err != nil {
			return err
		}
		var l killLine
		l.kind, l.text, _ = strings.Cut(strings.TrimSuffix(s, "\n"), " ")
		switch l.kind {
		case "record":
			_, err = fmt.Sscanf(l.text, "%d %d %x", &l.partition, &l.offset, &l.hash)
		case "read":
			_, err = fmt.Sscanf(l.text, "%d %d %d", &l.partition, &l.offset, &l.to)
		case "commit":
			_, err = fmt.Sscanf(l.text, "%d %d", &l.partition, &l.offset)
		case "ready", "done", "error":
		default:
			err = errors.New("unknown")
		}
		if err != nil {
			return fmt.Errorf("line %q: %w", s, err)
		}
		if err := f(l); err != nil {
			return err
		}
	}
}
