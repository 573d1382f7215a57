package stream

import "time"

// OffsetSpec is a place in a log. The zero value is the log start.
type OffsetSpec struct {
	kind offsetKind
	n    int64
	t    time.Time
}

type offsetKind int8

const (
	specStart offsetKind = iota
	specEnd
	specOffset
	specTime
	specShift
)

// ToStart is the log start.
func ToStart() OffsetSpec { return OffsetSpec{} }

// ToEnd is the log end.
func ToEnd() OffsetSpec { return OffsetSpec{kind: specEnd} }

// ToOffset is an offset.
func ToOffset(offset int64) OffsetSpec { return OffsetSpec{kind: specOffset, n: offset} }

// ToTime is the first record at or after t, or the log end.
func ToTime(t time.Time) OffsetSpec { return OffsetSpec{kind: specTime, t: t} }

// ToShift is so many offsets behind the committed one, or before it if it is negative; without one, behind the log start.
func ToShift(by int64) OffsetSpec { return OffsetSpec{kind: specShift, n: by} }

// Resolve finds the place in a log from start to end, in which a group has committed an offset (-1: none). What lies outside becomes the start or the end. atTime finds the first record at or after a time.
func (s OffsetSpec) Resolve(committed, start, end int64, atTime func(t time.Time) (offset int64, ok bool, err error)) (int64, error) {
	at := start
	switch s.kind {
	case specEnd:
		at = end
	case specOffset:
		at = s.n
	case specShift:
		at = max(committed, start) + s.n
	case specTime:
		offset, ok, err := atTime(s.t)
		if err != nil {
			return 0, err
		}
		if at = end; ok {
			at = offset
		}
	}
	return min(max(at, start), end), nil
}
