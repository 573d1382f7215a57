package stream

import (
	"math/rand/v2"
	"sync/atomic"
)

// Partitioner chooses the partition of a record. It is called by every goroutine that produces.
type Partitioner interface {
	// Partition returns a number from 0 up to partitions (exclusive). It must not change r.
	Partition(r *Record, partitions int) int32
}

// ManualPartitioner takes Record.Partition.
func ManualPartitioner() Partitioner { return manual{} }

type manual struct{}

func (manual) Partition(r *Record, _ int) int32 { return r.Partition }

// KeyPartitioner is the default. Records with a key, an empty one too, go to murmur2(key) modulo partitions, as Kafka's Java client sends them. Records without a key stay with one partition for about
// a batch, and then move on; a producer moves them away from partitions for which more is waiting than for others (KIP-794).
func KeyPartitioner() Partitioner {
	k := &keyed{}
	k.state.Store(rand.Uint64() << stickyBits)
	return k
}

type keyed struct{ sticky }

func (k *keyed) Partition(r *Record, partitions int) int32 {
	if r.Key != nil {
		return int32((murmur2(r.Key) & 0x7fffffff) % uint32(partitions))
	}
	next := func(last uint64) uint64 { return last + 1 }
	return int32(k.take(r, defaultBatchSize, next) % uint64(partitions))
}

// sticky is a partition that records stay with: the partition (high bits) and the bytes that it has been given (low bits).
type sticky struct{ state atomic.Uint64 }

const stickyBits = 32

// take gives the current partition a record; when it has full bytes, the next one comes from next.
func (s *sticky) take(r *Record, full int, next func(last uint64) uint64) uint64 {
	n := uint64(min(len(r.Value)+1, full))
	for {
		old := s.state.Load()
		then := old + n
		if then&(1<<stickyBits-1) >= uint64(full) {
			then = next(old>>stickyBits) << stickyBits
		}
		if s.state.CompareAndSwap(old, then) {
			return old >> stickyBits
		}
	}
}

// stick is the lane of a record without a key. The next one is the neighbour of the last, or any other one for which less is waiting: two to choose from are enough to keep away from those that are slow.
func (rt *route) stick(r *Record, full int, lanes []*lane) int32 {
	n := uint64(len(lanes))
	return int32(rt.sticky.take(r, full, func(last uint64) uint64 {
		next, other := (last+1)%n, rand.Uint64N(n)
		if lanes[other].waiting.Load() < lanes[next].waiting.Load() {
			return other
		}
		return next
	}) % n)
}

// RoundRobinPartitioner gives each record to the next partition, with or without a key.
func RoundRobinPartitioner() Partitioner { return &roundRobin{} }

type roundRobin struct{ n atomic.Uint32 }

func (p *roundRobin) Partition(_ *Record, partitions int) int32 {
	return int32((p.n.Add(1) - 1) % uint32(partitions))
}

// murmur2 is the 32-bit MurmurHash2 with Kafka's seed, bit-equal to org.apache.kafka.common.utils.Utils.murmur2.
func murmur2(b []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := uint32(seed) ^ uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
		k *= m
		k ^= k >> r
		k *= m
		h = h*m ^ k
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(b[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}
