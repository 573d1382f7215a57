package batch

import "errors"

// What can be wrong with bytes. Every error of this package matches exactly one of these and adds the facts.
var (
	// ErrShort: there are fewer bytes than a batch, or than Peek, needs.
	ErrShort = errors.New("batch is too short")
	// ErrMagic: the bytes are not of format version 2.
	ErrMagic = errors.New("batch has an unknown magic")
	// ErrLength: the length field is impossible or is not the length of the bytes.
	ErrLength = errors.New("batch has a wrong length")
	// ErrCRC: the checksum does not match.
	ErrCRC = errors.New("batch has a wrong checksum")
	// ErrHeader: a field of the header has a value that it must not have.
	ErrHeader = errors.New("batch has a bad header")
	// ErrRecord: a record does not parse, or is not where it must be.
	ErrRecord = errors.New("batch has a bad record")
	// ErrTimestamp: the timestamps of the records and of the header do not agree, or are not the client's.
	ErrTimestamp = errors.New("batch has bad timestamps")
	// ErrCodec: the records are compressed where plain ones are needed, or with an unknown codec, or cannot be
	// decompressed.
	ErrCodec = errors.New("batch has a wrong compression")
	// ErrTooLarge: the records, decompressed or written anew, take more space than they may.
	ErrTooLarge = errors.New("batch is too large")
)
