package rlog

import (
	"hash/maphash"
	"math/bits"
)

// keyMap remembers the last offset of each key, in bounded memory: the keys themselves are not kept, but 128 bits of hash, so that two keys are never taken for one
// (with a billion of them, the odds are 1 to 10^20).
type keyMap struct {
	slots []keySlot // a power of two
	n     int
	most  int // slots that there may be
	seeds [2]maphash.Seed
}

type keyHash [2]uint64

type keySlot struct {
	hash   keyHash
	behind int64 // the offset, plus 1; 0: free
}

const (
	keySlotSize = 24
	keySlotsMin = 1 << 10
	keyLoad     = 0.85
)

// newKeyMap returns a map for up to so many keys that takes up to so many bytes.
func newKeyMap(keys, bytes int64) *keyMap {
	m := &keyMap{most: keySlotsMin, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	for int64(m.most)*2*keySlotSize <= bytes {
		m.most *= 2
	}
	want := 1 << bits.Len64(uint64(float64(keys)/keyLoad))
	m.slots = make([]keySlot, min(max(want, keySlotsMin), m.most))
	return m
}

func (m *keyMap) hash(key []byte) keyHash {
	return keyHash{maphash.Bytes(m.seeds[0], key), maphash.Bytes(m.seeds[1], key)}
}

// touch brings the slots of these keys into the cache, all at once: one by one, each would be waited for.
func (m *keyMap) touch(hs []keyHash) (sum int64) {
	mask := uint64(len(m.slots) - 1)
	for i := range hs {
		sum += m.slots[hs[i][0]&mask].behind
	}
	return sum
}

// slot is where the key is, or where it belongs.
func (m *keyMap) slot(h keyHash) *keySlot {
	mask := uint64(len(m.slots) - 1)
	for i := h[0] & mask; ; i = (i + 1) & mask {
		if s := &m.slots[i]; s.behind == 0 || s.hash == h {
			return s
		}
	}
}

// get returns the last offset of a key, -1 if it is not there.
func (m *keyMap) get(h keyHash) int64 { return m.slot(h).behind - 1 }

// put enters a key's offset, which is above all that were entered before, and returns the one before it, -1 if there is none. It reports whether there was room.
func (m *keyMap) put(h keyHash, offset int64) (before int64, ok bool) {
	s := m.slot(h)
	if s.behind == 0 {
		if float64(m.n) >= keyLoad*float64(len(m.slots)) {
			if len(m.slots) >= m.most {
				return -1, false
			}
			m.grow()
			s = m.slot(h)
		}
		m.n++
		s.hash = h
	}
	before = s.behind - 1
	s.behind = offset + 1
	return before, true
}

func (m *keyMap) grow() {
	old := m.slots
	m.slots = make([]keySlot, 2*len(old))
	for _, s := range old {
		if s.behind > 0 {
			*m.slot(s.hash) = s
		}
	}
}

// offsetSet is a set of offsets from one on, a bit each.
type offsetSet struct {
	from int64
	bits []uint64
}

func (o *offsetSet) add(offset int64) {
	i := int((offset - o.from) / 64)
	if i >= len(o.bits) {
		o.bits = append(o.bits, make([]uint64, max(i+1, 2*len(o.bits))-len(o.bits))...)
	}
	o.bits[i] |= 1 << ((offset - o.from) % 64)
}

func (o *offsetSet) has(offset int64) bool {
	i := int((offset - o.from) / 64)
	return i < len(o.bits) && o.bits[i]&(1<<((offset-o.from)%64)) != 0
}
