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

// KeyPartitioner is the default. Records with a key, an empty one too, go to murmur2(key) modulo partitions, as Kafka's Java client sends them;
// records without a key stay with one partition for about 16 KiB and then move on.
func KeyPartitioner() Partitioner {
	k := &keyed{}
	k.sticky.Store(rand.Uint64() << stickyBits)
	return k
}

// keyed packs the current partition (high bits) and the bytes that it has been given (low bits).
type keyed struct{ sticky atomic.Uint64 }

const (
	stickyBits  = 24
	stickyBytes = 16 << 10
)

func (k *keyed) Partition(r *Record, partitions int) int32 {
	if r.Key != nil {
		return int32((murmur2(r.Key) & 0x7fffffff) % uint32(partitions))
	}
	n := uint64(len(r.Value)) + 1
	for {
		old := k.sticky.Load()
		next := old + min(n, stickyBytes)
		if next&(1<<stickyBits-1) >= stickyBytes {
			next = (old>>stickyBits + 1) << stickyBits
		}
		if k.sticky.CompareAndSwap(old, next) {
			return int32((old >> stickyBits) % uint64(partitions))
		}
	}
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
