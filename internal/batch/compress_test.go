package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

var (
	seed   = flag.Uint64("seed", 1, "first seed of the random tests")
	rounds = flag.Int("rounds", 60, "number of seeds of the random tests")
)

// eachSeed runs f with a source of chance for each seed, and names the seed of a failure.
func eachSeed(t *testing.T, f func(t *testing.T, rng *rand.Rand)) {
	for s := *seed; s < *seed+uint64(*rounds) && !t.Failed(); s++ {
		func() {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d: repeat with -seed %d -rounds 1", s, s)
				}
			}()
			f(t, rand.New(rand.NewPCG(s, 0)))
		}()
	}
}

// What is compressed comes back, whatever codec and level it was: the records byte for byte, and every field of the header
// but codec, length and checksum. Compressors and buffers are used again and again, as a log does.
func TestCompressedComesBack(t *testing.T) {
	levels := map[Codec][]int{None: {0}, Gzip: {-5, 0, 1, 6, 9, 99}, Snappy: {0}, LZ4: {-5, 0, 1, 2, 9, 10, 17}, Zstd: {-131072, -1, 0, 1, 3, 6, 10, 22}}
	var compressors []*Compressor
	for _, c := range codecs {
		for _, level := range levels[c] {
			compressors = append(compressors, NewCompressor(c, level))
		}
	}
	var dst, buf []byte
	eachSeed(t, func(t *testing.T, rng *rand.Rand) {
		b := randomBatch(rng)
		kept := bytes.Clone(b)
		for _, i := range rng.Perm(len(compressors))[:5] {
			c := compressors[i]
			out, err := c.Compress(dst, b)
			if err != nil {
				t.Fatalf("%s %d: %v", c.codec, c.level, err)
			}
			dst = out
			if !bytes.Equal(b, kept) {
				t.Fatalf("%s %d: the source has changed", c.codec, c.level)
			}
			if err := Check(out); err != nil || out.Codec() != c.codec {
				t.Fatalf("%s %d: codec %s, %v", c.codec, c.level, out.Codec(), err)
			}
			plain, err := out.Plain(&buf, len(b)-HeaderSize)
			if err != nil {
				t.Fatalf("%s %d: %v", c.codec, c.level, err)
			}
			if got := reseal(bytes.Clone(plain)); !bytes.Equal(got, b) || plain.Size() != len(plain) {
				t.Fatalf("%s %d: other bytes come back", c.codec, c.level)
			}
			if err := validate(out); err != nil {
				t.Fatalf("%s %d: %v", c.codec, c.level, err)
			}
		}
	})
}

// Levels are Kafka's: 0 is its default, one outside of the range is the nearest in it, and a higher one packs better.
func TestLevels(t *testing.T) {
	b := randomBatch(rand.New(rand.NewPCG(3, 3)))
	for _, c := range []struct {
		codec     Codec
		level, as int
	}{
		{Gzip, 0, 0}, {Gzip, -7, 1}, {Gzip, 10, 9}, {LZ4, 0, 9}, {LZ4, -7, 1}, {LZ4, 17, 99}, {LZ4, 10, 17},
		{Zstd, 0, 3}, {Zstd, -131072, 1}, {Zstd, 22, 99}, {Snappy, 0, 5},
	} {
		if !bytes.Equal(packed(t, NewCompressor(c.codec, c.level), b), packed(t, NewCompressor(c.codec, c.as), b)) {
			t.Errorf("%s: level %d is not %d", c.codec, c.level, c.as)
		}
	}
	for codec, best := range map[Codec]int{Gzip: 9, LZ4: 17, Zstd: 22} {
		if fast, best := len(packed(t, NewCompressor(codec, 1), b)), len(packed(t, NewCompressor(codec, best), b)); best >= fast {
			t.Errorf("%s: the best level gives %d bytes, the fastest %d", codec, best, fast)
		}
	}
}

func TestCompressRefuses(t *testing.T) {
	b := packed(t, NewCompressor(Gzip, 0), sample())
	if _, err := NewCompressor(Zstd, 0).Compress(nil, b); !errors.Is(err, ErrCodec) || !strings.Contains(err.Error(), "gzip already") {
		t.Errorf("a compressed batch: %v", err)
	}
	if _, err := NewCompressor(5, 0).Compress(nil, sample()); !errors.Is(err, ErrCodec) || !strings.Contains(err.Error(), "Codec(5)") {
		t.Errorf("an unknown codec: %v", err)
	}
}

// A batch without records has nothing to compress.
func TestEmptyBatchesStayPlain(t *testing.T) {
	filler := Filler(nil, 10, 20, 3)
	for _, c := range codecs {
		if out := packed(t, NewCompressor(c, 0), filler); !bytes.Equal(out, filler) {
			t.Errorf("%s: got %x", c, out)
		}
		b := bytes.Clone(filler) // as nobody writes it
		Batch(b).setCodec(c)
		var buf []byte
		plain, err := Batch(reseal(b)).Plain(&buf, 0)
		if err != nil || len(plain) != HeaderSize || plain.Codec() != None {
			t.Errorf("%s: %x, %v", c, plain, err)
		}
	}
}

// withRecords is b with other bytes for records, as if they were compressed with c.
func withRecords(b Batch, c Codec, records []byte) Batch {
	out := append(bytes.Clone(b[:HeaderSize]), records...)
	Batch(out).setCodec(c)
	return reseal(out)
}

// Other clients' ways to write what Kafka's client reads too.
func TestReadsWhatOtherClientsWrite(t *testing.T) {
	b := randomBatch(rand.New(rand.NewPCG(3, 3)))
	records := []byte(b[HeaderSize:])
	half := len(records) / 2
	lz4Frame := func(p []byte, options ...lz4.Option) []byte {
		var out bytes.Buffer
		w := lz4.NewWriter(&out)
		if err := errors.Join(w.Apply(options...), writeAll(w, p)); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	gzipMember := func(p []byte) []byte {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		w.Name, w.Comment = "name", "comment"
		if err := writeAll(w, p); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	zstdFrame := func(p []byte, options ...zstd.EOption) []byte {
		var out bytes.Buffer
		w, err := zstd.NewWriter(&out, append(options, zstd.WithEncoderConcurrency(1))...)
		if err != nil {
			t.Fatal(err)
		}
		if err := writeAll(w, p); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	xerial := func(size int) []byte {
		out := []byte(xerialMagic + "\x00\x00\x00\x01\x00\x00\x00\x01")
		for p := records; len(p) > 0; p = p[min(size, len(p)):] {
			block := s2.EncodeSnappy(nil, p[:min(size, len(p))])
			out = append(binary.BigEndian.AppendUint32(out, uint32(len(block))), block...)
		}
		return out
	}
	for _, c := range []struct {
		name    string
		codec   Codec
		records []byte
	}{
		{"lz4 of large blocks with all checksums", LZ4, lz4Frame(records, lz4.BlockChecksumOption(true), lz4.SizeOption(uint64(len(records))))},
		{"lz4 of two frames", LZ4, append(lz4Frame(records[:half]), lz4Frame(records[half:])...)},
		{"gzip of two members", Gzip, append(gzipMember(records[:half]), gzipMember(records[half:])...)},
		{"zstd as a stream", Zstd, zstdFrame(records)},
		{"zstd in a small window", Zstd, zstdFrame(records, zstd.WithWindowSize(1<<10))},
		{"zstd of two frames", Zstd, append(zstdFrame(records[:half]), zstdFrame(records[half:])...)},
		{"snappy without a frame", Snappy, s2.EncodeSnappy(nil, records)},
		{"snappy in small blocks", Snappy, xerial(1000)},
		{"snappy in one block", Snappy, xerial(len(records))},
	} {
		for _, spare := range []int{0, 1, 1 << 20} {
			var buf []byte
			plain, err := withRecords(b, c.codec, c.records).Plain(&buf, len(records)+spare)
			if err != nil || !bytes.Equal(plain[HeaderSize:], records) {
				t.Errorf("%s, room for %d bytes more: %v", c.name, spare, err)
			}
		}
		var buf []byte
		if _, err := withRecords(b, c.codec, c.records).Plain(&buf, len(records)-1); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s, room for a byte less: %v", c.name, err)
		}
	}
}

func writeAll(w interface {
	Write([]byte) (int, error)
	Close() error
}, p []byte) error {
	_, err := w.Write(p)
	return errors.Join(err, w.Close())
}

// F9: a limit is exact, for each codec.
func TestPlainLimit(t *testing.T) {
	for _, size := range []int{100, 5000, 64 << 10, 1<<20 + 7} {
		b := build(NoProducer(), rec{5, nil, bytes.Repeat([]byte("runnel "), size)[:size], nil})
		records := len(b) - HeaderSize
		for _, c := range codecs[1:] {
			out := packed(t, NewCompressor(c, 0), b)
			var buf []byte
			for _, limit := range []int{-1, 0, 1, records / 2, records - 1, records, records + 1, math.MaxInt} {
				plain, err := out.Plain(&buf, limit)
				switch {
				case limit >= records && (err != nil || len(plain) != len(b)):
					t.Errorf("%s of %d bytes, limit %d: %d bytes, %v", c, records, limit, len(plain), err)
				case limit < records && !errors.Is(err, ErrTooLarge):
					t.Errorf("%s of %d bytes, limit %d: %v", c, records, limit, err)
				}
			}
			buf = nil
			if _, err := Validate(out, &buf, records-1); !errors.Is(err, ErrTooLarge) {
				t.Errorf("%s: Validate with a limit that is too small: %v", c, err)
			}
			if plain, err := Validate(out, &buf, records); err != nil || len(plain) != len(b) {
				t.Errorf("%s: Validate with the right limit: %v", c, err)
			}
		}
	}
}

// F16: compressed bytes that are cut, or have a changed bit, give an error that can be told or records that parse; never
// a panic, and never an error of another kind.
func TestDamagedCompression(t *testing.T) {
	recs := []rec{{1000, []byte("key"), bytes.Repeat([]byte("value "), 30), nil}, {1001, nil, []byte("another"), nil}}
	b := build(NoProducer(), recs...)
	for _, c := range codecs[1:] {
		out := packed(t, NewCompressor(c, 0), b)
		var buf []byte
		for n := HeaderSize; n < len(out); n++ {
			if err := readPacked(withRecords(out, c, out[HeaderSize:n]), &buf); err == nil {
				t.Errorf("%s: nobody notices that %d bytes of %d are left", c, n, len(out))
			}
		}
		noticed := 0
		for bit := HeaderSize * 8; bit < len(out)*8; bit++ {
			damaged := bytes.Clone(out)
			damaged[bit/8] ^= 1 << (bit % 8)
			err := readPacked(damaged, &buf)
			if err == nil {
				continue
			}
			noticed++
			if !errors.Is(err, ErrCodec) && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrRecord) {
				t.Errorf("%s: bit %d of byte %d gives %v", c, bit%8, bit/8, err)
			}
		}
		if noticed == 0 {
			t.Errorf("%s: no changed bit is noticed", c)
		}
	}
	for _, c := range []struct {
		name    string
		codec   Codec
		records string
	}{
		{"no gzip", Gzip, "not compressed"},
		{"no lz4", LZ4, "not compressed"},
		{"an lz4 frame of the old kind", LZ4, "\x02\x21\x4c\x18\x01\x00\x00\x00\x00"},
		{"an lz4 header checksum", LZ4, "\x04\x22\x4d\x18\x60\x40\x00\x00\x00\x00\x00"},
		{"no zstd", Zstd, "not compressed"},
		{"a zstd dictionary", Zstd, "\x28\xb5\x2f\xfd\x21\x07\x01\x09\x00\x00A"},
		{"no snappy", Snappy, "\xff\xff\xff\xff\xff\xff\xff"},
		{"half a xerial header", Snappy, xerialMagic + "\x00\x00\x00\x01"},
		{"half a xerial length", Snappy, xerialMagic + "\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00"},
		{"a negative xerial length", Snappy, xerialMagic + "\x00\x00\x00\x01\x00\x00\x00\x01\xff\xff\xff\xff"},
		{"a xerial length too great", Snappy, xerialMagic + "\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x09AAAA"},
		{"a repeated copy, which only s2 has", Snappy, "\x0c\x0cABCD\x01\x04\x01\x00"},
		{"codec 5", 5, "x"},
		{"codec 7", 7, "x"},
	} {
		var buf []byte
		_, err := withRecords(b, c.codec, []byte(c.records)).Plain(&buf, 1<<20)
		if !errors.Is(err, ErrCodec) || !strings.Contains(err.Error(), c.codec.String()) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// F9: an lz4 block that copies from before its frame does not get at what the decoder has met in another batch.
func TestBatchesDoNotSeeEachOther(t *testing.T) {
	frame := func(block string) (packed Batch, err error) {
		for sum := range 256 { // the header's checksum, of dependent blocks of 64 KiB
			records := lz4Magic + "\x40\x40" + string([]byte{byte(sum)}) + block + "\x00\x00\x00\x00"
			packed = withRecords(sample(), LZ4, []byte(records))
			var buf []byte
			if _, err = packed.Plain(&buf, 1<<20); err == nil || !strings.Contains(err.Error(), "header checksum") {
				return packed, err
			}
		}
		return nil, err
	}
	if _, err := frame("\x06\x00\x00\x80secret"); err != nil {
		t.Fatal(err)
	}
	// No literal, and 4 bytes from 6 back; then 5 literals.
	if packed, err := frame("\x09\x00\x00\x00\x00\x06\x00\x50AAAAA"); !errors.Is(err, ErrCodec) || strings.Contains(err.Error(), "header checksum") {
		t.Errorf("%q: %v", packed[HeaderSize:], err)
	}
}

// readPacked reads all of b as a consumer does.
func readPacked(b Batch, buf *[]byte) error {
	plain, err := b.Plain(buf, 1<<20)
	if err != nil {
		return err
	}
	_, err = read(plain, (*Iter).Next)
	return err
}

// What a client sends compressed is checked as what it sends plain.
func TestValidateLooksIntoCompressedBatches(t *testing.T) {
	gap := sample()
	copy(gap[61+3:], []byte{2}) // the first record's offset delta is 1, the second's too
	dense := build(NoProducer(), rec{ts: 5}, rec{ts: 6}, rec{ts: 7})
	late := bytes.Clone(dense)
	binary.BigEndian.PutUint64(late[posMaxTimestamp:], 8)
	behind := append(bytes.Clone(dense), 0)
	for _, c := range codecs {
		compressor := NewCompressor(c, 0)
		for _, v := range []struct {
			name string
			b    Batch
			want error
		}{
			{"good", dense, nil},
			{"offsets", gap, ErrRecord},
			{"max timestamp", late, ErrTimestamp},
			{"bytes after the last record", behind, ErrRecord},
			{"control", Marker{}.Seal(nil, 1, 1, 5), ErrHeader},
			{"filler", Filler(nil, 5, 6, 0), ErrHeader},
		} {
			b := packed(t, compressor, reseal(v.b))
			if err := validate(b); !errors.Is(err, v.want) {
				t.Errorf("%s, %s: %v", c, v.name, err)
			}
		}
	}
	it := packed(t, NewCompressor(LZ4, 0), dense).Iter()
	if it.Next(new(Record)) || !errors.Is(it.Err(), ErrCodec) {
		t.Errorf("Iter over compressed records: %v", it.Err())
	}
}

// Buffers that are large enough are used, and nothing is allocated.
func TestPlainUsesTheBuffer(t *testing.T) {
	b := timingBatch(nil)
	for _, c := range codecs[1:] {
		out := packed(t, NewCompressor(c, 0), b)
		buf := make([]byte, 0, 2*len(b))
		plain, err := out.Plain(&buf, len(b))
		if err != nil || &plain[0] != &buf[:1][0] {
			t.Errorf("%s: the buffer is not used (%v)", c, err)
		}
		var empty []byte
		first, err := out.Plain(&empty, len(b))
		again, err2 := out.Plain(&empty, len(b))
		if err != nil || err2 != nil || &first[0] != &again[0] {
			t.Errorf("%s: what was grown is not used again (%v, %v)", c, err, err2)
		}
		compressor := NewCompressor(c, 0)
		dst := make([]byte, 0, 2*len(b))
		if packed, err := compressor.Compress(dst, b); err != nil || &packed[0] != &dst[:1][0] {
			t.Errorf("%s: the memory for the result is not used (%v)", c, err)
		}
	}
	plain, err := b.Plain(nil, 0)
	if err != nil || &plain[0] != &b[0] {
		t.Errorf("a batch that is not compressed is not returned as it is (%v)", err)
	}
}

// Frames are those that Java writes: block sizes, flags, and no more checksums than it has.
func TestFramesAreThoseOfJava(t *testing.T) {
	var buf []byte
	for c, shape := range map[Codec]func([]byte) string{LZ4: lz4Shape, Snappy: xerialShape} {
		theirs, _ := javaVector(t, "large-"+c.String())
		plain, err := theirs.Plain(&buf, maxRecords)
		if err != nil {
			t.Fatal(err)
		}
		ours := packed(t, NewCompressor(c, 0), plain)
		if got, want := shape(ours[HeaderSize:]), shape(theirs[HeaderSize:]); got != want {
			t.Errorf("%s: got\n%swant\n%s", c, got, want)
		}
	}
}

// lz4Shape tells a frame's header, the number of its blocks and what follows the last one.
func lz4Shape(p []byte) string {
	const header = 7
	blocks, at := 0, header
	for size := binary.LittleEndian.Uint32(p[at:]); size != 0; size = binary.LittleEndian.Uint32(p[at:]) {
		at += 4 + int(size&^(1<<31))
		blocks++
	}
	return fmt.Sprintf("%x, %d blocks, %x\n", p[:header], blocks, p[at:])
}

// xerialShape tells the header and how much is in each block.
func xerialShape(p []byte) string {
	s := fmt.Sprintf("%x", p[:xerialSize])
	for p = p[xerialSize:]; len(p) > 0; {
		size := 4 + int(binary.BigEndian.Uint32(p))
		n, err := s2.DecodedLen(p[4:size])
		s += fmt.Sprintf(" %d, %v", n, err)
		p = p[size:]
	}
	return s + "\n"
}
