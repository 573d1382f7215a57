package rlog

import "hash/maphash"

// keyMap remembers the last offset of each key, in bounded memory: the keys themselves are not kept, but 128 bits of hash, so that two keys are never taken for one
// (with a billion of them, the odds are 1 to 10^20).
type keyMap struct {
	slots []keySlot // a power of two
	n     int
	most  int // slots that there may be
	seeds [2]maphash.Seed
}

type keySlot struct {
	hash   [2]uint64
	behind int64 // the offset, plus 1; 0: free
}

const (
	keySlotSize  = 24
	keySlotsMin  = 1 << 10
	keyLoad      = 0.85
	keyMapMinMem = keySlotsMin * keySlotSize
)

// newKeyMap returns a map that takes up to so many bytes.
func newKeyMap(bytes int64) *keyMap {
	m := &keyMap{most: keySlotsMin, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	for int64(m.most)*2*keySlotSize <= bytes {
		m.most *= 2
	}
	m.slots = make([]keySlot, keySlotsMin)
	return m
}

// slot is where the key is, or where it belongs.
func (m *keyMap) slot(key []byte) *keySlot {
	h := [2]uint64{maphash.Bytes(m.seeds[0], key), maphash.Bytes(m.seeds[1], key)}
	s := m.at(h)
	s.hash = h
	return s
}

func (m *keyMap) at(h [2]uint64) *keySlot {
	mask := uint64(len(m.slots) - 1)
	for i := h[0] & mask; ; i = (i + 1) & mask {
		if s := &m.slots[i]; s.behind == 0 || s.hash == h {
			return s
		}
	}
}

// get returns the last offset of a key.
func (m *keyMap) get(key []byte) (offset int64, ok bool) {
	s := m.slot(key)
	return s.behind - 1, s.behind > 0
}

// put enters a key's offset, which is above all that were entered before. It reports whether there was room.
func (m *keyMap) put(key []byte, offset int64) bool {
	s := m.slot(key)
	if s.behind == 0 {
		if float64(m.n) >= keyLoad*float64(len(m.slots)) {
			if len(m.slots) >= m.most {
				return false
			}
			m.grow()
			s = m.slot(key)
		}
		m.n++
	}
	s.behind = offset + 1
	return true
}

func (m *keyMap) grow() {
	old := m.slots
	m.slots = make([]keySlot, 2*len(old))
	for _, s := range old {
		if s.behind > 0 {
			*m.at(s.hash) = s
		}
	}
}
