package index

import "sync/atomic"

// column is a row of entries with one writer and any number of readers that take no lock.
//
// The writer stores an entry into its slot and then publishes it by raising count. A reader loads count first and the
// slots second. Walk through the interleavings:
//
//   - The reader saw count n: the atomic load came after the atomic store of n or a greater count, which came after the
//     plain stores of all entries below n. It reads none of the slots from n on, the only ones that are written.
//   - The array grew in between: the reader may hold a count older than the array, which is harmless, as the new array
//     begins with a copy of the old one. It cannot hold a count newer than the array, as the new array is published
//     before the first count that needs it, and count is loaded first. The other order, slots first, would let
//     a grown count meet the old, too short array.
//   - The old array is never written again, so a reader may keep using it.
//
// Lowering count breaks this: a reader with the old count would read slots that are written anew. Hence truncate only
// without readers.
type column[E any] struct {
	count atomic.Int64
	slots atomic.Pointer[[]E]
}

// view returns the entries published so far. They never change.
func (c *column[E]) view() []E {
	n := c.count.Load()
	if n == 0 {
		return nil
	}
	return (*c.slots.Load())[:n:n]
}

func (c *column[E]) len() int { return int(c.count.Load()) }

// append adds an entry. Writer only.
func (c *column[E]) append(e E) {
	n := c.len()
	slots := c.slots.Load()
	if slots == nil || n == len(*slots) {
		grown := make([]E, max(8, 2*n))
		if slots != nil {
			copy(grown, *slots)
		}
		c.slots.Store(&grown)
		slots = &grown
	}
	(*slots)[n] = e
	c.count.Store(int64(n + 1))
}

// set makes entries the whole content and takes them over. Writer only, without readers.
func (c *column[E]) set(entries []E) {
	c.slots.Store(&entries)
	c.count.Store(int64(len(entries)))
}

// truncate keeps the first n entries. Writer only, without readers.
func (c *column[E]) truncate(n int) {
	c.count.Store(int64(min(max(n, 0), c.len())))
}
