package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
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
			plain, err := new(Decompressor).Plain(out, &buf, len(b)-HeaderSize)
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
		plain, err := new(Decompressor).Plain(Batch(reseal(b)), &buf, 0)
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
			plain, err := new(Decompressor).Plain(withRecords(b, c.codec, c.records), &buf, len(records)+spare)
			if err != nil || !bytes.Equal(plain[HeaderSize:], records) {
				t.Errorf("%s, room for %d bytes more: %v", c.name, spare, err)
			}
		}
		var buf []byte
		if _, err := new(Decompressor).Plain(withRecords(b, c.codec, c.records), &buf, len(records)-1); !errors.Is(err, ErrTooLarge) {
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
		plain, err := new(Decompressor).Plain(out, &buf, len(b))
		if err != nil || &plain[0] != &buf[:1][0] {
			t.Errorf("%s: the buffer is not used (%v)", c, err)
		}
		var empty []byte
		first, err := new(Decompressor).Plain(out, &empty, len(b))
		again, err2 := new(Decompressor).Plain(out, &empty, len(b))
		if err != nil || err2 != nil || &first[0] != &again[0] {
			t.Errorf("%s: what was grown is not used again (%v, %v)", c, err, err2)
		}
		compressor := NewCompressor(c, 0)
		dst := make([]byte, 0, 2*len(b))
		if packed, err := compressor.Compress(dst, b); err != nil || &packed[0] != &dst[:1][0] {
			t.Errorf("%s: the memory for the result is not used (%v)", c, err)
		}
	}
	plain, err := new(Decompressor).Plain(b, nil, 0)
	if err != nil || &plain[0] != &b[0] {
		t.Errorf("a batch that is not compressed is not returned as it is (%v)", err)
	}
}

// Frames are those that Java writes: block sizes, flags, and no more checksums than it has.
func TestFramesAreThoseOfJava(t *testing.T) {
	var buf []byte
	for c, shape := range map[Codec]func([]byte) string{LZ4: lz4Shape, Snappy: xerialShape} {
		theirs, _ := javaVector(t, "large-"+c.String())
		plain, err := new(Decompressor).Plain(theirs, &buf, maxRecords)
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
