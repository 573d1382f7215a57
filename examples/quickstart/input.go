package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"
)

// maxLine is the length of the longest line. With its key and headers it still fits into a batch, which holds 1 MiB unless configured.
const maxLine = 1_000_000

// input reads the lines of files, one file after the other, or of standard input.
type input struct {
	again  bool          // it can be read again: files
	files  []string      // not opened yet
	r      *bufio.Reader // holds one line at least
	name   string        // of what is being read, "" between files
	f      *os.File      // nil for standard input
	line   int           // of the last line in its file
	number int64         // of the last line in the whole input
	sum    uint64        // checksum of the whole input up to there
}

// newInput returns the lines of files; if there are none, those of stdin.
func newInput(files []string, stdin io.Reader) *input {
	in := &input{again: len(files) > 0, files: files, r: bufio.NewReaderSize(stdin, maxLine+1)}
	if len(files) == 0 {
		in.name = "standard input"
	}
	return in
}

// next returns the next line, without its line break and valid until the next call, or io.EOF after the last one. A last line without a line
// break is a line.
func (in *input) next() ([]byte, error) {
	for {
		if in.name == "" {
			if err := in.open(); err != nil {
				return nil, err
			}
		}
		text, err := in.r.ReadSlice('\n')
		switch {
		case err == io.EOF && len(text) == 0:
			in.close()
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("%s:%d: the line is longer than %d bytes, and a record cannot be", in.name, in.line+1, maxLine)
		case err != nil && err != io.EOF:
			return nil, fmt.Errorf("%s:%d: %w", in.name, in.line+1, err)
		}
		text = bytes.TrimSuffix(text, []byte("\n"))
		in.line++
		in.number++
		in.sum = crc64.Update(in.sum, table, text)
		in.sum = crc64.Update(in.sum, table, []byte("\n"))
		return text, nil
	}
}

var table = crc64.MakeTable(crc64.ECMA)

// open opens the next file.
func (in *input) open() error {
	if len(in.files) == 0 {
		return io.EOF
	}
	name := in.files[0]
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return errors.Join(err, fmt.Errorf("%s is not a file that can be read again: give it on standard input", name))
	}
	in.files, in.name, in.f, in.line = in.files[1:], name, f, 0
	in.r.Reset(f)
	return nil
}

// close ends what is being read.
func (in *input) close() {
	if in.f != nil {
		in.f.Close()
	}
	in.name, in.f = "", nil
}

// ready reports whether the next line is in the buffer, so that next does not wait for it.
func (in *input) ready() bool {
	b, _ := in.r.Peek(in.r.Buffered())
	return bytes.IndexByte(b, '\n') >= 0
}
