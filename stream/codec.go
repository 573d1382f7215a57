package stream

import (
	"bytes"
	"encoding"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"reflect"
)

// BytesCodec leaves bytes as they are (ByteArraySerializer). What it decodes is a copy.
func BytesCodec() Codec[[]byte] { return bytesCodec{} }

type bytesCodec struct{}

func (bytesCodec) Append(dst, v []byte) ([]byte, error) { return append(dst, v...), nil }

func (bytesCodec) Decode(src []byte) ([]byte, error) { return bytes.Clone(src), nil }

// StringCodec encodes a string as its bytes (StringSerializer), whether they are UTF-8 or not.
func StringCodec() Codec[string] { return stringCodec{} }

type stringCodec struct{}

func (stringCodec) Append(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil }

func (stringCodec) Decode(src []byte) (string, error) { return string(src), nil }

// JSONCodec encodes values by package encoding/json.
func JSONCodec[T any]() Codec[T] { return jsonCodec[T]{} }

type jsonCodec[T any] struct{}

func (jsonCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	b, err := json.Marshal(v)
	return append(dst, b...), err
}

func (jsonCodec[T]) Decode(src []byte) (v T, err error) {
	err = json.Unmarshal(src, &v)
	return v, err
}

// BinaryCodec encodes values of a type that does so itself, such as time.Time: BinaryCodec[time.Time](). An encoding.BinaryAppender appends, any other encoding.BinaryMarshaler is copied.
func BinaryCodec[T any, P interface {
	*T
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}]() Codec[T] {
	return binaryCodec[T, P]{}
}

type binaryCodec[T any, P interface {
	*T
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}] struct{}

func (binaryCodec[T, P]) Append(dst []byte, v T) ([]byte, error) {
	if a, ok := any(P(&v)).(encoding.BinaryAppender); ok {
		return a.AppendBinary(dst)
	}
	b, err := P(&v).MarshalBinary()
	return append(dst, b...), err
}

func (binaryCodec[T, P]) Decode(src []byte) (v T, err error) {
	err = P(&v).UnmarshalBinary(src)
	return v, err
}

// IntegerCodec encodes numbers in 2, 4 or 8 bytes, the highest first (ShortSerializer, IntegerSerializer, LongSerializer).
func IntegerCodec[T ~int16 | ~int32 | ~int64 | ~uint16 | ~uint32 | ~uint64]() Codec[T] {
	return integerCodec[T]{int(reflect.TypeFor[T]().Size())}
}

type integerCodec[T ~int16 | ~int32 | ~int64 | ~uint16 | ~uint32 | ~uint64] struct{ size int }

func (c integerCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	switch c.size {
	case 2:
		return binary.BigEndian.AppendUint16(dst, uint16(v)), nil
	case 4:
		return binary.BigEndian.AppendUint32(dst, uint32(v)), nil
	}
	return binary.BigEndian.AppendUint64(dst, uint64(v)), nil
}

func (c integerCodec[T]) Decode(src []byte) (T, error) {
	if len(src) != c.size {
		return 0, fmt.Errorf("%d bytes where an integer has %d", len(src), c.size)
	}
	switch c.size {
	case 2:
		return T(binary.BigEndian.Uint16(src)), nil
	case 4:
		return T(binary.BigEndian.Uint32(src)), nil
	}
	return T(binary.BigEndian.Uint64(src)), nil
}
