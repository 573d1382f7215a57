package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy"
)

// Kafka's snappy is that of a Java library, xerial's: blocks of snappy, each behind its length, after a header that
// says so. Other clients send one block and no header.
//
//	+----------------------------+---------+------------+  +---------------+--------------+
//	| 0x82 S N A P P Y 0x00      | version | compatible |  | length        | snappy block | ...
//	|                            | int32=1 | int32=1    |  | int32         |              |
//	+----------------------------+---------+------------+  +---------------+--------------+
const (
	xerialMagic = "\x82SNAPPY\x00"
	xerialSize  = len(xerialMagic) + 8 // of the whole header
	xerialBlock = 32 << 10             // what Java puts in a block
)

// appendSnappy appends src compressed to dst.
func appendSnappy(dst, src []byte) []byte {
	dst = append(dst, xerialMagic+"\x00\x00\x00\x01\x00\x00\x00\x01"...)
	for len(src) > 0 {
		block := src[:min(len(src), xerialBlock)]
		src = src[len(block):]
		at := len(dst) + 4
		need := at + s2.MaxEncodedLen(len(block))
		if cap(dst) < need {
			dst = grow(dst, max(need, times(cap(dst), 2, math.MaxInt)))
		}
		packed := s2.EncodeSnappy(dst[at:need], block)
		binary.BigEndian.PutUint32(dst[at-4:at], uint32(len(packed)))
		dst = dst[:at+len(packed)]
	}
	return dst
}

var errXerial = errors.New("bad xerial framing")

func unsnappy(dst, src []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(src, []byte(xerialMagic)) {
		return unsnappyBlock(dst, src, limit)
	}
	if len(src) < xerialSize {
		return dst, errXerial
	}
	end := len(dst) + limit
	for src = src[xerialSize:]; len(src) > 0; {
		if len(src) < 4 {
			return dst, errXerial
		}
		size := binary.BigEndian.Uint32(src)
		src = src[4:]
		if uint64(size) > uint64(len(src)) {
			return dst, errXerial
		}
		var err error
		if dst, err = unsnappyBlock(dst, src[:size], end-len(dst)); err != nil {
			return dst, err
		}
		src = src[size:]
	}
	return dst, nil
}

// unsnappyBlock believes a block's length only as far as a block can be worth: its best element gives 64 bytes for 3.
func unsnappyBlock(dst, src []byte, limit int) ([]byte, error) {
	n, err := snappy.DecodedLen(src)
	if err != nil {
		return dst, err
	}
	if n > limit {
		return dst, errBeyond
	}
	if n/64 > len(src)/3 {
		return dst, snappy.ErrCorrupt
	}
	at := len(dst)
	if cap(dst) < at+n {
		dst = grow(dst, max(at+n, times(cap(dst), 2, at+limit)))
	}
	if _, err := snappy.DecodeStrict(dst[at:at:at+n], src); err != nil {
		return dst, err
	}
	return dst[:at+n], nil
}
