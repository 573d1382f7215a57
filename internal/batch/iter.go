package batch

import (
	"encoding/binary"
	"fmt"

	"github.com/runnelmq/runnel/internal/kafka"
)

// Record is one record of a batch. Key, Value and header values alias the batch's bytes: they are valid as long as
// those are and must not be written to. A nil Key or Value is null, an empty one that is not nil is empty.
type Record struct {
	Offset    int64
	Timestamp int64 // ms since 1970
	Key       []byte
	Value     []byte

	headers     []byte // the headers as they are stored; Next has checked that they parse
	headerCount int
}

// HeaderCount returns the number of headers.
func (r *Record) HeaderCount() int { return r.headerCount }

// AppendHeaders appends the headers to dst in their order and returns it. Keys are new strings, values alias the batch.
func (r *Record) AppendHeaders(dst []kafka.Header) []kafka.Header {
	for i, n := 0, r.headerCount; n > 0; n-- {
		var key, value []byte
		key, value, i = header(r.headers, i)
		dst = append(dst, kafka.Header{Key: string(key), Value: value})
	}
	return dst
}

// Header returns the value of the last header of that key, and whether there is one. It does not allocate.
func (r *Record) Header(key string) (value []byte, ok bool) {
	for i, n := 0, r.headerCount; n > 0; n-- {
		var k, v []byte
		k, v, i = header(r.headers, i)
		if string(k) == key {
			value, ok = v, true
		}
	}
	return value, ok
}

// header reads the header at i in p, which skipHeaders has found to be good, and returns the position behind it.
func header(p []byte, i int) (key, value []byte, next int) {
	key, i = field(p, i)
	value, i = field(p, i)
	return key, value, i
}

// skipHeaders returns the position behind the n headers at i in p, or -1 if they do not parse. A key cannot be null.
func skipHeaders(p []byte, i, n int) int {
	if n > (len(p)-i)/2 { // each takes two bytes at least; and the doubled count must not overflow
		return -1
	}
	for fields := 2 * n; fields > 0; fields-- {
		size, next := varint(p, i)
		if next < 0 {
			return -1
		}
		if size == -1 && fields%2 == 1 { // a value
			size = 0
		}
		if uint(size) > uint(len(p)-next) {
			return -1
		}
		i = next + size
	}
	return i
}

// field reads a length and that many bytes; the length -1 gives nil. Its capacity ends with it, so that an append to
// it cannot write into the batch.
func field(p []byte, i int) (f []byte, next int) {
	n, i := varint(p, i)
	if i < 0 {
		return nil, -1
	}
	if uint(n) <= uint(len(p)-i) {
		return p[i : i+n : i+n], i + n
	}
	if n == -1 {
		return nil, i
	}
	return nil, -1
}

// Iter walks over the records of a batch. It is a plain value that allocates nothing; it is not safe for concurrent
// use, but each copy walks for itself.
type Iter struct {
	b         []byte
	pos       int   // where the next record starts
	left      int   // records not yet passed
	lastDelta int   // offset delta of the record before, -1 at first
	maxDelta  int   // the greatest offset delta that is allowed
	base      int64 // offset
	timestamp int64 // base timestamp, or the append time
	mask      int64 // what counts of a timestamp delta: all of it, or nothing with log append time
	err       error
}

// Iter returns an iterator that stands before the first record. b is one batch that passed Check; other bytes give an
// error sooner or later, and no harm. Compressed records are an error: Plain makes them readable.
func (b Batch) Iter() Iter {
	if len(b) < HeaderSize {
		return Iter{err: fmt.Errorf("%w: %d bytes of %d", ErrShort, len(b), HeaderSize)}
	}
	if c := b.Codec(); c != None {
		return Iter{err: fmt.Errorf("%w: the records are compressed with %s", ErrCodec, c)}
	}
	if b.Count() < 0 {
		return Iter{err: fmt.Errorf("%w: %d records", ErrHeader, b.Count())}
	}
	it := Iter{
		b:         b,
		pos:       HeaderSize,
		left:      int(b.Count()),
		lastDelta: -1,
		maxDelta:  int(b.LastOffsetDelta()),
		base:      b.BaseOffset(),
		timestamp: b.BaseTimestamp(),
		mask:      -1,
	}
	if b.LogAppendTime() {
		it.timestamp, it.mask = b.MaxTimestamp(), 0
	}
	return it
}

// Next reads the next record into r and reports whether there was one. After false, Err tells the end of the batch
// from malformed bytes, and r is as it was.
func (it *Iter) Next(r *Record) bool {
	if it.left <= 0 {
		return it.finish()
	}
	// Most records have a key and a value below 8 KiB: every varint takes one or two bytes. Those are read here, with
	// one load for all that stands before the key; whatever is different in any way is left to next.
	//
	// Twelve bytes are a length of two, attributes, three more varints of two, and one to spare.
	b, pos := it.b, it.pos
	if pos > len(b)-12 {
		return it.next(r)
	}
	length, n, ok := short(binary.LittleEndian.Uint64(b[pos:]))
	pos += n
	end := pos + int(length>>1)
	if !ok || length&1 != 0 || end > len(b) {
		return it.next(r)
	}
	w := binary.LittleEndian.Uint64(b[pos:]) >> 8 // the attributes say nothing
	delta, n, ok1 := short(w)
	w >>= n * 8
	pos += 1 + n
	place, n, ok2 := short(w)
	w >>= n * 8
	pos += n
	size, n, ok3 := short(w)
	pos += n
	offset := int(place >> 1)
	if !ok1 || !ok2 || !ok3 || place&1 != 0 || offset <= it.lastDelta || offset > it.maxDelta {
		return it.next(r)
	}
	var key, value []byte
	if size != null {
		stop := pos + int(size>>1)
		if size&1 != 0 || stop > end {
			return it.next(r)
		}
		key = b[pos:stop:stop]
		pos = stop
	}
	if pos > len(b)-2 {
		return it.next(r)
	}
	size, n, ok = short(uint64(binary.LittleEndian.Uint16(b[pos:])))
	pos += n
	if size != null {
		stop := pos + int(size>>1)
		if size&1 != 0 || stop > end {
			return it.next(r)
		}
		value = b[pos:stop:stop]
		pos = stop
	}
	if !ok || pos >= end || b[pos]&0x81 != 0 {
		return it.next(r)
	}
	headerCount := int(b[pos] >> 1)
	pos++
	var headers []byte
	if headerCount > 0 {
		headers = b[pos:end:end]
		pos = skipHeaders(b[:end], pos, headerCount)
	}
	if pos != end {
		return it.next(r)
	}

	it.pos = end
	it.left--
	it.lastDelta = offset
	r.Offset = it.base + int64(offset)
	r.Timestamp = it.timestamp + unzigzag(delta)&it.mask
	r.Key, r.Value, r.headers, r.headerCount = key, value, headers, headerCount
	return true
}

// next is Next for any record. It alone tells what is wrong with one.
func (it *Iter) next(r *Record) bool {
	p, i := it.frame()
	if i < 0 {
		return it.fail("bad length")
	}
	i++ // the record's attributes, none of which has a meaning
	if i > len(p) {
		return it.fail("no attributes")
	}
	delta, i := uvarint(p, i, 64)
	if i < 0 {
		return it.fail("bad timestamp delta")
	}
	offset, i := varint(p, i)
	if i < 0 || offset <= it.lastDelta || offset > it.maxDelta {
		return it.fail("bad offset delta")
	}
	key, i := field(p, i)
	if i < 0 {
		return it.fail("bad key")
	}
	value, i := field(p, i)
	if i < 0 {
		return it.fail("bad value")
	}
	headerCount, i := varint(p, i)
	if i < 0 || headerCount < 0 {
		return it.fail("bad number of headers")
	}
	headers := p[i:]
	if i = skipHeaders(p, i, headerCount); i < 0 {
		return it.fail("bad header")
	}
	if i != len(p) {
		return it.fail("bytes after the last field")
	}

	it.pos = i
	it.left--
	it.lastDelta = offset
	r.Offset = it.base + int64(offset)
	r.Timestamp = it.timestamp + unzigzag(delta)&it.mask
	r.Key, r.Value, r.headers, r.headerCount = key, value, headers, headerCount
	return true
}

// Skip passes over the next record, of which it reads only the length, and reports whether there was one.
func (it *Iter) Skip() bool {
	if it.left <= 0 {
		return it.finish()
	}
	if i := it.pos; i <= len(it.b)-2 {
		length, n, ok := short(uint64(binary.LittleEndian.Uint16(it.b[i:])))
		if end := i + n + int(length>>1); ok && length&1 == 0 && end <= len(it.b) {
			it.pos = end
			it.left--
			return true
		}
	}
	p, i := it.frame()
	if i < 0 {
		return it.fail("bad length")
	}
	it.pos = len(p)
	it.left--
	return true
}

// Rebase goes on in a copy of the batch.
func (it *Iter) Rebase(copied Batch) { it.b = copied }

// Err returns what stopped the iterator, nil at the end of the batch or before it.
func (it *Iter) Err() error { return it.err }

// frame returns the batch up to the end of the record at pos, and where the record's body starts: -1 if its length is
// bad.
func (it *Iter) frame() (p []byte, i int) {
	n, i := varint(it.b, it.pos)
	if i < 0 || uint(n) > uint(len(it.b)-i) {
		return nil, -1
	}
	return it.b[: i+n : i+n], i
}

// finish checks that nothing follows the last record.
func (it *Iter) finish() bool {
	if it.err == nil && it.pos != len(it.b) {
		it.err = fmt.Errorf("%w: %d bytes after the last one", ErrRecord, len(it.b)-it.pos)
	}
	return false
}

func (it *Iter) fail(what string) bool {
	place := int(Batch(it.b).Count()) - it.left
	it.err = fmt.Errorf("%w: %s in place %d at byte %d", ErrRecord, what, place, it.pos)
	it.left = 0
	return false
}
